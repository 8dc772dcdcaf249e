"""Runs a batch on a lane and judges it; finds out which exchange is to blame when the target dies or hangs.

With several exchanges in flight none is accused: they are run again one at a time, and only what reproduces counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from conformance.evidence.episode import Context, Episode, HarnessTrouble, ProcessExited, Unmet
from conformance.judges import judge
from conformance.outcome import Anomaly, ScenarioResult, decisive, scenario_verdict
from conformance.planning.plan import Batch, Work
from conformance.requirements.catalogue import Catalogue
from conformance.run.epp.execute import execute
from conformance.run.epp.runner import EppRunner
from conformance.verdict import Finding, Verdict
from ext_proc.record import StreamEnded, Wait

AT_A_TIME = 12
"""Pieces of work of one batch in flight together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedResult:
    """A result with its evidence."""

    result: ScenarioResult
    episode: Episode | None
    context: Context | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """A piece of work that was executed, in so many seconds."""

    work: Work
    episode: Episode
    context: Context
    seconds: float


class BatchRunner:
    """Runs one batch."""

    def __init__(
        self,
        lane: EppRunner,
        catalogue: Catalogue,
        anomaly: Callable[[Anomaly], None],
        reproduce: Callable[[Work], str],
    ) -> None:
        self._lane = lane
        self._catalogue = catalogue
        self._anomaly = anomaly
        self._reproduce = reproduce

    async def run(self, batch: Batch) -> AsyncIterator[JudgedResult]:
        """The results of the batch, as they come. Raises `IncompleteError` if the target can't be had back."""
        await self._lane.pool.reset(batch.pool)
        if len(batch.work) == 1:
            yield await self.alone(batch.work[0])
            return
        waiting = list(batch.work)
        while waiting:
            await self._alive()
            done = await self._together(waiting)
            suspects = await self._suspects(done)
            for one in done:
                if one.work.id not in suspects:
                    yield judge_done(one, self._catalogue, self._reproduce)
            again = [one.work for one in done if one.work.id in suspects]
            if again:
                async for judged in self._one_at_a_time(again, batch):
                    yield judged

    async def _together(self, waiting: list[Work]) -> list[WorkDone]:
        """Execute several at a time, taking them from `waiting`, until none is left or the target has died."""
        done: list[WorkDone] = []

        async def worker() -> None:
            while waiting and not self._lane.target.crashed:
                done.append(await self._execute(waiting.pop(0)))

        await asyncio.gather(*(worker() for _ in range(min(AT_A_TIME, len(waiting)))))
        return done

    async def _suspects(self, done: Sequence[WorkDone]) -> set[str]:
        """Whose results can't be trusted, because something befell the whole target while they ran."""
        if self._lane.target.crashed:
            return {one.work.id for one in done if died(one.episode) or _lost(one.episode)}
        hung = {one.work.id for one in done if _hung(one.episode)}
        if hung and await self._lane.probe(None) is None and self._lane.pool.eligible:
            return hung
        return {one.work.id for one in done if any(True for _ in one.episode.of(HarnessTrouble))}

    async def _one_at_a_time(self, again: Sequence[Work], batch: Batch) -> AsyncIterator[JudgedResult]:
        guilty = False
        if not self._lane.target.crashed:
            await self._unhang()
        for work in again:
            await self._alive()
            await self._lane.pool.reset(batch.pool)
            judged = await self.alone(work)
            guilty = guilty or judged.episode is None or died(judged.episode) or _hung(judged.episode)
            yield judged
        if not guilty:
            text = "the target died or hung with several scenarios in flight, and under none of them alone"
            self._anomaly(Anomaly(code="not-reproduced", text=text))

    async def alone(self, work: Work) -> JudgedResult:
        """Run one piece of work on the pool as it is, with nothing else in flight."""
        await self._alive()
        done = await self._execute(work)
        if _hung(done.episode) and not self._lane.target.crashed:
            await self._unhang()
        return judge_done(done, self._catalogue, self._reproduce)

    async def _alive(self) -> None:
        if self._lane.target.crashed:
            self._anomaly(Anomaly(code="restarted", text="the target ended by itself and was started again"))
            await self._lane.restart_target()

    async def _unhang(self) -> None:
        """A target that answers nothing any more is started again, if it is ours."""
        if not self._lane.profile.started_by_us or not self._lane.pool.eligible:
            return
        if await self._lane.probe(None) is None:
            self._anomaly(Anomaly(code="restarted", text="the target answered nothing any more and was started again"))
            await self._lane.restart_target()

    async def _execute(self, work: Work) -> WorkDone:
        loop = asyncio.get_running_loop()
        began = loop.time()
        episode, context = await execute(self._lane, work)
        return WorkDone(work=work, episode=episode, context=context, seconds=loop.time() - began)


def judge_done(done: WorkDone, catalogue: Catalogue, reproduce: Callable[[Work], str]) -> JudgedResult:
    """The result of what was executed. A judge that fails makes it `error`: that is our defect."""
    scenario = done.work.instance.scenario
    reason = next((event.what for _, event in done.episode.of(Unmet)), "")
    try:
        findings = judge(done.episode, done.context, catalogue)
    except Exception as problem:  # noqa: BLE001 - a judge that fails is our defect
        reason = f"a judge failed, which is a defect of the suite: {type(problem).__name__}: {problem}"
        findings = tuple(
            Finding(requirement=name, verdict=Verdict.ERROR, actual=reason) for name in scenario.requirements
        )
    trouble = next((event.what for _, event in done.episode.of(HarnessTrouble)), "")
    verdict = scenario_verdict(findings, scenario.requirements)
    found = decisive(findings, scenario.requirements)
    result = ScenarioResult(
        id=done.work.id,
        scenario=scenario.id,
        title=scenario.title,
        section=done.work.instance.section,
        requirements=scenario.requirements,
        mode=done.work.mode,
        verdict=verdict,
        findings=findings,
        reason=trouble or reason or (found.actual if found and found.verdict is not Verdict.PASS else ""),
        provisional=scenario.provisional,
        smoke=scenario.smoke,
        duration=done.seconds,
        evidence=done.episode.id,
        reproduce=reproduce(done.work),
        source=f"{done.work.instance.file}:{done.work.instance.line}",
    )
    return JudgedResult(result=result, episode=done.episode, context=done.context)


def reproducing(command: str) -> Callable[[Work], str]:
    """For a piece of work, the command line that runs just it again; `command` is its beginning."""
    return lambda work: f"{command} --scenario '{work.instance.id}'"


def died(episode: Episode) -> bool:
    """Whether the target ended by itself."""
    return any(not event.asked for _, event in episode.of(ProcessExited))


def _lost(episode: Episode) -> bool:
    return any(event.how == "lost" for _, event in episode.of(StreamEnded))


def _hung(episode: Episode) -> bool:
    return any(event.outcome == "expired" and event.what.startswith("answer") for _, event in episode.of(Wait))
