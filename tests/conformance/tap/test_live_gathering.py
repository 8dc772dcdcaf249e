"""The record cut into exchanges, and what is judged of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.judges.episode_view import EpisodeView
from conformance.reading.stream_state import StopKind
from conformance.requirements.catalogue import Catalogue
from conformance.tap.gathering import OVERHEAD, Gathered, Gathering
from conformance.tap.judging import BOTH, context, episode, judged
from conformance.verdict import Verdict
from ext_proc.headers import header_map
from ext_proc.messages import HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse, ProtocolConfiguration
from ext_proc.record import Author, Event, HalfClosed, Message, Recorder, StreamEnded, StreamOpened, Wait
from ext_proc.relay import RecordingEnded

CATALOGUE = Catalogue.load()


class Room:
    """A recorder, a gathering and a clock that is turned by hand."""

    def __init__(self, **options) -> None:
        self.now = 0.0
        self.done: list[Gathered] = []
        self.recorder = Recorder(lambda: int(self.now * 1e9))
        self.gathering = Gathering(self.done.append, lambda: self.now, **options)
        self.recorder.listen(self.gathering)

    def emit(self, *events: Event) -> None:
        for event in events:
            self.recorder.emit(event)


def opened(name: str = "x") -> StreamOpened:
    return StreamOpened(exchange=name, stream=f"s-{name}", connection=1)


def said(raw: bytes, author: Author = Author.DATA_PLANE, name: str = "x") -> Message:
    return Message(exchange=name, stream=f"s-{name}", author=author, raw=raw)


def ended(name: str = "x") -> StreamEnded:
    return StreamEnded(exchange=name, stream=f"s-{name}", author=Author.EPP, how="status", status=0)


def headers(*, end: bool, mode: int = 4) -> bytes:
    config = ProtocolConfiguration(request_body_mode=mode, response_body_mode=mode)
    part = HttpHeaders(headers=header_map(((b":path", b"/v1/x"), (b":method", b"POST"))), end_of_stream=end)
    return ProcessingRequest(request_headers=part, protocol_config=config).SerializeToString()


def body(*, end: bool) -> bytes:
    return ProcessingRequest(request_body=HttpBody(body=b"{}", end_of_stream=end)).SerializeToString()


def test_an_exchange_is_done_with_its_stream() -> None:
    room = Room()
    room.emit(opened("a"), opened("b"), said(b"1", name="a"), said(b"2", name="b"), ended("b"))
    assert [(one.exchange, one.reason) for one in room.done] == [("b", "ended")]
    assert [type(entry.event) for entry in room.done[0].entries] == [StreamOpened, Message, StreamEnded]
    assert room.done[0].size == 3 * OVERHEAD + 1
    assert len(room.gathering) == 1
    assert room.gathering.bytes == 2 * OVERHEAD + 1
    room.gathering.stop()
    assert room.done[1].reason == "stopped"
    assert (len(room.gathering), room.gathering.bytes) == (0, 0)


def test_an_exchange_that_was_cut_is_judged_by_its_beginning() -> None:
    room = Room()
    room.emit(opened(), said(headers(end=True)), RecordingEnded(exchange="x", reason="too much"), ended())
    (one,) = room.done
    assert (one.reason, one.note, len(one.entries)) == ("cut", "too much", 2)
    result = judged(episode(one), context("1.0.0"), CATALOGUE)
    assert not result.failed


@pytest.mark.parametrize(
    ("messages", "silent"),
    [
        ([(headers(end=True), Author.DATA_PLANE)], True),
        ([(headers(end=False), Author.DATA_PLANE)], False),  # the EPP may wait for the body
        ([(headers(end=False), Author.DATA_PLANE), (body(end=False), Author.DATA_PLANE)], False),
        ([(headers(end=False), Author.DATA_PLANE), (body(end=True), Author.DATA_PLANE)], True),
        ([(headers(end=True), Author.DATA_PLANE), (b"\x0a\x00", Author.EPP)], False),  # the model server's turn
        ([], False),
        # An answer to the headers does not pay for the body.
        (
            [
                (headers(end=False), Author.DATA_PLANE),
                (body(end=True), Author.DATA_PLANE),
                (b"\x0a\x00", Author.EPP),
            ],
            True,
        ),
    ],
)
def test_an_epp_that_owes_an_answer_for_too_long_hangs(messages, silent: bool) -> None:
    room = Room(deadline=10, patience=60)
    room.emit(opened(), *(said(raw, author) for raw, author in messages))
    room.now = 9.9
    room.gathering.look()
    assert room.done == []
    room.now = 10
    room.gathering.look()
    assert [one.reason for one in room.done] == (["silent"] if silent else [])
    room.now = 60
    room.gathering.look()
    assert [one.reason for one in room.done] == ["silent" if silent else "idle"]
    cases = EpisodeView(episode(room.done[0]), context("1.0.0"), CATALOGUE).exchanges
    stops = [case.stream.stop.kind for case in cases if case.stream.stop is not None]
    assert stops == ([StopKind.HANG] if silent else [])
    if silent:
        result = judged(episode(room.done[0]), context("1.0.0"), CATALOGUE)
        assert result.failed
        assert "answer to request" in str(result.findings)


@pytest.mark.parametrize(("after", "hangs"), [(10, True), (9.9, False)])
def test_a_missing_answer_is_late_although_the_data_plane_gives_up(after: float, hangs: bool) -> None:
    room = Room(deadline=10)
    answer = said(b"\x0a\x00", Author.EPP)
    room.emit(opened(), said(headers(end=False)), answer, said(body(end=True)))
    room.now = after
    room.emit(StreamEnded(exchange="x", stream="s-x", how="reset", author=Author.DATA_PLANE, code=8))
    (done,) = room.done
    found = judged(episode(done), context("1.0.0"), CATALOGUE).findings
    assert any("request_body" in one.actual for one in found) is hangs


@pytest.mark.parametrize(("answered", "hangs"), [(9.9, False), (10.5, True)])
@pytest.mark.parametrize("pieces", [0, 1, 8])
def test_an_answer_that_came_too_late_is_late_whatever_happened_meanwhile(
    answered: float, hangs: bool, pieces: int
) -> None:
    """The data plane may go on speaking, and the exchange may end well."""
    room = Room(deadline=10)
    room.now = 3
    room.emit(opened(), said(headers(end=False, mode=1)))
    for number in range(pieces):
        room.now = 3 + 10 * (number + 0.5) / pieces
        room.gathering.look()
        room.emit(said(body(end=False)))
    room.now = 3 + answered
    room.emit(said(b"\x0a\x00", Author.EPP))
    for _ in range(pieces):
        room.emit(said(b"\x1a\x00", Author.EPP))
    room.now = 40
    room.emit(ended())
    (done,) = room.done
    of = episode(done)
    waits = [(one.event.what, one.t) for one in of.entries if isinstance(one.event, Wait)]
    assert waits == ([("answer to request_headers", 13e9)] if hangs else [])
    assert [one.event for one in of.entries if not isinstance(one.event, Wait)] == [one.event for one in done.entries]
    assert [one.seq for one in of.entries] == sorted({one.seq for one in of.entries})
    result = judged(of, context("1.0.0"), CATALOGUE)
    assert any("request_headers" in one.actual for one in result.findings if one.verdict is Verdict.FAIL) is hangs


@pytest.mark.parametrize(
    "messages",
    [
        (headers(end=False), headers(end=False)),
        (body(end=True),),
        (headers(end=True), body(end=True)),
        (headers(end=False), body(end=True), body(end=True)),
        (b"",),
    ],
)
@pytest.mark.parametrize("status", [3, 0, None])
def test_errors_of_the_data_plane_are_not_attributed_to_the_epp(messages, status: int | None) -> None:
    """The EPP may refuse it, give up, or be silent: what is right then is not defined."""
    room = Room(deadline=10)
    room.emit(opened(), *(said(raw) for raw in messages))
    if status is None:
        room.now = 20
        room.gathering.look()
        room.gathering.stop()
    else:
        room.emit(StreamEnded(exchange="x", stream="s-x", author=Author.EPP, how="status", status=status))
    result = judged(episode(room.done[0]), context("1.0.0"), CATALOGUE, roles=BOTH)
    assert {one.requirement for one in result.findings} == {"DP-EXTP-01"}


def test_there_is_room_for_so_many_exchanges_and_bytes() -> None:
    room = Room(max_exchanges=2)
    room.emit(opened("a"))
    assert room.gathering.has_room()
    room.emit(opened("b"))
    assert not room.gathering.has_room()
    room.emit(ended("a"))
    assert room.gathering.has_room()
    room = Room(max_bytes=2 * OVERHEAD + 1000)
    room.emit(opened("a"), said(b"x" * 1000, name="a"))
    assert not room.gathering.has_room()


def test_a_judge_that_raises_is_a_problem_of_ours() -> None:
    class Broken:
        def effect(self, requirement_id: str, version: str, /) -> str | None:
            raise RuntimeError("no such thing")

    room = Room()
    answer = ProcessingResponse(request_headers={}).SerializeToString()
    room.emit(opened(), said(headers(end=True)), said(answer, Author.EPP), ended())
    result = judged(episode(room.done[0]), context("1.0.0"), Broken())
    assert result.problem == "RuntimeError: no such thing"
    assert not result.failed
    good = judged(episode(room.done[0]), context("1.0.0"), CATALOGUE)
    assert good.failed
    assert sum(count for _, verdict, count in good.counts if verdict == Verdict.FAIL) == len(
        [finding for finding in good.findings if finding.verdict is Verdict.FAIL]
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["open", "dp", "epp", "close", "end", "cut", "look"]),
            st.binary(max_size=20),
        ),
        max_size=60,
    )
)
def test_each_exchange_is_done_once_in_any_order_and_nothing_is_kept(steps) -> None:
    room = Room(deadline=5, patience=7)
    for name, step, raw in steps:
        room.now += 1
        match step:
            case "open":
                room.emit(opened(name))
            case "dp":
                room.emit(said(raw, name=name))
            case "epp":
                room.emit(said(raw, Author.EPP, name))
            case "close":
                room.emit(HalfClosed(exchange=name, stream="s", author=Author.DATA_PLANE))
            case "end":
                room.emit(ended(name))
            case "cut":
                room.emit(RecordingEnded(exchange=name, reason="r"))
            case "look":
                room.gathering.look()
    room.gathering.stop()
    assert (len(room.gathering), room.gathering.bytes) == (0, 0)
    for one in room.done:
        assert isinstance(one.entries[0].event, StreamOpened)
        assert {entry.event.exchange for entry in one.entries} == {one.exchange}
        judged(episode(one), context("1.0.0"), CATALOGUE)


@pytest.mark.parametrize("late", [0.0, 1.9, 2.1])
def test_our_own_standstill_is_not_the_silence_of_the_epp(late: float) -> None:
    """Whether it ends the stream then, or goes on being silent."""
    for ends in (True, False):
        room = Room(deadline=2.0, late=lambda _: late)
        room.emit(opened(), said(headers(end=True)))
        room.now = 4.0
        if ends:
            room.emit(ended())
        room.gathering.look()
        room.gathering.stop()
        waits = [one for one in episode(room.done[0], 2.0).entries if isinstance(one.event, Wait)]
        assert bool(waits) == (late < 2.0)
    room = Room(deadline=2.0, late=lambda _: late)
    room.emit(opened(), said(headers(end=True)))
    room.now = 2.01 + late
    room.gathering.look()
    assert room.done[0].reason == "silent"


def test_a_silence_is_seen_also_where_our_loop_was_late_before() -> None:
    room = Room(deadline=2.0, late=lambda since: 1.5 if since < 3 else 0.0)
    room.emit(opened(), said(headers(end=False)))
    room.now = 1.0
    room.emit(said(ProcessingResponse(request_headers={}).SerializeToString(), Author.EPP))
    room.now = 5.0
    room.emit(said(body(end=True)))
    for room.now in (6.9, 7.2, 8.0, 9.0):
        room.gathering.look()
    (one,) = room.done
    assert (one.reason, round(one.seconds, 3)) == ("silent", 2.2)
    (wait,) = [one.event for one in episode(one, 2.0).entries if isinstance(one.event, Wait)]
    assert wait.seconds == 2.2


def test_open_exchanges_hold_no_more_than_their_limit_together() -> None:
    """One that speaks beyond it is judged by its beginning; the others go on."""
    room = Room(max_bytes=10_000)
    room.emit(opened("a"), opened("b"))
    for _ in range(40):
        room.emit(said(b"x" * 1000, name="a"))
        assert room.gathering.bytes <= 10_000
    room.emit(said(b"x", name="b"), ended("b"))
    assert [(one.exchange, one.reason) for one in room.done] == [("a", "cut"), ("b", "ended")]
