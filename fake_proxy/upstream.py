"""The model servers as the data plane reaches them: one small interface, and real HTTP/1.1 behind it.

`scripted` has the other implementation. An attempt runs on its own; what it gets it hands to an `UpstreamEvents`, and
waits for each call to return, so that the receiver sets the pace.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import h11

from ext_proc.turns import Turns
from ext_proc.writing import write_if_open
from fake_proxy.actions import HeaderList, OpenUpstream
from fake_proxy.header_map import get, number
from fake_proxy.router import Failure

_READ = 64 * 1024
_CHUNK = 1024 * 1024
_VERSION = b"HTTP/1."
_BODYLESS = frozenset({b"GET", b"HEAD", b"DELETE", b"CONNECT", b"TRACE"})
"""Methods whose requests need not say that they have no body."""

_TURNS = 10
"""Turns of the loop in which a connection that stands already is noticed: after a standstill, timers are first."""


class _HungUpError(Exception):
    """The connection ended where a response should begin."""


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

    def defect(self, problem: Exception) -> None:
        """The attempt ended with our own error: nothing that the endpoint did."""


class Attempt(Protocol):
    """One request on its way to one endpoint."""

    def data(self, data: bytes, end: bool) -> None:
        """More request body."""

    def trailers(self, trailers: HeaderList) -> None:
        """The request ends with trailers."""

    @property
    def unsent(self) -> int:
        """Bytes of the request that the endpoint has not taken."""

    async def drain(self) -> None:
        """Wait until the endpoint takes more of the request, or it is over."""

    def abort(self) -> None:
        """Give up; no event comes any more."""

    async def wait_closed(self) -> None:
        """Wait until nothing is left of it."""


class Upstream(Protocol):
    """Where attempts go."""

    def open(self, opening: OpenUpstream, events: UpstreamEvents) -> Attempt:
        """Start an attempt with what is known of the request."""


def attempt_task(work: Coroutine[Any, Any, None], events: UpstreamEvents) -> asyncio.Task[None]:
    """Start `work`, an attempt; an exception that it ends with is told as a defect."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(problem := task.exception(), Exception):
            events.defect(problem)

    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(ended)
    return task


class HttpUpstream:
    """Real model servers over HTTP/1.1, one connection per attempt; `connect_timeout` in seconds.

    An endpoint that `may_dial` refuses is out of reach, as if it refused the connection.

    One chunk of a chunked response is one piece of data, so that server-sent events keep their borders; one above
    1 MiB comes in several.
    """

    def __init__(
        self, *, connect_timeout: float = 1.0, may_dial: Callable[[str], bool] = lambda _endpoint: True
    ) -> None:
        self._connect_timeout = connect_timeout
        self._may_dial = may_dial

    def open(self, opening: OpenUpstream, events: UpstreamEvents) -> Attempt:
        """Connect to the endpoint and send."""
        reachable = self._may_dial(opening.endpoint)
        return _HttpAttempt(opening, events, self._connect_timeout, reachable=reachable)


