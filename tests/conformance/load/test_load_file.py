"""The file of a load, and when its requests begin."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from load_driver import Road
from machine_driver import immediate, pick, request_body, request_headers, streamed
from simulated_time import SimulatedTime, simulated

from conformance.load import vitals
from conformance.load.arrivals import Schedule, _until, _when
from conformance.load.exchange import LiveExchange
from conformance.load.judgement import mentioned
from conformance.load.mix import Arrivals, LoadFile, Mix, MixedRequest
from conformance.load.moments import State
from conformance.load.shape import RequestShape
from conformance.load.steps import DueStep
from conformance.load.trouble import Kind
from conformance.load.vitals import Sample, Vitals, slope
from conformance.run.data_plane.stimuli import prepare
from conformance.strict_yaml import load
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict
from ext_proc.record import Author, Message

MIB = 1024 * 1024
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "load.md"


def test_the_files_of_the_page_can_be_read() -> None:
    """And the second shows every way to arrive, every change and every trouble, each of which has room."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    _, found = (load(text, LoadFile) for text in blocks[:2])
    ways = {
        name for one in found.arrivals for name in ("rate", "concurrent", "burst") if getattr(one, name) is not None
    }
    assert ways == {"rate", "concurrent", "burst"}
    assert {one.change for one in found.churn} == {"remove", "un-ready", "restart", "saturate"}
    assert {one.kind for one in found.trouble} == set(get_args(Kind))
    assert all([*one.begins(found.seconds)] for one in found.trouble)


OWN = b"11111111-1111-1111-1111-111111111111"


def drawn(**exchange) -> RequestShape:
    """What a load sends for this `exchange` of its file."""
    profile, rng, endpoints = load_profile(REFERENCE), random.Random(1), {"nobody": ("127.7.8.8:8000",)}
    mix = Mix(
        [MixedRequest.model_validate({"name": "asked", "exchange": exchange})],
        lambda one: prepare(one, index=0, mode="full-duplex", profile=profile, endpoints=endpoints, pool=(), rng=rng),
        lambda: State((), {}),
        1,
        reset=lambda: False,
    )
    return mix.draw()


@pytest.mark.parametrize("http", [1, 2])
@pytest.mark.parametrize("chunks", [1, 2, 3, 4, 5, 20, [10, 60], [40, 5, 5]])
def test_a_request_has_its_id_whole_in_one_piece_however_it_is_cut(http, chunks) -> None:
    """Bodies that are the same for all requests would not show that one was given to another."""
    pieces = [one.data for one in drawn(chunks=chunks, http=http).request_of(OWN).chunks]
    (whole,) = (one.data for one in drawn().request_of(OWN).chunks)
    assert b"".join(pieces) == whole
    assert all(pieces)
    assert [piece.count(OWN) for piece in pieces if OWN in piece] == [1]
    assert (len(pieces) > 1) is (chunks != 1)


@pytest.mark.parametrize("reply", [{"split": 7}, {"kind": "sse", "events": 3, "split": 11}, {"size": 900, "split": 20}])
def test_a_response_has_its_id_whole_in_one_piece_however_it_is_cut(reply) -> None:
    uncut = {name: value for name, value in reply.items() if name != "split"}
    pieces = drawn(reply=reply).reply_to(1, OWN).body
    assert b"".join(pieces) == b"".join(drawn(reply=uncut).reply_to(1, OWN).body)
    assert sum(piece.count(OWN) for piece in pieces) == b"".join(pieces).count(OWN) > 0
    assert all(len(piece) <= reply["split"] for piece in pieces if OWN not in piece)


@pytest.mark.parametrize("piece", [62_000, 65_536])
def test_each_piece_of_a_large_body_has_the_id_of_its_exchange(piece) -> None:
    """Pieces that are the same for all requests would not show that one was given to another."""
    asked = drawn(body={"size": 1_000_000}, reply={"kind": "text", "size": 1_000_000})
    for body in (b"".join(one.data for one in asked.request_of(OWN).chunks), b"".join(asked.reply_to(1, OWN).body)):
        assert len(body) == 1_000_000
        assert all(OWN in body[at : at + piece] for at in range(0, 1_000_000 - piece, piece))


