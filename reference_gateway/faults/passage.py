"""Faults by which requests and responses are lost, cut, doubled or mixed up on their way. Each is the right gateway
otherwise."""
# fmt: off

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from ext_proc.messages import CommonResponse
from ext_proc.record import header
from real_envoy.http_response import HttpResponse
from reference_gateway.changes import changed, hearing, receiving, responding, sending, taking
from reference_gateway.epp_client import Answered, EppUnavailable, Talk
from reference_gateway.fault import fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import Gateway

BUFFER = 64 * 1024
"""Bytes of a response for which there is room."""

# -- requests


def _announced(up: Any, _: Any, request: GatewayRequest) -> Any:
    known = request.http == 2 or header(request.headers, b"content-length") is not None
    return up(request if known else dataclasses.replace(request, body=b"", trailers=()))


async def _twice(up: Any, _: Any, endpoint: str, request: GatewayRequest) -> Any:
    got = await up(endpoint, request)
    if got is not None and got.status == 200:
        await up(endpoint, request)
    return got


async def _before_the_epp(up: Any, gateway: Any, pool: Any, talk: Any, request: GatewayRequest, *, before: Any) -> Any:
    await gateway.forward(request, gateway.unsteered(pool), [])
    return await up(pool, talk, request, before=before)


fault("failover-loses-the-body", "DP-EXTP-01",
      "a request that moves on to the second pool comes there without its body",
      changed(Gateway, through=lambda up, _, pool, talk, request, before: up(
          pool, talk, request if before is None else dataclasses.replace(request, body=b""), before=before)),
      version="next", pools=2)
fault("query-lost", "DP-EXTP-01",
      "the model server is asked for the path without its query",
      sending(lambda request: {"path": request.path.partition("?")[0]}))
fault("chunked-body-taken-for-none", "DP-EXTP-01",
      "a body of HTTP/1.1 whose length is not told is taken for none", changed(Gateway, admit=_announced))
fault("sent-twice", "DP-DEST-01",
      "a request that was served is sent to its model server once more", changed(Gateway, attempt=_twice),
      also={"DP-DEST-02": "so it is where the endpoint is the first of a list"})
fault("model-server-first", "DP-DEST-01",
      "a model server gets the request before the EPP is asked about it", changed(Gateway, through=_before_the_epp),
      also={"DP-ERR-01": "so it is with requests that the EPP refuses",
            "DP-FAIL-01": "and with those about which no EPP can be asked"})

# -- responses


async def _waits_for_head(up: Any, _: Any, endpoint: str, request: GatewayRequest) -> Any:
    got = await up(endpoint, request)
    if request.method == "HEAD":
        await asyncio.Event().wait()
    return got


def _type(response: Any) -> bytes:
    return header(response.headers, b"content-type") or b""


def _too_long(response: GatewayResponse, _: Any) -> GatewayResponse:
    if len(response.body) <= BUFFER:
        return response
    return GatewayResponse(status=502, headers=((b"content-type", b"text/plain"),), body=b"response too large")


def _no_text(got: HttpResponse, _: Any) -> HttpResponse:
    if got.status != 200 or not _type(got).startswith(b"text/plain"):
        return got
    return dataclasses.replace(got, status=502, pieces=(b"a response that is not JSON",), trailers=())


@fault("responses-mix-up", "DP-EXTP-01",
       "bodies are not sent to the EPP, and of several requests at a time one gets the response of another",
       settings={"mode": "NONE"})
class ResponsesMixUp(Gateway):
    _last: HttpResponse | None

    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        self._last = await super().attempt(endpoint, request)
        await asyncio.sleep(0.02)  # meanwhile others get theirs
        return self._last


@fault("epp-that-is-done-as-500", "DP-EXTP-01",
       "the client gets 500 in place of the response if the EPP closed its stream after the request")
class NeedingTalk(Talk):
    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        ended = self._stream.ended if self._stream is not None else None
        left = ended is not None and ended.how == "status" and ended.status == 0
        return GatewayResponse(status=500, body=b"the endpoint picker left") if left else told


fault("head-never-answered", "DP-EXTP-01",
      "the response to HEAD is held back until its body comes, which it does not have",
      changed(Gateway, attempt=_waits_for_head))
fault("streams-cut", "DP-EXTP-01",
      "a stream of events, which the EPP got whole, ends in its midst for the client",
      responding(lambda response, _: dataclasses.replace(
          response, cut=_type(response).startswith(b"text/event-stream"))))
