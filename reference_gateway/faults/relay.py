"""Faults in what is done with the EPP's answers, and without it. Each is the right gateway but for one thing."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterator

from ext_proc.messages import ImmediateResponse
from ext_proc.record import header, values
from reference_gateway.epp_client import DESTINATION, Decision, Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome, Settings


class _Unsteered(Gateway):
    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        listed = list(super().walk(decision, pool))
        yield from itertools.chain((one for one in pool.endpoints if one not in listed), listed)


class _MixesUp(Gateway):
    """The answer of the EPP is kept in a field of the gateway, and read a moment later."""

    _last: Decision

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        assert before is None or before.failed
        own = self._last = await talk.ask(request)
        await asyncio.sleep(0.02)  # meanwhile others are answered
        released = dataclasses.replace(request, headers=own.headers, body=own.body, trailers=own.trailers)
        return await self.forward(released, self.walk(self._last, pool), [])


class _AnywhereAfterTheFirst(Gateway):
    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        listed = list(super().walk(decision, pool))
        yield from listed[:1]
        yield from (one for one in pool.endpoints if one not in listed)


class _SkipsOne(Gateway):
    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        listed = list(super().walk(decision, pool))
        yield from itertools.chain(listed[:1], listed[2:], listed[1:2])


class _RetriesLoseTheQuery(Gateway):
    async def forward(self, request: GatewayRequest, endpoints: Iterator[str], tried: list[str]) -> PoolOutcome:
        first = await super().forward(request, itertools.islice(endpoints, 1), tried)
        if not first.failed:
            return first
        again = dataclasses.replace(request, path=request.path.partition("?")[0])
        return await super().forward(again, endpoints, tried)


class _RetriesLoseTheBody(Gateway):
    """The body was read for the first attempt, and a retry has no more of it than a buffer holds."""

    kept = 0

    async def forward(self, request: GatewayRequest, endpoints: Iterator[str], tried: list[str]) -> PoolOutcome:
        first = await super().forward(request, itertools.islice(endpoints, 1), tried)
        if not first.failed:
            return first
        return await super().forward(dataclasses.replace(request, body=request.body[: self.kept]), endpoints, tried)


class _RetriesCutTheBody(_RetriesLoseTheBody):
    kept = 64 * 1024


class _FirstItemOnly(Gateway):
    """Takes the text up to the first comma, as code of a time before lists would take the whole of it."""

    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        first = decision.destinations().partition(",")[0].strip()
        yield from (one for one in super().walk(decision, pool) if one == first)


class _LastFirst(Gateway):
    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        yield from reversed(list(super().walk(decision, pool)))


class _KeepsToItsServer(Gateway):
    """The first request of a client's connection decides where all others on it go."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._firsts: dict[int, str] = {}

    async def forward(self, request: GatewayRequest, endpoints: Iterator[str], tried: list[str]) -> PoolOutcome:
        for endpoint in endpoints:
            first = self._firsts.setdefault(request.connection, endpoint)
            return await super().forward(request, itertools.chain((first,), endpoints), tried)
        return await super().forward(request, endpoints, tried)


class _NoFallback(Gateway):
    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        fallback = decision.fallback()
        yield from (one for one in super().walk(decision, pool) if one != fallback)


class ClientKept(Gateway):
    """The client's header stays on the request; what the EPP sets replaces it."""

    def admit(self, request: GatewayRequest) -> tuple[GatewayRequest, list[str] | None]:
        admitted, subset = super().admit(request)
        own = tuple(pair for pair in request.headers if pair[0] == DESTINATION.encode())
        return dataclasses.replace(admitted, headers=(*admitted.headers, *own)), subset


class _ClientFirst(Gateway):
    """The client's header is looked at before the EPP's answer is."""

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        named = [value.decode("latin-1") for name, value in request.headers if name == b"x-named-by-the-client"]
        if not named:
            return await super().through(pool, talk, request, before=before)
        await talk.ask(request)
        return await self.forward(request, iter(named), [])

    def admit(self, request: GatewayRequest) -> tuple[GatewayRequest, list[str] | None]:
        admitted, subset = super().admit(request)
        named = tuple(values(request.headers, DESTINATION.encode()))[:1]
        own = tuple((b"x-named-by-the-client", value) for value in named)
        return dataclasses.replace(admitted, headers=(*admitted.headers, *own)), subset