class _HttpAttempt:
    """Writes are queued until the connection stands; a task reads.

    The request is written as it is, right or wrong, as Envoy's codec does: it is for the model server to refuse. `h11`
    only reads the response.
    """

    def __init__(
        self, opening: OpenUpstream, events: UpstreamEvents, connect_timeout: float, *, reachable: bool
    ) -> None:
        self._opening = opening
        self._events = events
        self._connect_timeout = connect_timeout
        self._turns = Turns()
        self._reachable = reachable
        self._h11 = h11.Connection(h11.CLIENT)
        self._writer: asyncio.StreamWriter | None = None
        self._queued: list[bytes] = []
        self._connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left: int | None = None  # of the announced content-length; None: in chunks
        self._begin()
        self._task = attempt_task(self._run(), events)

    def data(self, data: bytes, end: bool) -> None:
        """More request body. What exceeds an announced length is not sent, as the peer would not read it as body; where
        it is not reached, the peer waits."""
        if self._left is None:
            if data:
                self._write(b"%x\r\n%b\r\n" % (len(data), data))
            if end:
                self._write(b"0\r\n\r\n")
        else:
            self._write(data[: self._left])
            self._left = max(0, self._left - len(data))

    def trailers(self, trailers: HeaderList) -> None:
        """The end; without chunked coding there is no place for trailers."""
        if self._left is None:
            self._write(b"0\r\n" + _lines(trailers) + b"\r\n")

    @property
    def unsent(self) -> int:
        """Bytes that wait for the connection, or for its peer to read."""
        if self._writer is None:
            return sum(map(len, self._queued))
        return self._writer.transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until the connection takes more, or is gone."""
        await asyncio.wait([self._task, self._connected], return_when=asyncio.FIRST_COMPLETED)
        if self._writer is not None:
            with contextlib.suppress(OSError):
                await self._writer.drain()

    def abort(self) -> None:
        """Close the connection."""
        self._task.cancel()
        self._close()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await asyncio.wait([self._task])

    def _begin(self) -> None:
        opening = self._opening
        method, path, authority = (get(opening.headers, name) or b"" for name in (b":method", b":path", b":authority"))
        headers = [(b"host", authority), *(pair for pair in opening.headers if not pair[0].startswith(b":"))]
        length = number(get(headers, b"content-length"))
        if length is not None:
            self._left = length
        elif opening.end and not opening.body and opening.trailers is None:
            self._left = 0
            if method not in _BODYLESS:
                headers.append((b"content-length", b"0"))
        else:
            headers.append((b"transfer-encoding", b"chunked"))
        self._write(b"%b %b HTTP/1.1\r\n%b\r\n" % (method, path, _lines(headers)))
        self.data(opening.body, opening.end and opening.trailers is None)
        if opening.trailers is not None:
            self.trailers(opening.trailers)
        # all that the reader must know of the request
        self._h11.send(h11.Request(method="HEAD" if method == b"HEAD" else "GET", target="/", headers=[("host", "")]))
        self._h11.send(h11.EndOfMessage())

    def _write(self, data: bytes) -> None:
        if self._writer is None:
            self._queued.append(data)
        else:
            write_if_open(self._writer, data)

    def _close(self) -> None:
        """Drop what the peer has not taken: waiting for one that never reads would have no end."""
        if self._writer is not None:
            self._writer.transport.abort()

    async def _run(self) -> None:
        attempt = self._opening.attempt
        host, _, port = self._opening.endpoint.rpartition(":")
        try:
            if not self._reachable:
                raise ConnectionRefusedError
            reader, self._writer = await _connect(host.strip("[]"), int(port), self._connect_timeout)
        except (OSError, ValueError):  # TimeoutError is an OSError
            await self._events.failed(attempt, "connect-failed")
            return
        self._write(b"".join(self._queued))
        self._queued.clear()
        self._connected.set_result(None)
        try:
            await self._read(reader)
        except _HungUpError:
            await self._events.failed(attempt, "reset")
        except h11.RemoteProtocolError:
            await self._events.failed(attempt, "protocol-error")
        finally:
            self._close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Read the response. As in Envoy, body is passed on when all that was read at once turned out to be right.

        Raises `_HungUpError` if the connection ended before a response, `h11.RemoteProtocolError` for what is none.
        """
        attempt, events = self._opening.attempt, self._events
        chunk = bytearray()
        pieces: list[bytes] = []
        while True:
            await self._turns.taken()
            match self._h11.next_event():
                case h11.NEED_DATA:
                    await self._pass(pieces)
                    self._h11.receive_data(await self._receive(reader))
                case h11.Response(status_code=status, headers=headers):
                    ended = self._bodyless(status, dict(headers))
                    await events.headers(attempt, [(b":status", b"%d" % status), *headers], ended)
                    if ended:
                        return
                case h11.Data(data=data, chunk_end=chunk_end):
                    chunk += data
                    if chunk_end or not self._chunked or len(chunk) >= _CHUNK:
                        pieces.append(bytes(chunk))
                        chunk.clear()
                case h11.EndOfMessage(headers=trailers):
                    await self._pass(pieces)
                    if trailers:
                        await events.trailers(attempt, list(trailers))
                    else:
                        await events.data(attempt, b"", True)
                    return

    async def _receive(self, reader: asyncio.StreamReader) -> bytes:
        """More of the response; empty at the end of the connection, however it ended."""
        try:
            data = await reader.read(_READ)
        except OSError:
            data = b""
        if self._h11.their_state is h11.SEND_RESPONSE:
            head = self._h11.trailing_data[0] + data
            if not head:
                raise _HungUpError
            if not head.startswith(_VERSION[: len(head)]):
                raise h11.RemoteProtocolError("this is not HTTP/1")
        return data

    async def _pass(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            await self._turns.taken()
            await self._events.data(self._opening.attempt, piece, False)
        pieces.clear()

    _chunked = False

    def _bodyless(self, status: int, headers: dict[bytes, bytes]) -> bool:
        """Whether the response ends with its headers; notes whether it comes in chunks."""
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        head = get(self._opening.headers, b":method") == b"HEAD"
        return head or status in (204, 304) or headers.get(b"content-length") == b"0"


async def _connect(host: str, port: int, timeout: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises `OSError` if there is no connection after `timeout` seconds, in which our loop may have stood still."""
    connecting = asyncio.ensure_future(asyncio.open_connection(host, port))
    try:
        await asyncio.wait([connecting], timeout=timeout)
        for _ in range(_TURNS):
            if connecting.done():
                return connecting.result()
            await asyncio.sleep(0)
        raise TimeoutError
    except BaseException:
        if not connecting.cancel() and connecting.exception() is None:
            connecting.result()[1].transport.abort()  # it stood when the attempt was given up
        raise


def _lines(headers: HeaderList) -> bytes:
    """Header lines; blanks around a value are no part of it (RFC 9110, 5.5), and Envoy drops them."""
    return b"".join(b"%b: %b\r\n" % (name, value.strip(b" \t")) for name, value in headers)
