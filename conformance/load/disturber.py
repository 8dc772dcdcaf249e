"""Carries out the trouble of a load, on its schedule, and says when each begins and ends."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Literal

from conformance.errors import GateFailedError, TargetUnreachableError
from conformance.load.churn import PoolChurn
from conformance.load.moments import Moments
from conformance.load.recovery import TargetIsBack, TargetStaysAway, TroubleBegan, TroubleEnded, TroubleEvent
from conformance.load.trouble import Trouble
from conformance.run.epp.runner import EppRunner
from conformance.scenario.pool import Load


class Disturber:
    """Makes trouble for the target of `runner` and its surroundings as `plan` says, in a load of so many `seconds`.

    `tell` hears of each before it begins, and when it is over. `alone` is held while the pool or the target changes.
    """

    def __init__(
        self,
        runner: EppRunner,
        plan: Sequence[Trouble],
        seconds: float,
        *,
        moments: Moments,
        churn: PoolChurn,
        alone: asyncio.Lock,
        tell: Callable[[TroubleEvent], None],
    ) -> None:
        self._runner = runner
        self._plan = plan
        self._seconds = seconds
        self._moments = moments
        self._churn = churn
        self._alone = alone
        self._tell = tell
        self._numbers = itertools.count()
        self._now = time.monotonic

    async def run(self) -> None:
        """Make all of it, each on its own schedule."""
        start = self._now()
        tasks = [asyncio.ensure_future(self._again(one, start)) for one in self._plan]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _again(self, trouble: Trouble, start: float) -> None:
        for begin in trouble.begins(self._seconds):
            await asyncio.sleep(start + begin - self._now())
            match trouble.kind:
                case "kill-target":
                    await self._kill(trouble)
                case "kubernetes-api-lost":
                    await self._lose_api(trouble)
                case "metrics-lost":
                    await self._lose_metrics(trouble, "down")
                case "metrics-hang":
                    await self._lose_metrics(trouble, "hang")
                case "model-servers-reset":  # who begins requests looks whether it goes on
                    number = self._begun(trouble)
                    await asyncio.sleep(trouble.lasts)
                    self._over(number)

    async def _kill(self, trouble: Trouble) -> None:
        """A target that is started again reads the pool as it is then: of no change before it was told."""
        async with self._alone:
            number = self._begun(trouble)
            self._moments.hold()
            self._runner.pool.probe = None  # it can't be asked for picks until it was started again
            await self._runner.target.kill()
        await asyncio.sleep(trouble.lasts)
        async with self._alone:
            self._over(number)
            try:
                await self._runner.restart_target()
            except (TargetUnreachableError, GateFailedError) as problem:
                self._tell(TargetStaysAway(number=number, why=problem.message))
                return
        self._moments.release(self._now())
        self._tell(TargetIsBack(number=number, at=self._now(), address=self._runner.target.address))

    async def _lose_api(self, trouble: Trouble) -> None:
        """A client that waits longer after each attempt may not come back for as long as the trouble took."""
        api = self._runner.kubernetes
        assert api is not None, "the plan was checked"
        number = self._begun(trouble)
        self._moments.hold()
        await api.lose()
        await asyncio.sleep(trouble.lasts)
        await api.restore()
        self._over(number)
        await api.delivered(trouble.lasts + self._runner.profile.timeouts.convergence)
        self._moments.release(self._now())

    async def _lose_metrics(self, trouble: Trouble, how: Literal["down", "hang"]) -> None:
        async with self._alone:
            number, over = self._begun(trouble), self._now() + trouble.lasts
            await self._serve_metrics(how)  # this waits for scrapes, of which those that hang take long
        await asyncio.sleep(max(0.0, over - self._now()))
        async with self._alone:
            self._over(number)
            await self._serve_metrics("ok")

    async def _serve_metrics(self, how: Literal["ok", "down", "hang"]) -> None:
        pool = self._runner.pool
        self._churn.metrics = how
        await pool.load({fact.name: Load(metrics=how) for fact in pool.facts})
        self._moments.delivered(self._now())

    def _begun(self, trouble: Trouble) -> int:
        number = next(self._numbers)
        self._tell(TroubleBegan(number=number, kind=trouble.kind, at=self._now(), limit=trouble.recovers))
        return number

    def _over(self, number: int) -> None:
        self._tell(TroubleEnded(number=number, at=self._now()))