fault("long-response-as-502", "DP-EXTP-01",
      "a response of more than 64 KiB, which the EPP got whole, becomes 502 for the client", responding(_too_long))
fault("text-as-502", "DP-EXTP-01",
      "a response of type text/plain becomes 502, for the EPP and for the client", receiving(_no_text))

# -- refusals that come late


class OnItsWayTalk(Talk):
    """A request is on its way once the EPP has named its endpoint, and what the EPP refuses of its body goes on."""

    async def _heard(self, side: str, part: str) -> None:
        try:
            await super()._heard(side, part)
        except Answered:
            if side != "request" or not self._decision.destinations():
                raise

    async def _streamed(self, side: str, *, trailers: bool) -> None:
        try:
            await super()._streamed(side, trailers=trailers)
        except Answered:
            if side != "request":
                raise


fault("refused-responses-pass", "DP-ERR-01",
      "the client gets the response of the model server although the EPP refuses it",
      taking(lambda told, response, _: told if told.status == response.status else response))
fault("refused-after-a-pick", "DP-ERR-01",
      "in full duplex a request whose end the EPP refuses, having named an endpoint, is served by that", OnItsWayTalk)
fault("refused-after-a-pick-piece-by-piece", "DP-ERR-01",
      "the same where the EPP answers the body piece by piece", OnItsWayTalk, settings={"mode": "STREAMED"})


@fault("refused-after-a-pick-without-its-body", "DP-ERR-01",
       "where the EPP refuses after it has named an endpoint, the client gets the status, and not the EPP's words")
class LateBodyLostTalk(Talk):
    async def _receive(self) -> Any:
        try:
            return await super()._receive()
        except Answered as answer:
            if self._decision.destinations():
                answer.response.ClearField("body")
            raise


# -- bodies that the EPP changes


def _going_on(side: str) -> type[Talk]:
    """Takes CONTINUE_AND_REPLACE for CONTINUE."""
    def change(answer: Any) -> None:
        kind = f"{side}_headers"
        if answer.WhichOneof("response") == kind:
            getattr(answer, kind).response.status = CommonResponse.CONTINUE

    return hearing(change)


def _never_cleared(answer: Any) -> None:
    if answer.HasField("request_body"):
        answer.request_body.response.body_mutation.ClearField("clear_body")


class EndingTalk(Talk):
    """What an EPP that fails has given back of a body is taken for all of it: nothing."""

    side = "request"

    async def _streamed(self, side: str, *, trailers: bool) -> None:
        try:
            await super()._streamed(side, trailers=trailers)
        except EppUnavailable:
            if side != self.side:
                raise
            self._decision.body = b""


fault("replaced-body-lost", "DP-EXTP-01",
      "CONTINUE_AND_REPLACE is taken for CONTINUE, so that the client's own body goes on",
      _going_on("request"), settings={"mode": "STREAMED"})
fault("replaced-response-lost", "DP-EXTP-01",
      "CONTINUE_AND_REPLACE of a response is taken for CONTINUE: the client gets the model server's body",
      _going_on("response"), settings={"mode": "BUFFERED"})
fault("cleared-body-goes-on", "DP-EXTP-01",
      "the EPP clears the body, which was collected for it, and the model server gets it all the same",
      hearing(_never_cleared), settings={"mode": "BUFFERED"})
fault("cleared-pieces-go-on", "DP-EXTP-01",
      "the EPP clears the body piece by piece, and the model server gets it all the same",
      hearing(_never_cleared), settings={"mode": "STREAMED"})
fault("broken-off-body-as-whole", "DP-EXTP-01",
      "if the EPP fails in the midst of a request's body, the model server gets the rest as if it were whole",
      EndingTalk)
fault("broken-off-response-as-whole", "DP-EXTP-01",
      "if the EPP fails in the midst of a response's body, the client gets the rest as if it were whole",
      changed(EndingTalk, side="response"))
fault("fails-open-without-the-body", "DP-FAIL-01",
      "without an EPP requests are sent on, as configured, and lose their bodies",
      changed(Gateway, without_epp=lambda up, _, pool, request, problem: up(
          pool, dataclasses.replace(request, body=b""), problem)),
      effect="warn", settings={"fails_open": True}, claims={"failureMode": "open"})
