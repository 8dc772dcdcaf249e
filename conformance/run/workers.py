"""Workers side by side: they take the work of all versions in its order, each as fast as its target allows.

The first worker is in this process, which also keeps the record; as many further ones as there are cores have separate
processes.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from conformance.errors import ConformanceError
from conformance.events import RunEvent, Status
from conformance.outcome import Anomaly
from conformance.planning.plan import Batch, Plan
from conformance.requirements.catalogue import Catalogue
from conformance.roles import ROLES
from conformance.run.batches import JudgedResult
from conformance.run.engine import LagMeter, cores
from conformance.run.worker import LocalWorker, RemoteWorker, StartTarget, Worker

WORKERS = 4
"""Targets that run side by side, where the suite may start several: waits of one are used by the other."""

SHARE = 24
"""Pieces of work that a worker takes at a time from a batch that several could share."""


class Workers:
    """The workers of one session, at most `count`. `target` says what they start, for whichever version and number.

    `command` gives the beginning of the commands that reproduce results of a version. The callbacks get what is said.
    """

    def __init__(
        self,
        target: StartTarget,
        count: int | None,
        command: Callable[[str], str],
        catalogue: Catalogue,
        lag: LagMeter,
        *,
        tell: Callable[[RunEvent], None],
        anomaly: Callable[[Anomaly], None],
    ) -> None:
        self.image: str | None = None
        """The digest of the image that the target runs, once it is known."""
        self._target = target
        self._count = 1 if target.profile.only_one_at_a_time else count or WORKERS
        self._command = command
        self._catalogue = catalogue
        self._lag = lag
        self._tell = tell
        self._anomaly = anomaly
        self._first = LocalWorker(catalogue, lag, self._said)
        self._workers: dict[int, Worker] = {0: self._first}
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
        wanted = min(self._count, sum(batch is not None for _, batch in todo))
        ready = asyncio.Event()
        begun: set[str] = set()

        async def work(number: int) -> None:
            while todo:
                plan, batch = todo[0]
                if plan.version not in begun:
                    begun.add(plan.version)
                    begin(plan)
                if self._worker(number).version != plan.version:
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
                todo.popleft()
                if batch is not None:  # None has a version's target started even if there is nothing to run on it
                    async for judged in self._worker(number).run(batch, self._command(plan.version)):
                        record(plan, judged)
                left[plan.version] -= 1
                if not left[plan.version]:
                    end(plan)

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
            await self.close(hurry=hurry)

    async def first(self, version: str) -> LocalWorker:
        """The worker in this process, with a target of this version: the one that it has, or a new one."""
        if self._first.version != version:
            await self._start(version, 0)
        return self._first

    def results(self, batch: Batch) -> AsyncIterator[JudgedResult]:
        """The results of a batch on the first worker, as they come. Raises `IncompleteError`."""
        return self._first.run(batch, self._command(self._first.version))

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
            apart = number <= cores() and ROLES[self._target.profile.role].has_processes
            self._workers[number] = (
                RemoteWorker(self._target.redactor, self._said)
                if apart
                else LocalWorker(self._catalogue, self._lag, self._said)
            )
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


def shares(batches: Sequence[Batch]) -> Iterator[Batch]:
    """Batches in pieces that workers can share."""
    for batch in batches:
        for at in range(0, len(batch.work), SHARE):
            yield Batch(pool=batch.pool, work=batch.work[at : at + SHARE])