def test_a_piece_in_the_middle_of_another_large_body_is_cross_talk() -> None:
    """An endpoint picker whose streams share a buffer. What is right is remembered nevertheless."""
    road, asked = Road(), drawn(body={"size": 200_000})
    for wrong in (False, False, True):
        one, other = road.start(asked)[0], road.start(asked)[0]
        pieces = [large(asked, own) for own in (one.own, other.own if wrong else one.own, one.own, one.own)]
        body = b"".join(piece[62_000 * number :][:62_000] for number, piece in enumerate(pieces))
        assert ("ENV-21" in failed_with(one, body)) is wrong
    assert road.memory.counts.exchanges == 1


def test_a_byte_of_a_large_body_that_became_another_is_found_from_memory_too() -> None:
    road, asked = Road(), drawn(body={"size": 200_000})
    for _ in range(2):
        one, _ = road.start(asked)
        body = bytearray(large(asked, one.own))
        body[100_000] ^= 1
        assert "ENV-09" in failed_with(one, bytes(body))
    assert road.memory.counts.exchanges == 1


def large(asked: RequestShape, own: bytes) -> bytes:
    return b"".join(one.data for one in asked.request_of(own).chunks)


def failed_with(one: LiveExchange, body: bytes) -> set[str]:
    """What fails of an exchange that gets this body back, in pieces, and nothing more."""
    one.step(pick("10.0.0.1:8000"))
    for at in range(0, len(body), 62_000):
        one.step(request_body(streamed(body[at : at + 62_000], at + 62_000 >= len(body))))
    one.step(DueStep("deadline", 10.0))
    return {found.requirement for found in one.judgement.telling if found.verdict is Verdict.FAIL}


rates = st.floats(0.5, 5000, allow_nan=False)


@example(first=0.0, last=8e-5, seconds=86_400, number=0)
@example(first=1e-5, last=8e-5, seconds=86_400, number=2)
@given(first=rates, last=rates, seconds=st.floats(0.1, 100), number=st.integers(0, 10_000))
def test_a_request_of_a_ramp_is_due_when_so_many_were_due_before(first, last, seconds, number) -> None:
    if number < _until(seconds, first, last, seconds):
        when = _when(number, first, last, seconds)
        assert 0 <= when <= seconds + 1e-6
        assert _until(when, first, last, seconds) == pytest.approx(number, abs=1e-3)


def begun(*stages: Arrivals, taken: int = 1 << 30, takes: float = 0.0, **share: int) -> tuple[list[float], Schedule]:
    """When the requests of `stages` were due. No more than `taken` begin, each of which keeps the loop for `takes`."""
    dues: list[float] = []

    async def run(loop: SimulatedTime) -> Schedule:
        def begin(due: float) -> bool:
            loop.now += takes
            dues.append(due)
            return len(dues) <= taken

        schedule = Schedule(stages, begin, now=loop.time, **share)
        await schedule.run()
        return schedule

    schedule = simulated(run)
    return dues, schedule


@settings(max_examples=30)
@given(
    stages=st.lists(
        st.one_of(
            st.builds(Arrivals, seconds=st.just(0.05), rate=st.floats(20, 2000)),
            st.builds(Arrivals, seconds=st.just(0.05), rate=st.tuples(st.floats(1, 2000), st.floats(1, 2000))),
            st.builds(Arrivals, seconds=st.just(0.05), burst=st.integers(1, 50), every=st.just(0.02)),
        ),
        max_size=3,
    ),
    takes=st.sampled_from([0.0, 0.0005]),
)
def test_each_due_request_begins_once_however_late_the_loop_is(stages, takes) -> None:
    dues, schedule = begun(*stages, takes=takes)
    expected = 0
    for one in stages:
        first, last = one.rate if isinstance(one.rate, tuple) else (one.rate or 0, one.rate or 0)
        expected += 3 * one.burst if one.burst else int((first + last) / 2 * one.seconds + 1e-6)
    assert len(dues) == schedule.due == expected
    assert dues == sorted(dues)


