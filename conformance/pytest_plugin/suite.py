"""The suite as the plugin holds it: one session per protocol version, one target at a time, the results so far."""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

import pytest

from conformance.errors import ConformanceError
from conformance.events import AnomalySeen, Handler, RunEvent, ScenarioFinished
from conformance.evidence.episode import Episode
from conformance.evidence.redaction import Redactor
from conformance.outcome import (
    Anomaly,
    RequirementResult,
    RunOutcome,
    ScenarioResult,
    requirement_results,
    version_outcome,
)
from conformance.planning.results import not_done
from conformance.report.document.basis import basis_of
from conformance.report.document.build import build
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import EngineThread
from conformance.run.session import RunSettings, Session
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.evidence.store import EvidenceWriter
    from conformance.report.document.model import Report

SUITE = pytest.StashKey["PluginSuite"]()
"""Where the configuration of pytest holds the suite."""

_LOUD = (Verdict.FAIL, Verdict.ERROR)


class User(Protocol):
    """Has a target: the session of the scenarios, or the stage of the fixtures."""

    def close(self) -> None:
        """Stop the target."""


class PluginSuite:
    """Starts nothing until a result, or a fixture, is asked for. Its methods are called from pytest's thread."""

    def __init__(self, settings: RunSettings) -> None:
        self.redactor = Redactor.of(settings.profile)
        self.settings = dataclasses.replace(settings, redactor=self.redactor)
        self.catalogue = Catalogue.load()
        self.selected: tuple[tuple[str, str], ...] = ()
        """Version and id of the scenario items that pytest is going to run."""
        self.results: dict[str, dict[str, ScenarioResult]] = {version: {} for version in settings.versions}
        self.stopped: ConformanceError | None = None
        self._stopped_by: pytest.Item | None = None
        self._episodes: dict[tuple[str, str], Episode] = {}
        self._anomalies: list[Anomaly] = []
        self._handlers: list[Handler] = []
        self._engine: EngineThread | None = None
        self._sessions: dict[str, Session] = {}
        self._in_use: User | None = None
        self._held: ScenarioFinished | None = None
        self._began, self._started_at = time.monotonic(), _now()

    # -- plan and results ----------------------------------------------------------------------------------------------

    def session(self, version: str) -> Session:
        """The session of a version: its plan at once, its target when a result is asked for. Raises `UsageError`."""
        if version not in self._sessions:
            settings = dataclasses.replace(self.settings, versions=(version,))
            self._sessions[version] = Session(settings, self.engine, self.take)
        return self._sessions[version]

    def ensure(self, version: str, work_id: str, item: pytest.Item) -> ScenarioResult:
        """The result of a scenario, which is run for `item` if it was not yet. Raises `ConformanceError`."""
        if work_id in self.results[version]:
            return self.results[version][work_id]
        if self.stopped is not None:
            raise self.stopped
        session = self.session(version)
        self.use(session)
        try:
            return session.ensure(work_id)
        except ConformanceError as problem:  # a missing extra or program would be found missing by every item
            self.stopped, self._stopped_by = problem, item
            raise

    def stopped_before(self, item: pytest.Item) -> bool:
        """Whether the target was given up by another item: that one fails, also when it is run again."""
        return self.stopped is not None and self._stopped_by is not item

    def requirement(self, version: str, requirement: str) -> RequirementResult:
        """What all results so far say about a requirement."""
        results = list(self.results[version].values())
        rows = requirement_results(self.catalogue, version, results, self.settings.profile.role)
        return next(row for row in rows if row.requirement.id == requirement)

    def episode(self, version: str, work_id: str) -> Episode | None:
        """The episode of a result that needs explaining."""
        return self._episodes.get((version, work_id))

    @property
    def has_results(self) -> bool:
        """Whether anything was run, or was to be, and the target was given up."""
        return any(self.results.values()) or self.stopped is not None

    def report(self, evidence: EvidenceWriter | None) -> Report:
        """The report of what was run."""
        outcome = RunOutcome(
            versions=tuple(
                version_outcome(
                    self.catalogue,
                    version,
                    (*results.values(), *self._given_up(version)),
                    role=self.settings.profile.role,
                    claimed=version in self.settings.profile.protocol_versions,
                    complete=self._is_complete(version, results),
                )
                for version, results in self.results.items()
                if results or self.stopped is not None
            ),
            seed=self.settings.seed,
            started_at=self._started_at,
            finished_at=_now(),
            duration=time.monotonic() - self._began,
            anomalies=tuple(self._anomalies),
        )
        return build(
            outcome,
            catalogue=self.catalogue,
            profile=self.settings.profile,
            evidence=evidence,
            redactor=self.redactor,
            stopped=self.stopped.message if self.stopped else "",
            basis=basis_of(
                self.settings.profile,
                command=self.settings.command,
                selection=self.settings.selection,
                scenario_paths=self.settings.scenario_paths,
            ),
        )

    def _given_up(self, version: str) -> Iterator[ScenarioResult]:
        """The results of what pytest had selected, and the target was given up before."""
        for work in (work for batch in self.session(version).plan.batches for work in batch.work):
            if self.stopped and (version, work.id) in self.selected and work.id not in self.results[version]:
                yield not_done(work, self.stopped.message)

    def _is_complete(self, version: str, results: Mapping[str, ScenarioResult]) -> bool:
        plan = self.session(version).plan
        planned = [work.id for batch in plan.batches for work in batch.work] + [skip.work.id for skip in plan.skips]
        return plan.complete and all(name in results for name in planned)

    # -- events --------------------------------------------------------------------------------------------------------

    def listen(self, handler: Handler) -> None:
        """Hand all further events to `handler`, on the engine's thread."""
        self._handlers.append(handler)

    def take(self, event: RunEvent) -> None:
        """An event of a worker, or of our own session."""
        match event:
            case ScenarioFinished(result=result, episode=episode):
                self.results[result.version][result.id] = result
                loud = result.verdict in _LOUD or any(finding.verdict in _LOUD for finding in result.findings)
                if loud and episode is not None:
                    self._episodes[result.version, result.id] = episode
            case AnomalySeen(anomaly=anomaly):
                self._anomalies.append(anomaly)
        self._hand_over(event)

    def settle(self) -> ScenarioResult | None:
        """After the last work of the target in use: its result, told again, if that target ended by itself since."""
        ended = self._in_use.settle() if isinstance(self._in_use, Session) else None
        self._release()
        return ended

    def _hand_over(self, event: RunEvent) -> None:
        """Hand an event to the handlers. The last result that counts waits for the next one: it may be told again."""
        if isinstance(event, ScenarioFinished) and not event.result.provisional:
            before, self._held = self._held, event
            if before is None or (before.result.version, before.result.id) == (event.result.version, event.result.id):
                return
            event = before
        self._tell(event)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            self._tell(held)

    def _tell(self, event: RunEvent) -> None:
        for handler in self._handlers:
            handler(event)

    # -- one target at a time ------------------------------------------------------------------------------------------

    @property
    def engine(self) -> EngineThread:
        """The engine, started when it is first needed."""
        if self._engine is None:
            self._engine = EngineThread()
            self._engine.__enter__()
        return self._engine

    def use(self, user: User) -> None:
        """Make `user` the one that has a target; the one before is stopped, as both would change the same pool."""
        if self._in_use is not user:
            if self._in_use is not None:
                self._in_use.close()
            self._in_use = user

    def close(self) -> None:
        """Stop every target and the engine. Idempotent."""
        if self._in_use is not None:
            self._in_use.close()
            self._in_use = None
        self._release()
        if self._engine is not None:
            self._engine.__exit__()
            self._engine = None
            self._sessions.clear()


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
