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
import uvloop
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ext_proc import grpc
from ext_proc.channel import dial
from ext_proc.http2 import frames
from ext_proc.http2.frames import ErrorCode, Setting
from ext_proc.http2.tls import ClientTls, self_signed
from ext_proc.record import Author, Entry, HalfClosed, Headers, Malformed, Message, Recorder, StreamEnded, StreamOpened
from ext_proc.relay import open_tap
from ext_proc.server import Handler, ServedStream, Server, serve

METHOD = grpc.PROCESS.decode()


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


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


async def echo(stream: ServedStream) -> None:
    while (raw := await stream.recv()) is not None:
        stream.send(raw)


def test_grpcio_talks_to_us() -> None:
    async def main() -> None:
        async with served_to_grpcio(echo) as channel:
            large = bytes(range(250)) * 20_000
            call = channel.stream_stream(METHOD)()
            for message in (b"one", b"", large):
                await call.write(message)
                assert await call.read() == message
            await call.done_writing()
            assert await call.read() is grpcio.aio.EOF
            assert await call.code() == grpcio.StatusCode.OK

    run(main)


def test_grpcio_reads_our_status_message_and_metadata() -> None:
    async def handler(stream: ServedStream) -> None:
        await stream.recv()
        stream.end(14, "kein Pod – später", [(b"x-retry", b"1")])

    async def main() -> None:
        async with served_to_grpcio(handler) as channel:
            call = channel.stream_stream(METHOD)()
            await call.write(b"x")
            with pytest.raises(grpcio.aio.AioRpcError) as failed:
                await call.read()
            assert failed.value.code() == grpcio.StatusCode.UNAVAILABLE
            assert failed.value.details() == "kein Pod – später"
            assert ("x-retry", "1") in tuple(failed.value.trailing_metadata())

    run(main)


def _misbehaviours() -> dict[str, tuple[Handler, grpcio.StatusCode]]:
    async def reset(stream: ServedStream) -> None:
        await stream.recv()
        stream.reset(ErrorCode.ENHANCE_YOUR_CALM)

    async def no_trailers(stream: ServedStream) -> None:
        while await stream.recv() is not None:  # grpc-core takes a bare end for one only when both sides have ended
            pass
        stream.end_without_trailers()

    async def not_grpc(stream: ServedStream) -> None:
        await stream.recv()
        stream.respond_http(503, ((b"content-type", b"text/plain"),), b"no backend")

    async def compressed(stream: ServedStream) -> None:
        await stream.recv()
        stream.send_data(grpc.frame(b"x", compressed=1))
        stream.end()

    async def raises(stream: ServedStream) -> None:
        await stream.recv()
        raise ValueError("scripted to fail")

    code = grpcio.StatusCode
    return {
        "reset": (reset, code.RESOURCE_EXHAUSTED),
        "no trailers": (no_trailers, code.UNKNOWN),
        "not grpc": (not_grpc, code.UNAVAILABLE),
        "compressed": (compressed, code.INTERNAL),
        "raises": (raises, code.UNKNOWN),
    }


@pytest.mark.parametrize("name", _misbehaviours())
def test_grpcio_sees_our_misbehaviour(name: str) -> None:
    handler, code = _misbehaviours()[name]
    failures: list[str] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["message"]))
        async with served_to_grpcio(handler) as channel:
            call = channel.stream_stream(METHOD)()
            with contextlib.suppress(grpcio.aio.AioRpcError):
                await call.write(b"x")
                if name == "no trailers":
                    await call.done_writing()
                await call.read()
            assert await call.code() == code

    run(main)
    assert failures == (["a stream's handler failed"] if name == "raises" else [])


def test_grpcios_health_client() -> None:
    statuses = {"": 1, "down": 2}

    async def main() -> None:
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

    run(main)


def test_a_cancelled_call_reaches_the_handler() -> None:
    ends: list[StreamEnded | None] = []
    over = asyncio.Event()

    async def handler(stream: ServedStream) -> None:
        while await stream.recv() is not None:
            stream.send(b"more?")
        ends.append(stream.ended)
        stream.send(b"nobody reads this")
        over.set()

    async def main() -> None:
        async with served_to_grpcio(handler) as channel:
            call = channel.stream_stream(METHOD)()
            await call.write(b"x")
            await call.read()
            call.cancel()
            await over.wait()

    run(main)
    assert ends[0] is not None
    assert (ends[0].how, ends[0].author, ends[0].code) == ("reset", Author.DATA_PLANE, ErrorCode.CANCEL)


