"""The pool's history in a file: who reads it judges as who wrote it."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.evidence.episode import GaugesShown, PodFact, PoolState
from conformance.load.churn import PoolWatcher
from conformance.load.moments import IDLE, Moments, ShownLoad, State
from conformance.load.shape import RequestIds
from conformance.load.shared_moments import ReadMoments, WrittenMoments
from ext_proc.record import Entry

ENDPOINTS = [f"10.0.0.{number}:8000" for number in range(1, 5)]

pods = st.lists(
    st.builds(
        lambda endpoint, ready, age: PodFact(name=f"{endpoint}-{age}", endpoints=(endpoint,), ready=ready),
        st.sampled_from(ENDPOINTS),
        st.booleans(),
        st.integers(0, 1),
    ),
    max_size=4,
    unique_by=lambda pod: pod.name,
)
states = st.builds(
    lambda found, loads: State(tuple(found), {f"{endpoint}-0": load for endpoint, load in loads.items()}),
    pods,
    st.dictionaries(
        st.sampled_from(ENDPOINTS),
        st.sampled_from([IDLE, ShownLoad(saturated=True), ShownLoad(saturated=True, overrun=True)]),
    ),
)
histories = st.lists(
    st.tuples(st.sampled_from(["asked", "shown", "hold", "release", "delivered", "look"]), st.floats(0, 3), states),
    max_size=20,
)


@settings(max_examples=150)
@given(history=histories, grace=st.floats(0, 4))
def test_a_reader_sees_the_windows_of_the_writer(history, grace) -> None:
    """Whenever it looks, and however far back: what an exchange may have acted on, and what of it matters."""
    with tempfile.TemporaryDirectory() as folder:
        writer = WrittenMoments(grace, 120, Path(folder) / "moments")
        reader = ReadMoments(grace, 120, Path(folder) / "moments")
        loads: dict = {}
        holds = 0
        now = 1000.0
        for what, passed, state in history:
            now += passed
            if what == "asked":
                loads = {**loads, **state.loads}
                writer.asked(State(state.pods, loads), now)
            elif what == "shown" and writer.observed:
                loads = {**loads, **state.loads}
                writer.asked(State(writer.current.pods, loads), now, instead=writer.pending)
            elif what == "hold":
                writer.hold()
                holds += 1
            elif what == "release" and holds:
                writer.release(now)
                holds -= 1
            elif what == "delivered":
                writer.delivered(now)
            else:
                compare(writer, reader, now)
        compare(writer, reader, now)
        writer.close()
        reader.close()


def compare(writer: WrittenMoments, reader: ReadMoments, now: float) -> None:
    for sent in (now - 8, now - 2, now):
        expected, got = writer.window(sent, now), reader.window(sent, now)
        if expected is None:
            assert got is None
            continue
        assert [set(one.pods) for one in got.states] == [set(one.pods) for one in expected.states]
        assert got.signature(ENDPOINTS) == expected.signature(ENDPOINTS)
        assert (got.former(ENDPOINTS), got.gauges) == (expected.former(ENDPOINTS), expected.gauges)
        assert reader.current.eligible == writer.current.eligible


def test_a_change_is_known_however_late_the_reader_is(tmp_path: Path) -> None:
    """An answer that follows a change is judged with it, also where the reader's loop has an older time."""
    old, new = (State((PodFact(name=one, endpoints=(one,)),), {}) for one in ENDPOINTS[:2])
    writer = WrittenMoments(1, 120, tmp_path / "moments")
    reader = ReadMoments(1, 120, tmp_path / "moments")
    writer.asked(old, 10.0)
    assert [one.eligible for one in reader.window(11.0, 11.0).states] == [{ENDPOINTS[0]}]
    writer.asked(new, 12.0)
    assert {*ENDPOINTS[:2]} == {one for state in reader.window(11.9, 11.95).states for one in state.eligible}
    writer.close()
    reader.close()


def test_the_load_of_removed_pods_is_forgotten(tmp_path: Path) -> None:
    """In a soak of a day, churn fills and removes some ten thousand."""
    writer = WrittenMoments(1, 120, tmp_path / "moments")
    reader = ReadMoments(1, 120, tmp_path / "moments")
    watcher = PoolWatcher(writer, now=itertools.count(10.0).__next__)
    for number in range(20):
        pods = tuple(PodFact(name=f"n{number + more}", endpoints=(ENDPOINTS[more],)) for more in range(2))
        for event in (
            PoolState(phase="asked", pods=pods),
            PoolState(phase="delivered", pods=pods),
            GaugesShown(pod=f"n{number}", values={"queue": 20, "kv": 0.95}),
            GaugesShown(pod=f"n{number}", values={"queue": 0, "kv": 0.1}),
        ):
            watcher(Entry(0, 0, event))
    for moments in (writer, reader):
        assert moments.current.loads.keys() <= moments.current.eligible_pods
    writer.close()
    reader.close()


@pytest.mark.parametrize("lost", [True, False])
def test_a_pod_added_during_a_metrics_outage_is_unread(lost: bool) -> None:
    """What its metrics are is in the log only when the target has been told of it, and may have been asked by then."""
    moments = Moments(1, 120)
    watcher = PoolWatcher(moments, now=itertools.count(10.0).__next__)
    pods = [PodFact(name=name, endpoints=(endpoint,)) for name, endpoint in zip("ab", ENDPOINTS, strict=False)]
    before = [GaugesShown(pod="a", values={"metrics": "down"})] if lost else []
    asked = [PoolState(phase=phase, pods=tuple(pods[:1])) for phase in ("asked", "delivered")]
    for event in (*asked, *before, PoolState(phase="asked", pods=tuple(pods))):
        watcher(Entry(0, 0, event))
    assert {name for name, load in moments.current.loads.items() if load.unread} == ({"a", "b"} if lost else set())


@pytest.mark.parametrize("process", [1, 255, 256, 999])
def test_processes_of_a_run_know_the_ids_of_each_other(process: int) -> None:
    """An id of another process in an answer is cross-talk, as one of the same process is; the own one is none."""
    first = RequestIds()
    second = RequestIds(process, first.head)
    own, other = next(iter(first)), next(iter(second))
    assert own != other
    assert len(own) == len(other)
    assert first.strangers(b"x" + other + own, own) == (other,)
    assert second.strangers(b"x" + other, other) == ()


def test_pool_states_are_kept_as_long_as_an_exchange_may_take() -> None:
    """However long that is: a profile may give a target minutes for an answer."""
    moments = Moments(1, longest=1000)
    for number in range(1, 5):
        pods = tuple(PodFact(name=one, endpoints=(one,)) for one in ENDPOINTS[:number])
        moments.asked(State(pods, {}), number * 200.0)
        moments.delivered(number * 200.0)
    window = moments.window(250.0, 850.0)
    assert [len(state.pods) for state in window.states] == [1, 2, 3, 4]