@pytest.mark.parametrize("of", [2, 3])
def test_schedules_that_share_requests_begin_each_once(of) -> None:
    stages = (Arrivals(seconds=0.1, rate=(55, 400)), Arrivals(seconds=0.05, burst=7, every=0.02))
    shared = [begun(*stages, index=index, of=of)[0] for index in range(of)]
    assert all(shared)
    assert sorted(due for dues in shared for due in dues) == pytest.approx(begun(*stages)[0])


@pytest.mark.parametrize("how", [{"rate": 10_000}, {"burst": 100, "every": 0.01}])
def test_a_stage_leaves_requests_out_one_second_after_its_end(how) -> None:
    """A rate that can't be made, at 4 ms a request, does not prolong the load."""
    dues, schedule = begun(Arrivals(seconds=0.1, **how), takes=0.004)
    assert 250 <= len(dues) < schedule.due == len(dues) + schedule.left_out == 1000


def test_requests_of_an_earlier_stage_do_not_add_to_a_closed_loop() -> None:
    """They end during the closed loop, which begins the next only for its own requests."""
    begun: list[int] = []

    async def drive(loop: SimulatedTime) -> None:
        left: list[float] = []

        def begin(due: float) -> bool:
            begun.append(schedule.stage)
            if schedule.stage == 1:
                left.append(due)
            elif len(begun) == 50 + 3:  # all of the closed loop have begun
                for one in (*left, due):
                    schedule.over(one)
            return True

        stages = [Arrivals(seconds=0.05, burst=50), Arrivals(seconds=0.05, concurrent=3)]
        schedule = Schedule(stages, begin, now=loop.time)
        await schedule.run()

    simulated(drive)
    assert begun == [1] * 50 + [2] * (3 + 1)


def test_a_closed_loop_has_its_size_as_soon_as_there_is_room() -> None:
    """Requests of an earlier stage may take all the room when it begins."""
    begun: list[int] = []

    async def drive(loop: SimulatedTime) -> Schedule:
        left: list[float] = []

        def end(number: int) -> None:
            for _ in range(number):
                schedule.over(left.pop())

        def begin(due: float) -> bool:
            if schedule.stage == 1:
                left.append(due)
            elif len(left) + len(begun) >= 50:
                loop.call_soon(end, 10)
                return False
            else:
                begun.append(schedule.stage)
            return True

        stages = [Arrivals(seconds=0.05, burst=50), Arrivals(seconds=0.1, concurrent=3)]
        schedule = Schedule(stages, begin, now=loop.time)
        await schedule.run()
        return schedule

    schedule = simulated(drive)
    assert begun == [2, 2, 2]
    assert schedule.due == 50 + 3 + schedule.crowded_out


def test_requests_that_can_not_begin_are_counted() -> None:
    _, schedule = begun(Arrivals(seconds=0.05, burst=30, every=1), taken=10)
    assert (schedule.due, schedule.crowded_out) == (30, 20)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x10.0.0.1:8000", {"10.0.0.1:8000"}),
        ("10.0.0.1:8000,[::1]:80", {"10.0.0.1:8000", "[::1]:80"}),
        ("[0:0::1]:80", {"[::1]:80"}),
        ("10.0.0.1:123456", set()),
        ("no endpoint: here", set()),
    ],
)
def test_endpoints_are_found_wherever_they_stand(text: str, names: set[str]) -> None:
    assert names <= endpoints_in(pick(text))
    assert names <= endpoints_in(immediate(503, text.encode()))
    assert names <= endpoints_in(request_headers(metadata={"other": {"list": [text], text: 1}}))