def test_the_servers_record_mirrors_the_clients() -> None:
    sides: dict[str, list[Entry]] = {"client": [], "server": []}
    recorders = {name: Recorder() for name in sides}
    for name, recorder in recorders.items():
        recorder.listen(sides[name].append)

    async def main() -> None:
        async with serving(echo, observe=lambda _: ("x1", recorders["server"])) as server:
            channel = await dial(server.address)
            stream = await channel.open("x1", recorders["client"])
            stream.send(b"one")
            await stream.recv()
            stream.send_data(b"\x01junk", end=True)
            assert (await stream.wait_ended()).status == 0
            await channel.close()

    run(main)

    def story(entries: list[Entry]) -> list[tuple[object, ...]]:
        told: list[tuple[object, ...]] = []
        for event in (entry.event for entry in entries):
            match event:
                case Message():
                    told.append((event.author, event.raw))
                case Malformed() | HalfClosed():
                    told.append((event.author, event.kind))
                case StreamEnded():
                    told.append((event.author, event.how, event.status))
                case StreamOpened():
                    told.append((event.kind, event.headers))
        return told

    assert story(sides["client"]) == story(sides["server"])
    assert len(sides["client"]) == 6


def test_closing_ends_handlers_and_connections() -> None:
    cancelled: list[str] = []
    started = asyncio.Event()

    async def handler(stream: ServedStream) -> None:
        started.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.append(stream.name)
            raise

    async def main() -> None:
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

    run(main)
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
def test_closing_ends_connections_that_are_just_being_accepted(what: str, turns: int) -> None:
    async def main() -> None:
        served = await (serve("127.0.0.1", 0, echo) if what == "server" else open_tap("127.0.0.1", 0, "127.0.0.1:9"))
        assert not await open_after(served.close, served.port, turns)

    uvloop.run(asyncio.wait_for(main(), 60))


def test_closing_ends_connections_that_are_shaking_hands(tmp_path: Path) -> None:
    async def main() -> None:
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

    uvloop.run(asyncio.wait_for(main(), 60))


def test_a_taken_port_is_an_os_error() -> None:
    async def main() -> None:
        async with serving(echo) as server:
            with pytest.raises(OSError, match="in use"):
                await serve("127.0.0.1", server.port, echo)

    run(main)


def test_goaway_from_a_handler_is_graceful() -> None:
    async def handler(stream: ServedStream) -> None:
        stream.transport.goaway()
        await echo(stream)

    async def main() -> None:
        async with served_to_grpcio(handler) as channel:
            for _ in range(3):  # grpcio opens a new connection for each
                call = channel.stream_stream(METHOD)()
                await call.write(b"x")
                assert await call.read() == b"x"
                await call.done_writing()
                assert await call.code() == grpcio.StatusCode.OK
                # else the next call may meet the connection that its own threads are about to leave
                await channel.wait_for_state_change(grpcio.ChannelConnectivity.READY)

    run(main)


def test_grpcio_waits_for_a_server_of_one_stream() -> None:
    running = most = 0

    async def handler(stream: ServedStream) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await echo(stream)
        running -= 1

    async def main() -> None:
        async with served_to_grpcio(handler, settings=((Setting.MAX_CONCURRENT_STREAMS, 1),)) as channel:

            async def one() -> None:
                call = channel.stream_stream(METHOD)()
                await call.write(b"x")
                await call.done_writing()
                assert await call.read() == b"x"
                assert await call.code() == grpcio.StatusCode.OK

            await asyncio.gather(*(one() for _ in range(10)))

    run(main)
    assert most == 1


def test_h2_finds_nothing_wrong_with_us() -> None:
    async def main() -> None:
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

    run(main)


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
def test_a_hostile_client_is_cut_and_the_server_goes_on(said: bytes) -> None:
    async def main() -> None:
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
            stream.send(b"still there", end=True)
            assert await stream.recv() == b"still there"
            await stream.wait_ended()
            await channel.close()

    run(main)


def test_streams_that_are_opened_and_reset_in_a_storm_leave_nothing() -> None:
    async def main() -> None:
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

    run(main)
