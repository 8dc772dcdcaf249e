"""Faults in what messages hold, and in what becomes of what the EPP released. Each is the right gateway otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ext_proc.messages import HeaderMutation, ProcessingRequest, ProcessingResponse
from real_envoy.http_response import HttpResponse
from reference_gateway.epp_client import DESTINATION, Answered, Decision, Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome

LIMIT = 64
"""Bytes of a body that is cut."""


class _CutTalk(Talk):
    """The EPP gets as much as fits a buffer, and the model server all of it."""

    async def ask(self, request: GatewayRequest) -> Decision:
        decision = await super().ask(dataclasses.replace(request, body=request.body[:LIMIT]))
        decision.body = request.body
        return decision


class _RepeatingTalk(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        again = not first and message.request_body.body and not message.request_body.end_of_stream
        return (message, message) if again else (message,)


class _EndingTalk(Talk):
    """The response's body does not pass the EPP, and its headers say that there is none."""

    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(dataclasses.replace(response, body=b"", trailers=()), endpoint, tried)
        return dataclasses.replace(told, body=response.body, trailers=response.trailers)


class _WaitingTalk(Talk):
    """An EPP that decides on the body waits for it, and is waited for."""

    patience = 0.6
    in_step = True


class _WithholdingTalk(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        assert first or not message.HasField("request_headers")
        for part in (message.request_headers, message.response_headers):
            kept = [one for one in part.headers.headers if not one.key.startswith(":")]
            if len(kept) < len(part.headers.headers):
                del part.headers.headers[:]
                part.headers.headers.extend(kept)
        return (message,)


class _PathlessTalk(Talk):
    """The EPP is told the prefix of the route in place of the path."""

    async def ask(self, request: GatewayRequest) -> Decision:
        return await super().ask(dataclasses.replace(request, path="/v1"))


class _QuerylessTalk(Talk):
    async def ask(self, request: GatewayRequest) -> Decision:
        return await super().ask(dataclasses.replace(request, path=request.path.partition("?")[0]))


class _WellMeaningTalk(Talk):
    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(dataclasses.replace(response, status=200), endpoint, tried)
        return dataclasses.replace(told, status=response.status)


class _ClingingTalk(Talk):
    def close(self) -> None:
        """The stream stays."""


class _RouteForPath(Gateway):
    talk_type = _PathlessTalk


class _PathWithoutQuery(Gateway):
    talk_type = _QuerylessTalk


class _AllIsWell(Gateway):
    talk_type = _WellMeaningTalk


class _StreamsStay(Gateway):
    talk_type = _ClingingTalk


class _DeafTalk(Talk):
    """What the EPP makes of responses is not waited for."""

    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        await super().tell(response, endpoint, tried)
        return response


class _LateRefusalLostTalk(Talk):
    """Once the headers are answered, a refusal is taken for an answer like any other."""

    async def _heard(self, side: str, part: str) -> None:
        try:
            await super()._heard(side, part)
        except Answered:
            if part != "body":
                raise


class _ResponseChangesLost(Gateway):
    talk_type = _DeafTalk


class _LateRefusalsLost(Gateway):
    talk_type = _LateRefusalLostTalk


class _CutForTheEpp(Gateway):
    talk_type = _CutTalk


class _ChunksTwice(Gateway):
    talk_type = _RepeatingTalk


class _ResponseEndsEarly(Gateway):
    talk_type = _EndingTalk


class _BodiesInStep(Gateway):
    talk_type = _WaitingTalk


class _NoPseudoHeaders(Gateway):
    talk_type = _WithholdingTalk


class _CutAfterTheEpp(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        return await super().attempt(endpoint, dataclasses.replace(request, body=request.body[:LIMIT]))


class _ChangesLost(Gateway):
    """Of the EPP's answers only the destination is taken over."""

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        assert before is None or before.failed
        return await self.forward(request, self.walk(await talk.ask(request), pool), [])


class _ResponseLost(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        response = await super().handle(request)
        return dataclasses.replace(response, body=b"") if response.status == 200 else response


class _ErrorOfUpstream(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        return dataclasses.replace(got, status=502) if got is not None and got.status == 500 else got


class _ErrorHidden(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        return dataclasses.replace(got, status=204, pieces=()) if got is not None and got.status == 500 else got


class _CookiesJoined(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        if got is None:
            return None
        joined: dict[bytes, bytes] = {}
        for name, value in got.headers:
            joined[name] = b", ".join((joined[name], value)) if name in joined else value
        return dataclasses.replace(got, headers=tuple(joined.items()))


class _LastLineOnly(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        return await super().attempt(
            endpoint, dataclasses.replace(request, headers=tuple(dict(request.headers).items()))
        )


class _CutTakenForWhole(Gateway):
    """The end of the connection is taken for the end of the response."""

    def is_whole(self, got: HttpResponse) -> bool:
        return got.status is not None


class _KeepingTalk(Talk):
    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        for mutation in mutations(answer):
            del mutation.remove_headers[:]
        return answer


class _RemovalsLost(Gateway):
    talk_type = _KeepingTalk


class _PickingTalk(Talk):
    async def _receive(self) -> ProcessingResponse | None:
        answer = await super()._receive()
        for mutation in mutations(answer):
            kept = [one for one in mutation.set_headers if one.header.key == DESTINATION]
            del mutation.set_headers[:]
            mutation.set_headers.extend(kept)
        return answer


class _SettingsLost(Gateway):
    talk_type = _PickingTalk


def mutations(answer: ProcessingResponse | None) -> list[HeaderMutation]:
    kind = answer.WhichOneof("response") if answer is not None else None
    if kind not in ("request_headers", "response_headers"):
        return []
    return [getattr(answer, kind).response.header_mutation]


class _TrailersLost(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        return dataclasses.replace(await super().handle(request), trailers=())


class _AlwaysOk(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        response = await super().handle(request)
        return dataclasses.replace(response, status=200) if response.status == 204 else response


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="response-changes-lost",
        why="the client gets the model server's own response, whatever the EPP made of it",
        breaks="DP-EXTP-01",
        also_breaks={"DP-ERR-01": "what the EPP answers in place of the response is lost as well"},
        gateway=_ResponseChangesLost,
    ),
    Fault(
        name="late-refusals-lost",
        why="an ImmediateResponse that answers the body is ignored, and the request goes on",
        breaks="DP-ERR-01",
        gateway=_LateRefusalsLost,
        settings={"mode": "BUFFERED"},
    ),
    Fault(
        name="path-told-wrongly",
        why="the EPP is told the prefix of the route in place of the request's path",
        breaks="DP-EXTP-01",
        gateway=_RouteForPath,
    ),
    Fault(
        name="query-not-told",
        why="the EPP is told the path without its query",
        breaks="DP-EXTP-01",
        gateway=_PathWithoutQuery,
    ),
    Fault(
        name="status-told-wrongly",
        why="the EPP is told that each response has status 200",
        breaks="DP-EXTP-01",
        gateway=_AllIsWell,
    ),
    Fault(
        name="streams-left-open",
        why="the stream to the EPP is not ended when the request is over",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_StreamsStay,
    ),
    Fault(
        name="body-cut-for-the-epp",
        why="the EPP gets the beginning of the request body, and an end of stream",
        breaks="DP-EXTP-01",
        gateway=_CutForTheEpp,
    ),
    Fault(
        name="body-held-back",
        why="in full duplex the EPP gets the body when it has answered the headers, which it may never do",
        breaks="DP-EXTP-01",
        gateway=_BodiesInStep,
    ),
    Fault(
        name="chunks-sent-twice",
        why="pieces of the request body are sent to the EPP twice",
        breaks="DP-EXTP-01",
        gateway=_ChunksTwice,
    ),
    Fault(
        name="response-ends-with-its-headers",
        why="the EPP is told that the response has no body, which it does not get",
        breaks="DP-EXTP-01",
        gateway=_ResponseEndsEarly,
    ),
    Fault(
        name="pseudo-headers-withheld",
        why="the EPP gets headers without :method, :path and :status",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_NoPseudoHeaders,
    ),
    Fault(
        name="released-body-cut",
        why="the model server gets the beginning of the body that the EPP released",
        breaks="DP-EXTP-01",
        gateway=_CutAfterTheEpp,
    ),
    Fault(
        name="changes-lost",
        why="the model server gets the client's own body, whatever the EPP made of it",
        breaks="DP-EXTP-01",
        gateway=_ChangesLost,
    ),
    Fault(
        name="response-body-lost",
        why="the client gets the headers of the response, and no body",
        breaks="DP-EXTP-01",
        gateway=_ResponseLost,
    ),
    Fault(
        name="error-of-a-model-server-as-502",
        why="the client gets 502 where the model server answered 500, and so does the EPP",
        breaks="DP-EXTP-01",
        gateway=_ErrorOfUpstream,
    ),
    Fault(
        name="error-of-a-model-server-as-204",
        why="the client gets an empty 204 where the model server answered 500, and so does the EPP",
        breaks="DP-EXTP-01",
        gateway=_ErrorHidden,
    ),
    Fault(
        name="cut-response-as-whole",
        why="a response whose connection ended in the midst of it goes to the client as if that were all",
        breaks="DP-EXTP-01",
        gateway=_CutTakenForWhole,
    ),
    Fault(
        name="removed-headers-stay",
        why="headers that the EPP removes go on all the same",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_RemovalsLost,
    ),
    Fault(
        name="set-headers-lost",
        why="of the headers that the EPP sets only the destination is taken over",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_SettingsLost,
    ),
    Fault(
        name="response-trailers-lost",
        why="trailers of a response reach the EPP, and no client",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_TrailersLost,
    ),
    Fault(
        name="cookies-put-together",
        why="headers of the response that have several lines get one, those of set-cookie as well",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_CookiesJoined,
    ),
    Fault(
        name="last-line-only",
        why="of a header of the request in several lines the model server gets the last",
        breaks="DP-EXTP-01",
        effect="warn",
        gateway=_LastLineOnly,
    ),
    Fault(
        name="no-content-as-200",
        why="the client gets 200 where the model server answered 204",
        breaks="DP-EXTP-01",
        gateway=_AlwaysOk,
    ),
)
