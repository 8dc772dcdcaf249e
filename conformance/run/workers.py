"""Lanes side by side: they take the work of all versions in its order, each as fast as its target allows.

The first lane is in this process, which also keeps the record; as many further ones as there are cores have processes
of their own.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from conformance.errors import ConformanceError
from conformance.events import RunEvent, Status
from conformance.outcome import Anomaly
from conformance.planning.plan import Batch, Plan
from conformance.requirements.catalogue import Catalogue
from conformance.run.batches import BatchRunner, JudgedResult, reproducing
from conformance.run.engine import LagMeter, cores
from conformance.run.epp.runner import EppRunner
from conformance.run.gateway.runner import GatewayRunner
from conformance.run.worker_process import StartTarget, WorkerProcess
from conformance.targets.gateway import GatewayProfile
from conformance.targets.profile import Profile
from conformance.targets.resolve import only_one_at_a_time

if TYPE_CHECKING:
    from conformance.run.session import RunSettings

LANES = 4
"""Targets that run side by side, where the suite may start several: waits of one are used by the other."""

SHARE = 24
"""Pieces of work that a lane takes at a time from a batch that several could share."""

AnyLane = EppRunner | GatewayRunner | WorkerProcess


class Workers:
    """The lanes of one session. Callbacks get what they say; `image` is what the target ran from, once it is known."""

    def __init__(
        self,
        settings: RunSettings,
        catalogue: Catalogue,
        lag: LagMeter,
        *,
        tell: Callable[[RunEvent], None],
        anomaly: Callable[[Anomaly], None],
    ) -> None:
        self.image: str | None = None
        self._settings = settings
        self._catalogue = catalogue
        self._lag = lag
        self._tell = tell
        self._anomaly = anomaly
        self._wanted = 1 if only_one_at_a_time(settings.profile) else settings.jobs or LANES
        self._lanes: dict[int, AnyLane] = {}
        self._unread_told = False

    async def run(
        self,
        plans: Iterable[Plan],
        *,
        begin: Callable[[Plan], None],
        record: Callable[[Plan, JudgedResult], None],
        end: Callable[[Plan], None],
    ) -> None:
        """Run the batches of all plans. `begin` gets each plan before its target is started, `record` its results,
        `end` each plan that has all of them: the next one may have begun then.

        Raises `IncompleteError` if a target can't be had.
        """
        todo = deque((plan, batch) for plan in plans for batch in (None, *shares(plan.batches)))
        left = Counter(plan.version for plan, _ in todo)
        wanted = min(self._wanted, sum(batch is not None for _, batch in todo))
        ready = asyncio.Event()
        begun: set[str] = set()

        async def work(number: int) -> None:
            while todo:
                plan, batch = todo[0]
                if plan.version not in begun:
                    begun.add(plan.version)
                    begin(plan)
                lane = self._lanes.get(number)
                if lane is None or lane.version != plan.version:
                    try:
                        await self.start(plan.version, number)
                    except ConformanceError as problem:
                        if number == 0:
                            raise
                        text = f"a second target did not start: {problem.message}"  # the first one does all the work
                        self._anomaly(Anomaly(code="lane", text=text))
                        return
                    ready.set()
                    continue  # another lane may have taken the rest of this version meanwhile
                todo.popleft()
                if batch is not None:  # None has a version's target started even if there is nothing to run on it
                    async for judged in self.results(lane, batch):
                        record(plan, judged)
                left[plan.version] -= 1
                if not left[plan.version]:
                    end(plan)

        async def further(number: int) -> None:
            if number <= cores() and isinstance(self._settings.profile, Profile):
                self._lanes[number] = WorkerProcess(self._settings.redactor, self._tell, self._anomaly)
            await ready.wait()
            await work(number)

        tasks = [asyncio.ensure_future(one) for one in (work(0), *(further(number) for number in range(1, wanted)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.close()

    async def first(self, version: str) -> AnyLane:
        """The first lane, with a target of this version: the one that it has, or a new one."""
        if 0 not in self._lanes:
            await self.start(version, 0)
        return self._lanes[0]

    async def start(self, version: str, number: int) -> None:
        """Give a lane a target of this version, in place of the one before. Raises what stops the target."""
        lane = self._lanes.get(number)
        if isinstance(lane, WorkerProcess):
            assert isinstance(self._settings.profile, Profile), "gateways are tested in this process"
            await lane.start(
                StartTarget(
                    profile=self._settings.profile,
                    version=version,
                    values=dict(self._settings.values),
                    seed=self._settings.seed + number,
                    number=number,
                    redactor=self._settings.redactor,
                    data_plane=self._settings.data_plane,
                )
            )
            return
        if lane is not None:
            await self._close([self._lanes.pop(number)])
        self._lanes[number] = await self._entered(version, number)

    def results(self, lane: AnyLane, batch: Batch) -> AsyncIterator[JudgedResult]:
        """The results of the batch, as they come. Raises `IncompleteError` if the target can't be had back."""
        command = self._settings.command_for(lane.version)
        if isinstance(lane, WorkerProcess):
            return lane.run(batch, command)
        if isinstance(lane, GatewayRunner):
            return lane.run(batch, self._catalogue, self._anomaly, reproducing(command))
        return BatchRunner(lane, self._catalogue, self._anomaly, reproducing(command)).run(batch)

    async def close(self) -> None:
        """Stop everything."""
        lanes, self._lanes = list(self._lanes.values()), {}
        await self._close(lanes)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _entered(self, version: str, number: int) -> EppRunner | GatewayRunner:
        settings, profile = self._settings, self._settings.profile
        if isinstance(profile, GatewayProfile):
            return await GatewayRunner(
                profile,
                version,
                dict(settings.values),
                seed=settings.seed,
                lag=self._lag,
                status=self._status,
                redactor=settings.redactor,
            ).__aenter__()
        lane = await EppRunner(
            profile,
            version,
            dict(settings.values),
            seed=settings.seed + number,
            lag=self._lag,
            status=self._status,
            number=number,
            redactor=settings.redactor,
            data_plane=settings.data_plane,
        ).__aenter__()
        self.image = lane.target.image
        return lane

    async def _close(self, lanes: Sequence[AnyLane]) -> None:
        if not self._unread_told and any(_reads_no_metrics(lane) for lane in lanes):
            self._unread_told = True
            text = "it reads no metrics; `discovery.scrapes: false` in its profile says so and saves the waiting"
            self._anomaly(Anomaly(code="scrapes", text=text))
        await asyncio.gather(*(lane.close() for lane in lanes))

    def _status(self, text: str) -> None:
        self._tell(Status(text=text))


def shares(batches: Sequence[Batch]) -> Iterator[Batch]:
    """Batches in pieces that lanes can share."""
    for batch in batches:
        for at in range(0, len(batch.work), SHARE):
            yield Batch(pool=batch.pool, work=batch.work[at : at + SHARE])


def _reads_no_metrics(lane: AnyLane) -> bool:
    if isinstance(lane, EppRunner):
        return lane.pool.reads_no_metrics
    return isinstance(lane, WorkerProcess) and lane.reads_no_metrics
