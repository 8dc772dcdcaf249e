"""Faults in what messages hold, and in what becomes of what the EPP released. Each is the right gateway otherwise."""
# fmt: off

from __future__ import annotations

import dataclasses
from typing import Any

from reference_gateway.changes import (
    changed,
    hearing,
    mutations,
    receiving,
    responding,
    sending,
    taking,
    tampering,
    telling,
)
from reference_gateway.epp_client import DESTINATION, Answered, Decision, Talk
from reference_gateway.fault import fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import Gateway

LIMIT = 64
"""Bytes of a body that is cut."""

# -- what the EPP is told


async def _cut_for_the_epp(up: Any, _: Any, request: GatewayRequest) -> Decision:
    decision: Decision = await up(dataclasses.replace(request, body=request.body[:LIMIT]))
    decision.body = request.body
    return decision


def _twice(message: Any) -> Any:
    return (message, message) if message.request_body.body and not message.request_body.end_of_stream else None


def _withheld(message: Any) -> None:
    for part in (message.request_headers, message.response_headers):
        kept = [one for one in part.headers.headers if not one.key.startswith(":")]
        if len(kept) < len(part.headers.headers):
            del part.headers.headers[:]
            part.headers.headers.extend(kept)


def _response_told(**told: Any) -> type[Talk]:
    """Tells the EPP of responses with these fields, and gives the client those of the response."""
    async def act(up: Any, _: Any, response: GatewayResponse, *given: Any) -> GatewayResponse:
        own = {name: getattr(response, name) for name in told}
        taken: GatewayResponse = await up(dataclasses.replace(response, **told), *given)
        return dataclasses.replace(taken, **own)

    return changed(Talk, tell=act)


fault("path-told-wrongly", "DP-EXTP-01",
      "the EPP is told the prefix of the route in place of the request's path", telling(lambda _: {"path": "/v1"}))
fault("query-not-told", "DP-EXTP-01",
      "the EPP is told the path without its query", telling(lambda request: {"path": request.path.partition("?")[0]}))
fault("status-told-wrongly", "DP-EXTP-01",
      "the EPP is told that each response has status 200", _response_told(status=200))
fault("streams-left-open", "DP-EXTP-01",
      "the stream to the EPP is not ended when the request is over",
      changed(Talk, close=lambda *_: None), effect="warn")
fault("body-cut-for-the-epp", "DP-EXTP-01",
      "the EPP gets the beginning of the request body, and an end of stream", changed(Talk, ask=_cut_for_the_epp))
fault("body-held-back", "DP-EXTP-01",
      "in full duplex the EPP gets the body when it has answered the headers, which it may never do",
      changed(Talk, patience=0.6, in_step=True))
fault("chunks-sent-twice", "DP-EXTP-01",
      "pieces of the request body are sent to the EPP twice", tampering(_twice))
fault("response-ends-with-its-headers", "DP-EXTP-01",
      "the EPP is told that the response has no body, which it does not get", _response_told(body=b"", trailers=()))
fault("pseudo-headers-withheld", "DP-EXTP-01",
      "the EPP gets headers without :method, :path and :status", tampering(_withheld), effect="warn")

# -- what becomes of its answers


async def _heard_but_the_body(up: Any, _: Any, side: str, part: str) -> None:
    try:
        await up(side, part)
    except Answered:
        if part != "body":
            raise


async def _changes_lost(_: Any, gateway: Any, pool: Any, talk: Any, request: GatewayRequest, **__: Any) -> Any:
    return await gateway.forward(request, gateway.walk(await talk.ask(request), pool), [])


def _removals_lost(answer: Any) -> None:
    for mutation in mutations(answer):
        del mutation.remove_headers[:]


def _settings_lost(answer: Any) -> None:
    for mutation in mutations(answer):
        kept = [one for one in mutation.set_headers if one.header.key == DESTINATION]
        del mutation.set_headers[:]
        mutation.set_headers.extend(kept)


fault("response-changes-lost", "DP-EXTP-01",
      "the client gets the model server's own response, whatever the EPP made of it",
      taking(lambda _, response, __: response),
      also={"DP-ERR-01": "what the EPP answers in place of the response is lost as well"})
fault("late-refusals-lost", "DP-ERR-01",
      "an ImmediateResponse that answers the body is ignored, and the request goes on",
      changed(Talk, _heard=_heard_but_the_body), settings={"mode": "BUFFERED"})
fault("released-body-cut", "DP-EXTP-01",
      "the model server gets the beginning of the body that the EPP released",
      sending(lambda request: {"body": request.body[:LIMIT]}))
fault("changes-lost", "DP-EXTP-01",
      "the model server gets the client's own body, whatever the EPP made of it",
      changed(Gateway, through=_changes_lost))
fault("removed-headers-stay", "DP-EXTP-01",
      "headers that the EPP removes go on all the same", hearing(_removals_lost), effect="warn")
fault("set-headers-lost", "DP-EXTP-01",
      "of the headers that the EPP sets only the destination is taken over", hearing(_settings_lost), effect="warn")

# -- what becomes of requests and responses


def _on_status(found: int, **instead: Any) -> Any:
    """Replaces the fields of a response that has this status."""
    return lambda one, _: dataclasses.replace(one, **instead) if one.status == found else one


def _joined(got: Any, _: Any) -> Any:
    joined: dict[bytes, bytes] = {}
    for name, value in got.headers:
        joined[name] = b", ".join((joined[name], value)) if name in joined else value
    return dataclasses.replace(got, headers=tuple(joined.items()))


fault("response-body-lost", "DP-EXTP-01",
      "the client gets the headers of the response, and no body", responding(_on_status(200, body=b"")))
fault("error-of-a-model-server-as-502", "DP-EXTP-01",
      "the client gets 502 where the model server answered 500, and so does the EPP",
      receiving(_on_status(500, status=502)))
fault("error-of-a-model-server-as-204", "DP-EXTP-01",
      "the client gets an empty 204 where the model server answered 500, and so does the EPP",
      receiving(_on_status(500, status=204, pieces=())))
fault("cut-response-as-whole", "DP-EXTP-01",
      "a response whose connection ended in the midst of it goes to the client as if that were all",
      changed(Gateway, is_whole=lambda _, __, got: got.status is not None))
fault("response-trailers-lost", "DP-EXTP-01",
      "trailers of a response reach the EPP, and no client",
      responding(lambda response, _: dataclasses.replace(response, trailers=())), effect="warn")
fault("cookies-put-together", "DP-EXTP-01",
      "headers of the response that have several lines get one, those of set-cookie as well",
      receiving(_joined), effect="warn")
fault("last-line-only", "DP-EXTP-01",
      "of a header of the request in several lines the model server gets the last",
      sending(lambda request: {"headers": tuple(dict(request.headers).items())}), effect="warn")
fault("no-content-as-200", "DP-EXTP-01",
      "the client gets 200 where the model server answered 204", responding(_on_status(204, status=200)))
