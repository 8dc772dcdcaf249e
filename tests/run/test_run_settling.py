"""Pool changes: when one counts as followed, what becomes of one that is not, and what a scenario starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import PoolState
from conformance.outcome import RunOutcome
from conformance.planning.plan import Selection
from conformance.run.session import RunSettings, run
from conformance.targets.profile import Discovery, File, Profile, Start, Timeouts
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict
from ext_proc.record import ExchangeOpened

pytestmark = pytest.mark.program

HOSTILE = Path(__file__).parents[1] / "support" / "hostile" / "habits.py"
CHANGES = (
    "pool.removed",
    "pool.no-longer-ready",
    "pool.replaced-under-its-name",
    "pool.terminating",
    "errors.recovers",
)


def late(habit: str, **timeouts: float) -> Profile:
    command = ("{python}", str(HOSTILE), habit, "-", "--listen=127.0.0.1:{port}", "--endpoints-file={endpointsFile}")
    return Profile(
        name=habit,
        start=Start(command=(*command, "--scrape-interval=20ms", "--log-level=warning")),
        discovery=Discovery(file=File(reread=0.1)),
        timeouts=Timeouts(**{"answer": 3, "convergence": 1.5, **timeouts}),
    )


def reference(*flags: str, **timeouts: float) -> Profile:
    profile = load_profile(REFERENCE)
    assert profile.start.command is not None
    start = profile.start.model_copy(update={"command": (*profile.start.command, *flags)})
    return profile.model_copy(update={"start": start, "timeouts": profile.timeouts.model_copy(update=timeouts)})


def conduct(
    target: Profile,
    *scenarios: str,
    events: list[RunEvent] | None = None,
    jobs: int = 1,
    versions: tuple[str, ...] = ("1.0.0",),
) -> RunOutcome:
    selection = Selection(scenarios=scenarios)
    settings = RunSettings(profile=target, selection=selection, seed=1, jobs=jobs, versions=versions)
    return run(settings, [].append if events is None else events.append)


def verdicts(outcome: RunOutcome) -> dict[str, Verdict]:
    return {one.id: one.verdict for one in outcome.versions[0].results}


def test_an_epp_that_caches_its_pool_by_hint_has_time_to_converge():
    """What is picked within a subset is up to date before what is picked without one."""
    outcome = conduct(late("keeps-by-hint"), *CHANGES)
    assert set(verdicts(outcome).values()) == {Verdict.PASS}
    assert outcome.anomalies == ()


def test_every_worker_is_seen_to_follow_where_there_is_no_hint_to_ask_with():
    """The second of two is later; who asked the first only would take its 503 for one of an EPP that has pods."""
    slow = reference("--variant=workers-follow-in-turn")
    outcome = conduct(slow, "errors.recovers", versions=("0.2.0",))
    assert set(verdicts(outcome).values()) == {Verdict.PASS}


def test_convergence_is_seen_without_valid_answers_to_bodies():
    outcome = conduct(late("headers-last"), "pool.removed", "pool.replaced-under-its-name", "errors.recovers")
    broken = {one.requirement for result in outcome.versions[0].results for one in result.findings}
    assert "ENV-03" in broken
    assert not [one.text for one in outcome.anomalies if one.code == "unsettled"]


def test_convergence_is_seen_although_hints_are_read_wrongly():
    """Asked for one port of a pod it picks the other, and is not started again for that. To see so takes up to 75 polls
    after the time to converge, in as much time again: more of it is for a machine that other tests keep busy."""
    wrong = reference("--fault=subset-by-address", convergence=4)
    outcome = conduct(wrong, "pool.ports-of-one-that-leaves", "destination.chat")
    assert not [one.text for one in outcome.anomalies if one.code == "unsettled"]


def test_a_pool_refresh_after_the_answer_is_caught_after_a_quiet_time():
    outcome = conduct(late("refreshes-afterwards"), "pool.quiet-*", "pool.removed")
    assert verdicts(outcome).pop("pool.removed") is Verdict.PASS  # the polls have brought it up to date
    quiet = {name: verdict for name, verdict in verdicts(outcome).items() if "quiet" in name}
    assert quiet
    assert set(quiet.values()) == {Verdict.FAIL}


def test_nothing_is_sent_in_a_quiet_time():
    events: list[RunEvent] = []
    conduct(reference(), "pool.quiet-removal", events=events)
    for event in events:
        if isinstance(event, ScenarioFinished) and event.episode is not None:
            asked = max(entry.seq for entry, state in event.episode.of(PoolState) if state.phase == "asked")
            effective = max(entry.seq for entry, state in event.episode.of(PoolState) if state.phase == "effective")
            assert not [entry for entry, _ in event.episode.of(ExchangeOpened) if asked < entry.seq < effective]


def test_a_change_that_is_not_followed_is_told_and_spoils_no_other_scenario():
    """Each scenario begins with a target that follows its pool: one that reads it once is started again for each."""
    names = ("pool.removed", "destination.chat", "pool.no-longer-ready", "pool.terminating")
    outcome = conduct(late("reads-once", convergence=0.5), *names)
    assert any(one.code == "unsettled" and "pool.removed" in one.text for one in outcome.anomalies)
    found = verdicts(outcome)
    for name in names:
        assert verdicts(conduct(late("reads-once", convergence=0.5), name))[name] == found[name]
    assert found["destination.chat"] is Verdict.PASS
    assert found["pool.removed"] is Verdict.FAIL