class _ClientSteersWithoutAnEpp(_ClientFirst):
    """What the client names is where a request goes that no EPP steers."""

    through = Gateway.through

    async def without_epp(self, pool: BackendPool, request: GatewayRequest, problem: str) -> GatewayResponse:
        named = [value.decode("latin-1") for value in values(request.headers, b"x-named-by-the-client")]
        if not named:
            return await super().without_epp(pool, request, problem)
        return (await self.forward(request, iter(named), [])).response


class _ErrorAs500(Gateway):
    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        return dataclasses.replace(await super().answered(answer, pool, request), status=500)


class _LateErrorAs500(Gateway):
    """An error that comes when a body of unknown length is read is taken for a failure to read it."""

    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        response = await super().answered(answer, pool, request)
        unknown = request.body and header(request.headers, b"content-length") is None
        return dataclasses.replace(response, status=500) if unknown else response


class _ErrorWithoutBody(Gateway):
    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        return dataclasses.replace(await super().answered(answer, pool, request), body=b"error")


class _ErrorWithoutHeaders(Gateway):
    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        return dataclasses.replace(await super().answered(answer, pool, request), headers=())


class _ErrorAsText(Gateway):
    """As Go's `http.Error` writes it."""

    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        response = await super().answered(answer, pool, request)
        kept = [pair for pair in response.headers if pair[0] != b"content-type"]
        return dataclasses.replace(response, headers=(*kept, (b"content-type", b"text/plain; charset=utf-8")))


class _ErrorWithTwoTypes(Gateway):
    """As `Header.Add` of Go does it."""

    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        response = await super().answered(answer, pool, request)
        return dataclasses.replace(response, headers=((b"content-type", b"text/plain"), *response.headers))


class _ErrorIgnored(Gateway):
    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        assert answer.status.code
        return (await self.forward(request, self.unsteered(pool), [])).response


