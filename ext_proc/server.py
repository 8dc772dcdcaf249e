"""The EPP's side of ext_proc streams: serve `Process` with a handler that may answer well, badly or not at all.

Unary `Check` of gRPC health is served too. A handler is a coroutine function that gets a `ServedStream`; what it does
not do by itself happens when it returns: the call ends with status 0. Everything below a message is open to it: bytes
without framing, missing trailers, HTTP errors, RST_STREAM codes, and through `stream.transport` the connection itself.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Literal

from google.protobuf.message import DecodeError

from ext_proc import grpc
from ext_proc.http2.address import format_address
from ext_proc.http2.connection import SERVER_SETTINGS, Http2Connection
from ext_proc.http2.frames import MAX_STREAM_ID, ErrorCode, Settings
from ext_proc.http2.listen import Listening, listen
from ext_proc.http2.streams import CloseKind
from ext_proc.http2.tls import ServerTls
from ext_proc.http2.transport import Transport
from ext_proc.inbox import Inbox, Received
from ext_proc.messages import HealthCheckRequest, HealthCheckResponse
from ext_proc.record import (
    Author,
    Event,
    HalfClosed,
    Headers,
    Malformed,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
    header,
)
from ext_proc.stream import stream_name

Handler = Callable[["ServedStream"], Awaitable[None]]

Observe = Callable[[Headers], tuple[str, Recorder] | None]
"""For the head of a new stream: the exchange it belongs to and where to record it, or None."""

HealthOf = Callable[[str], int | None]
"""For a service's name: its `HealthCheckResponse.ServingStatus`, or None if it is not known (status NOT_FOUND)."""

_NOT_FOUND = 5

_NOTICE = 0.05
"""Seconds that a client has to learn that no more streams are taken."""


async def serve(
    host: str,
    port: int,
    handler: Handler | None,
    *,
    tls: ServerTls | ssl.SSLContext | None = None,
    health: HealthOf | None = None,
    methods: Mapping[bytes, Handler] | None = None,
    observe: Observe | None = None,
    settings: Settings = SERVER_SETTINGS,
) -> Server:
    """Serve on `host:port` (0: any free port) until `Server.close`; a `host` that is `unix:/path` is a Unix socket.

    `settings` are the SETTINGS sent to clients (one stream at a time: MAX_CONCURRENT_STREAMS 1). Without `handler`
    `Process`, and without `health` the health service, is unimplemented. `methods` are handlers of others, by path.
    Raises `OSError` if the address can't be bound.
    """
    server = Server(handler, health=health, methods=methods or {}, observe=observe, settings=settings)
    await server.start(host, port, tls)
    return server


