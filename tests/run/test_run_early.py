"""Several workers follow the pool each in its time: what one does before that time is over is no finding."""

from __future__ import annotations

import pytest

from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import Context, Episode, PodFact, PoolState
from conformance.planning.plan import Selection
from conformance.run.epp.early import Early
from conformance.run.session import RunSettings, run
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import ACCUSING, Finding, Verdict
from ext_proc.record import Entry, Recorder, Wait

pytestmark = pytest.mark.program

CHANGES = ("pool.added", "pool.no-longer-ready")


def accused(flag: str, *scenarios: str) -> set[str]:
    """What the EPP with `flag` is accused of."""
    profile = load_profile(REFERENCE)
    assert profile.start.command is not None
    start = profile.start.model_copy(update={"command": (*profile.start.command, flag)})
    timeouts = profile.timeouts.model_copy(update={"convergence": 1.5})
    profile = profile.model_copy(update={"start": start, "timeouts": timeouts})
    seen: list[RunEvent] = []
    run(RunSettings(profile=profile, selection=Selection(scenarios=scenarios), seed=1, jobs=1), seen.append)
    results = [event.result for event in seen if isinstance(event, ScenarioFinished)]
    assert results
    return {one.requirement for result in results for one in result.findings if one.verdict in ACCUSING}


def test_a_worker_is_given_its_time():
    assert not accused("--variant=streams-take-workers-in-turn", *CHANGES)


def test_a_worker_that_never_reads_the_pool_is_found():
    assert {"EPP-ERR-02", "EPP-SUB-02"} & accused("--fault=worker-without-a-pool", *CHANGES)


OLD, NEW = ((PodFact(name=one, endpoints=(f"{one}:8000",)),) for one in ("old", "new"))
SECOND = 10**9


class Log:
    """A log with a pool that changes, of which every worker has read the new state five seconds later."""

    def __init__(self) -> None:
        self._now = 0
        self.left = 5.0
        self.recorder = Recorder(lambda: self._now)
        self.early = Early(self.recorder, lambda: self.left)

    def changes(self, pods: tuple[PodFact, ...]) -> None:
        for phase in ("asked", "effective"):
            self.recorder.emit(PoolState(phase=phase, pods=pods))

    def exchange(self, name: str, after: float) -> Entry:
        self._now += int(after * SECOND)
        return self.recorder.emit(Wait(exchange=name, what="an answer", outcome="met", seconds=0.0))

    def accused(self, work: str, *entries: Entry) -> bool:
        """Whether it came too early, for who accuses the first exchange for going by another pool than the new one."""
        episode = Episode(id="e", entries=entries)
        context = Context(version="1.0.0", scenario=work)
        return self.early.accused(work, episode, context, _findings(episode, context, None))


def _findings(episode: Episode, _context: Context, _catalogue: object) -> tuple[Finding, ...]:
    entry = next(one for one in episode.entries if one.event.exchange)
    states = episode.pool.between(entry.seq, entry.seq)
    found = Finding(requirement="EPP-DEST-06", verdict=Verdict.FAIL, exchange=entry.event.exchange)
    return () if OLD in states or () in states else (found,)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    monkeypatch.setattr("conformance.run.epp.early.judge", _findings)
    return Log()


def test_a_finding_explained_by_an_earlier_pool_is_premature_until_the_time_is_over(log: Log):
    log.changes(OLD)
    log.changes(NEW)
    soon, late = log.exchange("soon", 4.0), log.exchange("late", 1.5)
    assert log.accused("one", soon, late)
    assert not log.accused("one", soon, late), "it was run again"
    assert not log.accused("another", late)
    assert log.accused("another", soon)


def test_the_pool_before_the_last_change_is_ignored_after_its_time(log: Log):
    log.changes(OLD)
    log.changes(NEW)
    log.exchange("late", 6.0)
    log.changes(NEW)
    assert not log.accused("one", log.exchange("soon", 1.0))


def test_a_started_target_may_have_read_no_pool(log: Log):
    log.early.begun(NEW)
    soon, late = log.exchange("soon", 1.0), log.exchange("late", 5.0)
    assert log.accused("one", soon, late)
    assert not log.accused("another", late)


def test_a_finding_after_the_time_is_not_premature(log: Log):
    log.changes(OLD)
    log.left = 0.0
    log.changes(NEW)
    assert not log.accused("one", log.exchange("soon", 0.0))
