"""Gateways that are odd, or configured otherwise, and right."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ext_proc.channel import Channel
from ext_proc.http2.address import split_address
from ext_proc.http2.errors import ConnectFailed
from ext_proc.messages import ProcessingRequest
from ext_proc.record import header
from ext_proc.stream import ProcessStream
from real_envoy.http_response import HttpResponse
from reference_gateway.epp_client import DESTINATION, Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome, Settings

TAKEN = ("GET", "HEAD", "POST")
"""Methods that are taken."""

ROOM = 64 * 1024
"""Bytes of the longest response for which there is room."""

LONGEST_HEADER = 4096
"""Bytes of the longest header that is taken."""

LONGEST = 1024 * 1024
"""Bytes of the longest body that is taken."""


class _ModelessTalk(Talk):
    def tamper(self, message: ProcessingRequest, *, first: bool) -> Iterable[ProcessingRequest]:
        assert first is message.HasField("protocol_config")
        message.ClearField("protocol_config")
        return (message,)


class _Modeless(Gateway):
    talk_type = _ModelessTalk


class _ImpatientTalk(Talk):
    patience = 0.2


class _Impatient(Gateway):
    talk_type = _ImpatientTalk


class _RefusesExpectations(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if header(request.headers, b"expect") is not None:
            return GatewayResponse(status=417, body=b"send the body at once")
        return await super().handle(request)


class _RefusesHttp10(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if request.written == "http-1.0":
            return GatewayResponse(status=426, headers=((b"upgrade", b"HTTP/1.1"),))
        return await super().handle(request)


class _RefusesDestinations(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if header(request.headers, DESTINATION.encode()) is not None:
            return GatewayResponse(status=403, body=b"that header is not for clients")
        return await super().handle(request)


class _RefusesOptions(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if request.method == "OPTIONS":
            return GatewayResponse(status=501, body=b"no such method")
        return await super().handle(request)


class _TakesThreeMethods(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if request.method not in TAKEN:
            return GatewayResponse(status=405, headers=((b"allow", ", ".join(TAKEN).encode()),))
        return await super().handle(request)


class _RefusesLongBodies(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if len(request.body) > LONGEST:
            return GatewayResponse(status=413, body=b"too long")
        return await super().handle(request)


class _RefusesLongHeaders(Gateway):
    async def handle(self, request: GatewayRequest) -> GatewayResponse:
        if any(len(value) > LONGEST_HEADER for _, value in request.headers):
            return GatewayResponse(status=431, body=b"a header is too long")
        return await super().handle(request)


class _RefusesLongResponses(Gateway):
    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        if got is None or len(got.body) <= ROOM:
            return got
        return dataclasses.replace(got, status=502, headers=(), pieces=(b"a response for which there is no room",))


class _BreakingOffTalk(Talk):
    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        ended = self._stream.ended if self._stream is not None else None
        failed = ended is not None and (ended.how != "status" or ended.status != 0)
        return dataclasses.replace(told, cut=failed)


class _BreaksOff(Gateway):
    talk_type = _BreakingOffTalk


class _FailsOpenToTheLast(Gateway):
    def unsteered(self, pool: BackendPool) -> Iterator[str]:
        return iter(pool.endpoints[::-1])


class _NothingListens(Exception):  # noqa: N818 - a condition, not a defect
    """What the EPP named takes no connections."""


class _DialingTalk(Talk):
    """What the answer to the headers names is connected to before the body is told."""

    pool: BackendPool

    async def _heard(self, side: str, part: str) -> None:
        await super()._heard(side, part)
        if (side, part) == ("request", "headers"):
            named = [one for one in self._decision.destinations().split(",") if one in self.pool.endpoints]
            listening = [await _listens(endpoint) for endpoint in named]
            if named and not any(listening):
                raise _NothingListens(named)


class _LeavesTheFirstEpp(Gateway):
    """A pool of which nothing listens is left at once, and so is its EPP."""

    talk_type = _DialingTalk

    def open(self, pool: BackendPool, subset: list[str] | None, *, before: PoolOutcome | None) -> Talk:
        talk = super().open(pool, subset, before=before)
        assert isinstance(talk, _DialingTalk)
        talk.pool = pool
        return talk

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        try:
            return await super().through(pool, talk, request, before=before)
        except _NothingListens:
            return await self.forward(request, iter(()), [])


async def _listens(endpoint: str) -> bool:
    try:
        _, writer = await asyncio.open_connection(*split_address(endpoint))
    except OSError:
        return False
    writer.close()
    return True


class _BackingOffChannel(Channel):
    """Waits a second before it connects again, as gRPC's clients do by default; no stream is opened until then."""

    _again = 0.0

    async def open(self, *given: Any, **options: Any) -> ProcessStream:
        """See `Channel`."""
        if time.monotonic() < self._again:
            raise ConnectFailed(self.address, "an attempt to connect failed a moment ago", "wait a second")
        try:
            return await super().open(*given, **options)
        except ConnectFailed:
            self._again = time.monotonic() + 1.0
            raise


