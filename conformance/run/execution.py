"""Executes one piece of work: the steps of its scenario, in order, into an episode."""

from __future__ import annotations

import asyncio
import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from conformance.errors import ConformanceError
from conformance.evidence.episode import Context, Episode, Expectation, HarnessTrouble, Unmet
from conformance.judges import judge
from conformance.planning.plan import Work
from conformance.requirements.catalogue import Catalogue
from conformance.run.capture import Capture
from conformance.run.defects import defect_since
from conformance.run.engine import ENOUGH
from conformance.run.processor import starved
from conformance.run.target_runner import TargetRunner
from conformance.scenario import references
from conformance.scenario.expect import Expect
from conformance.scenario.schema import ClientRequest
from conformance.scenario.seeded import source_of
from conformance.verdict import ACCUSING, Finding
from ext_proc.record import DRAINING, Entry, Wait

Action = Callable[[Any, Expect | None], Awaitable[None]]
"""Carries out one step, given the value of its key in the scenario and what is expected of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """A piece of work that was executed, in so many seconds."""

    work: Work
    episode: Episode
    context: Context
    seconds: float


class Execution(ABC):
    """One piece of work on a runner. What a role does in each step is in `actions`."""

    doubtful_lateness: ClassVar[float] = math.inf
    """Seconds. An accusation proves nothing if our own loop was late by more at a time."""

    def __init__(self, runner: TargetRunner, work: Work, capture: Capture) -> None:
        self._runner = runner
        self._work = work
        self._capture = capture
        self._step = 0
        self._expectations: dict[str, Expectation] = {}

    @property
    @abstractmethod
    def actions(self) -> Mapping[str, Action]:
        """How each kind of step is carried out, by its key in a scenario."""

    @property
    @abstractmethod
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """What the references of a scenario stand for now."""

    @abstractmethod
    def spoilt(self, late: float) -> str:
        """Why the episode proves nothing, as our own loop was so many seconds late at a time; empty if it does.

        Waits that ran out meanwhile are looked at for all roles.
        """

    def context(self) -> Context:
        """What the judges need beside the log. A role adds what its own need."""
        profile, scenario = self._runner.profile, self._work.instance.scenario
        return Context(
            version=self._runner.version,
            scenario=self._work.id,
            requirements=scenario.requirements,
            stimulus=scenario.stimulus,
            provisional=scenario.provisional,
            destination_namespace=profile.metadata.destination,
            subset_namespace=profile.metadata.subset,
            deadline=profile.timeouts.answer,
            expectations=self._expectations,
        )

    async def begin(self) -> None:  # noqa: B027 - most roles have nothing to do
        """Before the first step."""

    async def end(self) -> None:  # noqa: B027
        """After the last step."""

    async def steps(self) -> None:
        """All of them, one after the other."""
        await self.begin()
        for number, step in enumerate(self._work.instance.scenario.steps):
            self._step = number
            if self._runner.crashed:
                return  # the crash is in the log; nothing can be sent any more
            await self.actions[step.action](getattr(step, step.action), step.expect)
        await self.end()

    async def repeat(
        self, request: ClientRequest, expect: Expect | None, send: Callable[[int, str, Random], Awaitable[bool]]
    ) -> None:
        """The repeats of a request, as many at a time as it says.

        `send` gets the number of the repeat, the id of its exchange and the source of its random values, and says
        whether it was answered. One that was not says it all: a hung target would make each repeat wait as long.
        """
        queue = iter(range(request.repeat))

        async def some() -> None:
            for index in queue:
                name = self._capture.exchange()
                if expect is not None:
                    self._expectations[name] = self.expectation(expect)
                if not await send(index, name, self._random(index)):
                    return

        sending = [asyncio.create_task(some()) for _ in range(request.concurrent)]
        try:
            await asyncio.gather(*sending)
        finally:  # where one broke, what the others would still send is no part of this episode
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    def expectation(self, expect: Expect) -> Expectation:
        """What is expected of an exchange, its references resolved."""
        endpoints = self.endpoints
        return Expectation(
            answer=expect.answers,
            within=None if expect.within is None else references.resolve(expect.within, endpoints),
            absent=references.resolve(expect.absent, endpoints),
            status=(expect.status,) if isinstance(expect.status, int) else expect.status or (),
            health=_several(expect.health),
            served_by=None if expect.served_by is None else references.resolve(expect.served_by, endpoints),
            report=expect.reported,
            starts=expect.starts,
            requirement=expect.requirement,
        )

    def _random(self, index: int) -> Random:
        """The source of the random values of a repeat."""
        work = self._work
        return source_of(self._runner.seed, work.instance.id, work.mode, self._step, index)


async def execute(
    runner: TargetRunner, work: Work, execution_type: Callable[[Any, Work, Capture], Execution]
) -> WorkDone:
    """Run the steps. A harness error ends the episode and is recorded in it; nothing is raised."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with runner.capture(counts=not work.instance.scenario.provisional) as capture:
        execution = execution_type(runner, work, capture)
        try:
            await execution.steps()
        except ConformanceError as problem:
            capture.remark(Unmet(what=str(problem)))
        except Exception as problem:  # noqa: BLE001 - a defect of the suite must become `error`, not a finding
            capture.remark(HarnessTrouble(what=f"{type(problem).__name__}: {problem}"))
        late = runner.lag.worst(began)
        spoilt = defect_since(began) or execution.spoilt(late) or _unproven(runner, capture.episode())
        if trouble := spoilt or _doubtful(execution, capture.episode(), late):
            capture.remark(HarnessTrouble(what=trouble))
        seconds = loop.time() - began
        episode = runner.redactor.across(capture.episode())
        return WorkDone(work=work, episode=episode, context=execution.context(), seconds=seconds)


def _doubtful(execution: Execution, episode: Episode, late: float) -> str:
    """Why it proves nothing that the target is accused; "" if it does, or is not. A judge that fails does so again when
    the result is made."""
    if late <= execution.doubtful_lateness:
        return ""
    findings: Sequence[Finding] = ()
    with contextlib.suppress(Exception):
        findings = judge(episode, execution.context(), Catalogue.load())
    accused = ", ".join(sorted({one.requirement for one in findings if one.verdict in ACCUSING}))
    return accused and f"the suite's own event loop was {late:.2f} s late: {accused} may seem broken for that"


def _unproven(runner: TargetRunner, episode: Episode) -> str:
    """A wait that ran out while our own loop stood still, or while the target could have run and got no processor."""
    for entry, wait in _ran_out(episode):
        ago = runner.recorder.age(entry)
        had = wait.seconds - runner.kept_from(wait.seconds, ago)
        if had >= ENOUGH * runner.profile.timeouts.answer:
            continue
        if trouble := runner.lag.excuse(wait.seconds, wait.what, ago=ago):
            return trouble
        withheld, ours = runner.target.withheld(wait.seconds, ago), runner.lag.lately(wait.seconds, ago)
        if trouble := starved(withheld, wait.seconds, wait.what, ours=ours):
            return trouble
    return ""


def _ran_out(episode: Episode) -> Iterator[tuple[Entry, Wait]]:
    """The waits in vain for something that was due."""
    return ((entry, wait) for entry, wait in episode.of(Wait) if wait.outcome == "expired" and wait.what != DRAINING)


def _several(value: tuple[str, ...] | str | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()