class _SentTwice(Gateway):
    """The request is mirrored to a model server before the EPP is heard."""

    async def answered(self, answer: ImmediateResponse, pool: BackendPool, request: GatewayRequest) -> GatewayResponse:
        await self.forward(request, self.unsteered(pool), [])
        return await super().answered(answer, pool, request)


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="cut-request-as-whole",
        why="what a client sent of a body before it went away is told and sent on as the whole",
        breaks="DP-EXTP-01",
        settings={"cut_is_whole": True},
    ),
    Fault(
        name="pick-ignored",
        why="the gateway balances the load by itself, whatever the EPP says",
        breaks="DP-DEST-01",
        also_breaks={"DP-DEST-02": "a list is ignored as well as a single endpoint"},
        gateway=_Unsteered,
    ),
    Fault(
        name="picks-mix-up",
        why="of several requests at a time, all go where the EPP sent the one that it answered last",
        breaks="DP-DEST-01",
        gateway=_MixesUp,
    ),
    Fault(
        name="retries-go-anywhere",
        why="after the first endpoint of a list, retries go to others of the pool",
        breaks="DP-DEST-02",
        gateway=_AnywhereAfterTheFirst,
    ),
    Fault(
        name="retries-skip-one",
        why="a retry passes over the next endpoint of the list",
        breaks="DP-DEST-02",
        gateway=_SkipsOne,
    ),
    Fault(
        name="retries-lose-the-query",
        why="a retry asks for the path without its query",
        breaks="DP-EXTP-01",
        gateway=_RetriesLoseTheQuery,
    ),
    Fault(
        name="retries-lose-the-body",
        why="a retry is sent without the body, which the first attempt took",
        breaks="DP-EXTP-01",
        gateway=_RetriesLoseTheBody,
    ),
    Fault(
        name="retries-lose-a-body-that-no-epp-sees",
        why="bodies are not sent to the EPP, and a retry is sent without one",
        breaks="DP-EXTP-01",
        gateway=_RetriesLoseTheBody,
        settings={"mode": "NONE"},
    ),
    Fault(
        name="retries-cut-the-body",
        why="a retry is sent with the first 64 KiB of the body",
        breaks="DP-EXTP-01",
        gateway=_RetriesCutTheBody,
    ),
    Fault(
        name="first-item-only",
        why="of a list only the first item is read, so that nothing is left where it is dead or no endpoint",
        breaks="DP-DEST-02",
        gateway=_FirstItemOnly,
    ),
    Fault(
        name="last-first",
        why="the list is walked from its end",
        breaks="DP-DEST-02",
        gateway=_LastFirst,
    ),
    Fault(
        name="keeps-to-its-server",
        why="all requests of a client's connection go where the first one went",
        breaks="DP-DEST-01",
        gateway=_KeepsToItsServer,
    ),
    Fault(
        name="retries-off",
        why="no attempt is made after the first, although retry is configured",
        breaks="DP-DEST-02",
        settings={"retries": 0},
    ),
    Fault(
        name="fallback-ignored",
        why="the fallback endpoint of 0.3.0 is not read",
        breaks="DP-DEST-03",
        effect="warn",
        version="0.3.0",
        gateway=_NoFallback,
    ),
    Fault(
        name="client-header-kept",
        why="the client's destination header is not removed, and counts where the EPP gives none",
        breaks="DP-DEST-04",
        effect="warn",
        gateway=ClientKept,
    ),
    Fault(
        name="client-steers",
        why="the client's destination header is followed before the EPP's answer",
        breaks="DP-DEST-04",
        also_breaks={"DP-DEST-01": "what the EPP gave is not followed where the client names another endpoint"},
        effect="warn",
        gateway=_ClientFirst,
    ),
    Fault(
        name="client-steers-without-an-epp",
        why="without an EPP requests are sent on, as configured, to where the client's destination header says",
        breaks="DP-DEST-04",
        effect="warn",
        gateway=_ClientSteersWithoutAnEpp,
        settings={"fails_open": True},
        claims={"failureMode": "open"},
    ),
    Fault(
        name="error-as-500",
        why="whatever the EPP refuses with, the client gets 500",
        breaks="DP-ERR-01",
        gateway=_ErrorAs500,
    ),
    Fault(
        name="error-of-a-chunked-request-as-500",
        why="whatever the EPP refuses with, the client gets 500 if it did not say the length of its body",
        breaks="DP-ERR-01",
        gateway=_LateErrorAs500,
    ),
    Fault(
        name="error-without-its-body",
        why="the client gets an error page of the gateway in place of the EPP's words",
        breaks="DP-ERR-01",
        gateway=_ErrorWithoutBody,
    ),
    Fault(
        name="error-without-its-headers",
        why="headers such as retry-after are lost on the way to the client",
        breaks="DP-ERR-01",
        gateway=_ErrorWithoutHeaders,
    ),
    Fault(
        name="error-as-text",
        why="whatever the EPP refuses with, its type is text/plain for the client",
        breaks="DP-ERR-01",
        gateway=_ErrorAsText,
    ),
    Fault(
        name="error-with-two-types",
        why="what the EPP refuses with has its type for the client, and text/plain as well",
        breaks="DP-ERR-01",
        gateway=_ErrorWithTwoTypes,
    ),
    Fault(
        name="error-ignored",
        why="a request that the EPP refuses is sent to a model server",
        breaks="DP-ERR-01",
        also_breaks={"DP-DEST-01": "which may be another than the one that the EPP named before it refused"},
        gateway=_ErrorIgnored,
    ),
    Fault(
        name="error-after-a-model-server",
        why="the client gets the EPP's refusal, and a model server got the request all the same",
        breaks="DP-ERR-01",
        also_breaks={"DP-DEST-01": "which may be another than the one that the EPP named before it refused"},
        gateway=_SentTwice,
    ),
    Fault(
        name="fails-open",
        why="without an EPP requests are sent on, although the gateway is to fail closed",
        breaks="DP-FAIL-01",
        also_breaks={"DP-DEST-01": "where an EPP fails after its pick, that is forgotten, too"},
        effect="warn",
        settings={"fails_open": True},
    ),
    Fault(
        name="fails-closed",
        why="without an EPP requests fail, although the gateway is to fail open",
        breaks="DP-FAIL-01",
        effect="warn",
        claims={"failureMode": "open"},
    ),
)
