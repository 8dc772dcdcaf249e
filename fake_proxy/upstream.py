"""The model servers as the data plane reaches them: one small interface, and real HTTP/1.1 behind it.

`scripted` has the other implementation. An attempt runs on its own; what it gets it hands to an `UpstreamEvents`, and
waits for each call to return, so that the receiver sets the pace.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Protocol

import h11

from fake_proxy.actions import HeaderList, OpenUpstream
from fake_proxy.mutations import get
from fake_proxy.router import Failure

_READ = 64 * 1024


class UpstreamEvents(Protocol):
    """Who gets what an attempt brings; `attempt` is its number."""

    async def headers(self, attempt: int, headers: HeaderList, end: bool) -> None:
        """The response begins: `:status` first, names in lower case."""

    async def data(self, attempt: int, data: bytes, end: bool) -> None:
        """Response body."""

    async def trailers(self, attempt: int, trailers: HeaderList) -> None:
        """The response ends with trailers."""

    async def failed(self, attempt: int, how: Failure) -> None:
        """The attempt broke before the response was complete."""


class Attempt(Protocol):
    """One request on its way to one endpoint."""

    def data(self, data: bytes, end: bool) -> None:
        """More request body."""

    def trailers(self, trailers: HeaderList) -> None:
        """The request ends with trailers."""

    def abort(self) -> None:
        """Give up; no event comes any more."""

    async def wait_closed(self) -> None:
        """Wait until nothing is left of it."""


class Upstream(Protocol):
    """Where attempts go."""

    def open(self, opening: OpenUpstream, events: UpstreamEvents) -> Attempt:
        """Start an attempt with what is known of the request."""


class HttpUpstream:
    """Real model servers over HTTP/1.1, one connection per attempt; `connect_timeout` in seconds.

    One chunk of a chunked response is one piece of data, so that server-sent events keep their borders.
    """

    def __init__(self, *, connect_timeout: float = 1.0) -> None:
        self._connect_timeout = connect_timeout

    def open(self, opening: OpenUpstream, events: UpstreamEvents) -> Attempt:
        """Connect to the endpoint and send."""
        return _HttpAttempt(opening, events, self._connect_timeout)


class _HttpAttempt:
    """Writes are queued until the connection stands; a task reads."""

    def __init__(self, opening: OpenUpstream, events: UpstreamEvents, connect_timeout: float) -> None:
        self._opening = opening
        self._events = events
        self._connect_timeout = connect_timeout
        self._h11 = h11.Connection(h11.CLIENT)
        self._writer: asyncio.StreamWriter | None = None
        self._queued: list[bytes] = []
        self._left: int | None = None  # of the announced content-length
        self._broken = False
        self._begin()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def data(self, data: bytes, end: bool) -> None:
        """More request body. What exceeds an announced length is not sent, as the peer would not read it as body."""
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        if data:
            self._send(h11.Data(data=data))
        if end:
            self._send(h11.EndOfMessage())

    def trailers(self, trailers: HeaderList) -> None:
        """The end; without chunked coding there is no place for trailers."""
        self._send(h11.EndOfMessage(headers=trailers if self._left is None else []))

    def abort(self) -> None:
        """Close the connection."""
        self._task.cancel()
        self._close()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await asyncio.wait([self._task])

    def _begin(self) -> None:
        opening = self._opening
        method = (get(opening.headers, b":method") or b"").decode("latin-1")
        headers = [(b"host", get(opening.headers, b":authority") or b"")]
        # Blanks around a value are no part of it (RFC 9110, 5.5): Envoy's codec drops them, h11 refuses them.
        headers += [(name, value.strip(b" \t")) for name, value in opening.headers if not name.startswith(b":")]
        length = get(opening.headers, b"content-length")
        bodyless = opening.end and not opening.body and opening.trailers is None
        if length is not None and length.isdigit():
            self._left = int(length)
        elif bodyless:
            self._left = 0
            if method in ("POST", "PUT", "PATCH"):
                headers.append((b"content-length", b"0"))
        else:
            headers.append((b"transfer-encoding", b"chunked"))
        try:
            request = h11.Request(method=method, target=get(opening.headers, b":path") or b"/", headers=headers)
        except h11.LocalProtocolError:
            self._broken = True  # what an EPP made of the headers can't be sent as HTTP/1.1
            return
        self._send(request)
        self.data(opening.body, opening.end and opening.trailers is None)
        if opening.trailers is not None:
            self.trailers(opening.trailers)

    def _send(self, event: h11.Event) -> None:
        if self._broken:
            return
        try:
            out = self._h11.send(event) or b""
        except h11.LocalProtocolError:
            self._broken = True  # such as a body shorter than its announced length: the peer waits in vain
            self._close()
            return
        if self._writer is None:
            self._queued.append(out)
        elif not self._writer.is_closing():
            self._writer.write(out)

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def _run(self) -> None:
        attempt = self._opening.attempt
        host, _, port = self._opening.endpoint.rpartition(":")
        try:
            async with asyncio.timeout(self._connect_timeout):
                reader, self._writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, ValueError):  # TimeoutError is an OSError
            await self._events.failed(attempt, "connect-failed")
            return
        self._writer.write(b"".join(self._queued))
        if self._broken:
            self._close()
        try:
            await self._read(reader)
        except (OSError, h11.RemoteProtocolError):
            await self._events.failed(attempt, "reset")
        finally:
            self._close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        attempt, events = self._opening.attempt, self._events
        chunk = bytearray()
        ended = False
        while not ended:
            match self._h11.next_event():
                case h11.NEED_DATA:
                    self._h11.receive_data(await reader.read(_READ))
                case h11.Response(status_code=status, headers=headers):
                    ended = self._bodyless(status, dict(headers))
                    await events.headers(attempt, [(b":status", b"%d" % status), *headers], ended)
                case h11.Data(data=data, chunk_end=chunk_end):
                    chunk += data
                    if chunk_end or not self._chunked:
                        piece = bytes(chunk)
                        chunk.clear()
                        await events.data(attempt, piece, False)
                case h11.EndOfMessage(headers=trailers):
                    ended = True
                    if trailers:
                        await events.trailers(attempt, list(trailers))
                    else:
                        await events.data(attempt, b"", True)
                case h11.ConnectionClosed():
                    raise ConnectionResetError

    _chunked = False

    def _bodyless(self, status: int, headers: dict[bytes, bytes]) -> bool:
        """Whether the response ends with its headers; notes whether it comes in chunks."""
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        head = get(self._opening.headers, b":method") == b"HEAD"
        return head or status in (204, 304) or headers.get(b"content-length") == b"0"
