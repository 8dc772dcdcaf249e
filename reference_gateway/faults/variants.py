"""Gateways that are odd, or configured otherwise, and right."""
# fmt: off

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from ext_proc.channel import Channel
from ext_proc.http2.address import split_address
from ext_proc.http2.errors import ConnectFailed
from ext_proc.record import header
from ext_proc.stream import ProcessStream
from reference_gateway.changes import changed, receiving, refusing, tampering
from reference_gateway.epp_client import DESTINATION, Talk
from reference_gateway.fault import variant
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


OPENLY: dict[str, Any] = {"settings": {"fails_open": True}, "claims": {"failureMode": "open"}}
IMPATIENT = changed(Talk, patience=0.2)

# -- modes and limits, as configured

variant("full-duplex", "bodies in full duplex, all sent before an answer is awaited")
variant("buffered", "a body in one piece, when the headers are answered", settings={"mode": "BUFFERED"})
variant("streamed", "a body piece by piece, each answered", settings={"mode": "STREAMED"})
variant("streamed-unsaid",
        "the same without protocol_config, as with Envoy before it had that",
        tampering(lambda message: message.ClearField("protocol_config")),
        settings={"mode": "STREAMED"}, unjudged="in a mode that the gateway did not name")
variant("headers-only", "bodies are not sent to the EPP", settings={"mode": "NONE"})
variant("open", "without an EPP requests are sent on, as configured", **OPENLY)
variant("without-retries", "one attempt, as configured", settings={"retries": 0}, claims={"retries": 0})
variant("impatient", "an EPP that has not answered in 0.2 s is as good as none", IMPATIENT)
variant("impatient-and-open", "the same, and requests are sent on then", IMPATIENT, **OPENLY)
variant("impatient-and-open-streamed", "the same, with bodies piece by piece", IMPATIENT,
        settings={"fails_open": True, "mode": "STREAMED"}, claims={"failureMode": "open"})


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


@variant("backs-off",
         "an EPP that could not be reached is not tried again for a second, and requests are sent on meanwhile",
         **OPENLY)
class BackingOff(Gateway):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.channels = {pool.epp: _BackingOffChannel(pool.epp, timeout=4.0) for pool in settings.pools}

variant("http1-only", "clients speak HTTP/1.1, as none need speak another", settings={"http2": False})
variant("says-no-100", "a client that expects 100 Continue gets none", settings={"continues": False})

# -- what is refused, or cut

variant("refuses-expectations",
        "a client that expects 100 Continue gets 417",
        refusing(417, lambda request: header(request.headers, b"expect") is not None, body=b"send the body at once"))
variant("refuses-http-1.0",
        "requests of HTTP/1.0 get 426",
        refusing(426, lambda request: request.written == "http-1.0", ((b"upgrade", b"HTTP/1.1"),)))
variant("refuses-destinations",
        "a client that names a destination gets 403 before the EPP is asked",
        refusing(403, lambda request: header(request.headers, DESTINATION.encode()) is not None,
                 body=b"that header is not for clients"))
variant("refuses-options",
        "requests with the method OPTIONS get 501",
        refusing(501, lambda request: request.method == "OPTIONS", body=b"no such method"))
variant("takes-three-methods",
        "requests with other methods than GET, HEAD and POST get 405",
        refusing(405, lambda request: request.method not in TAKEN, ((b"allow", ", ".join(TAKEN).encode()),)))
variant("refuses-long-bodies",
        "a body of more than 1 MiB gets 413 before the EPP is asked",
        refusing(413, lambda request: len(request.body) > LONGEST, body=b"too long"))
variant("refuses-long-headers",
        "a header of more than 4 KiB gets 431 before the EPP is asked",
        refusing(431, lambda request: any(len(value) > LONGEST_HEADER for _, value in request.headers),
                 body=b"a header is too long"))
variant("refuses-long-responses",
        "a response of more than 64 KiB becomes 502, of which the EPP is told",
        receiving(lambda got, _: got if len(got.body) <= ROOM else dataclasses.replace(
            got, status=502, headers=(), pieces=(b"a response for which there is no room",))))
variant("fails-open-to-the-last",
        "a request whose EPP fails in its midst is sent to the last of the pool, as any without an EPP",
        changed(Gateway, unsteered=lambda _, __, pool: iter(pool.endpoints[::-1])), **OPENLY)


@variant("breaks-off", "a response whose EPP fails in its midst is cut")
class BreakingOffTalk(Talk):
    async def tell(self, response: GatewayResponse, endpoint: str | None, tried: list[str]) -> GatewayResponse:
        told = await super().tell(response, endpoint, tried)
        ended = self._stream.ended if self._stream is not None else None
        failed = ended is not None and (ended.how != "status" or ended.status != 0)
        return dataclasses.replace(told, cut=failed)

# -- others

variant("keeps-little",
        "a body of more than 10,000 bytes is not kept, so that it is sent once and not retried",
        settings={"keeps": 10_000})
variant("keeps-the-http-version",
        "requests over HTTP/2 go to the model server over HTTP/2, which it does not speak",
        settings={"keeps_version": True}, unjudged="spoke HTTP/2 to a model server")
variant("fallback", "the fallback endpoint of 0.3.0", version="0.3.0")
variant("two-pools", "a second pool with its own EPP, for when the first fails", version="next", pools=2)


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


@variant("leaves-the-first-epp",
         "an EPP that names only endpoints which take no connections is left before it has the body",
         _DialingTalk, version="next", settings={"mode": "STREAMED"}, pools=2)
class LeavesTheFirstEpp(Gateway):
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
