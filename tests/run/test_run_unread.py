"""A connection of which nothing is read: what holds up the others is accused, and nothing that is right."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from conformance.cli import call
from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import Episode, UnreadConnection
from conformance.outcome import ScenarioResult
from conformance.planning.plan import Selection
from conformance.report.verify.course import doings
from conformance.requirements.catalogue import Catalogue
from conformance.run.session import RunSettings, run
from conformance.scenario.loader import load
from conformance.scenario.schema import BodyMode
from conformance.targets.profile import Limits
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict

pytestmark = pytest.mark.program

SCENARIO = "robustness.unread"
PROGRAM = Path(__file__).parents[1] / "support/unread_epp.py"
MODES: tuple[BodyMode, ...] = ("full-duplex", "buffered", "streamed", "none")


def tried(
    *more: str, command: tuple[str, ...] = (), mode: BodyMode = "full-duplex", limits: Limits | None = None
) -> tuple[ScenarioResult, Episode]:
    """What comes of the scenario: the reference EPP with further arguments, or `command`."""
    profile = load_profile(REFERENCE)
    start = profile.start.model_copy(update={"command": command or (*profile.start.command, *more)})
    timeouts = profile.timeouts.model_copy(update={"answer": 2.0})
    changes = {"start": start, "timeouts": timeouts, "body_modes": (mode,), "limits": limits or profile.limits}
    settings = RunSettings(
        profile=profile.model_copy(update=changes), selection=Selection(scenarios=(SCENARIO,)), jobs=1
    )
    seen: list[RunEvent] = []
    run(settings, seen.append)
    (finished,) = [event for event in seen if isinstance(event, ScenarioFinished)]
    assert finished.episode is not None
    return finished.result, finished.episode


def stalled(episode: Episode) -> list[bool]:
    return [event.stalled for _, event in episode.of(UnreadConnection)]


@pytest.mark.parametrize("mode", MODES)
def test_one_lock_around_all_sends_is_accused(mode: BodyMode) -> None:
    result, episode = tried("--fault=one-lock-for-all-sends", mode=mode)
    failed = [one for one in result.findings if one.verdict is Verdict.FAIL]
    assert {one.requirement for one in failed} == {"ENV-21"}
    assert "nothing was read of another connection" in failed[0].actual
    assert stalled(episode) == [True]


@pytest.mark.parametrize("mode", MODES)
def test_an_epp_whose_streams_do_not_wait_for_each_other_passes(mode: BodyMode) -> None:
    result, episode = tried(mode=mode)
    assert (result.verdict, stalled(episode)) == (Verdict.PASS, [True])


@pytest.mark.parametrize("variant", ["queues-what-is-unread", "resets-what-is-unread"])
def test_the_unread_stream_may_be_queued_for_or_given_up(variant: str) -> None:
    assert tried(f"--variant={variant}")[0].verdict is Verdict.PASS


@pytest.mark.parametrize("way", ["silent", "resets", "refuses", "closes"])
def test_the_unread_exchange_itself_is_not_judged(way: str) -> None:
    result, episode = tried(command=(sys.executable, str(PROGRAM), "{port}", "{endpointsFile}", way))
    assert (result.verdict, stalled(episode)) == (Verdict.PASS, [False])


def test_a_target_that_is_asked_one_thing_at_a_time_is_not_tried() -> None:
    result, episode = tried(limits=Limits(concurrency=1))
    assert (result.verdict, stalled(episode)) == (Verdict.SKIPPED, [])


def test_the_report_is_verified_and_not_without_the_connection(tmp_path: Path) -> None:
    call(["run", "-q", "--exit-zero", "-k", SCENARIO, "-o", str(tmp_path)])
    assert call(["report", "verify", str(tmp_path)]) == 0
    steps = next(one for one in load(Catalogue.load()) if one.id == SCENARIO).scenario.steps
    _, episode = tried()
    kept = tuple(entry for entry in episode.entries if not isinstance(entry.event, UnreadConnection))
    assert not list(doings(steps, episode, (), ended_early=False))
    (problem,) = doings(steps, dataclasses.replace(episode, entries=kept), (), ended_early=False)
    assert problem == "its evidence has 0 connections that nothing was read of, its scenario 1"
