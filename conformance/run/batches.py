"""Runs a batch on a target and judges it; finds out which exchange is to blame when the target dies or hangs.

With several exchanges in flight none is accused: they are run again one at a time, and what reproduces is
to blame. What befalls it only with several in flight is run so once more, and shown by the one that began last.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from conformance.errors import IncompleteError
from conformance.events import ScenarioFinished
from conformance.evidence.episode import Episode, HarnessTrouble
from conformance.judges import judge
from conformance.outcome import Anomaly
from conformance.planning.plan import Batch, Work
from conformance.planning.results import HUNG_TOO_OFTEN, not_done, of_episode
from conformance.requirements.catalogue import Catalogue
from conformance.run.capture import Capture
from conformance.run.execution import Execution, WorkDone, execute
from conformance.run.target_runner import TargetRunner, is_end
from conformance.scenario.pool import Pool
from conformance.verdict import Finding
from ext_proc.record import Entry, ExchangeOpened, StreamEnded, Wait

HANGS = 6
"""So often is a target started again because it answered nothing any more; what is left then is not tried."""

TRIES = 3
"""How often a piece of work is begun in which the suite itself was in trouble."""


class BatchRunner:
    """Runs batches on one runner; `execution_type` carries out the steps of its role."""

    def __init__(
        self,
        runner: TargetRunner,
        execution_type: Callable[[Any, Work, Capture], Execution],
        catalogue: Catalogue,
        anomaly: Callable[[Anomaly], None],
    ) -> None:
        self._runner = runner
        self._execution_type = execution_type
        self._catalogue = catalogue
        self._anomaly = anomaly

    async def run(self, batch: Batch) -> AsyncIterator[ScenarioFinished]:
        """The results of the batch, as they come. Raises `IncompleteError` if the target can't be had back."""
        if self._runner.hangs >= HANGS:
            for work in batch.work:
                yield _not_tried(work)
            return
        await self._bring_back()
        await self._runner.prepare(batch.pool)
        if len(batch.work) == 1 or self._runner.at_a_time == 1:
            for work in batch.work:
                yield await self.alone(work, batch.pool)
            return
        waiting = list(batch.work)
        while waiting:
            await self._alive()
            done = await self._together(waiting)
            suspects = await self._suspects(done)
            for one in done:
                if one.work.id not in suspects:
                    judged = self._judged(one)
                    if self._early(judged):
                        suspects.add(one.work.id)
                    else:
                        yield judged
            again = [one.work for one in done if one.work.id in suspects]
            if again:
                befell = [one for one in done if one.work.id in suspects]
                async for judged in self._one_at_a_time(again, batch, befell):
                    yield judged

    async def alone(self, work: Work, pool: Pool | None = None) -> ScenarioFinished:
        """Run one piece of work with nothing else in flight, on the pool as it is, or as it was made (`pool`)."""
        if self._runner.hangs >= HANGS:
            return _not_tried(work)
        for tries in itertools.count(1):
            await self._alive()
            done = await self._execute(work)
            if _hung(done.episode) and not self._runner.crashed:
                await self._unhang()
            judged = self._judged(done)
            if not self._early(judged) and (tries >= TRIES or not _troubled(done.episode)):
                break
            self._runner.put_back(done.episode.entries)
            if pool is not None:
                await self._runner.prepare(pool)
        await self._runner.check()
        return judged

    async def _together(self, waiting: list[Work]) -> list[WorkDone]:
        """Execute several at a time, taking them from `waiting`, until none is left or the target has died."""
        done: list[WorkDone] = []

        async def some() -> None:
            while waiting and not self._runner.crashed:
                done.append(await self._execute(waiting.pop(0)))

        await asyncio.gather(*(some() for _ in range(min(self._runner.at_a_time, len(waiting)))))
        return done

    async def _suspects(self, done: Sequence[WorkDone]) -> set[str]:
        """Whose results can't be trusted, because something befell the whole target while they ran."""
        if self._runner.crashed:
            return {one.work.id for one in done if died(one.episode) or _lost(one.episode)}
        hung = {one.work.id for one in done if _hung(one.episode)}
        if hung and not self._runner.never_responds and not await self._runner.responds():
            return hung
        return {one.work.id for one in done if _troubled(one.episode)}

    async def _one_at_a_time(
        self, again: Sequence[Work], batch: Batch, befell: Sequence[WorkDone]
    ) -> AsyncIterator[ScenarioFinished]:
        """The results of work in which something befell the whole target (`befell`), each run alone."""
        if not self._runner.crashed:
            for done in befell:  # an end that one of them has came before it, and the next one gets it
                self._runner.put_back(done.episode.entries)
            await self._unhang()
        alone: dict[str, ScenarioFinished] = {}
        for work in again:
            await self._alive()
            await self._runner.prepare(batch.pool)
            alone[work.id] = await self.alone(work, batch.pool)
        shown = any(judged.episode is None or _befallen(judged.episode) for judged in alone.values())
        if not shown and any(_befallen(one.episode) for one in befell):
            together = await self._blamed(again, batch, befell)
            if together is not None:
                alone[together.work.id] = self._judged(together)
        for one in alone.values():
            yield one

    async def _blamed(self, again: Sequence[Work], batch: Batch, befell: Sequence[WorkDone]) -> WorkDone | None:
        """The target died or hung, and under none of the work alone: the work that shows it, once more together.

        A target that died is not conformant, whether it does so again or not. One that hung and does not do so again
        is not accused.
        """
        await self._alive()
        await self._runner.prepare(batch.pool)
        repeated = await self._together(list(again))
        found = [one for one in repeated if died(one.episode)] or [one for one in befell if died(one.episode)]
        if not found and not await self._runner.responds():
            found = [one for one in repeated if _hung(one.episode)]
        happened = "died" if found and died(found[0].episode) else "hung"
        text = f"the target {happened} with several scenarios in flight, and under none of them alone"
        reproduced = any(one in repeated for one in found)
        more = "once more with the same at a time" if reproduced else "not again with the same at a time"
        self._anomaly(Anomaly(code="not-reproduced", text=f"{text}; {more}"))
        return max(found, key=lambda one: _last_begun(one.episode), default=None)

    async def _alive(self) -> None:
        if self._runner.crashed:
            self._anomaly(Anomaly(code="restarted", text="the target ended by itself and was started again"))
            await self._runner.restart_target()
        await self._bring_back()

    async def _bring_back(self) -> None:
        """A target that did not come up when a scenario started it again gets another start; not one for each scenario
        that is left, if that is of no use either."""
        runner = self._runner
        if runner.given_up or not runner.target.absent:
            return
        self._anomaly(Anomaly(code="restarted", text="the target did not come up in time, and was started once more"))
        runner.given_up = True
        with contextlib.suppress(IncompleteError):
            await runner.restart_target()
            runner.given_up = False

    async def _unhang(self) -> None:
        """A target that answers nothing any more is started again, if it is ours, and unless that was of no use."""
        runner = self._runner
        if not runner.profile.started_by_us or runner.never_responds or await runner.responds():
            return
        self._anomaly(Anomaly(code="restarted", text="the target answered nothing any more and was started again"))
        await runner.target.stop(hurry=True)  # it does not even answer: to wait for its farewell is of no use
        await runner.relieve()
        await runner.restart_target()
        if await runner.responds():
            runner.hangs += 1
        else:
            runner.never_responds = True
            text = "started again, the target answers a plain request no more than before: so it always is"
            self._anomaly(Anomaly(code="unresponsive", text=text))

    async def _execute(self, work: Work) -> WorkDone:
        return await execute(self._runner, work, self._execution_type)

    def _judged(self, done: WorkDone) -> ScenarioFinished:
        return judge_done(done, self._catalogue)

    def _early(self, judged: ScenarioFinished) -> bool:
        """Whether it is to be run again, as the target had not had its time. True once at most for a piece of work."""
        result, episode, context = judged.result, judged.episode, judged.context
        if episode is None or context is None:
            return False
        return self._runner.early(result.id, episode, context, result.findings)


