"""An HTTP/2 connection on asyncio: `Http2Connection` decides, this reads, writes and waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from ext_proc.http2.address import format_address
from ext_proc.http2.connection import Http2Connection
from ext_proc.http2.frames import ErrorCode
from ext_proc.http2.streams import Sink
from ext_proc.record import Headers

_HIGH_WATER = 256 * 1024
"""Bytes in the socket's buffer above which queued data waits, so that a large body can't delay others for long."""

_UNREAD_LIMIT = 1024 * 1024
"""Bytes of control frames kept for a peer that does not read."""

_LINGER = 1.0
"""Seconds that a close waits for unsent bytes before it cuts the connection."""


class Transport(asyncio.Protocol):
    """One connection. All methods are for the event loop's thread; those that are not `async` never block.

    Writes are collected and made once per turn of the event loop.
    """

    def __init__(
        self, connection: Http2Connection, *, number: int = 1, on_made: Callable[[Transport], None] | None = None
    ) -> None:
        self.connection = connection
        self.number = number
        """Which connection this is, as the record names it."""
        self.peer = ""
        """`host:port` of the other end."""
        self.first_bytes = b""
        """The first bytes received: what a peer that is not HTTP/2 said."""
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._paused = False
        self._scheduled = False
        self._draining: dict[int, list[asyncio.Future[None]]] = {}
        self._opening: list[asyncio.Future[None]] = []
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._on_lost: list[Callable[[], None]] = []
        self._linger: asyncio.TimerHandle | None = None
        self._on_made = on_made

    # -- streams -------------------------------------------------------------------------------------------------------

    def can_open(self) -> bool:
        """True if a stream may be opened now."""
        return self.connection.can_open() and not self.closed

    async def wait_open(self) -> bool:
        """Wait until a stream may be opened (True), or never again on this connection (False)."""
        while not self.can_open():
            if self.retired:
                return False
            waiter = self._loop.create_future()
            self._opening.append(waiter)
            await waiter
        return True

    def open(self, headers: Headers, sink: Sink, *, end: bool = False) -> int:
        """Open a stream and return its number. Raises `RuntimeError` unless `can_open()`."""
        stream = self.connection.open(headers, sink, end=end)
        self._schedule()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Send `data` (queued where windows are small); `end` closes our side. Nothing if the stream is over."""
        self.connection.send(stream, data, end=end)
        self._schedule()

    def sending(self, stream: int) -> int:
        """0 if all that was sent on `stream` has left its queue; else a number that changes while it comes to that."""
        return self.connection.sending(stream)

    def send_headers(self, stream: int, headers: Headers, *, end: bool = False) -> None:
        """Send a header list: a server's head or, with `end`, trailers."""
        self.connection.send_headers(stream, headers, end=end)
        self._schedule()

    def reset(self, stream: int, code: int = ErrorCode.CANCEL) -> None:
        """End a stream with RST_STREAM; frames that still arrive for it go to its sink."""
        self.connection.reset(stream, code)
        self._schedule()
        self._wake()

    def hold(self, stream: int, held: bool) -> None:
        """Give the peer no more flow-control credit for `stream` while it is `held`."""
        self.connection.hold(stream, held)
        self._schedule()

    async def drain(self, stream: int) -> None:
        """Wait until all that was sent on `stream` has left its queue, or the stream is over."""
        while self.connection.queued(stream) and not self.closed:
            waiter = self._loop.create_future()
            self._draining.setdefault(stream, []).append(waiter)
            await waiter

    # -- the connection ------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """True once the connection is closed or closing."""
        return self._socket is None or self._socket.is_closing()

    @property
    def retired(self) -> bool:
        """True if this connection takes no new stream ever again: closed, going away, or made dirty on purpose."""
        return self.closed or self.connection.retired

    async def wait_ready(self) -> bool:
        """Wait for the peer's SETTINGS; False if the connection broke first."""
        await asyncio.shield(self._ready)
        return self.connection.ready

    async def wait_closed(self) -> None:
        """Wait until the connection is gone."""
        await asyncio.shield(self._lost)

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the connection is gone."""
        self._on_lost.append(callback)

    def goaway(self, code: int = ErrorCode.NO_ERROR, last_stream: int | None = None, debug: bytes = b"") -> None:
        """Say GOAWAY and stay: streams up to `last_stream` go on."""
        self.connection.goaway(code, last_stream, debug)
        self._schedule()

    def write_raw(self, data: bytes) -> None:
        """Write `data` as it is, for frames that are wrong on purpose; the connection opens no stream afterwards."""
        self.connection.write_raw(data)
        self._schedule()

    def flush(self) -> None:
        """Write soon what `connection` has to say: for an owner that made it say something without this transport."""
        self._schedule()

    def close(self, code: int = ErrorCode.NO_ERROR) -> None:
        """Say GOAWAY and close; open streams end as `lost`. Idempotent."""
        if self._socket is None or self._socket.is_closing():
            return
        self.connection.goaway(code)
        self._end("closed by us")

    def abort(self) -> None:
        """Cut the connection without a word."""
        if self._socket is not None:
            self._socket.abort()

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self.peer = _peer(transport.get_extra_info("peername"))
        self._socket.set_write_buffer_limits(high=_HIGH_WATER)
        if self._on_made is not None:
            self._on_made(self)
        self._flush()

    def data_received(self, data: bytes) -> None:
        connection = self.connection
        if not connection.ready and len(self.first_bytes) < 64:
            self.first_bytes += data[:64]
        connection.receive(data)
        if connection.failure is not None:
            self._end(connection.failure)
            return
        if connection.ready and not self._ready.done():
            self._ready.set_result(None)
        if self._paused and connection.output_size() > _UNREAD_LIMIT:
            connection.lost("the peer sends but does not read")
            self.abort()
            return
        self._schedule()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        if self._linger is not None:
            self._linger.cancel()
        try:
            self.connection.lost(f"the connection broke: {exc}" if exc else "the peer closed the connection")
        finally:  # whatever a stream's owner does with the news, no other waits without end
            for waiter in (self._ready, self._lost):
                if not waiter.done():
                    waiter.set_result(None)
            self._wake()
        callbacks, self._on_lost = self._on_lost, []
        for callback in callbacks:
            callback()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._schedule()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        if self._paused or self.closed:
            return
        assert self._socket is not None
        data = self.connection.output()
        if data:
            try:
                self._socket.write(data)
            except (
                RuntimeError
            ) as problem:  # uvloop closes without a word what is no longer waited for while it connects
                self.connection_lost(problem)
                return
            if self.connection.has_output() and not self._paused:
                self._schedule()
        if self.connection.going_away and not self.connection.open_streams:
            self._end("the peer sent GOAWAY and all streams are done")
        elif self._opening or self._draining:
            self._wake()

    def _end(self, reason: str) -> None:
        """Write what is left (a GOAWAY), then close; cut the connection if the peer does not take it in time."""
        if self._socket is None or self._socket.is_closing():
            return
        self._socket.write(self.connection.output())
        self.connection.lost(reason)
        self._socket.close()
        self._linger = self._loop.call_later(_LINGER, self.abort)
        self._wake()

    def _wake(self) -> None:
        """Let waiters look again."""
        if self._opening and (self.retired or self.can_open()):
            opening, self._opening = self._opening, []
            _release(opening)
        for stream in list(self._draining):
            if self.closed or not self.connection.queued(stream):
                _release(self._draining.pop(stream))


def _release(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


def _peer(peername: Any) -> str:
    return format_address(*peername[:2]) if isinstance(peername, tuple) else str(peername or "")
