"""HTTP/1.1 and HTTP/2 (prior knowledge) on one port: requests in whole, responses out whole."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

import h11

from ext_proc.http2.connection import SERVER_SETTINGS, Http2Connection
from ext_proc.http2.frames import ErrorCode
from ext_proc.http2.streams import CloseKind
from ext_proc.http2.transport import Transport
from ext_proc.record import Headers

_READ = 64 * 1024
_PREFACE = b"PRI"
_ABSOLUTE = re.compile(rb"https?://([^/]*)(?=/)", re.IGNORECASE)
"""What is before the path in the whole URL."""
FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection", b"host"})
"""Headers that a gateway makes itself."""
_HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"proxy-connection"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayRequest:
    """A request. Names of headers are in lower case; `connection` numbers the client's connection."""

    method: str
    path: str
    authority: str
    headers: Headers
    body: bytes = b""
    trailers: Headers = ()
    http: Literal[1, 2] = 1
    connection: int = 0
    written: Literal["ordinary", "absolute-form", "http-1.0"] = "ordinary"

    @property
    def bodyless(self) -> bool:
        """Whether it ended with its headers."""
        return not self.body and not self.trailers


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayResponse:
    """A response; without headers for framing."""

    status: int
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers = field(default=())
    cut: bool = False
    """Only half of the body is sent, and no end: a fault."""
    uncalled_for: bool = False
    """The body is sent over HTTP/2 where the request is HEAD, too: a fault."""

    @property
    def sent(self) -> bytes:
        """What is sent of the body."""
        return self.body[: len(self.body) // 2] if self.cut else self.body


Handler = Callable[[GatewayRequest], Awaitable[GatewayResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSide:
    """How clients are served. `continues`: those that expect 100 get it."""

    handler: Handler
    http2: bool = True
    continues: bool = True
    cut_is_whole: bool = False
    """The end of a client is taken for the end of its request, which is a fault."""


async def listen(host: str, port: int, side: ClientSide) -> asyncio.Server:
    """Serve on `host:port`. Raises `OSError` if it can't be bound."""
    numbers = itertools.count(1)
    return await asyncio.get_running_loop().create_server(lambda: _Either(side, next(numbers)), host, port)


class _Either(asyncio.Protocol):
    """Becomes what the client speaks, by its first bytes."""

    def __init__(self, side: ClientSide, number: int) -> None:
        self._side = side
        self._number = number
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        protocol = self._http2() if self._side.http2 and data.startswith(_PREFACE) else self._http1()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(data)

    def _http1(self) -> asyncio.Protocol:
        loop = asyncio.get_running_loop()
        serve = _Http1(self._side, self._number)
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(_READ, loop), serve, loop)

    def _http2(self) -> asyncio.Protocol:
        def accept(stream: int, headers: Headers, end: bool) -> _Http2:
            return _Http2(transport, stream, headers, end, self._side, self._number)

        transport = Transport(Http2Connection(settings=SERVER_SETTINGS, accept=accept), number=self._number)
        return transport


class _Http1:
    """An HTTP/1.1 connection: request after request."""

    def __init__(self, side: ClientSide, number: int) -> None:
        self._side = side
        self._number = number
        self._http = h11.Connection(h11.SERVER)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await self._request(reader, writer)) is not None:
                writer.write(self._framed(request, await self._side.handler(request)))
                await writer.drain()
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    break
                self._http.start_next_cycle()
        except (OSError, h11.RemoteProtocolError, h11.LocalProtocolError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> GatewayRequest | None:
        head: h11.Request | None = None
        body = bytearray()
        while True:
            match self._http.next_event():
                case h11.NEED_DATA:
                    if self._side.continues and self._http.they_are_waiting_for_100_continue:
                        going_on = self._http.send(h11.InformationalResponse(status_code=100, headers=[]))
                        writer.write(going_on or b"")
                    data = await self._read(reader)
                    if not data and head is not None and self._side.cut_is_whole:
                        return self._whole(head, bytes(body), ())
                    self._http.receive_data(data)
                case h11.Request() as head:
                    pass
                case h11.Data(data=piece):
                    body += piece
                case h11.EndOfMessage(headers=trailers) if head is not None:
                    return self._whole(head, bytes(body), tuple(trailers))
                case _:
                    return None

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        """What comes next; nothing if the client is gone."""
        try:
            return await reader.read(_READ)
        except OSError:
            return b""

    def _whole(self, head: h11.Request, body: bytes, trailers: Headers) -> GatewayRequest:
        headers = tuple((name.lower(), value) for name, value in head.headers)
        host = next((value for name, value in headers if name == b"host"), b"")
        absolute = _ABSOLUTE.match(head.target)
        version: Literal["ordinary", "http-1.0"] = "http-1.0" if head.http_version == b"1.0" else "ordinary"
        return GatewayRequest(
            method=head.method.decode("ascii"),
            path=(head.target[absolute.end() :] if absolute else head.target).decode("latin-1"),
            authority=(absolute[1] if absolute else host).decode("latin-1"),
            written="absolute-form" if absolute else version,
            headers=tuple(pair for pair in headers if pair[0] != b"host" and pair[0] not in _HOP_BY_HOP),
            body=body,
            trailers=tuple((name.lower(), value) for name, value in trailers),
            connection=self._number,
        )

    def _framed(self, request: GatewayRequest, response: GatewayResponse) -> bytes:
        headers = [pair for pair in response.headers if pair[0] not in _HOP_BY_HOP and pair[0] != b"content-length"]
        bodyless = request.method == "HEAD" or response.status in (204, 304)
        if response.trailers and not bodyless:
            headers.append((b"transfer-encoding", b"chunked"))
        elif response.status not in (204, 304):
            headers.append((b"content-length", b"%d" % len(response.body)))
        parts: list[h11.Event] = [h11.Response(status_code=response.status, headers=headers)]
        if response.body and not bodyless:
            parts.append(h11.Data(data=response.sent))
        if not response.cut:
            parts.append(h11.EndOfMessage(headers=list(response.trailers) if not bodyless else []))
        return b"".join(self._http.send(part) or b"" for part in parts)


class _Http2:
    """One HTTP/2 stream, as the sink of its connection."""

    def __init__(
        self, transport: Transport, stream: int, headers: Headers, end: bool, side: ClientSide, number: int
    ) -> None:
        self._transport = transport
        self._stream = stream
        self._head = headers
        self._side = side
        self._number = number
        self._body = bytearray()
        self._trailers: Headers = ()
        self._answering: asyncio.Task[None] | None = None
        if end:
            self._complete()

    def on_headers(self, headers: Headers, end: bool, /) -> None:
        self._trailers = headers
        if end:
            self._complete()

    def on_data(self, data: bytes, end: bool, /) -> None:
        self._body += data
        if end:
            self._complete()

    def on_closed(self, kind: CloseKind, _code: int, _reason: str, /) -> None:
        if kind != "end" and self._answering is not None:
            self._answering.cancel()
        elif kind != "end" and self._side.cut_is_whole:
            self._complete()

    def _complete(self) -> None:
        pseudo = {name: value.decode("latin-1") for name, value in self._head if name.startswith(b":")}
        request = GatewayRequest(
            method=pseudo.get(b":method", ""),
            path=pseudo.get(b":path", ""),
            authority=pseudo.get(b":authority", ""),
            headers=tuple(pair for pair in self._head if not pair[0].startswith(b":")),
            body=bytes(self._body),
            trailers=self._trailers,
            http=2,
            connection=self._number,
        )
        self._answering = asyncio.get_running_loop().create_task(self._answer(request))

    async def _answer(self, request: GatewayRequest) -> None:
        try:
            response = await self._side.handler(request)
        except Exception:
            self._transport.reset(self._stream, ErrorCode.INTERNAL_ERROR)
            raise
        head = ((b":status", b"%d" % response.status), *(p for p in response.headers if p[0] not in _HOP_BY_HOP))
        body = b"" if request.method == "HEAD" and not response.uncalled_for else response.sent
        self._transport.send_headers(self._stream, head, end=not body and not response.trailers)
        if body:
            self._transport.send(self._stream, body, end=not response.trailers and not response.cut)
        if response.cut:
            self._transport.reset(self._stream, ErrorCode.INTERNAL_ERROR)
        elif response.trailers:
            self._transport.send_headers(self._stream, response.trailers, end=True)
