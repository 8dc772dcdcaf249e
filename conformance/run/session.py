"""A session: everything that is run against one target, from its settings to the outcome.

`run` is what most callers want. The pytest plugin holds a `Session` and asks it for one result after the other.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.errors import IncompleteError, UsageError
from conformance.events import (
    AnomalySeen,
    Handler,
    InTurn,
    RunFinished,
    ScenarioFinished,
    Status,
    VersionStarted,
)
from conformance.evidence.redaction import Redactor
from conformance.outcome import GENERATED, Anomaly, RunOutcome, ScenarioResult, VersionOutcome, version_outcome
from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.plan import Plan, Selection, Work, make_plan
from conformance.planning.results import not_done, skipped
from conformance.requirements.catalogue import Catalogue
from conformance.roles import traits_of
from conformance.run.conversations import Exploration, check_hypothesis, explore
from conformance.run.engine import EngineThread
from conformance.run.worker import StartTarget
from conformance.run.workers import Workers, shares
from conformance.scenario.loader import load
from conformance.targets.gateway import AnyProfile
from conformance.verdict import Verdict
from fake_modelserver import has_ipv6_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What to run. `values` fills placeholders of the profile; `jobs` is how many targets run side by side."""

    profile: AnyProfile
    versions: tuple[str, ...] = ("1.0.0",)
    selection: Selection = field(default_factory=Selection)
    seed: int = field(default_factory=lambda: random.randrange(2**32))
    scenario_paths: tuple[Path, ...] = ()
    jobs: int | None = None
    values: Mapping[str, str] = field(default_factory=dict)
    redactor: Redactor = field(default_factory=Redactor)
    command: str = "epp-conformance run"
    """What runs this target again: the beginning of the commands that reproduce a result."""
    data_plane: DataPlaneChoice = field(default_factory=DataPlaneChoice)
    """What carries the scenarios to the target; `Choice.driven` must have been applied to the profile."""
    property_examples: int = 0
    """Generated conversations to try in each version, after the scenarios."""


def run(settings: RunSettings, handler: Handler, *, engine: EngineThread | None = None) -> RunOutcome:
    """Run everything and return what came out; `handler` gets the events, on the engine's thread.

    Raises `UsageError` and `FileError` before anything is started. An `IncompleteError` (target unreachable, gate not
    passed) is raised after `RunFinished`, so that a report can be written. Ctrl-C ends the run early: the outcome is
    `interrupted`, and nothing is left behind.
    """
    with contextlib.ExitStack() as stack:
        owned = engine or stack.enter_context(EngineThread())
        session = Session(settings, owned, handler)
        try:
            session.run_all()
            session.explore()
        except KeyboardInterrupt:
            session.interrupted = True
        outcome = session.outcome()
        handler(RunFinished(outcome=outcome))
        if session.stopped is not None:
            raise session.stopped
        return outcome


