"""Faults in what becomes of long bodies, and of what the EPP changes. Each is the right gateway otherwise."""
# fmt: off

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

from ext_proc.messages import HttpBody, HttpStatus, ImmediateResponse, ProcessingResponse
from ext_proc.record import header
from reference_gateway.changes import changed, fields, hearing, mutations, sending, taking, telling
from reference_gateway.epp_client import Answered, Decision, EppUnavailable, Talk
from reference_gateway.fault import fault
from reference_gateway.faults.relay import ClientKept
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import Gateway

BUFFER = 32 * 1024
"""Bytes of a request's body for which there is room."""


def _no_room(up: Any, _: Any, kind: str, part: Any) -> None:
    if kind == "request_body" and isinstance(part, HttpBody) and len(part.body) > BUFFER:
        raise Answered(ImmediateResponse(status=HttpStatus(code=413), body=b"too long"))
    up(kind, part)


class AddingTalk(Talk):
    """What the EPP sets is added to what is there."""

    unsaid_only = False

    async def _heard(self, side: str, part: str) -> None:
        before = self._decision.headers
        await super()._heard(side, part)
        kept = tuple(pair for pair in before if pair[0] in self._set)
        self._decision.headers = kept + self._decision.headers

    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        options = [] if answer is None else [one for mutation in mutations(answer) for one in mutation.set_headers]
        said = [one for one in options if not (self.unsaid_only and one.append_action)]
        self._set = {one.header.key.lower().encode() for one in said}
        return answer


ADDING_UNSAID = changed(AddingTalk, unsaid_only=True)


def _choking(name: str) -> type[Talk]:
    """Fails where the EPP sets a header whose name begins so."""
    def change(answer: Any) -> None:
        names = [one.header.key.lower() for mutation in mutations(answer) for one in mutation.set_headers]
        if any(one.startswith(name) for one in names):
            raise EppUnavailable(f"{name} is set")

    return hearing(change)


async def _old_length(up: Any, _: Any, request: GatewayRequest) -> Decision:
    decision: Decision = await up(request)
    if header(request.headers, b"content-length") is not None:
        decision.body = decision.body[: len(request.body)]
    return decision


async def _retries_the_clients(_: Any, gateway: Any, pool: Any, talk: Any, request: GatewayRequest, **__: Any) -> Any:
    made = await talk.ask(request)
    released = dataclasses.replace(request, headers=made.headers, body=made.body, trailers=made.trailers)
    endpoints, tried = gateway.walk(made, pool), list[str]()
    first = await gateway.forward(released, itertools.islice(endpoints, 1), tried)
    return await gateway.forward(request, endpoints, tried) if first.failed else first


def _through_floats(body: bytes) -> bytes:
    try:
        return json.dumps(json.loads(body, parse_int=lambda digits: int(float(digits)))).encode()
    except ValueError:
        return body


def _known(body: bytes) -> bytes:
    try:
        value = json.loads(body)
    except ValueError:
        return body
    if not isinstance(value, dict):
        return body
    return json.dumps({name: one for name, one in value.items() if not name.startswith("x_")}).encode()


fault("tells-its-own-name", "DP-EXTP-01",
      "the EPP is told the name of the pool in place of the authority, with which the request goes on",
      telling(lambda _: {"authority": "pool.internal"}), effect="warn")
fault("puts-are-posts", "DP-EXTP-01",
      "a request with PUT is one with POST for the EPP and the model server",
      changed(Gateway, handle=lambda up, _, request: up(fields(
          lambda one: {"method": "POST" if one.method == "PUT" else one.method})(request))))
fault("numbers-through-floats", "DP-EXTP-01",
      "a body in JSON is written again, with each whole number rounded to a floating-point one",
      sending(lambda request: {"body": _through_floats(request.body)}))
fault("known-members-only", "DP-EXTP-01",
      "of a body in JSON the members that the gateway does not know are lost",
      sending(lambda request: {"body": _known(request.body)}))
fault("small-buffer", "DP-EXTP-01",
      "a body of more than 32 KiB gets 413 when the EPP has answered the headers",
      changed(Talk, _send=_no_room), settings={"mode": "BUFFERED"})
fault("adds-what-the-epp-sets", "DP-EXTP-01",
      "headers that the EPP sets are added to those of the same name", AddingTalk, effect="warn")
fault("takes-unsaid-for-append", "DP-EXTP-01",
      "headers are added where the EPP does not say whether to overwrite, as most do not",
      ADDING_UNSAID, effect="warn")
fault("appends-the-destination", "DP-DEST-01",
      "where the EPP says so little its destination comes after the client's, and the first is read",
      ADDING_UNSAID, changed(ClientKept, walk=lambda up, _, decision, pool: up(
          dataclasses.replace(decision, headers=decision.headers[::-1], metadata={}), pool)),
      also={"DP-DEST-04": "the client's is read where the EPP gives none, too",
            "DP-EXTP-01": "other headers are added to the client's as well"}, claims={"follows": "header"})
fault("chokes-on-pseudo-headers", "DP-DEST-01",
      "a request whose EPP sets :path, if only to what it is, gets 500", _choking(":"))
fault("keeps-the-old-length", "DP-EXTP-01",
      "a request goes on with the content-length that it came with, however long the EPP made its body",
      changed(Talk, ask=_old_length))
fault("keeps-the-old-length-of-a-collected-body", "DP-EXTP-01",
      "the same where the body is collected, and the EPP sets the length that it gives it",
      changed(Talk, ask=_old_length), settings={"mode": "BUFFERED"})
fault("keeps-the-old-length-of-responses", "DP-EXTP-01",
      "a response goes on with the content-length that it came with, however long the EPP made its body",
      taking(lambda told, response, _: dataclasses.replace(told, body=told.body[: len(response.body)])))
fault("chokes-on-a-length", "DP-DEST-01",
      "a request whose EPP sets content-length gets 500, as then there are two", _choking("content-length"))
fault("retries-the-clients-own-request", "DP-EXTP-01",
      "a retry is sent what the client sent, and not what the EPP made of it",
      changed(Gateway, through=_retries_the_clients))
fault("error-pages-for-model-servers", "DP-EXTP-01",
      "a page takes the place of what a model server says with an error, and what the EPP has let go",
      taking(lambda told, response, endpoint: dataclasses.replace(told, body=b"<h1>Something went wrong</h1>")
             if endpoint is not None and response.status >= 400 else told))
