"""Streams over real sockets for tests: recorded events, scripted handlers, and servers of the suite and of grpcio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import grpc as grpcio
from grpc_health.v1 import health_pb2_grpc

from ext_proc.channel import Channel, dial
from ext_proc.http2.tls import ServerTls
from ext_proc.record import Entry, Event, HalfClosed, Malformed, Message, Recorder, StreamEnded, StreamOpened
from ext_proc.server import Handler, ServedStream, serve
from ext_proc.stream import ProcessStream


class Tape:
    """A recorder and all it recorded."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.entries: list[Entry] = []
        self.recorder.listen(self.entries.append)

    @property
    def events(self) -> list[Event]:
        return [entry.event for entry in self.entries]

    def of(self, exchange: str) -> list[Event]:
        return [event for event in self.events if event.exchange == exchange]

    def story(self) -> list[str]:
        return [word(event) for event in self.events]


def word(event: Event) -> str:
    """An event in a word or two."""
    match event:
        case StreamOpened():
            return "opened"
        case Message():
            return f"{event.author}: {event.raw[:20].decode('latin-1')}"
        case Malformed():
            return f"{event.author}: malformed"
        case HalfClosed():
            return f"{event.author}: half-closed"
        case StreamEnded():
            return f"ended: {event.how} {event.code if event.status is None else event.status}"
        case _:
            return event.kind


def facts(event: Event) -> tuple[object, ...]:
    """An event without names and numbers, the same in the record of either side."""
    match event:
        case Message():
            return (event.author, event.raw)
        case Malformed():
            return (event.author, event.raw, event.reason)
        case HalfClosed():
            return (event.author, event.kind)
        case StreamEnded():
            return (event.author, event.how, event.status, event.code, event.headers, event.trailers)
        case StreamOpened():
            return (event.kind, event.headers)
        case _:
            return (event.kind,)


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks run until `condition` holds; the test's time-out bounds it."""
    while not condition():  # noqa: ASYNC110 - the state inside the tested code has no signal
        await asyncio.sleep(0)


async def asked(stream: ProcessStream, raw: bytes, *, end: bool = False) -> bytes | None:
    """The answer to a message."""
    stream.send(raw, end=end)
    return await stream.recv()


async def echo(stream: ServedStream) -> None:
    while (raw := await stream.recv()) is not None:
        stream.send(raw)
        await stream.drain()


def acting(*acts: Callable[[ServedStream], object]) -> Handler:
    """A handler that receives one message (or the end) and then acts."""

    async def handler(stream: ServedStream) -> None:
        await stream.recv()
        for act in acts:
            act(stream)

    return handler


@contextlib.asynccontextmanager
async def scripted(handler: Handler, *, connections: int = 1, **options) -> AsyncIterator[Channel]:
    """A channel to our server with this handler."""
    server = await serve("127.0.0.1", 0, handler, **options)
    channel = await dial(server.address, connections=connections)
    try:
        yield channel
    finally:
        await channel.close()
        await server.close()


async def _echo(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


@contextlib.asynccontextmanager
async def grpcio_server(
    tls: ServerTls | None = None, *, at: str = "127.0.0.1:0", process=_echo, health=None, options=(), codec=(None, None)
) -> AsyncIterator[tuple[str, grpcio.aio.Server]]:
    """A server of grpcio with `process` (an echo); its address, and the server."""
    server = grpcio.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1), *options])
    methods = {"Process": grpcio.stream_stream_rpc_method_handler(process, *codec)}
    name = "envoy.service.ext_proc.v3.ExternalProcessor"
    server.add_generic_rpc_handlers((grpcio.method_handlers_generic_handler(name, methods),))
    if health is not None:
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if tls is None:
        port = server.add_insecure_port(at)
    else:
        client_ca = tls.client_ca.read_bytes() if tls.client_ca else None
        pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
        port = server.add_secure_port(at, grpcio.ssl_server_credentials([pair], client_ca, client_ca is not None))
    await server.start()
    try:
        yield at if at.startswith("unix:") else f"127.0.0.1:{port}", server
    finally:
        await server.stop(0)