def _not_tried(work: Work) -> ScenarioFinished:
    """The result of what is left out because the target hung too often."""
    return ScenarioFinished(result=not_done(work, HUNG_TOO_OFTEN))


def judge_done(done: WorkDone, catalogue: Catalogue) -> ScenarioFinished:
    """The result of what was executed. A judge that fails makes it `error`: that is our defect."""
    findings: tuple[Finding, ...] | Exception
    try:
        findings = judge(done.episode, done.context, catalogue)
    except Exception as problem:  # noqa: BLE001 - a judge that fails is our defect
        findings = problem
    result = of_episode(done.work, done.episode, findings, seconds=done.seconds)
    return ScenarioFinished(result=result, episode=done.episode, context=done.context)


def with_ends(judged: ScenarioFinished, ends: Sequence[Entry], work: Work, catalogue: Catalogue) -> ScenarioFinished:
    """The result of the last work on a target, which ended by itself afterwards (`ends`), when no other work had it."""
    episode, context = judged.episode, judged.context
    if not ends or episode is None or context is None:
        return judged
    seen = Episode(id=episode.id, entries=(*episode.entries, *ends))
    done = WorkDone(work=work, episode=seen, context=context, seconds=judged.result.duration)
    return judge_done(done, catalogue)


def died(episode: Episode) -> bool:
    """Whether the target ended by itself."""
    return any(map(is_end, episode.entries))


def _befallen(episode: Episode) -> bool:
    """Whether the target died, or hung by no trouble of our own."""
    return died(episode) or (_hung(episode) and not _troubled(episode))


def _last_begun(episode: Episode) -> int:
    """Where in the log its last exchange began."""
    return max((entry.seq for entry, _ in episode.of(ExchangeOpened)), default=0)


def _troubled(episode: Episode) -> bool:
    return any(True for _ in episode.of(HarnessTrouble))


def _lost(episode: Episode) -> bool:
    return any(event.how == "lost" for _, event in episode.of(StreamEnded))


def _hung(episode: Episode) -> bool:
    return any(event.outcome == "expired" and event.what.startswith("answer") for _, event in episode.of(Wait))
