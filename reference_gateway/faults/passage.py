"""Faults by which requests and responses are lost, cut, doubled or mixed up on their way. Each is the right gateway
otherwise."""

from __future__ import annotations

import asyncio
import dataclasses

from ext_proc.messages import CommonResponse, ProcessingResponse
from ext_proc.record import header
from real_envoy.http_response import HttpResponse
from reference_gateway.epp_client import Answered, EppUnavailable, Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome

BUFFER = 64 * 1024
"""Bytes of a response for which there is room."""


class _FailoverLosesTheBody(Gateway):
    """The body was read for the first pool, and nothing of it is left for the second."""

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        left = request if before is None else dataclasses.replace(request, body=b"")
        return await super().through(pool, talk, left, before=before)


class _QueryLost(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        return await super().attempt(endpoint, dataclasses.replace(request, path=request.path.partition("?")[0]))


class _NoLengthNoBody(Gateway):
    """Only what a content-length announces is read."""

    def admit(self, request: GatewayRequest) -> tuple[GatewayRequest, list[str] | None]:
        known = request.http == 2 or header(request.headers, b"content-length") is not None
        return super().admit(request if known else dataclasses.replace(request, body=b"", trailers=()))


class _SendsTwice(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        if got is not None and got.status == 200:
            await super().attempt(endpoint, request)
        return got


class _ModelServerFirst(Gateway):
    """The request is tried without the EPP, which is asked when that is done."""

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        await self.forward(request, self.unsteered(pool), [])
        return await super().through(pool, talk, request, before=before)


class _WaitsForTheBodyOfHead(Gateway):
    """The response to HEAD has a content-length, and the body is waited for."""

    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        if request.method == "HEAD":
            await asyncio.Event().wait()
        return got


class _ResponsesMixUp(Gateway):
    """The response is kept in a field of the gateway, and read a moment later."""

    _last: HttpResponse | None

    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        self._last = await super().attempt(endpoint, request)
        await asyncio.sleep(0.02)  # meanwhile others get theirs
        return self._last


class _StreamsCut(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        response = await super().handle(request)
        kind = header(response.headers, b"content-type") or b""
        return dataclasses.replace(response, cut=kind.startswith(b"text/event-stream"))


class _LongResponseAs502(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        response = await super().handle(request)
        if len(response.body) <= BUFFER:
            return response
        return GatewayResponse(status=502, headers=((b"content-type", b"text/plain"),), body=b"response too large")


class _TextAs502(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        kind = header(got.headers, b"content-type") if got is not None else None
        if got is None or got.status != 200 or not (kind or b"").startswith(b"text/plain"):
            return got
        return dataclasses.replace(got, status=502, pieces=(b"a response that is not JSON",), trailers=())


class _RefusedResponseTalk(Talk):
    """What the EPP says of a response can change it, and not take its place."""

    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        return told if told.status == response.status else response


class _RefusedResponses(Gateway):
    talk_type = _RefusedResponseTalk


class _OnItsWayTalk(Talk):
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


class _RefusedAfterAPick(Gateway):
    talk_type = _OnItsWayTalk


class _LateBodyLostTalk(Talk):
    """What the EPP says after it has named an endpoint is a status, and no more."""

    async def _receive(self) -> ProcessingResponse | None:
        try:
            return await super()._receive()
        except Answered as answer:
            if self._decision.destinations():
                answer.response.ClearField("body")
            raise


class _LateBodyLost(Gateway):
    talk_type = _LateBodyLostTalk


class _GoingOnTalk(Talk):
    """Bodies are taken from answers to bodies only."""

    side = "request"

    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        kind = f"{self.side}_headers"
        if answer is not None and answer.WhichOneof("response") == kind:
            getattr(answer, kind).response.status = CommonResponse.CONTINUE
        return answer


class _GoingOnWithResponsesTalk(_GoingOnTalk):
    side = "response"


class _ReplacementLost(Gateway):
    talk_type = _GoingOnTalk


class _ReplacedResponseLost(Gateway):
    talk_type = _GoingOnWithResponsesTalk


class _NeverClearingTalk(Talk):
    """Of the mutations of a body only another body is known."""

    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        if answer is not None and answer.HasField("request_body"):
            answer.request_body.response.body_mutation.ClearField("clear_body")
        return answer


class _ClearedBodiesGoOn(Gateway):
    talk_type = _NeverClearingTalk


class _EndingTalk(Talk):
    """What an EPP that fails has given back of a body is taken for all of it: nothing."""

    side = "request"

    async def _streamed(self, side: str, *, trailers: bool) -> None:
        try:
            await super()._streamed(side, trailers=trailers)
        except EppUnavailable:
            if side != self.side:
                raise
            self._decision.body = b""


class _EndingResponsesTalk(_EndingTalk):
    side = "response"


class _BrokenOffAsWhole(Gateway):
    talk_type = _EndingTalk


class _BrokenOffResponseAsWhole(Gateway):
    talk_type = _EndingResponsesTalk


class _NeedingTalk(Talk):
    """An EPP that is not there for the response has failed."""

    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        ended = self._stream.ended if self._stream is not None else None
        left = ended is not None and ended.how == "status" and ended.status == 0
        return GatewayResponse(status=500, body=b"the endpoint picker left") if left else told


class _NeedsTheEpp(Gateway):
    talk_type = _NeedingTalk


class _OpenWithoutBody(Gateway):
    """What was read of the body was for the EPP."""

    async def without_epp(self, pool: BackendPool, request: GatewayRequest, problem: str) -> GatewayResponse:
        return await super().without_epp(pool, dataclasses.replace(request, body=b""), problem)


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="failover-loses-the-body",
        why="a request that moves on to the second pool comes there without its body",
        breaks="DP-EXTP-01",
        version="next",
        gateway=_FailoverLosesTheBody,
        pools=2,
    ),
    Fault(
        name="query-lost",
        why="the model server is asked for the path without its query",
        breaks="DP-EXTP-01",
        gateway=_QueryLost,
    ),
    Fault(
        name="chunked-body-taken-for-none",
        why="a body of HTTP/1.1 whose length is not told is taken for none",
        breaks="DP-EXTP-01",
        gateway=_NoLengthNoBody,
    ),
    Fault(
        name="sent-twice",
        why="a request that was served is sent to its model server once more",
        breaks="DP-DEST-01",
        also_breaks={"DP-DEST-02": "so it is where the endpoint is the first of a list"},
        gateway=_SendsTwice,
    ),
    Fault(
        name="model-server-first",
        why="a model server gets the request before the EPP is asked about it",
        breaks="DP-DEST-01",
        also_breaks={
            "DP-ERR-01": "so it is with requests that the EPP refuses",
            "DP-FAIL-01": "and with those about which no EPP can be asked",
        },
        gateway=_ModelServerFirst,
    ),
    Fault(
        name="head-never-answered",
        why="the response to HEAD is held back until its body comes, which it does not have",
        breaks="DP-EXTP-01",
        gateway=_WaitsForTheBodyOfHead,
    ),
    Fault(
        name="responses-mix-up",
        why="bodies are not sent to the EPP, and of several requests at a time one gets the response of another",
        breaks="DP-EXTP-01",
        gateway=_ResponsesMixUp,
        settings={"mode": "NONE"},
    ),
    Fault(
        name="streams-cut",
        why="a stream of events, which the EPP got whole, ends in its midst for the client",
        breaks="DP-EXTP-01",
        gateway=_StreamsCut,
    ),
    Fault(
        name="long-response-as-502",
        why="a response of more than 64 KiB, which the EPP got whole, becomes 502 for the client",
        breaks="DP-EXTP-01",
        gateway=_LongResponseAs502,
    ),
    Fault(
        name="text-as-502",
        why="a response of type text/plain becomes 502, for the EPP and for the client",
        breaks="DP-EXTP-01",
        gateway=_TextAs502,
    ),
    Fault(
        name="refused-responses-pass",
        why="the client gets the response of the model server although the EPP refuses it",
        breaks="DP-ERR-01",
        gateway=_RefusedResponses,
    ),
    Fault(
        name="refused-after-a-pick",
        why="in full duplex a request whose end the EPP refuses, having named an endpoint, is served by that",
        breaks="DP-ERR-01",
        gateway=_RefusedAfterAPick,
    ),
    Fault(
        name="refused-after-a-pick-piece-by-piece",
        why="so it is where the EPP answers the body piece by piece",
        breaks="DP-ERR-01",
        gateway=_RefusedAfterAPick,
        settings={"mode": "STREAMED"},
    ),
    Fault(
        name="refused-after-a-pick-without-its-body",
        why="so refused, the client gets the status, and not the EPP's words",
        breaks="DP-ERR-01",
        gateway=_LateBodyLost,
    ),
    Fault(
        name="replaced-body-lost",
        why="CONTINUE_AND_REPLACE is taken for CONTINUE, so that the client's own body goes on",
        breaks="DP-EXTP-01",
        gateway=_ReplacementLost,
        settings={"mode": "STREAMED"},
    ),
    Fault(
        name="replaced-response-lost",
        why="CONTINUE_AND_REPLACE of a response is taken for CONTINUE, so that the client gets the model server's body",
        breaks="DP-EXTP-01",
        gateway=_ReplacedResponseLost,
        settings={"mode": "BUFFERED"},
    ),
    Fault(
        name="cleared-body-goes-on",
        why="the EPP clears the body, which was collected for it, and the model server gets it all the same",
        breaks="DP-EXTP-01",
        gateway=_ClearedBodiesGoOn,
        settings={"mode": "BUFFERED"},
    ),
    Fault(
        name="cleared-pieces-go-on",
        why="the EPP clears the body piece by piece, and the model server gets it all the same",
        breaks="DP-EXTP-01",
        gateway=_ClearedBodiesGoOn,
        settings={"mode": "STREAMED"},
    ),
    Fault(
        name="broken-off-body-as-whole",
        why="the body of a request whose EPP fails in its midst ends for the model server where the EPP left it",
        breaks="DP-EXTP-01",
        gateway=_BrokenOffAsWhole,
    ),
    Fault(
        name="broken-off-response-as-whole",
        why="so does the body of a response for the client",
        breaks="DP-EXTP-01",
        gateway=_BrokenOffResponseAsWhole,
    ),
    Fault(
        name="epp-that-is-done-as-500",
        why="the client gets 500 in place of the response if the EPP closed its stream once the request was answered",
        breaks="DP-EXTP-01",
        gateway=_NeedsTheEpp,
    ),
    Fault(
        name="fails-open-without-the-body",
        why="without an EPP requests are sent on, as configured, and lose their bodies",
        breaks="DP-FAIL-01",
        effect="warn",
        gateway=_OpenWithoutBody,
        settings={"fails_open": True},
        claims={"failureMode": "open"},
    ),
)
