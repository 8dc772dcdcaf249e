"""Workers side by side: one in another process does what one in this process does, and versions stay in order."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from conformance.errors import GateFailedError, HarnessError, TargetUnreachableError
from conformance.events import RunEvent, ScenarioFinished, Status, VersionStarted
from conformance.evidence.redaction import Redactor, Secret
from conformance.outcome import Anomaly
from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.plan import Batch, Selection
from conformance.run import workers
from conformance.run.engine import EngineThread
from conformance.run.session import RunSettings, Session, run
from conformance.run.worker import RemoteWorker, StartTarget
from conformance.targets.profile import Profile
from conformance.targets.profile import Start as Command
from conformance.targets.resolve import load_profile
from conformance.verdict import Verdict

pytestmark = pytest.mark.program

SOME = Selection(scenarios=("destination.bodyless", "destination.within-pool", "errors.all-removed", "pool.added"))
TOKEN = Secret(kind="header", name="authorization", value="a-secret-of-the-user")


@pytest.fixture
def engine() -> Iterator[EngineThread]:
    with EngineThread() as engine:
        yield engine


@pytest.fixture
def said() -> list[Status | Anomaly]:
    return []


@pytest.fixture
def process(engine: EngineThread, said: list[Status | Anomaly]) -> Iterator[RemoteWorker]:
    async def made() -> RemoteWorker:
        return RemoteWorker(Redactor(), said.append)

    process = engine.call(made())
    yield process
    engine.call(process.close())


def start(profile: Profile | None = None, version: str = "1.0.0") -> StartTarget:
    return StartTarget(
        profile=profile or load_profile("reference"),
        version=version,
        values={},
        seed=1,
        number=1,
        redactor=Redactor(),
        data_plane=DataPlaneChoice(),
    )


def version_of(event: VersionStarted | ScenarioFinished) -> str:
    return event.version if isinstance(event, VersionStarted) else event.result.version


async def gathered(results: AsyncIterator[ScenarioFinished]) -> list[ScenarioFinished]:
    return [one async for one in results]


def batches(engine: EngineThread) -> tuple[Batch, ...]:
    return Session(RunSettings(profile=load_profile("reference"), selection=SOME), engine).plan.batches


def test_a_process_runs_batches_and_hands_back_results_with_their_evidence(
    engine: EngineThread, process: RemoteWorker, said: list[Status | Anomaly]
) -> None:
    engine.call(process.start(start()))
    for batch in batches(engine):
        judged = engine.call(gathered(process.run(batch)))
        assert {one.result.id for one in judged} == {work.id for work in batch.work}
        assert {one.result.verdict for one in judged} == {Verdict.PASS}
        assert all(one.episode is not None and one.episode.id.startswith("1-") for one in judged)
    assert Status(text="starting the target") in said


def test_a_process_takes_one_version_after_the_other(engine: EngineThread, process: RemoteWorker) -> None:
    for version in ("0.2.0", "1.0.0"):
        engine.call(process.start(start(version=version)))
        (judged, *_) = engine.call(gathered(process.run(batches(engine)[0])))
        assert judged.context is not None
        assert (judged.context.version, process.version) == (version, version)


def test_a_target_that_does_not_start_is_the_same_error_as_in_this_process(
    engine: EngineThread, process: RemoteWorker
) -> None:
    dead = load_profile("reference").model_copy(update={"start": Command(command=("{python}", "-c", "exit('no')"))})
    with pytest.raises((TargetUnreachableError, GateFailedError), match="no"):
        engine.call(process.start(start(dead)))
    engine.call(process.start(start()))  # and it is of use afterwards


def test_a_process_that_is_gone_is_our_trouble(engine: EngineThread, process: RemoteWorker) -> None:
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(HarnessError, match="signal 9"):
        engine.call(process.start(start()))


@pytest.mark.parametrize("jobs", [1, 3])
def test_versions_come_in_order_and_complete_however_many_workers(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 2)
    events: list[RunEvent] = []
    versions = ("0.3.0", "1.0.0")
    settings = RunSettings(profile=load_profile("reference"), versions=versions, selection=SOME, seed=1, jobs=jobs)
    outcome = run(settings, events.append)
    told = [version_of(event) for event in events if isinstance(event, VersionStarted | ScenarioFinished)]
    assert told == sorted(told)
    for version in outcome.versions:
        finished = [e.result.id for e in events if isinstance(e, ScenarioFinished) and version_of(e) == version.version]
        assert sorted(finished) == sorted(one.id for one in version.results)
        assert {one.verdict for one in version.results} <= {Verdict.PASS, Verdict.NOT_APPLICABLE}


def test_redactions_of_another_process_are_counted() -> None:
    here, there = Redactor([TOKEN]), Redactor([TOKEN])
    for redactor in (here, there):
        assert TOKEN.value not in redactor.text(f"it said {TOKEN.value}")
    here.add_counts(there.take_counts())
    here.add_counts(there.take_counts())
    assert [one.count for one in here.redactions] == [2]