class Server:
    """A running server. `connections` are those that are open now."""

    def __init__(
        self,
        handler: Handler | None,
        *,
        health: HealthOf | None,
        methods: Mapping[bytes, Handler],
        observe: Observe | None,
        settings: Settings,
    ) -> None:
        self.host = ""
        self.port = 0
        self.connections: list[Transport] = []
        self._methods = dict(methods)
        if handler is not None:
            self._methods[grpc.PROCESS] = handler
        if health is not None:
            self._methods[grpc.HEALTH_CHECK] = self._check
        self._health = health
        self._observe = observe
        self._settings = settings
        self._numbers = itertools.count(1)
        self._listening: Listening | None = None
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """`host:port` or `unix:/path` to dial."""
        return format_address(self.host, self.port)

    async def start(self, host: str, port: int, tls: ServerTls | ssl.SSLContext | None) -> None:
        """Bind and listen."""
        context = tls.context() if isinstance(tls, ServerTls) else tls
        self._listening = await listen(self._connection, host, port, context)
        self.host, self.port = self._listening.host, self._listening.port

    async def drain(self, seconds: float) -> bool:
        """Take no new connections and streams; wait until those that are open have ended. False if some have not."""
        if self._listening is not None:
            self._listening.close()
        for one in self.connections:
            one.goaway(last_stream=MAX_STREAM_ID)
        await asyncio.sleep(_NOTICE)  # streams that were opened before the client knew are served (RFC 9113, 6.8)
        for one in self.connections:
            one.goaway()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        return not self._tasks

    async def close(self) -> None:
        """Stop listening, end the handlers and close every connection."""
        if self._listening is None:
            return
        self._closing = True
        self._listening.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for one in (open_now := tuple(self.connections)):
            one.close()
        for one in open_now:
            await one.wait_closed()
        await self._listening.wait_closed()
        self._listening = None

    def _connection(self) -> Transport:
        def accept(stream: int, headers: Headers, end: bool) -> ServedStream:
            return self._accept(transport, stream, headers, end)

        connection = Http2Connection(settings=self._settings, accept=accept)
        transport = Transport(connection, number=next(self._numbers), on_made=self._made)
        return transport

    def _made(self, transport: Transport) -> None:
        if self._closing:  # it was accepted, or shook hands, as the server was closed
            transport.abort()
            return
        self.connections.append(transport)
        transport.on_lost(lambda: self.connections.remove(transport))

    def _accept(self, transport: Transport, stream: int, headers: Headers, end: bool) -> ServedStream:
        path = header(headers, b":path")
        observed = self._observe(headers) if self._observe is not None and path == grpc.PROCESS else None
        served = ServedStream(transport, stream, headers, observed, end)
        run = self._methods.get(path or b"", _unimplemented)
        task = asyncio.get_running_loop().create_task(self._run(run, served))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return served

    async def _run(self, handler: Handler, stream: ServedStream) -> None:
        try:
            await handler(stream)
        except Exception as problem:  # noqa: BLE001 - a scripted handler may fail in any way; the server goes on
            stream.end(grpc.UNKNOWN, f"{type(problem).__name__}: {problem}")
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a stream's handler failed", "exception": problem}
            )
        stream.end()

    async def _check(self, stream: ServedStream) -> None:
        assert self._health is not None
        raw = await stream.recv()
        try:
            service = HealthCheckRequest.FromString(raw or b"").service
        except DecodeError as problem:
            stream.end(grpc.INTERNAL, str(problem))
            return
        status = self._health(service)
        if status is None:
            stream.end(_NOT_FOUND, f"unknown service {service!r}")
            return
        stream.send(HealthCheckResponse(status=status).SerializeToString())


async def _unimplemented(stream: ServedStream) -> None:
    stream.end(grpc.UNIMPLEMENTED, "this method is not served here")