class Session:
    """The plan of every version, its workers while they are needed, and the results so far."""

    def __init__(self, settings: RunSettings, engine: EngineThread, handler: Handler = lambda _: None) -> None:
        self.settings = settings
        self.catalogue = Catalogue.load()
        role = settings.profile.role
        self.instances = tuple(one for one in load(self.catalogue, settings.scenario_paths) if one.role == role)
        settings.selection.check(self.instances, self.catalogue)
        if settings.property_examples:
            check_hypothesis()
        self._traits = traits_of(settings.profile, ipv6=has_ipv6_loopback(), data_plane=settings.data_plane)
        self.plans: Mapping[str, Plan] = {
            version: make_plan(self.instances, self.catalogue, version, self._traits, settings.selection)
            for version in settings.versions
        }
        if settings.property_examples and not self._traits.body_modes:
            raise UsageError("generated conversations are for EPPs", hint="leave out --property-examples")
        if settings.property_examples and settings.data_plane.variant is not None:
            raise UsageError(
                f"generated conversations need a data plane that does anything, not {settings.data_plane.name}",
                hint="leave out --property-examples or --data-plane",
            )
        self.interrupted = False
        self.stopped: IncompleteError | None = None
        self.anomalies: list[Anomaly] = []
        self.explorations: dict[str, Exploration] = {}
        """What generated conversations showed, by version."""
        self._results: dict[str, dict[str, ScenarioResult]] = {version: {} for version in self.plans}
        self._engine = engine
        self._handler = handler
        self._workers = Workers(
            StartTarget(
                profile=settings.profile,
                values=dict(settings.values),
                seed=settings.seed,
                redactor=settings.redactor,
                data_plane=settings.data_plane,
            ),
            settings.jobs,
            self.catalogue,
            engine.lag,
            tell=handler,
            anomaly=self._anomaly,
        )
        self._in_turn = InTurn(handler)
        self._last: tuple[Work, ScenarioFinished] | None = None
        """The last result that was ensured and counts."""
        self._began = time.monotonic()
        self._started_at = _now()

    # -- for callers ---------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """The plan of the only, or first, version."""
        return next(iter(self.plans.values()))

    @property
    def results(self) -> Mapping[str, ScenarioResult]:
        """The results so far of the only, or first, version."""
        return self._results[self.plan.version]

    def run_all(self) -> None:
        """Run every version to its end."""
        self._engine.call(self.run())

    def explore(self) -> None:
        """Try generated conversations in each version, if the settings ask for any. A failure is one result more."""
        for plan in self.plans.values():
            if self.settings.property_examples and self.stopped is None:
                self._explore(plan)

    def ensure(self, work_id: str) -> ScenarioResult:
        """The result of one piece of work, running the batch that holds it if that has not happened yet.

        Raises what stopped the session, if it was stopped before that.
        """
        if work_id not in self.results:
            self._engine.call(self._ensure(self.plan, work_id))
        return self.results[work_id]

    def settle(self) -> ScenarioResult | None:
        """After the last work that is ensured: its result, told again, if the target ended by itself since."""
        last, self._last = self._last, None
        if last is None:
            return None
        again = self._engine.call(self._workers.told_again(*last))
        if again is None:
            return None
        self._record(again)
        return again.result

    def outcome(self) -> RunOutcome:
        """Everything counted. Work that was not done is `inconclusive`."""
        versions = tuple(self._version_outcome(plan) for plan in self.plans.values())
        return RunOutcome(
            versions=versions,
            seed=self.settings.seed,
            started_at=self._started_at,
            finished_at=_now(),
            duration=time.monotonic() - self._began,
            anomalies=tuple(self.anomalies),
            interrupted=self.interrupted,
            image=self._workers.image,
            figures={GENERATED: sum(one.examples for one in self.explorations.values())} if self.explorations else {},
            counterexamples={
                version: text for version, one in self.explorations.items() if (text := one.scenario_file) is not None
            },
        )

    def close(self) -> None:
        """Stop what still runs."""
        self.settle()
        self._engine.call(self._workers.close())

    # -- running -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run every version to its end, on the engine's loop."""
        try:
            await self._workers.run(
                self.plans.values(),
                begin=self._begin,
                record=self._record,
                end=lambda plan: self._in_turn.end(plan.version),
            )
        except IncompleteError as problem:
            self.stopped = problem
        finally:
            self._in_turn.end_all()

    def _begin(self, plan: Plan) -> None:
        self._in_turn(VersionStarted(version=plan.version, total=plan.total))
        self._skip(plan)

    async def _ensure(self, plan: Plan, work_id: str) -> None:
        if self.stopped is not None:
            raise self.stopped
        self._skip(plan)
        if work_id in self.results:
            return
        batch = next(one for one in shares(plan.batches) if any(work.id == work_id for work in one.work))
        tried = {work.id: work for work in batch.work}
        try:
            await self._workers.first(plan.version)
            async for judged in self._workers.results(batch):
                self._record(judged)
                if not judged.result.provisional:
                    self._last = tried[judged.result.id], judged
        except IncompleteError as problem:
            self.stopped = problem
            raise

    # -- generated conversations ---------------------------------------------------------------------------------------

    def _explore(self, plan: Plan) -> None:
        rows = self._version_outcome(plan).requirements
        known = [row.requirement.id for row in rows if row.verdict is Verdict.FAIL]
        self._handler(Status(text=f"trying {self.settings.property_examples} generated conversations"))
        try:
            worker = self._engine.call(self._workers.first(plan.version))
            exploration = explore(
                lambda work: self._engine.call(worker.alone(work)),
                lambda work, judged: self._engine.call(self._workers.told_again(work, judged)),
                self.catalogue,
                plan.version,
                self._traits.body_modes,
                examples=self.settings.property_examples,
                seed=self.settings.seed,
                pods=[pod.name for pod in self._traits.first_pool.pods],
                known=known,
            )
        except IncompleteError as problem:
            self.stopped = problem
            return
        finally:
            self._engine.call(self._workers.close())
        self.explorations[plan.version] = exploration
        self._record(exploration.judged(plan.version, self.settings.seed))

    # -- results -------------------------------------------------------------------------------------------------------

    def _skip(self, plan: Plan) -> None:
        for skip in plan.skips:
            if skip.work.id not in self._results[plan.version]:
                self._record(ScenarioFinished(result=skipped(skip)))

    def _record(self, finished: ScenarioFinished) -> None:
        self._results[finished.result.version][finished.result.id] = finished.result
        self._in_turn(finished)

    def _anomaly(self, anomaly: Anomaly) -> None:
        self.anomalies.append(anomaly)
        self._handler(AnomalySeen(anomaly=anomaly))

    def _version_outcome(self, plan: Plan) -> VersionOutcome:
        results = dict(self._results[plan.version])
        stopped = str(self.stopped.message) if self.stopped else ""
        for work in itertools.chain.from_iterable(batch.work for batch in plan.batches):
            if work.id not in results:
                results[work.id] = not_done(work, stopped)
        return version_outcome(
            self.catalogue,
            plan.version,
            tuple(results.values()),
            role=self.settings.profile.role,
            claimed=plan.version in self.settings.profile.protocol_versions,
            complete=plan.complete and not self.interrupted,
        )


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
