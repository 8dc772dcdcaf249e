"""Polls made while a pool settles are evidence, and judged for how the stream behaves, not for what is picked."""

from __future__ import annotations

import pytest

from conformance.events import RunEvent, ScenarioFinished
from conformance.planning.plan import Selection
from conformance.run.epp.polls import KEPT, Polls
from conformance.run.session import RunSettings, run
from conformance.targets.resolve import REFERENCE, load_profile
from ext_proc.record import ExchangeOpened, Recorder

pytestmark = pytest.mark.program


def finished(*flags: str) -> list[ScenarioFinished]:
    profile = load_profile(REFERENCE)
    assert profile.start.command is not None
    start = profile.start.model_copy(update={"command": (*profile.start.command, *flags)})
    selection = Selection(scenarios=("pool.no-longer-ready", "pool.relabelled"))
    seen: list[RunEvent] = []
    settings = RunSettings(profile=profile.model_copy(update={"start": start}), selection=selection, seed=1, jobs=1)
    run(settings, seen.append)
    return [event for event in seen if isinstance(event, ScenarioFinished)]


def polls_of(event: ScenarioFinished) -> set[str]:
    assert event.episode is not None
    return {one.event.exchange for one in event.episode.entries if (one.event.exchange or "").startswith("poll.")}


def accused(event: ScenarioFinished) -> set[str]:
    polls = polls_of(event)
    return {one.requirement for one in event.result.findings if one.exchange in polls and one.verdict == "fail"}


def test_they_are_in_the_episodes_each_once_and_in_the_order_of_the_log():
    events = finished()
    polls = [polls_of(event) for event in events]
    assert any(polls)
    assert sum(map(len, polls)) == len(set().union(*polls))
    for event in events:
        assert event.result.verdict == "pass"
        assert event.episode is not None
        numbers = [entry.seq for entry in event.episode.entries]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("fault", "broken"), [("end-of-stream-twice", {"ENV-05"}), ("metadata-differs", set()), ("no-header", set())]
)
def test_only_how_the_stream_behaves_is_judged(fault: str, broken: set[str]):
    events = finished(f"--fault={fault}")
    assert any(map(polls_of, events))
    assert set().union(*map(accused, events)) == broken


def test_unanswered_polls_are_dropped_and_the_number_kept_is_limited():
    recorder = Recorder()
    polls = Polls(recorder)
    for number in range(KEPT + 3):
        name = polls.begin()
        recorder.emit(ExchangeOpened(exchange=name, method="GET", path="/"))
        recorder.emit(ExchangeOpened(exchange="another", method="GET", path="/"))
        polls.end(name, answered=number != 1)
        recorder.emit(ExchangeOpened(exchange=name, method="GET", path="/too-late"))
    taken = [entry.event.exchange for entry in polls.take()]
    assert taken == [f"poll.{number}" for number in (1, *range(3, KEPT + 2))]
    assert polls.take() == []
