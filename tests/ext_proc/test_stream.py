"""Streams as the data plane opens them, against grpcio's server and against a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from unittest.mock import AsyncMock

import grpc as grpcio
import pytest
import uvloop
from wire import Tape, acting, asked, echo, grpcio_server, scripted, until, word

from ext_proc import grpc
from ext_proc.channel import Channel, dial
from ext_proc.health import Health, health_check
from ext_proc.http2 import frames
from ext_proc.http2.errors import ConnectFailed
from ext_proc.http2.frames import ErrorCode, Setting
from ext_proc.messages import HealthCheckResponse
from ext_proc.record import Author, Event, HalfClosed, Malformed, Message, StreamEnded, StreamOpened
from ext_proc.record_json import from_json, to_json
from ext_proc.server import Handler, ServedStream, serve

EPP, DATA_PLANE = Author.EPP, Author.DATA_PLANE


@contextlib.asynccontextmanager
async def grpcio_echo(connections: int = 1, **options) -> AsyncIterator[tuple[Channel, grpcio.aio.Server]]:
    async with grpcio_server(**options) as (address, server):
        channel = await dial(address, connections=connections)
        try:
            yield channel, server
        finally:
            await channel.close()


@pytest.fixture(autouse=True)
def loop() -> Callable[[Coroutine[Any, Any, None]], None]:
    """The loop that the suite itself runs on."""
    return uvloop.run


# -- grpcio as the EPP -------------------------------------------------------------------------------------------------


async def test_half_close_against_grpcio_is_recorded_in_order() -> None:
    tape = Tape()
    async with grpcio_echo() as (channel, _):
        stream = await channel.open("x1", tape.recorder)
        assert await asked(stream, b"one") == b"one"
        assert await asked(stream, b"two", end=True) == b"two"
        assert await stream.recv() is None
        ended = await stream.wait_ended()
        assert (ended.how, ended.status, ended.author) == ("status", 0, EPP)
        assert dict(ended.headers)[b":status"] == b"200"
    assert tape.story() == [
        "opened",
        "data-plane: one",
        "epp: one",
        "data-plane: two",
        "data-plane: half-closed",
        "epp: two",
        "ended: status 0",
    ]
    assert {event.exchange for event in tape.events} == {"x1"}
    assert [from_json(to_json(entry)) for entry in tape.entries] == tape.entries


async def test_envoys_ending_leaves_grpcio_well() -> None:
    async with grpcio_echo(connections=2) as (channel, _):
        for round_ in range(100):
            stream = await channel.open()
            assert await asked(stream, b"%d" % round_) == b"%d" % round_
            stream.reset()
            assert (stream.ended.how, stream.ended.code, stream.ended.author) == ("reset", 2, DATA_PLANE)
            assert await stream.recv() is None
        last = await channel.open()
        last.send(b"fine", end=True)
        assert (await last.wait_ended()).status == 0


async def test_a_large_echo_arrives_whole() -> None:
    body = bytes(range(250)) * 80_000
    async with grpcio_echo() as (channel, _):
        assert await asked(await channel.open(), body, end=True) == body


async def test_a_large_echo_lets_a_small_stream_pass() -> None:
    body = bytes(range(250)) * 80_000
    order: list[str] = []
    async with grpcio_echo() as (channel, _):
        large = await channel.open(on_event=lambda event: order.append("large") if isinstance(event, Message) else None)
        large.send(body, end=True)
        small = await channel.open()
        assert await asked(small, b"small", end=True) == b"small"
        order.append("small")
        await large.drain()
        assert (await large.wait_ended()).status == 0
        assert order == ["small", "large"]


async def test_many_streams_at_once_over_two_connections() -> None:
    tape = Tape()
    async with grpcio_echo(connections=2) as (channel, _):

        async def one(number: int) -> None:
            stream = await channel.open(f"x{number}", tape.recorder)
            assert await asked(stream, b"%d" % number, end=True) == b"%d" % number
            assert (await stream.wait_ended()).status == 0

        await asyncio.gather(*(one(number) for number in range(100)))
    used = [event.connection for event in tape.events if isinstance(event, StreamOpened)]
    assert used.count(1) == used.count(2) == 50
    names = [event.stream for event in tape.events if isinstance(event, StreamOpened)]
    assert len(set(names)) == 100


async def test_one_stream_at_a_time_on_grpcio_is_waited_for_and_refusals_are_tried_again() -> None:
    """grpc-core may refuse a stream that keeps its limit, because it counts one that has just ended."""
    tape = Tape()
    async with grpcio_echo(options=(("grpc.max_concurrent_streams", 2),)) as (channel, _):

        async def one(number: int) -> StreamEnded:
            stream = await channel.open(f"x{number}", tape.recorder)
            stream.send(b"%d" % number, end=True)
            return await stream.wait_ended()

        ends = await asyncio.gather(*(one(number) for number in range(30)))
        assert [end.how for end in ends] == ["status"] * 30


async def test_a_graceful_stop_of_grpcio_lets_the_stream_finish() -> None:
    async with grpcio_echo() as (channel, server):
        stream = await channel.open()
        assert await asked(stream, b"before") == b"before"
        stopping = asyncio.ensure_future(server.stop(grace=20))
        transport = stream.transport
        await until(lambda: transport.connection.going_away)
        assert await asked(stream, b"after", end=True) == b"after"
        assert (await stream.wait_ended()).status == 0
        await stopping
        with pytest.raises(ConnectFailed):
            await channel.open()


# -- a scripted EPP ----------------------------------------------------------------------------------------------------


_REFUSING = acting(lambda s: s.reset(ErrorCode.REFUSED_STREAM))
_GARBAGE = b"\x00" * 3 + b"garbage" * 10
_HTML = ((b"content-type", b"text/html"),)
_ENDINGS: dict[str, tuple[Handler, str, str]] = {
    "trailers-only": (acting(lambda s: s.end(14, "no pod – wait")), "ended: status 14", "no pod – wait"),
    "status": (acting(lambda s: s.send(b"answer"), lambda s: s.end(13, "broken")), "ended: status 13", "broken"),
    "no trailers": (
        acting(lambda s: s.end_without_trailers()),
        "ended: malformed None",
        "the stream ended without a grpc-status",
    ),
    "html": (
        acting(lambda s: s.respond_http(200, _HTML, b"<html>")),
        "ended: malformed None",
        "the content type is 'text/html', not application/grpc",
    ),
    "404": (acting(lambda s: s.respond_http(404)), "ended: malformed None", "the HTTP status is '404', not 200"),
    "reset": (acting(lambda s: s.reset(ErrorCode.INTERNAL_ERROR)), "ended: reset 2", "RST_STREAM INTERNAL_ERROR"),
    "cut": (acting(lambda s: s.transport.abort()), "ended: lost None", ""),
    "garbage": (acting(lambda s: s.transport.write_raw(_GARBAGE)), "ended: lost None", ""),
    "unfinished": (
        acting(lambda s: s.send_data(grpc.frame(b"abc", length=100)), lambda s: s.end(0)),
        "ended: status 0",
        "",
    ),
    "unimplemented": (acting(lambda s: s.end(grpc.UNIMPLEMENTED)), "ended: status 12", ""),
}


@pytest.mark.parametrize("name", _ENDINGS)
async def test_every_ending_is_reported_once(name: str) -> None:
    handler, ending, message = _ENDINGS[name]
    tape, told = Tape(), []
    async with scripted(handler) as channel:
        stream = await channel.open("x", tape.recorder, on_event=told.append)
        stream.send(b"request")
        ended = await stream.wait_ended()
        assert ended is stream.ended
        assert message in ended.message
        stream.send(b"nobody hears this")
        stream.half_close()
        stream.reset()
    assert tape.story()[-1] == ending
    assert [word(event) for event in told][-1] == ending
    assert tape.story().count(ending) == 1
    assert ("epp: malformed" in tape.story()) == (name == "unfinished")


async def test_events_can_be_read_one_by_one() -> None:
    compressed = grpc.frame(b"squeezed", compressed=1)
    async with scripted(acting(lambda s: s.send(b"good"), lambda s: s.send_data(compressed))) as channel:
        stream = await channel.open()
        stream.half_close()
        assert [word(event) async for event in stream] == ["epp: good", "epp: malformed", "ended: status 0"]


async def test_a_listener_may_reset_from_within() -> None:
    async def handler(stream: ServedStream) -> None:
        for number in range(5):
            stream.send(b"%d" % number)

    tape, told = Tape(), []
    async with scripted(handler) as channel:

        def listen(event: Event) -> None:
            told.append(word(event))
            stream.reset()

        stream = await channel.open("x", tape.recorder, on_event=listen)
        await stream.wait_ended()
        again = await channel.open()
        await again.wait_ended()  # by now all frames of the first have come
    assert told == ["epp: 0"]
    assert tape.story()[:3] == ["opened", "epp: 0", "ended: reset 2"]
    assert tape.story()[3:] == ["epp: 1", "epp: 2", "epp: 3", "epp: 4"], "late messages are still recorded"


async def test_when_the_epp_ends_first_it_gets_a_reset_as_from_envoy() -> None:
    seen: list[bytes] = []

    async def handler(stream: ServedStream) -> None:
        receive = stream.transport.connection.receive

        def spy(data: bytes) -> None:
            seen.append(data)
            receive(data)

        stream.transport.connection.receive = spy  # type: ignore[method-assign]
        stream.end(0)

    async with scripted(handler) as channel:
        await (await channel.open()).wait_ended()
        second = await channel.open()
        await second.wait_ended()
    assert frames.rst_stream(1, ErrorCode.INTERNAL_ERROR) in b"".join(seen)


async def test_a_refused_stream_is_opened_again_with_all_it_sent() -> None:
    refusals = iter([True, True, False])

    async def handler(stream: ServedStream) -> None:
        if next(refusals):
            stream.reset(ErrorCode.REFUSED_STREAM)
        else:
            await echo(stream)

    tape, told = Tape(), []
    async with scripted(handler) as channel:
        stream = await channel.open("x", tape.recorder, on_event=told.append)
        stream.send(b"one")
        stream.send(b"two", end=True)
        assert (await stream.wait_ended()).status == 0
    sent = ["data-plane: one", "data-plane: two", "data-plane: half-closed"]
    assert tape.story() == [
        *["opened", *sent, "ended: refused 7"] * 2,
        *["opened", *sent, "epp: one", "epp: two", "ended: status 0"],
    ]
    assert [word(event) for event in told] == ["epp: one", "epp: two", "ended: status 0"]


async def test_a_stream_that_stays_refused_ends_so() -> None:
    tape = Tape()
    async with scripted(_REFUSING, connections=2) as channel:
        stream = await channel.open("x", tape.recorder)
        stream.half_close()
        ended = await stream.wait_ended()
        assert (ended.how, ended.author) == ("refused", EPP)
    assert tape.story() == ["opened", "data-plane: half-closed", "ended: refused 7"] * 9


async def test_a_stream_that_waits_to_be_opened_again_is_lost_with_its_channel() -> None:
    tape = Tape()
    async with scripted(_REFUSING) as channel:
        stream = await channel.open("x", tape.recorder)
        stream.half_close()
        await until(lambda: tape.story().count("ended: refused 7") >= 2)
        await channel.close()
        assert (await stream.wait_ended()).how == "lost"


async def test_a_stream_that_we_fail_to_open_again_is_lost_and_the_cause_reported(monkeypatch) -> None:
    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with scripted(_REFUSING) as channel:
        stream = await channel.open()
        stream.half_close()
        monkeypatch.setattr(channel, "transport", AsyncMock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        assert (await stream.wait_ended()).how == "lost"
    assert [str(one) for one in reported] == ["[Errno 24] Too many open files"]


async def test_a_refusal_after_an_answer_is_a_reset() -> None:
    async def handler(stream: ServedStream) -> None:
        stream.send(b"hello")
        await stream.drain()
        await stream.recv()
        stream.reset(ErrorCode.REFUSED_STREAM)

    async with scripted(handler) as channel:
        stream = await channel.open()
        assert await stream.recv() == b"hello"
        stream.send(b"more")
        ended = await stream.wait_ended()
        assert (ended.how, ended.author, ended.code) == ("reset", EPP, ErrorCode.REFUSED_STREAM)


async def test_an_epp_that_takes_one_stream_at_a_time_is_waited_for() -> None:
    running = most = 0

    async def handler(stream: ServedStream) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await stream.recv()
        running -= 1

    async with scripted(handler, settings=((Setting.MAX_CONCURRENT_STREAMS, 1),)) as channel:

        async def one() -> None:
            stream = await channel.open()
            stream.send(b"go", end=True)
            assert (await stream.wait_ended()).status == 0

        await asyncio.gather(*(one() for _ in range(20)))
    assert most == 1


async def test_a_goaway_moves_new_streams_to_a_new_connection() -> None:
    tape = Tape()
    async with scripted(echo) as channel:
        first = await channel.open("x1", tape.recorder)
        assert await asked(first, b"a") == b"a"
        transport = first.transport
        transport.connection.receive(frames.goaway(2**31 - 1, 0))
        second = await channel.open("x2", tape.recorder)
        assert await asked(second, b"b", end=True) == b"b"
        assert await asked(first, b"c", end=True) == b"c"
        assert (await first.wait_ended()).status == 0
        await transport.wait_closed()
    assert [event.connection for event in tape.events if isinstance(event, StreamOpened)] == [1, 2]


async def test_ten_thousand_messages_are_taken() -> None:
    async with scripted(acting(*[lambda s: s.send(b"spam")] * 10_000)) as channel:
        stream = await channel.open()
        stream.half_close()
        assert sum([isinstance(event, Message) async for event in stream]) == 10_000


async def test_a_message_of_4_gib_is_a_finding_not_a_wait() -> None:
    async def handler(stream: ServedStream) -> None:
        stream.send_data(b"\x00\xff\xff\xff\xff....")
        await stream.recv()

    async with scripted(handler) as channel:
        stream = await channel.open()
        assert await stream.recv() is None
        event = await anext(aiter(stream))
        assert isinstance(event, Malformed)
        assert "4294967295" in event.reason
        assert stream.ended is None
        stream.reset()


async def test_malformed_bytes_reach_the_epp() -> None:
    got: list[str] = []

    async def handler(stream: ServedStream) -> None:
        async for event in stream:
            got.append(word(event))
            if isinstance(event, HalfClosed):
                return

    tape = Tape()
    async with scripted(handler) as channel:
        stream = await channel.open("x", tape.recorder)
        stream.send_data(grpc.frame(b"cut short", length=1000), end=True)
        assert (await stream.wait_ended()).status == 0
        broken = await channel.open("y", tape.recorder)
        broken.write_raw(frames.frame(frames.DATA, 0, 0, b"on stream 0"))
        assert (await broken.wait_ended()).how == "lost"
        after = await channel.open("z", tape.recorder)
        after.send(b"fine", end=True)
        assert (await after.wait_ended()).status == 0
    assert got[:2] == ["data-plane: malformed", "data-plane: half-closed"]
    assert tape.story()[:3] == ["opened", "data-plane: malformed", "data-plane: half-closed"]


async def test_a_connection_made_dirty_is_replaced_and_closed_in_the_end() -> None:
    async with scripted(echo) as channel:
        dirty = await channel.open()
        dirty.write_raw(frames.frame(0x77, 0, 0, b"unknown but legal"))
        fresh = await channel.open()
        assert fresh.transport is not dirty.transport
        assert await asked(dirty, b"still works") == b"still works"


async def test_a_lost_stream_reports_the_goaway_before_it() -> None:
    async def handler(stream: ServedStream) -> None:
        stream.transport.goaway(ErrorCode.ENHANCE_YOUR_CALM, debug=b"too many pings")
        await stream.recv()
        stream.transport.abort()

    async with scripted(handler) as channel:
        stream = await channel.open()
        transport = stream.transport
        await until(lambda: transport.connection.going_away)
        stream.send(b"go on")
        ended = await stream.wait_ended()
        assert ended.how == "lost"
        assert ended.message.endswith("after GOAWAY ENHANCE_YOUR_CALM too many pings")


async def test_a_connection_made_dirty_is_lost_when_the_peer_gives_it_up_and_leaves_it_open() -> None:
    async def handler(stream: ServedStream) -> None:
        stream.transport.goaway(ErrorCode.PROTOCOL_ERROR, debug=b"DATA: stream_id == 0")  # as of Node.js's HTTP/2
        await stream.recv()

    async with scripted(handler) as channel:
        stream = await channel.open()
        stream.write_raw(frames.frame(0x77, 0, 0, b"what the peer calls an error"))
        ended = await stream.wait_ended()
        assert ended.how == "lost"
        assert ended.message.endswith("after GOAWAY PROTOCOL_ERROR DATA: stream_id == 0")


async def test_the_channel_sends_authority_and_metadata() -> None:
    seen: list[tuple[tuple[bytes, bytes], ...]] = []

    async def handler(stream: ServedStream) -> None:
        seen.append(stream.headers)

    server = await serve("127.0.0.1", 0, handler)
    channel = await dial(server.address, authority="epp.example", metadata=[(b"x-tenant", b"a")])
    stream = await channel.open(metadata=[(b"x-request", b"1")])
    await stream.wait_ended()
    await channel.close()
    await server.close()
    assert dict(seen[0])[b":authority"] == b"epp.example"
    assert seen[0][-2:] == ((b"x-tenant", b"a"), (b"x-request", b"1"))


# -- health ------------------------------------------------------------------------------------------------------------


async def test_health_of_grpcios_own_service() -> None:
    from grpc_health.v1 import health, health_pb2, health_pb2_grpc

    server = grpcio.aio.server(options=[("grpc.so_reuseport", 0)])
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set("envoy.service.ext_proc.v3.ExternalProcessor", health_pb2.HealthCheckResponse.NOT_SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    channel = await dial(f"127.0.0.1:{port}")
    assert await health_check(channel) == Health(status=HealthCheckResponse.SERVING, grpc_status=0, message="")
    named = await health_check(channel, "envoy.service.ext_proc.v3.ExternalProcessor")
    assert (named.status, named.grpc_status) == (HealthCheckResponse.NOT_SERVING, 0)
    unknown = await health_check(channel, "nobody")
    assert (unknown.status, unknown.grpc_status) == (None, 5)
    await channel.close()
    await server.stop(0)


async def test_health_of_servers_that_have_none_or_break() -> None:
    async with scripted(echo) as channel:
        assert (await health_check(channel)).grpc_status == grpc.UNIMPLEMENTED
    async with scripted(echo, health=lambda service: 1 if service == "" else None) as channel:
        assert (await health_check(channel)).status == HealthCheckResponse.SERVING
        assert (await health_check(channel, "other")).grpc_status == 5

    async def cut(stream: ServedStream) -> None:
        stream.transport.abort()

    server = await serve("127.0.0.1", 0, echo, methods={grpc.HEALTH_CHECK: cut})
    channel = await dial(server.address)
    broken = await health_check(channel)
    assert (broken.status, broken.grpc_status) == (None, None)
    assert broken.message
    await channel.close()
    await server.close()


async def test_health_that_never_comes_is_a_time_out() -> None:
    async def silent(stream: ServedStream) -> None:
        await asyncio.get_running_loop().create_future()

    server = await serve("127.0.0.1", 0, echo, methods={grpc.HEALTH_CHECK: silent})
    channel = await dial(server.address)
    with pytest.raises(TimeoutError):
        await health_check(channel, timeout=0.05)
    await channel.close()
    await server.close()


async def test_a_connection_that_is_made_again_has_its_turn() -> None:
    """Whether it is waited for or not."""

    async with scripted(echo, connections=2) as channel:
        first, second = channel.ready(), channel.ready()
        assert first is not None
        assert first is not second
        first.close()
        await first.wait_closed()
        assert channel.ready() is None
        again = await channel.transport()
        assert again not in (first, second)
        assert {channel.ready(), channel.ready()} == {again, second}
        assert channel.ready() is second