class _BackingOff(Gateway):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.channels = {pool.epp: _BackingOffChannel(pool.epp, timeout=4.0) for pool in settings.pools}


VARIANTS: tuple[Fault, ...] = (
    Fault(name="full-duplex", why="bodies in full duplex, all sent before an answer is awaited"),
    Fault(name="buffered", why="a body in one piece, when the headers are answered", settings={"mode": "BUFFERED"}),
    Fault(name="streamed", why="a body piece by piece, each answered", settings={"mode": "STREAMED"}),
    Fault(
        name="streamed-unsaid",
        why="so it is without protocol_config, as with Envoy before it had that",
        gateway=_Modeless,
        settings={"mode": "STREAMED"},
        unjudged="in a mode that the gateway did not name",
    ),
    Fault(name="headers-only", why="bodies are not sent to the EPP", settings={"mode": "NONE"}),
    Fault(
        name="open",
        why="without an EPP requests are sent on, as configured",
        settings={"fails_open": True},
        claims={"failureMode": "open"},
    ),
    Fault(
        name="without-retries",
        why="one attempt, as configured",
        settings={"retries": 0},
        claims={"retries": 0},
    ),
    Fault(name="impatient", why="an EPP that has not answered in 0.2 s is as good as none", gateway=_Impatient),
    *(
        Fault(
            name=f"impatient-and-open{'' if mode == 'FULL_DUPLEX_STREAMED' else f'-{mode.lower()}'}",
            why="the same, and requests are sent on then",
            gateway=_Impatient,
            settings={"fails_open": True, "mode": mode},
            claims={"failureMode": "open"},
        )
        for mode in ("FULL_DUPLEX_STREAMED", "STREAMED")
    ),
    Fault(
        name="backs-off",
        why="an EPP that could not be reached is not tried again for a second, and requests are sent on meanwhile",
        gateway=_BackingOff,
        settings={"fails_open": True},
        claims={"failureMode": "open"},
    ),
    Fault(name="http1-only", why="clients speak HTTP/1.1, as none need speak another", settings={"http2": False}),
    Fault(name="says-no-100", why="a client that expects 100 Continue gets none", settings={"continues": False}),
    Fault(name="refuses-expectations", why="a client that expects 100 Continue gets 417", gateway=_RefusesExpectations),
    Fault(name="refuses-http-1.0", why="requests of HTTP/1.0 get 426", gateway=_RefusesHttp10),
    Fault(
        name="refuses-destinations",
        why="a client that names a destination gets 403 before the EPP is asked",
        gateway=_RefusesDestinations,
    ),
    Fault(name="refuses-options", why="requests with the method OPTIONS get 501", gateway=_RefusesOptions),
    Fault(
        name="takes-three-methods",
        why="requests with other methods than GET, HEAD and POST get 405",
        gateway=_TakesThreeMethods,
    ),
    Fault(
        name="refuses-long-bodies",
        why="a body of more than 1 MiB gets 413 before the EPP is asked",
        gateway=_RefusesLongBodies,
    ),
    Fault(
        name="refuses-long-headers",
        why="a header of more than 4 KiB gets 431 before the EPP is asked",
        gateway=_RefusesLongHeaders,
    ),
    Fault(
        name="refuses-long-responses",
        why="a response of more than 64 KiB becomes 502, of which the EPP is told",
        gateway=_RefusesLongResponses,
    ),
    Fault(
        name="fails-open-to-the-last",
        why="a request whose EPP fails in its midst is sent to the last of the pool, as any without an EPP",
        gateway=_FailsOpenToTheLast,
        settings={"fails_open": True},
        claims={"failureMode": "open"},
    ),
    Fault(name="breaks-off", why="a response whose EPP fails in its midst is cut", gateway=_BreaksOff),
    Fault(
        name="keeps-little",
        why="a body of more than 10,000 bytes is not kept, so that it is sent once and not retried",
        settings={"keeps": 10_000},
    ),
    Fault(
        name="keeps-the-http-version",
        why="requests over HTTP/2 go to the model server over HTTP/2, which it does not speak",
        settings={"keeps_version": True},
        unjudged="spoke HTTP/2 to a model server",
    ),
    Fault(name="fallback", why="the fallback endpoint of 0.3.0", version="0.3.0"),
    Fault(name="two-pools", why="a second pool with its own EPP, for when the first fails", version="next", pools=2),
    Fault(
        name="leaves-the-first-epp",
        why="an EPP that names only endpoints which take no connections is left before it has the body",
        version="next",
        gateway=_LeavesTheFirstEpp,
        settings={"mode": "STREAMED"},
        pools=2,
    ),
)
