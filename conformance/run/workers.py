"""Workers side by side: they take the work of all versions in its order, each as fast as its target allows.

The first worker is in this process, which also keeps the record. Each further one has its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from conformance.errors import ConformanceError, HarnessError
from conformance.events import RunEvent, ScenarioFinished, Status
from conformance.outcome import Anomaly
from conformance.planning.plan import Batch, Plan, Work
from conformance.requirements.catalogue import Catalogue
from conformance.run.batches import with_ends
from conformance.run.engine import LagMeter, cores
from conformance.run.worker import LocalWorker, RemoteWorker, StartTarget, Worker
from conformance.targets.gateway import AnyProfile

WAITING = 4
"""Targets beside one for each core: most scenarios that run alone wait most of their time."""

MOST = 12
"""Targets side by side, unless the user asks for more."""

SHARE = 24
"""Pieces of work that a worker takes at a time from a batch that several could share."""


class Workers:
    """The workers of one session, at most `count`. `target` says what they start, for whichever version and number.

    The callbacks get what is said.
    """

    def __init__(
        self,
        target: StartTarget,
        count: int | None,
        catalogue: Catalogue,
        lag: LagMeter,
        *,
        tell: Callable[[RunEvent], None],
        anomaly: Callable[[Anomaly], None],
    ) -> None:
        self.image: str | None = None
        """The digest of the image that the target runs, once it is known."""
        self._target = target
        self._count = workers_for(target.profile, count)
        self._tell = tell
        self._anomaly = anomaly
        self._catalogue = catalogue
        self._first = LocalWorker(catalogue, lag, self._said)
        self._workers: dict[int, Worker] = {0: self._first}
        self._unread_told = False

    async def run(
        self,
        plans: Iterable[Plan],
        *,
        begin: Callable[[Plan], None],
        record: Callable[[ScenarioFinished], None],
        end: Callable[[Plan], None],
    ) -> None:
        """Run the batches of all plans. `begin` gets each plan before its target is started, `record` its results,
        `end` each plan that has all of them: the next one may have begun then.

        Raises `IncompleteError` if a target can't be had.
        """
        todo = deque(_Todo(plan) for plan in plans)
        left = Counter({one.plan.version: one.size for one in todo})
        wanted = min(self._count, sum(one.size - 1 for one in todo))
        ready = asyncio.Event()
        begun: set[str] = set()
        held: dict[int, tuple[Plan, Work, ScenarioFinished]] = {}
        """The last result of each worker, one that counts if there is any, until it is known that its target has not
        ended by itself since."""

        def end_if_over(plan: Plan) -> None:
            if not left[plan.version] and all(one is not plan for one, _, _ in held.values()):
                end(plan)

        async def settle(number: int) -> None:
            if number in held:
                plan, done, judged = held[number]
                try:
                    ends = await self._worker(number).ends()
                except HarnessError as problem:  # all of its results are there
                    self._anomaly(Anomaly(code="worker", text=f"a process that had done its work: {problem.message}"))
                    ends = ()
                del held[number]
                record(with_ends(judged, ends, done, self._catalogue))
                end_if_over(plan)

        async def work(number: int) -> None:
            while todo:
                plan = todo[0].plan
                if plan.version not in begun:
                    begun.add(plan.version)
                    begin(plan)
                if self._worker(number).version != plan.version:
                    await settle(number)
                    try:
                        await self._start(plan.version, number)
                    except ConformanceError as problem:
                        if number == 0:
                            raise
                        text = f"a second target did not start: {problem.message}"  # the first one does all the work
                        self._anomaly(Anomaly(code="worker", text=text))
                        return
                    ready.set()
                    continue  # another worker may have taken the rest of this version meanwhile
                batch = todo[0].take(number)
                if not todo[0].size:
                    todo.popleft()
                if batch is not None:
                    tried = {one.id: one for one in batch.work}
                    async for judged in self._worker(number).run(batch):
                        if number in held and judged.result.provisional:
                            record(judged)
                            continue
                        before = held.get(number)
                        held[number] = plan, tried[judged.result.id], judged
                        if before is not None:
                            record(before[2])
                left[plan.version] -= 1
                end_if_over(plan)
            await settle(number)

        async def further(number: int) -> None:
            self._worker(number)  # a process needs a moment to start
            await ready.wait()
            await work(number)

        tasks = [asyncio.ensure_future(one) for one in (work(0), *(further(number) for number in range(1, wanted)))]
        hurry = True
        try:
            await asyncio.gather(*tasks)
            hurry = False
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            try:
                for _, _, judged in held.values():
                    record(judged)
            finally:
                await self.close(hurry=hurry)

    async def first(self, version: str) -> LocalWorker:
        """The worker in this process, with a target of this version: the one that it has, or a new one."""
        if self._first.version != version:
            await self._start(version, 0)
        return self._first

    def results(self, batch: Batch) -> AsyncIterator[ScenarioFinished]:
        """The results of a batch on the first worker, as they come. Raises `IncompleteError`."""
        return self._first.run(batch)

    async def told_again(self, work: Work, judged: ScenarioFinished) -> ScenarioFinished | None:
        """After the last work on the first worker: its result, if the target ended by itself since, or None."""
        ends = await self._first.ends()
        return with_ends(judged, ends, work, self._catalogue) if ends else None

    async def close(self, *, hurry: bool = False) -> None:
        """Stop everything. With `hurry` no target gets the time to end by itself."""
        if not self._unread_told and any(worker.reads_no_metrics for worker in self._workers.values()):
            self._unread_told = True
            text = "it reads no metrics; `discovery.scrapes: false` in its profile says so and saves the waiting"
            self._anomaly(Anomaly(code="scrapes", text=text))
        workers, self._workers = list(self._workers.values()), {0: self._first}
        await asyncio.gather(*(worker.close(hurry=hurry) for worker in workers))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _worker(self, number: int) -> Worker:
        if number not in self._workers:
            self._workers[number] = RemoteWorker(self._target.redactor, self._said)
        return self._workers[number]

    async def _start(self, version: str, number: int) -> None:
        """Give a worker a target of this version, in place of the one before. Raises what stops the target."""
        worker = self._worker(number)
        await worker.start(dataclasses.replace(self._target, version=version, number=number))
        self.image = worker.image

    def _said(self, said: Status | Anomaly) -> None:
        if isinstance(said, Anomaly):
            self._anomaly(said)
        else:
            self._tell(said)


def workers_for(profile: AnyProfile, count: int | None) -> int:
    """How many targets run side by side: `count`, or what suits this machine; 1 where there can only be one."""
    return 1 if profile.only_one_at_a_time else count or min(WAITING + cores(), MOST)


class _Todo:
    """What is left of a plan: `None`, which has its target started even if there is nothing to run, and its batches.

    What shares a pool takes processor time, and what runs alone mostly waits. So half of the workers begin with one,
    half with the other.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        batches = tuple(shares(plan.batches))
        self._together = deque([None, *(batch for batch in batches if len(batch.work) > 1)])
        self._alone = deque(batch for batch in batches if len(batch.work) == 1)

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._together) + len(self._alone)

    def take(self, number: int) -> Batch | None:
        """The next one for the worker of this number."""
        first, second = (self._alone, self._together) if number % 2 else (self._together, self._alone)
        return (first or second).popleft()


def shares(batches: Sequence[Batch]) -> Iterator[Batch]:
    """Batches in pieces that workers can share."""
    for batch in batches:
        for at in range(0, len(batch.work), SHARE):
            yield Batch(pool=batch.pool, work=batch.work[at : at + SHARE])
