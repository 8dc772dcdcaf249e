"""What the tap records, what it leaves out, and that recording never gets in the way."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_exchange import FDS, OK, POST, grpc_epp
from wire import Tape, asked, echo, facts, until

from ext_proc import grpc
from ext_proc.channel import Channel, dial
from ext_proc.http2.frames import ErrorCode
from ext_proc.record import (
    Author,
    Event,
    HalfClosed,
    Malformed,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
    shortened,
)
from ext_proc.record_json import from_json, to_json
from ext_proc.relay import Counts, Recording, RecordingEnded, RecordingLimits, Tap, open_tap
from ext_proc.relay.watch import StreamWatch
from ext_proc.server import Handler, ServedStream, serve
from fake_proxy.client import Chunk
from fake_proxy.config import BodyMode, Ending
from fake_proxy.exchange import run_exchange
from fake_proxy.stimulus import Stimulus


def ended(tape: Tape, count: int) -> bool:
    """Whether `count` streams are over in the record."""
    return sum(isinstance(event, StreamEnded | RecordingEnded) for event in tape.events) >= count


@contextlib.asynccontextmanager
async def recorded(handler: Handler, **options) -> AsyncIterator[tuple[Channel, Tap, Tape]]:
    tape = Tape()
    server = await serve("127.0.0.1", 0, handler)
    tap = await open_tap("127.0.0.1", 0, server.address, recording=Recording(recorder=tape.recorder, **options))
    channel = await dial(tap.address)
    try:
        yield channel, tap, tape
    finally:
        await channel.close()
        await tap.close()
        await server.close()


# -- what is recorded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(BodyMode), ids=str)
@pytest.mark.parametrize("ending", [Ending.ENVOY, Ending.HALF_CLOSE], ids=str)
async def test_the_record_is_that_of_the_data_plane(mode: BodyMode, ending: Ending) -> None:
    own, tapped = Tape(), Tape()
    async with grpc_epp("127.0.0.1:9") as address:
        tap = await open_tap("127.0.0.1", 0, address, recording=Recording(recorder=tapped.recorder))
        channel = await dial(tap.address)
        config = replace(FDS.with_modes(mode), ending=ending)
        request = replace(POST, body=(Chunk(data=b'{"model":'), Chunk(data=b' "m"}')))
        for number in (1, 2):
            outcome = await run_exchange(channel, request, config, Stimulus(), OK, own.recorder, f"tap-{number}")
            assert outcome.status == 200
        await until(lambda: ended(tapped, 2))
        await channel.close()
        await tap.close()
    seen = StreamOpened | StreamEnded | Message | HalfClosed
    for exchange in ("tap-1", "tap-2"):
        mine, theirs = (
            [facts(event) for event in tape.of(exchange) if isinstance(event, seen)] for tape in (own, tapped)
        )
        for author in (Author.DATA_PLANE, Author.EPP):
            assert [one for one in theirs if one[0] is author] == [one for one in mine if one[0] is author]
        assert theirs[0] == mine[0]
        assert theirs[-1] == mine[-1]
    assert [from_json(to_json(entry)) for entry in tapped.entries] == tapped.entries


async def test_every_end_is_recorded() -> None:
    async def handler(stream: ServedStream) -> None:
        match await stream.recv():
            case b"status":
                stream.end(8, "full", ((b"x", b"1"),))
            case b"bare":
                stream.end_without_trailers()
            case b"reset":
                stream.reset(ErrorCode.INTERNAL_ERROR)
            case b"http":
                stream.respond_http(502)
            case b"html":
                stream.respond_http(502, ((b"content-type", b"text/html"),), b"<html>")
            case b"lost":
                stream.transport.abort()
            case _:
                await asyncio.Event().wait()

    async with recorded(handler) as (channel, _, tape):
        for ask in (b"status", b"bare", b"reset", b"http", b"html", b"lost"):
            stream = await channel.open()
            stream.send(ask)
            await stream.wait_ended()
        over = len([e for e in tape.events if isinstance(e, StreamEnded)])
        stream = await channel.open()
        stream.send(b"mine")
        await asyncio.wait([asyncio.create_task(stream.drain())])
        await until(lambda: any(isinstance(e, Message) and e.raw == b"mine" for e in tape.events))
        stream.reset(ErrorCode.CANCEL)
        await until(lambda: ended(tape, over + 1))
        ends = [event for event in tape.events if isinstance(event, StreamEnded)]
        assert [(end.how, end.author, end.status, end.code) for end in ends] == [
            ("status", Author.EPP, 8, None),
            ("malformed", Author.EPP, None, None),
            ("reset", Author.EPP, None, 2),
            ("malformed", Author.EPP, None, None),
            ("malformed", Author.EPP, None, None),
            ("lost", None, None, None),
            ("reset", Author.DATA_PLANE, None, 8),
        ]
        assert ends[0].message == "full"
        assert ends[0].headers == (*grpc.RESPONSE_HEADERS, *grpc.trailers(8, "full", ((b"x", b"1"),)))


async def test_bytes_that_are_no_message_are_recorded() -> None:
    async def handler(stream: ServedStream) -> None:
        await stream.recv()
        stream.send_data(b"\x02abcdefgh")
        stream.end()

    async with recorded(handler) as (channel, _, tape):
        stream = await channel.open()
        stream.send_data(b"\x00\x00\x00\x00\x05ab", end=True)
        await stream.wait_ended()
        bad = [event for event in tape.events if isinstance(event, Malformed)]
        assert [event.author for event in bad] == [Author.DATA_PLANE, Author.EPP]
        assert "ended inside a message" in bad[0].reason
        assert "compressed flag 2" in bad[1].reason


async def test_a_vanished_data_plane_is_recorded_as_its_reset() -> None:
    async with recorded(echo) as (channel, _, tape):
        stream = await channel.open()
        assert await asked(stream, b"x") == b"x"
        stream.transport.abort()
        await until(lambda: ended(tape, 1))
        end = tape.events[-1]
        assert isinstance(end, StreamEnded)
        assert (end.how, end.author) == ("reset", Author.DATA_PLANE)


# -- what is left out --------------------------------------------------------------------------------------------------


async def talk(channel: Channel, *messages: bytes) -> None:
    stream = await channel.open()
    for raw in messages:
        assert await asked(stream, raw) == raw
    stream.half_close()
    assert (await stream.wait_ended()).status == 0


async def test_every_nth_stream_is_recorded() -> None:
    async with recorded(echo, every=3) as (channel, tap, tape):
        for number in range(7):
            await talk(channel, b"%d" % number)
        first = [e.raw for e in tape.events if isinstance(e, Message) and e.author is Author.DATA_PLANE]
        assert first == [b"0", b"3", b"6"]
        assert (tap.counts.streams, tap.counts.recorded, tap.counts.sampled_out) == (7, 3, 4)


async def test_a_stream_may_name_its_exchange_for_the_tap_alone() -> None:
    heads: list[StreamOpened] = []
    tape, epp = Tape(), Recorder()
    epp.listen(lambda entry: heads.append(entry.event) if isinstance(entry.event, StreamOpened) else None)
    server = await serve("127.0.0.1", 0, echo, observe=lambda _: ("x", epp))
    recording = Recording(recorder=tape.recorder, named_by=b"x-name")
    tap = await open_tap("127.0.0.1", 0, server.address, recording=recording)
    named = await dial(tap.address, metadata=[(b"x-name", b"mine"), (b"x-other", b"1")])
    unnamed = await dial(tap.address)
    await talk(named, b"1")
    await talk(unnamed, b"2")
    for one in (named, unnamed, tap, server):
        await one.close()
    opened = [event for event in tape.events if isinstance(event, StreamOpened)]
    assert [event.exchange for event in opened] == ["mine", "tap-1"]
    for seen in (opened[0], heads[0]):
        assert (b"x-other", b"1") in seen.headers
        assert b"x-name" not in dict(seen.headers)


async def test_a_reader_that_is_behind_gets_no_more() -> None:
    answers = iter([True, False, False, True])
    async with recorded(echo, admit=lambda: next(answers)) as (channel, tap, tape):
        for _ in range(4):
            await talk(channel, b"x")
        assert (tap.counts.recorded, tap.counts.declined) == (2, 2)
        assert {event.exchange for event in tape.events} == {"tap-1", "tap-2"}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (RecordingLimits(message=10), "a message of 100 bytes, more than 10"),
        (RecordingLimits(exchange=150), "more than 150 bytes of messages"),
        (RecordingLimits(events=4), "more than 4 events"),
        (RecordingLimits(unfinished=50), "more than 50 bytes of unfinished messages on all streams"),
    ],
)
async def test_limits_end_the_recording_and_nothing_else(limits: RecordingLimits, reason: str) -> None:
    async with recorded(echo, limits=limits) as (channel, tap, tape):
        raw = b"z" * (200_000 if limits.unfinished == 50 else 100)
        await talk(channel, raw, raw, raw, raw)
        last = tape.events[-1]
        assert last == RecordingEnded(exchange="tap-1", reason=reason)
        assert tap.counts.ended_early == 1
        assert tap.counts.unfinished == 0
        await talk(channel, b"next")
        assert (tap.counts.recorded, tap.counts.failures) == (2, 0)


async def test_events_are_captured_as_the_hook_says() -> None:
    def capture(event: Event) -> Event:
        return shortened(event, 3) if isinstance(event, Message) else event

    async with recorded(echo, capture=capture) as (channel, _, tape):
        await talk(channel, b"secret")
        found = [event for event in tape.events if isinstance(event, Message)]
        assert [(event.raw, event.size, event.truncated) for event in found] == [(b"sec", 6, True)] * 2


@pytest.mark.parametrize("broken", ["capture", "admit", "listener"])
async def test_recording_that_fails_never_breaks_relaying(broken: str, caplog) -> None:
    def fail(*_: object) -> bool:
        raise RuntimeError("no space left")

    options = {broken: fail} if broken != "listener" else {}
    async with recorded(echo, **options) as (channel, tap, tape):
        if broken == "listener":
            tape.recorder.listen(fail)
        for _ in range(20):
            await talk(channel, b"fine")
        assert tap.counts.failures == 20
        assert tap.counts.unfinished == 0
        assert tap.streams == 0
    assert caplog.text.count("recording failed, relaying goes on: no space left") == 10


def oversize(found: bytes | grpc.Violation) -> bool:
    """Whether it is the beginning of a message that is larger than what is kept, and else as gRPC has it."""
    if isinstance(found, bytes):
        return False
    return not found.raw[0] and int.from_bytes(found.raw[1:5]) > grpc.MESSAGE_LIMIT


@given(
    st.lists(st.binary(max_size=40), max_size=8),
    st.binary(max_size=12),
    st.lists(st.integers(1, 30), min_size=1, max_size=20),
    st.booleans(),
)
def test_a_stream_split_anywhere_has_the_same_record(
    messages: list[bytes], rest: bytes, sizes: list[int], end: bool
) -> None:
    data = b"".join(map(grpc.frame, messages)) + rest
    reader = grpc.Deframer()
    found = list(reader.feed(data))
    if end and (violation := reader.finish()):
        found.append(violation)
    expected = [one if isinstance(one, bytes) else one.reason for one in found if not oversize(one)]
    tape, counts = Tape(), Counts()
    failed: list[Exception] = []
    recording = Recording(recorder=tape.recorder, limits=RecordingLimits(message=grpc.MESSAGE_LIMIT))
    watch = StreamWatch("x", 1, (), recording, counts, failed.append)
    at = 0
    while at < len(data):
        size = sizes[at % len(sizes)]
        watch.data(Author.DATA_PLANE, data[at : at + size], False)
        at += size
    if end:
        watch.data(Author.DATA_PLANE, b"", True)
    got = [e.raw if isinstance(e, Message) else e.reason for e in tape.events if isinstance(e, Message | Malformed)]
    assert got == expected
    assert not failed
    watch.reset(Author.DATA_PLANE, 8, "", refused=False)
    assert counts.unfinished == 0


@pytest.mark.parametrize("answered", [True, False])
def test_a_stream_that_is_refused_after_an_answer_was_reset(answered: bool) -> None:
    tape = Tape()
    watch = StreamWatch("x", 1, (), Recording(recorder=tape.recorder), Counts(), pytest.fail)
    if answered:
        watch.headers(Author.EPP, ((b":status", b"200"), (b"content-type", b"application/grpc")), False)
    watch.reset(Author.EPP, 7, "", refused=True)
    assert [one.how for one in tape.events if isinstance(one, StreamEnded)] == ["reset" if answered else "refused"]


@pytest.mark.parametrize("length", [5 << 20, 65 << 20, 0xFFFFFFFF])
@pytest.mark.parametrize("author", Author)
def test_a_message_that_is_too_large_to_keep_is_no_violation(author: Author, length: int) -> None:
    """What gRPC takes is settled between the two sides, not by us."""
    tape, counts = Tape(), Counts()
    watch = StreamWatch("x", 1, (), Recording(recorder=tape.recorder), counts, pytest.fail)
    watch.data(author, b"\0" + length.to_bytes(4) + b"beginning", False)
    assert [type(one) for one in tape.events] == [StreamOpened, RecordingEnded]


def test_a_stream_whose_recording_fails_is_known_to_be_incomplete() -> None:
    """Else what came later would look like silence."""
    tape, counts, failed = Tape(), Counts(), []

    def capture(event: Event) -> Event:
        if isinstance(event, Message):
            raise ValueError("no such field")
        return event

    watch = StreamWatch("x", 1, (), Recording(recorder=tape.recorder, capture=capture), counts, failed.append)
    watch.data(Author.DATA_PLANE, grpc.frame(b"asked"), False)
    assert [type(one) for one in tape.events] == [StreamOpened, RecordingEnded]
    assert (len(failed), counts.failures, counts.ended_early) == (1, 1, 0)


@pytest.mark.parametrize("agreed", [True, False])
@pytest.mark.parametrize("author", Author)
def test_messages_that_are_compressed_as_was_said_are_no_violation(author: Author, agreed: bool) -> None:
    """The record ends there, as it does at a message that is too large to keep."""
    tape, counts = Tape(), Counts()
    head = ((b"content-type", b"application/grpc"), (b"grpc-encoding", b"gzip" if agreed else b"identity"))
    watch = StreamWatch("x", 1, head, Recording(recorder=tape.recorder), counts, pytest.fail)
    watch.headers(Author.EPP, ((b":status", b"200"), *head), False)
    watch.data(author, grpc.frame(b"packed", compressed=1), False)
    kinds = [type(one) for one in tape.events]
    assert (RecordingEnded in kinds, Malformed in kinds) == (agreed, not agreed)
