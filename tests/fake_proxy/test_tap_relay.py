"""The tap passes everything on as it is: bytes, metadata, trailers, ends, resets, GOAWAY, slowness, and bad news."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import socket
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc as grpcio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import Tape, acting, asked, echo, facts, until

from ext_proc import grpc
from ext_proc.channel import Channel, dial
from ext_proc.http2 import frames
from ext_proc.http2.dial import connect
from ext_proc.http2.errors import BadAddress, ConnectFailed
from ext_proc.http2.frames import ErrorCode, Setting
from ext_proc.http2.streams import UNWANTED
from ext_proc.http2.tls import ClientTls, self_signed
from ext_proc.record import Author, StreamEnded
from ext_proc.relay import Tap, open_tap
from ext_proc.relay.leg import CONNECTION_WINDOW, STREAM_WINDOW, UNSENT_LIMIT, Credit, Leg
from ext_proc.server import Handler, ServedStream, Server, serve
from ext_proc.stream import ProcessStream


@contextlib.asynccontextmanager
async def tapped(handler: Handler, *, connections: int = 1, **options) -> AsyncIterator[tuple[Channel, Tap, Server]]:
    """A data plane's channel through a tap to the test's server."""
    server = await serve("127.0.0.1", 0, handler, **options)
    tap = await open_tap("127.0.0.1", 0, server.address)
    channel = await dial(tap.address, connections=connections)
    try:
        yield channel, tap, server
    finally:
        await channel.close()
        await tap.close()
        await server.close()


@contextlib.asynccontextmanager
async def tap_to(address: str, **options) -> AsyncIterator[Tap]:
    tap = await open_tap("127.0.0.1", 0, address, **options)
    try:
        yield tap
    finally:
        await tap.close()


def unused() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


# -- what a call consists of -------------------------------------------------------------------------------------------


_HEAD = (*grpc.RESPONSE_HEADERS, (b"x-epp", b"1"), (b"x-twice", b"a"), (b"x-twice", b"b"))
_METADATA = ((b"authorization", b"Bearer x"), (b"x-two", b"1"), (b"x-two", b"2"))
_TRAILER = ((b"x-trailer-bin", b"AAE"),)
_CODES = (ErrorCode.INTERNAL_ERROR, ErrorCode.CANCEL, ErrorCode.NO_ERROR, ErrorCode.ENHANCE_YOUR_CALM, 0xFF)
_SIZES = (0, 3, 256_000, 3_000_000, 4)


def _asks(stream: ProcessStream) -> None:
    stream.send(b"question")


def _resets(code: int) -> Handler:
    return acting(lambda s: s.send(b"answer"), lambda s: s.reset(code))


_CALLS: dict[str, tuple[Handler, Callable[[ProcessStream], None], str]] = {
    "messages": (echo, lambda s: [*(s.send(b"x" * size) for size in _SIZES), s.half_close()], "status 0"),
    "half-close": (acting(), lambda s: s.send(b"only", end=True), "status 0"),
    "head and trailers": (
        acting(lambda s: s.send_head(_HEAD), lambda s: s.send(b"a"), lambda s: s.end(7, "not for you: §", _TRAILER)),
        _asks,
        "status 7",
    ),
    "trailers only": (acting(lambda s: s.end(grpc.UNAVAILABLE, "later")), _asks, "status 14"),
    "http": (acting(lambda s: s.respond_http(503, ((b"x", b"1"),), b"no")), _asks, "malformed None"),
    "no messages": (
        acting(lambda s: s.send_data(b"\x00\x00\x00\x00\x09half"), lambda s: s.end_without_trailers()),
        lambda s: s.send_data(b"\x01\x00\x00\x00\x03abc", end=True),
        "malformed None",
    ),
    **{f"reset {code:#x}": (_resets(code), _asks, f"reset {code:d}") for code in _CODES},
}


async def _records(handler: Handler, act: Callable[[ProcessStream], None], *, through_tap: bool) -> dict[str, list]:
    """The data plane's and the EPP's record of a call, by author."""
    mine, theirs = Tape(), Tape()
    server = await serve("127.0.0.1", 0, handler, observe=lambda _: ("x", theirs.recorder))
    tap = await open_tap("127.0.0.1", 0, server.address)
    channel = await dial(tap.address if through_tap else server.address, authority="epp")
    stream = await channel.open("x", mine.recorder, metadata=_METADATA)
    act(stream)
    await stream.wait_ended()
    await until(lambda: any(isinstance(event, StreamEnded) for event in theirs.events))
    for one in (channel, tap, server):
        await one.close()
    assert tap.counts.streams == through_tap
    assert tap.streams == 0
    return {
        f"{side} {author}": [facts(e) for e in tape.events if getattr(e, "author", None) == author]
        for side, tape in (("data plane", mine), ("epp", theirs))
        for author in (*Author, None)
    }


@pytest.mark.parametrize("name", _CALLS)
async def test_both_sides_record_the_same_call_with_and_without_the_tap(name: str) -> None:
    handler, act, ending = _CALLS[name]
    tapped = await _records(handler, act, through_tap=True)
    assert tapped == await _records(handler, act, through_tap=False)
    _, how, status, code, *_ = tapped[f"data plane {Author.EPP}"][-1]
    assert f"{how} {code if status is None else status}" == ending


@pytest.mark.parametrize("code", _CODES)
async def test_a_reset_by_the_data_plane_comes_through(code: int) -> None:
    tape = Tape()
    async with tapped(echo, observe=lambda _: ("x", tape.recorder)) as (channel, tap, _):
        stream = await channel.open()
        assert await asked(stream, b"heard") == b"heard"
        stream.reset(code)
        await until(lambda: tape.story()[-1] == f"ended: reset {code:d}")
        assert tap.streams == 0


async def test_a_refused_stream_comes_through_and_is_opened_again() -> None:
    opened = []

    async def handler(stream: ServedStream) -> None:
        opened.append(stream.stream_id)
        if len(opened) == 1:
            stream.reset(ErrorCode.REFUSED_STREAM)
        else:
            await echo(stream)

    async with tapped(handler) as (channel, tap, _):
        stream = await channel.open()
        assert await asked(stream, b"again") == b"again"
        assert (len(opened), tap.counts.refused) == (2, 1)


async def test_each_connection_has_one_of_its_own_to_the_epp() -> None:
    async def handler(stream: ServedStream) -> None:
        await stream.recv()
        stream.send(str(stream.transport.number).encode())

    async with tapped(handler, connections=2) as (channel, tap, server):
        answers = []
        for _ in range(4):
            stream = await channel.open()
            stream.send(b"?")
            answers.append(await stream.recv())
        assert len(set(answers)) == 2
        assert len(server.connections) == 2
        assert tap.counts.connections == 2


# -- connections -------------------------------------------------------------------------------------------------------


async def test_a_goaway_comes_through_and_streams_up_to_it_go_on() -> None:
    async def handler(stream: ServedStream) -> None:
        assert await stream.recv() == b"first"
        stream.transport.goaway(ErrorCode.NO_ERROR, debug=b"max_age")
        stream.send(b"going")
        assert await stream.recv() == b"second"
        stream.send(b"done")

    async with tapped(handler) as (channel, tap, _):
        stream = await channel.open()
        transport = stream.transport
        assert await asked(stream, b"first") == b"going"
        assert transport.connection.going_away
        assert await asked(stream, b"second") == b"done"
        assert (await stream.wait_ended()).status == 0
        await transport.wait_closed()
        assert tap.counts.unreachable == 0


async def test_a_goaway_refuses_the_same_streams() -> None:
    held: list[ServedStream] = []

    async def handler(stream: ServedStream) -> None:
        held.append(stream)
        while await stream.recv():
            stream.send(b"heard")

    async with tapped(handler) as (channel, _, _):
        first, second = await channel.open(), await channel.open()
        for stream in (first, second):
            assert await asked(stream, b"x") == b"heard"
        held[0].transport.goaway(ErrorCode.NO_ERROR, last_stream=held[0].stream_id)
        ended = await second.wait_ended()
        assert (ended.how, ended.message[:6]) == ("reset", "GOAWAY")  # not refused: it had been answered in part
        assert await asked(first, b"still") == b"heard"
        assert first.ended is None


async def test_a_drain_serves_what_was_opened_before_the_data_plane_knew() -> None:
    async with tapped(echo) as (channel, tap, _):
        first = await channel.open()
        assert await asked(first, b"x") == b"x"
        drain = asyncio.create_task(tap.drain(20))
        await asyncio.sleep(0)  # the GOAWAY is on its way
        transport = first.transport
        assert not transport.connection.going_away
        second = await channel.open()
        assert second.transport is transport
        assert await asked(second, b"y") == b"y"
        assert transport.connection.going_away
        for stream in (first, second):
            assert not drain.done()
            assert await asked(stream, b"last", end=True) == b"last"
            assert (await stream.wait_ended()).status == 0
        assert await drain


async def test_a_drain_is_over_with_its_time_or_its_streams() -> None:
    async with tapped(echo) as (channel, tap, _):
        stream = await channel.open()
        assert await asked(stream, b"x") == b"x"
        assert not await tap.drain(0.1)
        assert await asked(stream, b"x") == b"x"
        stream.reset(ErrorCode.CANCEL)
        assert await tap.drain(20)


async def test_a_drain_does_not_wait_for_a_connection_without_streams() -> None:
    async with tapped(echo) as (_, tap, _):
        reader, writer = await asyncio.open_connection(tap.host, tap.port)
        await reader.read(1)  # it has our settings, and is silent
        assert await tap.drain(3600)
        writer.close()


async def test_a_drain_does_not_take_back_what_the_epps_goaway_refused() -> None:
    """RFC 9113, 6.8: the last stream that a GOAWAY names must not be above that of an earlier one."""
    held: list[ServedStream] = []
    named: list[int] = []

    async def handler(stream: ServedStream) -> None:
        held.append(stream)
        await echo(stream)

    server = await serve("127.0.0.1", 0, handler)
    tap = await open_tap("127.0.0.1", 0, server.address)
    leg = Leg(on_goaway=lambda last, *_: named.append(last), on_room=lambda: None)
    client = await connect(tap.address, connection=lambda: leg)
    for _ in range(2):
        client.open(Channel(tap.address).headers(grpc.PROCESS), UNWANTED)
    await until(lambda: len(held) == 2)
    held[0].transport.goaway(ErrorCode.NO_ERROR, last_stream=held[0].stream_id)
    await until(lambda: named)
    assert not await tap.drain(0.1)
    await tap.close()
    await client.wait_closed()
    assert named == [1, 1]
    await server.close()


async def test_the_epps_limit_of_streams_is_the_taps() -> None:
    settings = ((Setting.MAX_CONCURRENT_STREAMS, 3),)
    async with tapped(echo, settings=settings) as (channel, _, _):
        streams = []
        for _ in range(3):
            streams.append(await channel.open())
            assert await asked(streams[-1], b"x") == b"x"
        transport = streams[0].transport
        assert transport.connection.max_streams == 3
        assert not transport.can_open()


async def test_streams_above_the_epps_limit_are_refused() -> None:
    async with tapped(echo, settings=((Setting.MAX_CONCURRENT_STREAMS, 1),)) as (channel, tap, _):
        transport = await channel.transport()
        streams = [await channel.open()]
        assert await asked(streams[0], b"x") == b"x"
        transport.connection.max_streams = 10  # a data plane that takes no notice
        rude = await channel.open()
        rude.send(b"y")
        streams[0].half_close()
        assert (await streams[0].wait_ended()).status == 0
        assert await rude.recv() == b"y"  # opened again after REFUSED_STREAM
        assert tap.counts.refused > 0


async def test_a_connection_that_breaks_at_the_epp_breaks_at_the_data_plane_behind_what_was_said() -> None:
    async def handler(stream: ServedStream) -> None:
        await stream.recv()
        stream.send(b"last words")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stream.transport.abort()

    async with tapped(handler) as (channel, tap, _):
        stream = await channel.open()
        assert await asked(stream, b"x") == b"last words"
        assert (await stream.wait_ended()).how == "lost"
        assert tap.counts.lost == 1
        again = await channel.open()  # over a new connection
        assert await asked(again, b"x") == b"last words"


async def test_a_data_plane_that_goes_away_is_gone_for_the_epp() -> None:
    ended: asyncio.Future[StreamEnded]

    async def handler(stream: ServedStream) -> None:
        async for event in stream:
            if isinstance(event, StreamEnded):
                ended.set_result(event)

    ended = asyncio.get_running_loop().create_future()
    async with tapped(handler) as (channel, tap, server):
        stream = await channel.open()
        stream.send(b"x")
        await stream.transport.wait_ready()
        await until(lambda: server.connections and server.connections[0].connection.open_streams)
        stream.transport.abort()
        assert (await ended).how in ("reset", "lost")
        assert tap.counts.lost == 0


async def test_an_epp_that_is_down_is_down_for_the_data_plane(caplog) -> None:
    async with tap_to(unused()) as tap:
        channel = await dial(tap.address)
        try:
            with contextlib.suppress(ConnectFailed):
                stream = await channel.open()
                stream.send(b"x")
                assert (await stream.wait_ended()).how == "lost"
        finally:
            await channel.close()
        assert tap.counts.unreachable >= 1
        assert tap.counts.streams == 0
    assert "connection refused" in caplog.text


async def test_an_epp_that_comes_up_later_is_reached() -> None:
    address = unused()
    async with tap_to(address) as tap:
        with contextlib.suppress(ConnectFailed):
            await (await dial(tap.address)).close()
        host, port = address.split(":")
        server = await serve(host, int(port), echo)
        channel = await dial(tap.address)
        stream = await channel.open()
        assert await asked(stream, b"there") == b"there"
        await channel.close()
        await server.close()


@pytest.mark.parametrize("said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b""])
async def test_an_upstream_that_is_no_epp_cuts_the_connection(said: bytes, caplog) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with tap_to(f"127.0.0.1:{port}") as tap:
        reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        assert tap.counts.unreachable == 1
    server.close()
    await server.wait_closed()


async def test_an_upstream_that_never_answers_is_given_up_in_time(caplog) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with tap_to(f"127.0.0.1:{port}", connect_timeout=0.1) as tap:
        channel = await dial(tap.address)
        stream = await channel.open()
        stream.send(b"x")
        assert (await stream.wait_ended()).how == "lost"
        await channel.close()
    server.close()
    await server.wait_closed()
    assert "did not come within 0.1 s" in caplog.text


async def test_garbage_from_a_data_plane_leaves_other_connections_alone() -> None:
    async with tapped(echo) as (channel, tap, _):
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, frames.PREFACE + b"\xff" * 64):
            reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
            writer.write(garbage)
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
            writer.close()
        stream = await channel.open()
        assert await asked(stream, b"fine") == b"fine"


def test_a_bad_address_is_rejected_at_once() -> None:
    with pytest.raises(BadAddress):
        asyncio.run(open_tap("127.0.0.1", 0, "nowhere"))


# -- TLS and other calls -----------------------------------------------------------------------------------------------


async def test_tls_on_both_sides(tmp_path: Path) -> None:
    mine, theirs = self_signed(tmp_path, names=("127.0.0.1",), stem="tap"), self_signed(tmp_path, stem="epp")
    server = await serve("127.0.0.1", 0, echo, tls=theirs)
    async with tap_to(server.address, listen_tls=mine, upstream_tls=ClientTls(verify=False)) as tap:
        channel = await dial(tap.address, tls=ClientTls(ca=mine.certificate))
        stream = await channel.open()
        assert await asked(stream, b"secret" * 10_000) == b"secret" * 10_000
        await channel.close()
    await server.close()


async def test_an_unverifiable_certificate_is_logged(tmp_path: Path, caplog) -> None:
    server = await serve("127.0.0.1", 0, echo, tls=self_signed(tmp_path))
    async with tap_to(server.address, upstream_tls=ClientTls()) as tap:
        reader, writer = await asyncio.open_connection("127.0.0.1", tap.port)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
    await server.close()
    assert "certificate was rejected" in caplog.text


async def test_grpcio_at_both_ends_with_health_and_deadline() -> None:
    async def process(requests, context: grpcio.aio.ServicerContext):
        await context.send_initial_metadata((("x-initial", "1"),))
        async for raw in requests:
            if raw == b"abort":
                context.set_trailing_metadata((("x-why", "asked"),))
                await context.abort(grpcio.StatusCode.RESOURCE_EXHAUSTED, "enough: §")
            yield raw

    server = grpcio.aio.server()
    handler = grpcio.stream_stream_rpc_method_handler(process)
    name = "envoy.service.ext_proc.v3.ExternalProcessor"
    server.add_generic_rpc_handlers((grpcio.method_handlers_generic_handler(name, {"Process": handler}),))

    class Health(health_pb2_grpc.HealthServicer):
        async def Check(self, request, context):  # noqa: N802 - the service's name
            return health_pb2.HealthCheckResponse(status=1 if request.service == "epp" else 2)

    health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with tap_to(f"127.0.0.1:{port}") as tap, grpcio.aio.insecure_channel(tap.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (await stub.Check(health_pb2.HealthCheckRequest(service="epp"))).status == 1
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status == 2
        call = channel.stream_stream(grpc.PROCESS.decode())(metadata=(("x-mine", "1"),))
        await call.write(b"x" * 1_000_000)
        assert await call.read() == b"x" * 1_000_000
        assert ("x-initial", "1") in tuple(await call.initial_metadata())
        await call.write(b"abort")
        with pytest.raises(grpcio.aio.AioRpcError) as raised:
            await call.read()
        assert raised.value.code() is grpcio.StatusCode.RESOURCE_EXHAUSTED
        assert raised.value.details() == "enough: §"
        assert ("x-why", "asked") in tuple(raised.value.trailing_metadata())
        with pytest.raises(grpcio.aio.AioRpcError) as raised:
            await channel.unary_unary("/no.such/Method")(b"")
        assert raised.value.code() is grpcio.StatusCode.UNIMPLEMENTED
        assert (tap.counts.streams, tap.counts.other_calls) == (1, 3)
    await server.stop(0)


# -- flow control ------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 20_000), max_size=80))
@settings(max_examples=50)
def test_credit_is_never_lost_and_never_invented(sizes: list[int]) -> None:
    credit, given_back = Credit(60_000), 0
    arrived = 0
    for size in sizes:
        assert credit.take(size) == (arrived - given_back + size <= 60_000)
        arrived += size
        assert credit.owed == size
        given_back += credit.give(size)
        assert 0 <= arrived - given_back < 30_000
        assert credit.owed == 0


async def test_a_slow_reader_stops_the_sender_and_receives_everything() -> None:
    go = asyncio.Event()
    digest = hashlib.sha256()

    async def handler(stream: ServedStream) -> None:
        await go.wait()
        while (raw := await stream.recv()) is not None:
            if len(raw) == len(piece):
                digest.update(raw)
            stream.send(raw)
            await stream.drain()

    piece = os.urandom(64 * 1024)
    count = 160

    # An EPP that grants its streams no more than HTTP/2's smallest default, and reads late.
    server = await serve("127.0.0.1", 0, handler, settings=((Setting.INITIAL_WINDOW_SIZE, 0),))
    async with tap_to(server.address) as tap:
        channel = await dial(tap.address)
        stream, other = await channel.open(), await channel.open()
        for _ in range(count):
            stream.send(piece)
        pending = stream.transport.connection._streams[stream.stream_id].pending
        await until(lambda: sum(map(len, pending)) == count * (len(piece) + 5) - STREAM_WINDOW)
        await until(lambda: server.connections and server.connections[0].connection.open_streams == 2)
        connection = server.connections[0].connection
        assert tap.counts.bytes_to_epp <= 16 * 1024  # one frame waits for the window
        go.set()
        connection._windows.stream = 1 << 40
        connection._sender.write(frames.window_update(stream.stream_id, 1 << 30))
        connection._sender.write(frames.window_update(other.stream_id, 1 << 20))
        server.connections[0].flush()
        assert await asked(other, b"not behind the other") == b"not behind the other"
        got = hashlib.sha256()
        for _ in range(count):
            got.update(await stream.recv())
        assert got.hexdigest() == digest.hexdigest() == hashlib.sha256(piece * count).hexdigest()
        await channel.close()
    await server.close()


async def test_a_data_plane_that_does_not_read_stops_the_epp() -> None:
    sent = 0

    async def handler(stream: ServedStream) -> None:
        nonlocal sent
        while sent < 400:
            stream.send(b"y" * 65_536)
            sent += 1
            await stream.drain()

    async with tapped(handler) as (_, tap, _):
        raw = socket.create_connection(("127.0.0.1", tap.port))
        raw.setblocking(False)
        loop = asyncio.get_running_loop()
        head = grpc.request_headers(grpc.PROCESS, "epp")
        block = b"".join(b"\x00" + bytes((len(n),)) + n + bytes((len(v),)) + v for n, v in head)
        window = frames.settings(((Setting.INITIAL_WINDOW_SIZE, frames.MAX_WINDOW),))
        hello = frames.PREFACE + window + frames.window_update(0, 1 << 30) + frames.headers(1, block, end=False)
        await loop.sock_sendall(raw, hello)  # windows without end, but nothing reads the socket
        await until(lambda: len(tap._links) == 2)
        link = max(tap._links, key=lambda one: one.number)
        await until(lambda: (credit := link.up_leg._credits.get(1)) and credit._taken == STREAM_WINDOW)
        assert link.down_leg.output_size() <= UNSENT_LIMIT + 64 * 1024
        assert sent < 400
        received = 0
        while received < 400 * 65_541:
            received += len(await loop.sock_recv(raw, 1 << 20))
        assert sent == 400
        raw.close()


async def test_a_data_plane_that_overruns_the_windows_is_cut() -> None:
    async def handler(stream: ServedStream) -> None:
        await asyncio.Event().wait()

    async with tapped(handler, settings=((Setting.INITIAL_WINDOW_SIZE, 0),)) as (channel, _, _):
        stream = await channel.open()
        transport = stream.transport
        data = frames.frame(frames.DATA, 0, stream.stream_id, b"z" * 16_384)
        transport.write_raw(data * (STREAM_WINDOW // 16_384 + 1))
        ended = await stream.wait_ended()
        assert ended.how == "lost"
        assert "FLOW_CONTROL_ERROR" in ended.message
        assert STREAM_WINDOW < CONNECTION_WINDOW


@given(
    st.lists(st.lists(st.binary(max_size=70_000), min_size=1, max_size=4), min_size=1, max_size=6),
    st.integers(1, 70_000),
    st.integers(min_value=16_384, max_value=40_000),
)
@settings(max_examples=15)
def test_any_messages_come_through_any_windows(bodies: list[list[bytes]], window: int, frame_size: int) -> None:
    async def main() -> None:
        limits = ((Setting.INITIAL_WINDOW_SIZE, window), (Setting.MAX_FRAME_SIZE, frame_size))
        async with tapped(echo, settings=limits) as (channel, tap, _):

            async def one(messages: list[bytes]) -> None:
                stream = await channel.open()
                for raw in messages:
                    stream.send(raw)
                stream.half_close()
                for raw in messages:
                    assert await stream.recv() == raw
                assert (await stream.wait_ended()).status == 0

            await asyncio.gather(*(one(messages) for messages in bodies))
            assert all(link.down_leg._credit.owed == link.up_leg._credit.owed == 0 for link in tap._links)

    asyncio.run(main())


_CHILD = """
import asyncio, sys
from ext_proc.record import Recorder
from ext_proc.relay import Recording, open_tap
async def main():
    tap = await open_tap("127.0.0.1", 0, sys.argv[1], recording=Recording(recorder=Recorder()))
    print(tap.port, flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        with open("/proc/self/status") as status:
            peak = [line.split()[1] for line in status if line.startswith("VmHWM")]
        print(peak[0], tap.counts.bytes_to_epp, flush=True)
    await tap.close()
asyncio.run(main())
"""


@pytest.mark.program
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
async def test_an_upload_of_200_mb_does_not_grow_memory() -> None:
    size, count = 1024 * 1024, 200
    received = 0

    async def handler(stream: ServedStream) -> None:
        nonlocal received
        while (raw := await stream.recv()) is not None:
            received += len(raw)
        stream.send(b"got it")

    server = await serve("127.0.0.1", 0, handler)
    with subprocess.Popen(  # noqa: ASYNC220 - it is spoken to in threads
        [sys.executable, "-c", _CHILD, server.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        loop = asyncio.get_running_loop()

        async def ask() -> list[int]:
            child.stdin.write(b"\n")
            child.stdin.flush()
            return [int(word) for word in (await loop.run_in_executor(None, child.stdout.readline)).split()]

        port = int(await loop.run_in_executor(None, child.stdout.readline))
        channel = await dial(f"127.0.0.1:{port}")
        stream = await channel.open()
        stream.send(b"warm up")
        before, _ = await ask()
        piece = b"u" * size
        for _ in range(count):
            stream.send(piece)
            await stream.drain()
        stream.half_close()
        assert await stream.recv() == b"got it"
        after, passed = await ask()
        assert received == count * size + len(b"warm up")
        assert passed > count * size
        assert after - before < 40 * 1024  # KiB: windows, and what the record holds of one exchange
        await channel.close()
        child.stdin.close()
    await server.close()


async def test_a_socket_that_is_reset_is_a_connection_lost() -> None:
    async with tapped(echo) as (channel, tap, server):
        stream = await channel.open()
        assert await asked(stream, b"x") == b"x"
        raw = server.connections[0]._socket.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.connections[0].abort()
        assert (await stream.wait_ended()).how == "lost"
        assert tap.streams == 0


async def test_a_connection_that_we_fail_to_make_ends_that_of_the_data_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[BaseException] = []

    async def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("ext_proc.relay.relay.connect", fails)
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    async with tap_to(unused()) as tap:
        reader, writer = await asyncio.open_connection(tap.host, tap.port)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.transport.abort()
    assert [str(one) for one in told] == ["[Errno 24] Too many open files"]
