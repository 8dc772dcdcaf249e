"""Gateways that are odd, or configured otherwise, and right."""

from __future__ import annotations

import time
from typing import Any

from ext_proc.channel import Channel
from ext_proc.http2.errors import ConnectFailed
from ext_proc.record import header
from ext_proc.stream import ProcessStream
from reference_gateway.epp_client import Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest, GatewayResponse
from reference_gateway.relay import Gateway, Settings


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
        name="keeps-little",
        why="a body of more than 10,000 bytes is not kept, so that it is sent once and not retried",
        settings={"keeps": 10_000},
    ),
    Fault(name="fallback", why="the fallback endpoint of 0.3.0", version="0.3.0"),
    Fault(name="two-pools", why="a second pool with its own EPP, for when the first fails", version="next", pools=2),
)
