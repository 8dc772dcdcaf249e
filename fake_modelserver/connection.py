"""HTTP/1.1 server side of a pod: one asyncio protocol on httptools.

Why our own and not an ASGI server: pods come and go at run time, connections are reset at a chosen byte, responses
have trailers and header names in any case, and a scrape costs half as much.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import cast

import httptools

from fake_modelserver.feed import Chain
from fake_modelserver.messages import Framing, Request, Response, error_response
from fake_modelserver.toxics import Line, LineEnded

MAX_HEADERS = 1 << 20
"""Bytes of request line and headers; more is answered 431."""

MAX_BODY = 64 << 20
"""Bytes of a request's body; more is answered 413."""

_PIPELINED = 16
_RST = struct.pack("ii", 1, 0)


class Connection(asyncio.Protocol):
    """One client connection. `answer` turns a request into a response; it is called when the request's turn comes.

    `connections` holds every open connection of the pod; this one enters and leaves it by itself.
    """

    def __init__(self, answer: Callable[[Request], Response], connections: Connections) -> None:
        self._answer = answer
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request | Response] = deque()
        self._task: asyncio.Task[None] | None = None
        self._drained: asyncio.Future[None] | None = None
        self._writable = True
        self._refused = False
        self._half_closed = False
        self._live = False
        self._offer: list[tuple[bytes, bytes]] | None = None
        self._transport: asyncio.Transport = cast("asyncio.Transport", None)
        self._start_message()

    # -- the transport's side ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._connections.add(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        if self._task is not None:
            self._task.cancel()
        self._connections.discard(self)

    def eof_received(self) -> bool:
        # A client may half-close and wait for its answer. While that is being made, engines take it for one that left.
        self._half_closed = True
        return self._task is not None and not self._live

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        while data and not self._refused:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_offer() + data[upgrade.args[0] :]
            except httptools.HttpParserError as problem:
                if not self._refused:
                    self._connections.spoken[_protocol(data)] += 1
                    self._refuse(400, f"not an HTTP/1.1 request: {problem}")
            else:
                break
        self._advance()

    def _without_offer(self) -> bytes:
        """The head just read, to be read again less its offer of another protocol: with one the body is not parsed.

        We speak no other; Java's own client offers HTTP/2 with every request, and goes on in HTTP/1.1.
        """
        method, version, has_offer = self._parser.get_method(), self._parser.get_http_version(), self._has_offer
        self._parser = httptools.HttpRequestParser(self)
        if not has_offer:  # a CONNECT: it is answered, and what follows is HTTP/1.1 still
            self._start_message()
            return b""
        self._offer = self._fields
        fields = b"".join(b"%b: %b\r\n" % field for field in self._fields if field[0].lower() != b"upgrade")
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self._url, version.encode(), fields)

    def abort(self) -> None:
        """Drop the connection now, whatever it is doing."""
        self._transport.abort()

    def reset(self) -> None:
        """Send RST: what a crashed server's kernel does."""
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)
        self._transport.abort()

    @property
    def _has_offer(self) -> bool:
        """Whether the head just read offers another protocol; the parser stops after a CONNECT, too, which does not."""
        return bool(self._parser.should_upgrade()) and self._parser.get_method() != b"CONNECT"

    # -- the parser's side ---------------------------------------------------------------------------------------------

    def _start_message(self) -> None:
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._trailers: list[tuple[bytes, bytes]] = []
        self._head = True
        self._head_size = 0
        self._body: list[bytes] = []
        self._body_size = 0

    def on_message_begin(self) -> None:
        self._start_message()

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        (self._fields if self._head else self._trailers).append((name, value))
        self._count_head(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        self._head = False
        if self._has_offer:
            return
        if self._offer is not None:
            self._fields, self._offer = self._offer, None  # the request is told of as it was sent
        for name, value in self._fields:
            if name.lower() == b"expect" and value.lower() == b"100-continue" and self._task is None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._refused:
            return
        self._body_size += len(body)
        if self._body_size > MAX_BODY:
            self._refuse(413, f"the body is over {MAX_BODY} bytes")
            return
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._refused or self._has_offer:
            return
        version = self._parser.get_http_version()
        self._requests.append(
            Request(
                method=self._parser.get_method().decode("latin-1"),
                target=self._url.decode("latin-1"),
                headers=tuple(self._fields),
                body=b"".join(self._body),
                trailers=tuple(self._trailers),
                keep_alive=self._parser.should_keep_alive(),
                http_1_0=version == "1.0",
            )
        )
        if len(self._requests) > _PIPELINED:
            self._transport.pause_reading()

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > MAX_HEADERS and not self._refused:
            self._refuse(431, f"request line and headers are over {MAX_HEADERS} bytes")

    def _refuse(self, status: int, message: str) -> None:
        """Answer in our own name, after the requests before it, and close: the rest of the input has no meaning."""
        self._refused = True
        self._requests.append(error_response(status, message))

    # -- answering -----------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Answer what can be answered at once; leave the rest to a task."""
        while self._requests and self._task is None and not self._transport.is_closing():
            if not self._writable:
                self._start_playing()
                return
            request, response = self._next()
            if response.plain and request.keep_alive and not request.http_1_0 and request.method != "HEAD":
                self._transport.writelines(response.wire)
            else:
                self._start_playing((request, response))

    def _next(self) -> tuple[Request, Response]:
        item = self._requests.popleft()
        if isinstance(item, Response):
            return Request(method="", target="", headers=(), keep_alive=False), item
        try:
            return item, self._answer(item)
        except Exception as problem:  # noqa: BLE001 - a harness error or a listener's error; the client gets an answer, the loop's handler the error
            self._tell(f"answering {item.method} {item.target} failed", problem)
            return item, error_response(500, f"the fake model server failed: {problem!r}")

    def _start_playing(self, first: tuple[Request, Response] | None = None) -> None:
        self._task = self._loop.create_task(self._play_all(first))
        self._task.add_done_callback(self._played)

    def _played(self, task: asyncio.Task[None]) -> None:
        """A client must not wait for the rest of an answer that broke."""
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._tell("an answer broke", problem)
            self.abort()

    def _tell(self, what: str, problem: BaseException) -> None:
        self._loop.call_exception_handler({"message": what, "exception": problem, "protocol": self})

    async def _play_all(self, first: tuple[Request, Response] | None = None) -> None:
        pending = first
        while pending is not None or self._requests:
            if not self._writable:
                await self._drain()
            request, response = pending or self._next()
            pending = None
            if not await self._play(request, response):
                return
            self._live = False
            if len(self._requests) <= _PIPELINED:
                self._transport.resume_reading()
        self._task = None
        if self._half_closed:
            self._transport.close()

    async def _play(self, request: Request, response: Response) -> bool:
        """Send `response`; False if the connection ended with it."""
        self._live = response.later is not None or response.feed is not None
        while response.later is not None:
            response = await response.later()
        if response.delay:
            await asyncio.sleep(response.delay)
        if response.reset:
            self.reset()
            return False
        framing = Framing.of(response, keep_alive=request.keep_alive, http_1_0=request.http_1_0)
        if response.toxics is None:
            return await self._play_body(request, response, framing, None)
        line = Line(response.toxics, self._write)
        try:
            return await self._play_body(request, response, framing, line)
        except LineEnded as ended:
            if ended.reset:
                return await self._flush_and_reset()
            self._transport.close()
            return False

    async def _play_body(self, request: Request, response: Response, framing: Framing, line: Line | None) -> bool:
        bodiless = response.bodiless or request.method == "HEAD"
        send = self._write if line is None else line.send
        if (
            response.chunks is None
            and response.feed is None
            and not (response.trailers or response.reset_after is not None)
        ):
            await send(response.head(framing) + (b"" if bodiless else response.body))
        else:
            await send(response.head(framing))
            if not bodiless and not await self._play_chunks(response, send, chunked=framing.chunked):
                return False
            if framing.chunked and not bodiless:
                trailers = b"".join([b"%s: %s\r\n" % pair for pair in response.trailers])
                await send(b"0\r\n" + trailers + b"\r\n")
        if framing.close or (line is not None and line.closes):
            if line is not None:
                await line.before_close()
            self._transport.close()
            return False
        return True

    async def _play_chunks(
        self, response: Response, send: Callable[[bytes], Awaitable[None]], *, chunked: bool
    ) -> bool:
        if response.reset_after == 0:
            return await self._flush_and_reset()
        if response.feed is not None and not response.filters and send == self._write and response.reset_after is None:
            write = self._transport.write
            await response.feed.play(lambda chunk: write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunked else chunk))
            return True
        through = sent = 0
        async with contextlib.aclosing(_source(response)) as source:
            async for chunk in source:
                sent += 1
                if sent > 1:
                    # Also without a gap, each chunk is a separate write, and other connections get their turn.
                    await asyncio.sleep(response.gap)
                    if response.paced is not None:
                        await response.paced(through)
                through += len(chunk)
                if chunk:
                    await send(b"%x\r\n%s\r\n" % (len(chunk), chunk) if chunked else chunk)
                if sent == response.reset_after:
                    return await self._flush_and_reset()
        if response.cut or any(one.cut for one in response.filters):
            self._transport.close()
            return False
        return True

    async def _write(self, data: bytes) -> None:
        if not self._writable:
            await self._drain()
        if not self._transport.is_closing():  # uvloop raises before it tells that the connection is lost
            self._transport.write(data)

    async def _flush_and_reset(self) -> bool:
        """RST once all that was written is in the kernel's hands. Returns False: the connection is over."""
        self._transport.set_write_buffer_limits(high=0)
        if not self._writable:
            await self._drain()
        self.reset()
        return False

    async def _drain(self) -> None:
        self._drained = self._loop.create_future()
        await self._drained


