"""The serving side, against grpcio's client, against h2, and against clients that mean no good."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc as grpcio
import h2.config
import h2.connection
import h2.events
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from wire import acting, asked, echo, facts

from ext_proc import grpc
from ext_proc.channel import dial
from ext_proc.http2 import frames
from ext_proc.http2.frames import ErrorCode, Setting
from ext_proc.http2.tls import ClientTls, self_signed
from ext_proc.record import Author, Entry, Event, Headers, Malformed, Recorder, StreamEnded
from ext_proc.relay import open_tap
from ext_proc.server import Handler, ServedStream, Server, serve

METHOD = grpc.PROCESS.decode()


@contextlib.asynccontextmanager
async def serving(handler: Handler, **options) -> AsyncIterator[Server]:
    server = await serve("127.0.0.1", 0, handler, **options)
    try:
        yield server
    finally:
        await server.close()


@contextlib.asynccontextmanager
async def served_to_grpcio(handler: Handler, **options) -> AsyncIterator[grpcio.aio.Channel]:
    async with serving(handler, **options) as server:
        unlimited = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
        async with grpcio.aio.insecure_channel(server.address, options=unlimited) as channel:
            yield channel


async def test_grpcio_talks_to_us() -> None:
    async with served_to_grpcio(echo) as channel:
        large = bytes(range(250)) * 20_000
        call = channel.stream_stream(METHOD)()
        for message in (b"one", b"", large):
            await call.write(message)
            assert await call.read() == message
        await call.done_writing()
        assert await call.read() is grpcio.aio.EOF
        assert await call.code() == grpcio.StatusCode.OK


async def test_grpcio_reads_our_status_message_and_metadata() -> None:
    async def handler(stream: ServedStream) -> None:
        await stream.recv()
        stream.end(14, "kein Pod – später", [(b"x-retry", b"1")])

    async with served_to_grpcio(handler) as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(b"x")
        with pytest.raises(grpcio.aio.AioRpcError) as failed:
            await call.read()
        assert failed.value.code() == grpcio.StatusCode.UNAVAILABLE
        assert failed.value.details() == "kein Pod – später"
        assert ("x-retry", "1") in tuple(failed.value.trailing_metadata())


def _raises(_: ServedStream) -> None:
    raise ValueError("scripted to fail")


_COMPRESSED = grpc.frame(b"x", compressed=1)
_TEXT = ((b"content-type", b"text/plain"),)


async def _no_trailers(stream: ServedStream) -> None:
    while await stream.recv() is not None:  # grpc-core accepts a bare end only when both sides have ended
        pass
    stream.end_without_trailers()


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        (acting(lambda s: s.reset(ErrorCode.ENHANCE_YOUR_CALM)), grpcio.StatusCode.RESOURCE_EXHAUSTED),
        (_no_trailers, grpcio.StatusCode.UNKNOWN),
        (acting(lambda s: s.respond_http(503, _TEXT, b"no backend")), grpcio.StatusCode.UNAVAILABLE),
        (acting(lambda s: s.send_data(_COMPRESSED), lambda s: s.end()), grpcio.StatusCode.INTERNAL),
        (acting(_raises), grpcio.StatusCode.UNKNOWN),
    ],
    ids=["reset", "no trailers", "not grpc", "compressed", "raises"],
)
async def test_grpcio_sees_our_misbehaviour(request, handler: Handler, code: grpcio.StatusCode) -> None:
    name = request.node.callspec.id
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["message"]))
    async with served_to_grpcio(handler) as channel:
        call = channel.stream_stream(METHOD)()
        with contextlib.suppress(grpcio.aio.AioRpcError):
            await call.write(b"x")
            if name == "no trailers":
                await call.done_writing()
            await call.read()
        assert await call.code() == code
    assert failures == (["a stream's handler failed"] if name == "raises" else [])


async def test_grpcios_health_client() -> None:
    statuses = {"": 1, "down": 2}
    async with served_to_grpcio(echo, health=statuses.get) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == 1
        assert (await stub.Check(health_pb2.HealthCheckRequest(service="down"))).status == 2
        with pytest.raises(grpcio.aio.AioRpcError) as failed:
            await stub.Check(health_pb2.HealthCheckRequest(service="other"))
        assert failed.value.code() == grpcio.StatusCode.NOT_FOUND
    async with served_to_grpcio(echo) as channel:
        with pytest.raises(grpcio.aio.AioRpcError) as failed:
            await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert failed.value.code() == grpcio.StatusCode.UNIMPLEMENTED


async def test_a_cancelled_call_reaches_the_handler() -> None:
    ends: list[StreamEnded | None] = []
    over = asyncio.Event()

    async def handler(stream: ServedStream) -> None:
        while await stream.recv() is not None:
            stream.send(b"more?")
        ends.append(stream.ended)
        stream.send(b"nobody reads this")
        over.set()

    async with served_to_grpcio(handler) as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(b"x")
        await call.read()
        call.cancel()
        await over.wait()
    assert (ends[0].how, ends[0].author, ends[0].code) == ("reset", Author.DATA_PLANE, ErrorCode.CANCEL)


async def test_the_servers_record_mirrors_the_clients() -> None:
    sides: dict[str, list[Entry]] = {"client": [], "server": []}
    recorders = {name: Recorder() for name in sides}
    for name, recorder in recorders.items():
        recorder.listen(sides[name].append)

    async with serving(echo, observe=lambda _: ("x1", recorders["server"])) as server:
        channel = await dial(server.address)
        stream = await channel.open("x1", recorders["client"])
        stream.send(b"one")
        await stream.recv()
        stream.send_data(b"\x01junk", end=True)
        assert (await stream.wait_ended()).status == 0
        await channel.close()

    def mirrored(event: Event) -> tuple[object, ...]:
        return facts(event)[: 2 if isinstance(event, Malformed) else 3]  # each side has other reasons and headers

    assert [mirrored(e.event) for e in sides["client"]] == [mirrored(e.event) for e in sides["server"]]
    assert len(sides["client"]) == 6


async def test_closing_ends_handlers_and_connections() -> None:
    cancelled: list[str] = []
    started = asyncio.Event()

    async def handler(stream: ServedStream) -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(stream.name)
            raise

    server = await serve("127.0.0.1", 0, handler)
    channel = await dial(server.address)
    stream = await channel.open()
    await started.wait()
    await server.close()
    assert (await stream.wait_ended()).how == "lost"
    assert server.connections == []
    await server.close()
    again = await serve("127.0.0.1", server.port, handler)
    await again.close()
    await channel.close()
    assert len(cancelled) == 1


async def open_after(close: Callable[[], Awaitable[None]], port: int, turns: int) -> bool:
    """Whether a connection is open still that was made so many turns of the loop before `close`."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await close()
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(sock=client)
            try:
                async with asyncio.timeout(5):
                    await reader.read()
            except TimeoutError:
                return True
            finally:
                writer.transport.abort()
    return False


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("what", ["server", "tap"])
async def test_closing_ends_connections_that_are_just_being_accepted(what: str, turns: int) -> None:
    served = await (serve("127.0.0.1", 0, echo) if what == "server" else open_tap("127.0.0.1", 0, "127.0.0.1:9"))
    assert not await open_after(served.close, served.port, turns)


