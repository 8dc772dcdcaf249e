"""One trial: the suite against the reference EPP with one mutation, until it is noticed."""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from conformance.errors import HarnessError
from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import Episode
from conformance.planning.plan import Selection
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import EngineThread
from conformance.run.session import RunSettings, Session
from conformance.selftest.mutants import PROGRAM
from conformance.targets.profile import Profile, Timeouts
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import ACCUSING, UNJUDGED, Result, Verdict
from ext_proc.record import Wait

PATIENCE = Timeouts(answer=8, convergence=1.5, scrape=1, start=15)
"""As long as a large body takes on a machine that is busy with other mutants."""

LIMIT = 300.0
"""Seconds for one stage of a trial. A mutant that is not judged by then was not noticed."""

Outcome = Literal["failed", "not started", "warned", "incomplete", "survived"]
NOTICED: tuple[Outcome, ...] = ("failed", "not started", "warned")
"""Non-conformant, or never in service, or conformant with a warning that names what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantRun:
    """What is tried: the specification of `conformance.mutation`, in these protocol versions until it is noticed."""

    name: str
    specification: Mapping[str, Any]
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantTrial:
    """What came of it."""

    name: str
    outcome: Outcome
    version: str
    requirement: str = ""
    """What is accused first."""
    result: str = ""
    """The result that does so."""
    text: str = ""
    """What the finding says; or why there is no verdict."""
    silent: bool = False
    """The finding is about an answer that was waited for in vain, which a busy machine may be to blame for."""

    @property
    def noticed(self) -> bool:
        """Whether the suite told it from a right EPP."""
        return self.outcome in NOTICED

    @property
    def trouble(self) -> tuple[str, ...]:
        """What could not be judged, or would be if the machine stood still: it is tried again before it counts."""
        return (self.text,) if self.outcome == "incomplete" or self.silent else ()


async def attempt_mutant(run: MutantRun, engine: EngineThread) -> MutantTrial:
    """Try a mutant, on the engine's loop: first the smoke set, then everything, then the other versions."""
    told = []
    for version, selection in _stages(run):
        told.append(await _Stage(run, version, selection, engine).tried())
        if told[-1].noticed:
            return told[-1]
    return min(told, key=lambda one: ("incomplete", "survived").index(one.outcome))


def _stages(run: MutantRun) -> Iterator[tuple[str, Selection]]:
    first, *others = run.versions
    yield first, Selection(smoke=True, smoke_once=True)
    yield first, Selection()
    for version in others:
        yield version, Selection(turn=zlib.crc32(run.name.encode()))


class _Stage:
    """One session against a mutant, which ends with the first finding that says all that a requirement lets it say."""

    def __init__(self, run: MutantRun, version: str, selection: Selection, engine: EngineThread) -> None:
        self._run = run
        self._version = version
        self._enough = asyncio.Event()
        self._accused: list[MutantTrial] = []
        self._catalogue = Catalogue.load()
        profile = _profile(run.specification)
        settings = RunSettings(profile=profile, versions=(version,), selection=selection, seed=1, jobs=1)
        self._session = Session(settings, engine, self._look)

    async def tried(self) -> MutantTrial:
        """What came of it."""
        running = asyncio.ensure_future(self._session.run())
        enough = asyncio.ensure_future(self._enough.wait())
        try:
            await asyncio.wait({running, enough}, timeout=LIMIT, return_when=asyncio.FIRST_COMPLETED)
            ended = running.done()
        finally:
            for task in (running, enough):
                task.cancel()
            problem = (await asyncio.gather(running, enough, return_exceptions=True))[0]
        if isinstance(problem, Exception):
            raise HarnessError(f"{self._run.name}: {problem!r}") from problem
        if accused := min(self._accused, key=lambda one: one.outcome, default=None):  # `failed` before `warned`
            return accused
        if self._session.stopped is not None:
            return self._told("not started", text=self._session.stopped.message)
        if why := self._unjudged() if ended else f"no verdict within {LIMIT:g} s":
            return self._told("incomplete", text=why)
        return self._told("survived")

    def _look(self, event: RunEvent) -> None:
        if not isinstance(event, ScenarioFinished):
            return
        for finding in (one for one in event.result.findings if one.verdict in ACCUSING):
            effect = self._catalogue.effect(finding.requirement, self._version)
            blocks = finding.verdict is Verdict.FAIL and effect == "fail"
            told = self._told("failed" if blocks else "warned", finding.requirement, event.result.id, finding.actual)
            self._accused.append(replace(told, silent=event.episode is not None and _waited_in_vain(event.episode)))
            if blocks or effect == "warn":  # nothing stronger can be said about this requirement
                self._enough.set()

    def _unjudged(self) -> str:
        """Why there is no full verdict."""
        outcome = self._session.outcome().versions[0]
        unjudged = (f"{one.id}: {one.verdict}: {one.reason}" for one in outcome.results if one.verdict in UNJUDGED)
        if why := next(unjudged, None):
            return why
        return ", ".join(outcome.blockers) if outcome.complete and outcome.result is Result.INCOMPLETE else ""

    def _told(self, outcome: Outcome, requirement: str = "", result: str = "", text: str = "") -> MutantTrial:
        return MutantTrial(
            name=self._run.name,
            outcome=outcome,
            version=self._version,
            requirement=requirement,
            result=result,
            text=text,
        )


def _waited_in_vain(episode: Episode) -> bool:
    return any(event.outcome == "expired" and event.what.startswith("answer") for _, event in episode.of(Wait))


def _profile(specification: Mapping[str, Any]) -> Profile:
    """The reference EPP's profile, whose command starts it with the mutation."""
    profile = load_profile(REFERENCE)
    command = profile.start.command
    assert command is not None
    at = command.index(PROGRAM)
    changed = (*command[:at], "conformance.mutation", _escaped(specification), *command[at:])
    start = profile.start.model_copy(update={"command": changed})
    return profile.model_copy(update={"start": start, "timeouts": PATIENCE})


def _escaped(specification: Mapping[str, Any]) -> str:
    """The specification as JSON, in which no part of a string looks like a placeholder of the command."""
    text = json.dumps(specification)
    return text[0] + text[1:].replace("{", "\\u007b")