def _protocol(data: bytes) -> str:
    """What a client may have meant that does not speak HTTP/1.1."""
    if data.startswith(b"PRI * HTTP/2.0"):
        return "HTTP/2"
    return "TLS" if data.startswith(b"\x16\x03") else "no HTTP"


async def _source(response: Response) -> AsyncGenerator[bytes, None]:
    """The chunks of a body, as its filters leave them."""
    chain = Chain(response.filters)
    if response.feed is not None:
        while not chain.cut and (chunk := await response.feed.next()) is not None:
            for piece in chain(chunk):
                yield piece
    else:
        for chunk in (response.body,) if response.chunks is None else response.chunks:
            for piece in chain(chunk):
                yield piece
            if chain.cut:
                break
    if not chain.cut:
        for piece in chain.end():
            yield piece


class Connections:
    """The open connections of a pod. `welcome` is False while the pod refuses: an accept in flight is dropped."""

    def __init__(self) -> None:
        self.welcome = True
        self.spoken: Counter[str] = Counter()
        """How often clients spoke something in place of HTTP/1.1: `HTTP/2`, `TLS`, `no HTTP`."""
        self._open: set[Connection] = set()
        self._none_left: asyncio.Event = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connection) -> bool:
        """`connection` was made; False if it must go."""
        self._open.add(connection)
        return self.welcome

    def discard(self, connection: Connection) -> None:
        """`connection` is lost."""
        self._open.discard(connection)
        if not self._open:
            self._none_left.set()

    async def abort(self) -> None:
        """Drop every connection; returns when all are gone."""
        while self._open:
            self._none_left.clear()
            for connection in tuple(self._open):
                connection.abort()
            await self._none_left.wait()
        await asyncio.sleep(0)  # the cancelled tasks of those connections end in this turn of the loop