@given(st.lists(st.ip_addresses(v=4).map(lambda one: f"{one}:8000") | st.just("[2001:db8::1]:80"), min_size=1))
def test_the_first_and_last_endpoint_of_a_list_is_found_however_long_it_is(listed: list[str]) -> None:
    """On the wire the length of the list stands before it, and may look like a digit."""
    assert set(listed) <= endpoints_in(pick(",".join(listed)))


def endpoints_in(raw: bytes) -> set[str]:
    return set(mentioned([Message(exchange="e", stream="s", author=Author.EPP, raw=raw)], ()))


@given(
    level=st.floats(-1e6, 1e6),
    growth=st.floats(-100, 100),
    seconds=st.lists(st.integers(0, 10_000), min_size=2, unique=True),
)
def test_growth_is_that_of_the_line_through_all_samples(level, growth, seconds) -> None:
    points = [(float(second), level + growth * second) for second in seconds]
    assert slope(points) == pytest.approx(growth, abs=1e-3)


def looked(monkeypatch, *samples: Sample) -> Vitals:
    """Vitals after these samples."""
    shown = iter(samples)
    monkeypatch.setattr(vitals, "_sample", lambda *_: next(shown))
    seen = Vitals()
    for sample in samples:
        seen.look([1], sample.second)
    return seen


def test_a_soak_takes_no_more_room_than_minutes_and_begins_again_with_its_target() -> None:
    seen = Vitals()
    for second in range(5000):
        seen.look([os.getpid()], float(second))
    assert len(seen.samples) <= 1201
    assert seen.samples[-1].second > 4000
    seen.look([2**22 + 1], 5000.0)  # a process that is not there
    seen.begin_again()
    for second in range(100):
        seen.look([os.getpid()], 5000.0 + second)
    assert [one.second for one in seen.samples] == [5000.0 + second for second in range(100)]


@pytest.mark.parametrize("peak", [0, 1, 3333, 4999])
def test_the_first_the_last_and_the_highest_sample_are_kept(monkeypatch, peak) -> None:
    memory = [2000 + second + (second == peak) * 90_000 for second in range(5000)]
    found = looked(monkeypatch, *(Sample(float(at), one * MIB, 10) for at, one in enumerate(memory))).summary()
    assert (found["firstMiB"], found["lastMiB"], found["highestMiB"]) == (memory[0], memory[-1], max(memory))


def test_the_growth_of_memory_and_descriptors_is_that_after_warming_up(monkeypatch) -> None:
    samples = [Sample(float(at), (900 + at) * MIB, 300 + 2 * at) for at in range(100)]
    samples[:5] = [Sample(float(at), MIB, 1) for at in range(5)]
    found = looked(monkeypatch, *samples).summary()
    assert (found["growthMiBPerHour"], found["growthDescriptorsPerHour"]) == (3600, 7200)


def test_a_program_of_which_one_process_can_not_be_read_has_no_known_memory(monkeypatch) -> None:
    """As where a shell starts it with sudo: the shell's memory is not the program's."""
    names = os.listdir

    def listed(path) -> list[str]:
        if str(path) == f"/proc/{os.getppid()}/fd":
            raise PermissionError(path)
        return names(path)

    monkeypatch.setattr(os, "listdir", listed)
    assert Vitals().look([os.getpid()], 1.0) is not None
    assert Vitals().look([os.getpid(), os.getppid()], 1.0) is None
    assert Vitals().look([os.getpid(), 2**22 + 1], 1.0) is not None  # a process that has ended is none of its


def test_a_large_body_is_searched_in_one_go() -> None:
    """Hexadecimal digits without end are no endpoint, and not looked through again from each of them."""
    message = Message(exchange="e", stream="s", author=Author.EPP, raw=immediate(503, b"0123456789abcdef" * 500_000))
    assert mentioned([message], ("10.0.0.1:8000",)) == ("10.0.0.1:8000",)