class ServedStream:
    """One call, as its server. Methods never block unless they are `async`, and do nothing on a stream that is over."""

    def __init__(
        self,
        transport: Transport,
        stream: int,
        headers: Headers,
        observed: tuple[str, Recorder] | None,
        end: bool,
    ) -> None:
        self.name = stream_name()
        """Its name in the record."""
        self.transport = transport
        """Its connection: `goaway`, `write_raw`, `close`, `abort`."""
        self.stream_id = stream
        self.headers = headers
        """The head of the call: pseudo-headers and metadata."""
        self.ended: StreamEnded | None = None
        """How it ended, by either side."""
        self._exchange = observed[0] if observed is not None else None
        self._recorder = observed[1] if observed is not None else None
        self._inbox = Inbox()
        self._deframer = grpc.Deframer()
        self._headed = False
        self._emit(
            StreamOpened(exchange=self._exchange, stream=self.name, connection=transport.number, headers=headers)
        )
        if end:
            self._received(HalfClosed(exchange=self._exchange, stream=self.name, author=Author.DATA_PLANE))

    # -- what the EPP does ---------------------------------------------------------------------------------------------

    def send_head(self, headers: Headers = grpc.RESPONSE_HEADERS) -> None:
        """Send the response head; without it the first message does."""
        if not self._headed and self.ended is None:
            self._headed = True
            self.transport.send_headers(self.stream_id, headers)

    def send(self, raw: bytes) -> None:
        """Send one message."""
        if self.ended is None:
            self.send_head()
            self._emit(Message(exchange=self._exchange, stream=self.name, author=Author.EPP, raw=raw))
            self.transport.send(self.stream_id, grpc.frame(raw))

    def send_data(self, data: bytes) -> None:
        """Send bytes as they are, without a gRPC prefix. Recorded as `Malformed`."""
        if self.ended is None:
            self.send_head()
            self._emit(
                Malformed(
                    exchange=self._exchange,
                    stream=self.name,
                    author=Author.EPP,
                    raw=data,
                    reason="sent so on purpose",
                )
            )
            self.transport.send(self.stream_id, data)

    def end(self, status: int = grpc.OK, message: str = "", metadata: Iterable[tuple[bytes, bytes]] = ()) -> None:
        """End the call with trailers; trailers-only if nothing was sent yet."""
        if self.ended is not None:
            return
        trailers = grpc.trailers(status, message, metadata)
        sent = trailers if self._headed else (*grpc.RESPONSE_HEADERS, *trailers)
        self._close("status", Author.EPP, status=status, message=message, trailers=trailers)
        self.transport.send_headers(self.stream_id, sent, end=True)

    def end_without_trailers(self) -> None:
        """End the stream with a bare END_STREAM, which gRPC does not allow."""
        if self.ended is None:
            self.send_head()
            self._close("malformed", Author.EPP, message="ended without trailers on purpose")
            self.transport.send(self.stream_id, b"", end=True)

    def respond_http(self, status: int, headers: Headers = (), body: bytes = b"") -> None:
        """Answer as an HTTP server that knows no gRPC. Nothing may have been sent before."""
        if self.ended is None and not self._headed:
            head = ((b":status", str(status).encode()), *headers)
            self._close("malformed", Author.EPP, message=f"answered HTTP {status} on purpose")
            self.transport.send_headers(self.stream_id, head, end=not body)
            if body:
                self.transport.send(self.stream_id, body, end=True)

    def reset(self, code: int = ErrorCode.CANCEL) -> None:
        """End the stream with RST_STREAM; REFUSED_STREAM (7) says that it was not processed."""
        if self.ended is None:
            self.transport.reset(self.stream_id, code)
            how: Literal["refused", "reset"] = "refused" if code == ErrorCode.REFUSED_STREAM else "reset"
            self._close(how, Author.EPP, code=code)

    async def drain(self) -> None:
        """Wait until all that was sent has left for the socket, or the stream is over."""
        await self.transport.drain(self.stream_id)

    # -- what the data plane does --------------------------------------------------------------------------------------

    async def recv(self) -> bytes | None:
        """The next message; None if no more will come: half-closed, reset, lost or malformed."""
        return await self._inbox.message()

    def __aiter__(self) -> AsyncIterator[Received]:
        return self._events()

    async def _events(self) -> AsyncIterator[Received]:
        while (event := await self._inbox.next()) is not None:
            yield event

    # -- the stream's connection (Sink) --------------------------------------------------------------------------------

    def on_headers(self, _headers: Headers, end: bool) -> None:
        if end:
            self._half_closed()

    def on_data(self, data: bytes, end: bool) -> None:
        for found in self._deframer.feed(data):
            if isinstance(found, bytes):
                self._received(Message(exchange=self._exchange, stream=self.name, author=Author.DATA_PLANE, raw=found))
            else:
                self._violated(found)
        if end:
            self._half_closed()

    def on_closed(self, kind: CloseKind, code: int, reason: str) -> None:
        if self.ended is not None:
            return
        if kind in ("reset", "refused"):
            self._close("reset", Author.DATA_PLANE, code=code, message=reason)
        else:
            self._close("lost", None, message=reason)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _half_closed(self) -> None:
        violation = self._deframer.finish()
        if violation is not None:
            self._violated(violation)
        self._received(HalfClosed(exchange=self._exchange, stream=self.name, author=Author.DATA_PLANE))

    def _violated(self, violation: grpc.Violation) -> None:
        self._received(
            Malformed(
                exchange=self._exchange,
                stream=self.name,
                author=Author.DATA_PLANE,
                raw=violation.raw,
                reason=violation.reason,
            )
        )

    def _received(self, event: Message | Malformed | HalfClosed) -> None:
        self._emit(event)
        self._inbox.put(event)

    def _close(
        self,
        how: Literal["status", "reset", "refused", "lost", "malformed"],
        author: Author | None,
        *,
        status: int | None = None,
        message: str = "",
        code: int | None = None,
        trailers: Headers = (),
    ) -> None:
        self.ended = StreamEnded(
            exchange=self._exchange,
            stream=self.name,
            author=author,
            how=how,
            status=status,
            message=message,
            code=code,
            trailers=trailers,
        )
        self._emit(self.ended)
        self._inbox.put(self.ended)

    def _emit(self, event: Event) -> None:
        if self._recorder is not None:
            self._recorder.emit(event)
