"""An HTTP client that does to a real gateway what `HttpRequest` says: pieces, pauses, trailers, going away.

Both protocols are spoken on a new connection for each request, so that a request ends without traces.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable

import h11

from ext_proc.http2.address import split_address
from ext_proc.http2.connection import Http2Connection
from ext_proc.http2.dial import connect
from ext_proc.http2.errors import ConnectFailed, ConnectTimedOut
from ext_proc.http2.frames import ErrorCode, Setting
from ext_proc.http2.streams import CloseKind
from ext_proc.http2.transport import Transport
from ext_proc.record import Headers, header
from ext_proc.turns import Turns
from ext_proc.writing import write_if_open
from fake_proxy.client import AbortPoint, HttpRequest
from real_envoy.http_response import HttpResponse, ResponseParts

_READ = 64 * 1024

CONNECT = 5.0
"""Seconds for a connection, with the gateway's settings if it is one of HTTP/2."""

CONTINUE = 0.2
"""Seconds for which a client with `expect: 100-continue` waits before it sends its body all the same: no server has to
say that it may (RFC 9110, 10.1.1)."""

EchoReached = Callable[[int], Awaitable[None]]
"""Waits until that many bytes of request body have come through the gateway; only the model server's side can know."""

Leaving = Callable[[], Awaitable[None]]
"""Waits until the gateway has got hold of what was sent, before the client goes away in the midst of its request."""


async def send_request(
    address: str,
    request: HttpRequest,
    *,
    echo: EchoReached | None = None,
    leaving: Leaving | None = None,
    gone: Callable[[AbortPoint], None] | None = None,
    timeout: float = 10.0,
) -> HttpResponse:
    """Send `request` to the gateway at `host:port` and read its response, within `timeout` seconds.

    The response is read while the request is still being sent, and may end it early. `echo` carries out the waits of
    chunks with `await_echo`; without it they are no waits. `gone` is told where the client goes away. The abort point
    `destination` can't be seen by a client: `ValueError`. Raises `OSError` if the gateway can't be reached, which is
    `TimeoutError` if it leaves the connection waiting for `CONNECT` seconds; whatever else it does is in the response.
    """
    if request.abort is not None and request.abort.at == "destination":
        raise ValueError("abort at 'destination': a client of a real gateway does not see the choice of an endpoint")
    response = ResponseParts(request.abort, gone)
    exchange = Http1Exchange(address, request, response) if request.http == 1 else _Http2(address, request, response)
    await exchange.connect()
    sending = response.task(_send(exchange, request, response, echo, leaving))
    try:
        async with asyncio.timeout(timeout):
            await response.over.wait()
    except TimeoutError:
        response.expired = True
    finally:
        sending.cancel()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await sending
        finally:
            await exchange.close()
    return response.result()


async def _send(
    exchange: Http1Exchange | _Http2,
    request: HttpRequest,
    response: ResponseParts,
    echo: EchoReached | None,
    leaving: Leaving | None,
) -> None:
    async def reached(point: AbortPoint, count: int = 1) -> bool:
        if leaving is not None and response.due(point, count):
            await leaving()
        return response.reached(point, count)

    chunks, trailers = request.chunks, tuple((name.lower(), value) for name, value in request.trailers)
    chunked = request.unannounced
    bodyless = not chunks and not chunked and not trailers
    await exchange.head(request_headers(request, chunked=chunked), chunked=chunked, end=bodyless)
    if await reached("request-headers"):
        return
    sent = 0
    for number, chunk in enumerate(chunks, 1):
        last = number == len(chunks) and not trailers
        if chunk.after:
            await asyncio.sleep(chunk.after)
        await exchange.data(chunk.data, end=last)
        sent += len(chunk.data)
        if await reached("request-body", number):
            return
        if chunk.await_echo and echo is not None:
            await echo(sent)
    if not bodyless:
        exchange.end(trailers)
    await reached("request")


def request_headers(request: HttpRequest, *, chunked: bool) -> Headers:
    """The headers of `request`, with its length where that is announced."""
    body = bool(request.chunks) or request.method in ("POST", "PUT", "PATCH")
    announced = any(name.lower() == b"content-length" for name, _ in request.headers)
    if chunked or not body or announced:
        return request.headers
    return (*request.headers, (b"content-length", b"%d" % sum(len(chunk.data) for chunk in request.chunks)))