async def test_closing_ends_connections_that_are_shaking_hands(tmp_path: Path) -> None:
    server = await serve("127.0.0.1", 0, echo, tls=self_signed(tmp_path))
    client = socket.create_connection(("127.0.0.1", server.port))
    client.setblocking(False)
    for _ in range(6):
        await asyncio.sleep(0)
    await server.close()
    with contextlib.suppress(OSError):
        context = ClientTls(verify=False).context()
        reader, writer = await asyncio.open_connection(sock=client, ssl=context, server_hostname="localhost")
        await reader.read()
        writer.transport.abort()


async def test_a_taken_port_is_an_os_error() -> None:
    async with serving(echo) as server:
        with pytest.raises(OSError, match="in use"):
            await serve("127.0.0.1", server.port, echo)


async def test_goaway_from_a_handler_is_graceful() -> None:
    async def handler(stream: ServedStream) -> None:
        stream.transport.goaway()
        await echo(stream)

    async with served_to_grpcio(handler) as channel:
        for _ in range(3):  # grpcio opens a new connection for each
            call = channel.stream_stream(METHOD)()
            await call.write(b"x")
            assert await call.read() == b"x"
            await call.done_writing()
            assert await call.code() == grpcio.StatusCode.OK
            # else the next call may meet the connection that its own threads are about to leave
            await channel.wait_for_state_change(grpcio.ChannelConnectivity.READY)


async def test_grpcio_waits_for_a_server_of_one_stream() -> None:
    running = most = 0

    async def handler(stream: ServedStream) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await echo(stream)
        running -= 1

    async with served_to_grpcio(handler, settings=((Setting.MAX_CONCURRENT_STREAMS, 1),)) as channel:

        async def one() -> None:
            call = channel.stream_stream(METHOD)()
            await call.write(b"x")
            await call.done_writing()
            assert await call.read() == b"x"
            assert await call.code() == grpcio.StatusCode.OK

        await asyncio.gather(*(one() for _ in range(10)))
    assert most == 1


async def test_h2_accepts_our_server_over_a_socket() -> None:
    async with serving(echo) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        peer = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        peer.initiate_connection()
        head = grpc.request_headers(grpc.PROCESS, "epp")
        for stream in (1, 3, 5):
            peer.send_headers(stream, head)
            peer.send_data(stream, grpc.frame(b"hello"), end_stream=True)
        peer.ping(b"12345678")
        ended: dict[int, Headers] = {}
        kinds: set[str] = set()
        while len(ended) < 3:
            writer.write(peer.data_to_send())
            for event in peer.receive_data(await reader.read(65_536)):
                kinds.add(type(event).__name__)
                if isinstance(event, h2.events.TrailersReceived):
                    ended[event.stream_id] = tuple(event.headers)
        assert "PingAckReceived" in kinds
        assert all(dict(trailers)[b"grpc-status"] == b"0" for trailers in ended.values())
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nhost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        frames.PREFACE + frames.settings(()) + frames.headers(1, b"\xff\xff\xff\xff", end=True),
        frames.PREFACE + frames.settings(()) + frames.frame(frames.PING, 0, 0, bytes(8)) * 10_100,
        frames.PREFACE + frames.frame(frames.PING, 0, 0, bytes(8)),
        b"",
    ],
    ids=["http/1", "tls", "bad hpack", "ping flood", "no settings", "closes"],
)
async def test_a_hostile_client_is_cut_and_the_server_goes_on(said: bytes) -> None:
    async with serving(echo) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(said)
        if not said:
            writer.write_eof()
        await reader.read(-1)  # until we are cut off
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        channel = await dial(server.address)
        stream = await channel.open()
        assert await asked(stream, b"still there", end=True) == b"still there"
        await stream.wait_ended()
        await channel.close()


async def test_streams_that_are_opened_and_reset_in_a_storm_leave_nothing() -> None:
    async with serving(echo) as server:
        channel = await dial(server.address)
        for _ in range(3000):
            (await channel.open()).reset(ErrorCode.CANCEL)
        last = await channel.open()
        last.send(b"x", end=True)
        assert (await last.wait_ended()).status == 0
        (connection,) = server.connections
        assert connection.connection.open_streams == 0
        await channel.close()
