"""An HTTP/1.1 server on the running asyncio loop: requests in, whole answers or streams of chunks out.

It exists because a watch must reach its client the moment it is written, must notice at once that the client left,
and must be cut like a failing network would cut it; all of that is the transport's, and small. No threads, no signal
handlers.
"""

from __future__ import annotations

import asyncio
import http
import ipaddress
import socket
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import parse_qsl, unquote, urlsplit

import httptools

__all__ = ["ApiAnswer", "ApiRequest", "Handler", "HttpServer", "StreamedAnswer"]

MAX_BODY = 16 * 1024 * 1024
MAX_WAITING = 64  # pipelined requests of one connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """One request. `headers` have lower-case names; of repeated headers and query parameters the last counts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedAnswer:
    """An answer that grows: after the head is sent, `run` is called with a function that sends a chunk.

    The function returns when the kernel has taken the chunk. When `run` returns, the answer ends cleanly; when it
    raises ConnectionAbortedError, the connection is cut; when the client leaves, it is cancelled.
    """

    run: Callable[[Callable[[bytes], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAnswer:
    """Status and body of an answer; the body is bytes or a `StreamedAnswer`."""

    status: int = 200
    body: bytes | StreamedAnswer = b""
    content_type: str = "application/json"


Handler = Callable[[ApiRequest], Awaitable[ApiAnswer]]


class HttpServer:
    """A listener for one address and port. It can be closed and opened again on the same port."""

    def __init__(self, handler: Handler, *, host: str, port: int) -> None:
        self.handler = handler
        self.names = {host, "localhost"}
        """Host names that it serves, beside every address: by others a web page could reach it (DNS rebinding)."""
        self.port = port
        self.connections: set[_Connection] = set()
        self._host = host
        self._claim: socket.socket | None = None
        self._server: asyncio.Server | None = None

    @property
    def listening(self) -> bool:
        """Whether it is open."""
        return self._server is not None

    async def open(self) -> None:
        """Listen. Raises OSError if the port is taken."""
        if self._server is not None:
            return
        if self._claim is None and sys.platform == "linux":
            # A bound socket that does not listen keeps the port ours while the server is closed, and refuses
            # connections as a server that is down does. Linux lets a listener share its port; elsewhere the port is
            # merely asked for again.
            self._claim = self._bind(self.port)
            self.port = self._claim.getsockname()[1]
        listener = self._bind(self.port)
        self.port = listener.getsockname()[1]
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), sock=listener)

    async def close(self) -> None:
        """Stop listening and cut every connection; the port stays claimed until `release`."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        tasks = [connection.abort() for connection in tuple(self.connections)]
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    def release(self) -> None:
        """Give the port back."""
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def _bind(self, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setblocking(False)
            sock.bind((self._host, port))
        except OSError:
            sock.close()
            raise
        return sock


def _serves(names: Collection[str], host: str) -> bool:
    """Whether a Host header has one of `names`, or an address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name in names or bool(ipaddress.ip_address(name))
    except ValueError:
        return False


class _Connection(asyncio.Protocol):
    """One client connection: httptools' callbacks collect requests, one task answers them in order."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[ApiRequest, bool, str]] = deque()
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()

    # -- asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its base class
        transport.set_write_buffer_limits(high=0)  # so that "writable" means that the kernel has it all
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._server.listening:  # accepted in the instant before the server was closed
            transport.abort()
            return
        self._transport = transport
        self._server.connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._answer_all())

    def connection_lost(self, _exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._writable.set()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                data = self._without_offer() + data[upgrade.args[0] :]
            except httptools.HttpParserError as error:
                self._refuse(400, f"this is not an HTTP/1.1 request: {error}")
                return
            else:
                return

    def _without_offer(self) -> bytes:
        """The head just read, to be read again less its offer of another protocol: with one the body is not parsed.

        Java's own client offers HTTP/2 with every request, and goes on in HTTP/1.1 if it is not taken up.
        """
        method, version = self._parser.get_method(), self._parser.get_http_version()
        self._parser = httptools.HttpRequestParser(self)
        if method == b"CONNECT":
            self._refuse(405, "this is no proxy")
            return b""
        if self._headers.get("upgrade", "").lower() == "websocket":
            self._refuse(503, "watches are not served by WebSocket")  # fabric8's client then watches as others do
            return b""
        headers = "".join(f"{name}: {value}\r\n" for name, value in self._headers.items() if name != "upgrade")
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self._url, version.encode(), headers.encode("latin-1"))

    # -- httptools -----------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._transport is None or self._parser.should_upgrade():
            return
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY:
            self._refuse(413, f"the request body is longer than {MAX_BODY} bytes")

    def on_message_complete(self) -> None:
        if self._transport is None or self._transport.is_closing() or self._parser.should_upgrade():
            return
        host = self._headers.get("host", "localhost")
        if not _serves(self._server.names, host):
            self._refuse(421, "this server has another name")
            return
        path, _, query = self._url.partition(b"?")
        request = ApiRequest(
            method=self._parser.get_method().decode("ascii"),
            path=unquote(path.decode("latin-1")),
            query=dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True)),
            headers=self._headers,
            body=bytes(self._body),
        )
        if len(self._waiting) >= MAX_WAITING:
            self._refuse(400, f"more than {MAX_WAITING} requests are waiting on this connection")
            return
        self._waiting.append((request, self._parser.should_keep_alive(), self._parser.get_http_version()))
        self._arrived.set()

    # -- answering -----------------------------------------------------------------------------------------------------

    def abort(self) -> asyncio.Task[None]:
        """Cut the connection; the task returned ends when the handler has."""
        assert self._task is not None
        self._task.cancel()
        if self._transport is not None:
            self._transport.abort()
        return self._task

    def _refuse(self, status: int, why: str) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._write_head(
                ApiAnswer(status=status, content_type="text/plain"), f"Content-Length: {len(why)}", keep=False
            )
            self._write(why.encode())
            self._transport.close()

    async def _answer_all(self) -> None:
        assert self._transport is not None
        try:
            keep = True
            while keep:
                while not self._waiting:
                    self._arrived.clear()
                    await self._arrived.wait()
                request, keep, version = self._waiting.popleft()
                answer = await self._server.handler(request)
                if isinstance(answer.body, StreamedAnswer):
                    keep = keep and version == "1.1"
                    await self._answer_with_stream(answer, answer.body, keep=keep, chunked=version == "1.1")
                else:
                    self._write_head(answer, f"Content-Length: {len(answer.body)}", keep=keep)
                    await self._send(answer.body if request.method != "HEAD" else b"")
        except ConnectionAbortedError:
            self._transport.abort()
        except Exception as problem:  # noqa: BLE001 - no task awaits it; the client sees its connection end
            told = {"message": "answering a request failed", "exception": problem, "protocol": self}
            asyncio.get_running_loop().call_exception_handler(told)
        finally:
            self._transport.close()

    async def _answer_with_stream(
        self, answer: ApiAnswer, stream: StreamedAnswer, *, keep: bool, chunked: bool
    ) -> None:
        self._write_head(answer, "Transfer-Encoding: chunked" if chunked else "", keep=keep)
        await stream.run(self._send_chunk if chunked else self._send)
        if chunked:
            await self._send(b"0\r\n\r\n")

    def _write_head(self, answer: ApiAnswer, framing: str, *, keep: bool) -> None:
        lines = [
            f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}",
            f"Content-Type: {answer.content_type}",
            framing,
            "" if keep else "Connection: close",
        ]
        self._write(("\r\n".join(line for line in lines if line) + "\r\n\r\n").encode("latin-1"))

    async def _send_chunk(self, data: bytes) -> None:
        await self._send(b"%x\r\n%b\r\n" % (len(data), data))

    async def _send(self, data: bytes) -> None:
        self._write(data)
        await self._writable.wait()

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        if self._transport.is_closing():
            raise ConnectionAbortedError("the client left")
        self._transport.write(data)