class Http1Exchange:
    """The request written by hand, so that every flush is one write; the response read by h11."""

    def __init__(self, address: str, request: HttpRequest, response: ResponseParts) -> None:
        self._address = address
        self._request = request
        self._response = response
        self._chunked = False
        self._h11 = h11.Connection(h11.CLIENT)

    async def connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT):
                self._reader, self._writer = await asyncio.open_connection(*split_address(self._address))
        except TimeoutError:
            raise TimeoutError(f"{self._address}: the TCP connection did not come within {CONNECT:g} s") from None
        self._begin()

    @property
    def reusable(self) -> bool:
        """Whether another request may follow the one that is complete."""
        done = self._h11.their_state is h11.DONE and self._h11.our_state is h11.DONE
        return done and not (self._writer.is_closing() or self._reader.at_eof() or _closed(self._writer))

    def again(self, request: HttpRequest, response: ResponseParts) -> None:
        """Take another request on the connection."""
        self._request, self._response = request, response
        self._h11.start_next_cycle()
        self._begin()

    def _begin(self) -> None:
        self._h11.send(h11.Request(method=self._request.method, target="/", headers=[("host", "-")]))
        self._h11.send(h11.EndOfMessage())
        self._may_go_on = asyncio.Event()
        self._reading = self._response.task(self._read(self._reader))

    async def head(self, headers: Headers, *, chunked: bool, end: bool) -> None:  # noqa: ARG002 - the framing says the end
        self._chunked = chunked
        request = self._request
        url = f"{request.scheme}://{request.authority}" if request.written == "absolute-form" else ""
        version = "1.0" if request.written == "http-1.0" else "1.1"
        lines = [f"{request.method} {url}{request.path} HTTP/{version}\r\nhost: {request.authority}".encode()]
        lines += [name + b": " + value for name, value in headers]
        if chunked:
            lines.append(b"transfer-encoding: chunked")
        write_if_open(self._writer, b"\r\n".join(lines) + b"\r\n\r\n")

    async def data(self, data: bytes, *, end: bool) -> None:  # noqa: ARG002 - `end` says it
        if header(self._request.headers, b"expect") is not None and not self._may_go_on.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CONTINUE):
                    await self._may_go_on.wait()
            self._may_go_on.set()
        write_if_open(self._writer, b"%x\r\n%b\r\n" % (len(data), data) if self._chunked and data else data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def end(self, trailers: Headers) -> None:
        if self._chunked:
            lines = b"".join(name + b": " + value + b"\r\n" for name, value in trailers)
            write_if_open(self._writer, b"0\r\n" + lines + b"\r\n")

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await self._reading

    async def _read(self, reader: asyncio.StreamReader) -> None:
        response, turns = self._response, Turns()
        try:
            while not response.over.is_set():
                await turns.taken()
                match self._h11.next_event():
                    case h11.NEED_DATA:
                        self._h11.receive_data(await reader.read(_READ))
                    case h11.InformationalResponse(status_code=100):
                        self._may_go_on.set()
                    case h11.Response(status_code=status, headers=headers):
                        self._may_go_on.set()
                        response.head(status, tuple(headers))
                    case h11.Data(data=data):
                        response.data(bytes(data))
                    case h11.EndOfMessage(headers=trailers):
                        response.trailers = tuple(trailers)
                        response.end(complete=True)
                    case h11.ConnectionClosed():
                        response.end(complete=False)
        except (OSError, h11.RemoteProtocolError):
            response.end(complete=False)


def _closed(writer: asyncio.StreamWriter) -> bool:
    """Whether the gateway has closed, also where the event loop has not read that yet."""
    with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as same:
        try:
            return not same.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


def _connection() -> Http2Connection:
    return Http2Connection(settings=((Setting.ENABLE_PUSH, 0), (Setting.INITIAL_WINDOW_SIZE, 16 * 1024 * 1024)))


class _Http2:
    """One stream on a connection with prior knowledge; the end rides on the last DATA frame."""

    def __init__(self, address: str, request: HttpRequest, response: ResponseParts) -> None:
        self._address = address
        self._request = request
        self._response = response
        self._transport: Transport
        self._stream = 0
        self._ended = False

    async def connect(self) -> None:
        try:
            self._transport = await connect(self._address, timeout=CONNECT, connection=_connection)
        except ConnectFailed as problem:
            kind = TimeoutError if isinstance(problem, ConnectTimedOut) else ConnectionError
            raise kind(f"{problem.where}: {problem.what}") from problem  # its hint is for EPPs

    async def head(self, headers: Headers, *, chunked: bool, end: bool) -> None:  # noqa: ARG002 - frames need no coding
        request = self._request
        pseudo = (
            (b":method", request.method.encode()),
            (b":path", request.path.encode()),
            (b":scheme", request.scheme.encode()),
            (b":authority", request.authority.encode()),
        )
        lower = tuple((name.lower(), value) for name, value in headers)
        if not await self._transport.wait_open():  # it was closed, or said GOAWAY, as it was made
            raise ConnectionError(f"{self._address}: the HTTP/2 connection takes no request")
        self._stream = self._transport.open((*pseudo, *lower), self, end=end)

    async def data(self, data: bytes, *, end: bool) -> None:
        self._ended = end
        self._transport.send(self._stream, data, end=end)
        await self._transport.drain(self._stream)

    def end(self, trailers: Headers) -> None:
        if trailers:
            self._transport.send_headers(self._stream, trailers, end=True)
        elif not self._ended:
            self._transport.send(self._stream, b"", end=True)

    async def close(self) -> None:
        if not self._response.complete:
            self._transport.reset(self._stream, ErrorCode.CANCEL)
        self._transport.close()
        await self._transport.wait_closed()

    # -- what the gateway does (Sink) ----------------------------------------------------------------------------------

    def on_headers(self, headers: Headers, end: bool, /) -> None:
        response = self._response
        fields = tuple((name, value) for name, value in headers if not name.startswith(b":"))
        status = header(headers, b":status")
        if status is None:
            response.trailers = fields
        elif not status.isdigit():
            response.end(complete=False)
        elif int(status) >= 200:
            response.head(int(status), fields)
        if end:
            response.end(complete=True)

    def on_data(self, data: bytes, end: bool, /) -> None:
        self._response.data(data)
        if end:
            self._response.end(complete=True)

    def on_closed(self, kind: CloseKind, _code: int, _reason: str, /) -> None:
        self._response.end(complete=kind == "end")
