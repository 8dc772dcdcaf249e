"""A load run whose requests are made by several generators, as the process that begins it has it.

They are processes of this machine (`--processes`), or on others as workers of Locust (`--workers`).
"""

from __future__ import annotations

import asyncio
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from conformance.errors import HarnessError, IncompleteError
from conformance.evidence.episode import ProcessExited, ProcessStarted
from conformance.load.churn import PoolChurn
from conformance.load.disturber import Disturber
from conformance.load.generators import Begin, Generator, GetReady, Share, ShareEnd, ShareReport, Stop, shares
from conformance.load.moments import Moments, State
from conformance.load.recovery import TroubleEvent
from conformance.load.run import LoadRun
from conformance.load.shape import RequestIds
from conformance.load.shared_moments import WrittenMoments
from conformance.load.totals import Totals
from conformance.load.traffic import LoadTally
from conformance.run.child_process import ChildProcess
from conformance.run.epp.runner import EppRunner
from ext_proc.record import Entry

if TYPE_CHECKING:
    from conformance.load.locust_master import LocustMaster

_PATIENCE = 10.0
"""Seconds that a process gets beyond what its share takes."""


class GeneratorLink(Protocol):
    """A `Generator` as the run sees it, such as a `ChildProcess`."""

    def send(self, command: Any) -> None:
        """Give it a command. If it is gone, the next `receive` says so."""

    def receive(self) -> Any:
        """The next answer; blocks. Raises what a command raised, or what became of a generator that is gone."""

    def let_go(self) -> None:
        """It is not needed any more. A caller that waits for an answer is told."""

    def close(self) -> None:
        """Let go of it, and wait until it has cleaned up."""


class ManyGenerators(LoadRun, ABC):
    """A `LoadRun` that leaves the requests to `settings.of` generators. One that ends by itself breaks the run."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._links: list[GeneratorLink] = []
        self._readers: list[asyncio.Task[ShareEnd]] = []
        self._reports: dict[int, ShareReport] = {}

    @abstractmethod
    def _pool(self, moments: Moments) -> Path | State:
        """What generators know of the pool (see `Share`)."""

    @abstractmethod
    def _started(self, share: Share) -> GeneratorLink:
        """A generator that makes this share."""

    @property
    def totals(self) -> Totals:
        """See `LoadRun`."""
        return Totals.of(report.totals for report in self._reports.values())

    @property
    def _covered(self) -> float:
        """See `LoadRun`. Reports come when they come: what they cover, as a share of what all generators will."""
        return sum(report.covered for report in self._reports.values()) / self.settings.of

    # -- the course of the run -----------------------------------------------------------------------------------------

    async def _pass(self, runner: EppRunner, moments: Moments, churn: PoolChurn, disturber: Disturber) -> None:
        number = self.settings.of
        self._status(f"starting {number} generators")
        with ThreadPoolExecutor(number) as threads:
            try:
                for settings in shares(self.settings, number, RequestIds().head):
                    share = Share(
                        settings=settings,
                        address=runner.target.address,
                        endpoints=runner.pool.endpoints,
                        pool=self._pool(moments),
                        grace=moments.grace,
                    )
                    self._links.append(self._started(share))
                    self._links[-1].send(GetReady())
                loop = asyncio.get_running_loop()
                await asyncio.gather(*(loop.run_in_executor(threads, one.receive) for one in self._links))
                await self._let_pass(
                    self._arrivals(threads), churn.run(), disturber.run(), self._without_episodes(runner)
                )
            finally:
                for link in self._links:
                    link.let_go()  # those that still wait for a report are told
                threads.shutdown()
                for link in self._links:
                    await asyncio.to_thread(link.close)

    async def _arrivals(self, threads: ThreadPoolExecutor) -> None:
        """Until the last request is due. Raises `HarnessError` if a process ends before."""
        loop = asyncio.get_running_loop()
        self._readers = [loop.create_task(self._read(index, threads)) for index in range(len(self._links))]
        self._tell(Begin())
        seconds = self.settings.file.seconds
        done, _ = await asyncio.wait(self._readers, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for reader in done:
            self._heed_end(reader)

    def _heed_end(self, reader: asyncio.Task[ShareEnd]) -> None:
        """A generator has said its last. Raises what broke it."""
        reader.result()

    async def _end(self) -> None:
        if not self.complete:
            self._tell(Stop())
        bound = self.settings.longest_end if self.complete else 0.0
        late: set[asyncio.Task[ShareEnd]] = set()
        interrupt = None
        try:
            if self._readers:
                _, late = await asyncio.wait(self._readers, timeout=bound + _PATIENCE)
        except asyncio.CancelledError as problem:
            self.complete, interrupt = False, problem  # it leaves unknown what would have come, not what came
            self._tell(Stop())
            _, late = await asyncio.wait(self._readers, timeout=_PATIENCE)
        if self.complete and late:
            raise HarnessError(f"{len(late)} generator processes did not end their share of the load")
        ended = [one for one in self._readers if one not in late]
        if self.complete:
            for one in ended:
                self._heed_end(one)
        ends = [one.result() for one in ended if not one.exception()]
        self.complete = self.complete and all(end.complete for end in ends)
        for end in ends:
            self.generators.append(end.vitals)
            self.examples.include(end.examples, end.shown)
        self._take_stock()
        if interrupt is not None:
            raise interrupt

    def _heed(self, entry: Entry) -> None:
        super()._heed(entry)
        if isinstance(entry.event, ProcessExited) and not entry.event.asked:
            self._tell(entry.event)

    def _trouble(self, event: TroubleEvent) -> None:
        super()._trouble(event)
        self._tell(event)

    def _tell(self, command: object) -> None:
        for link in self._links:
            link.send(command)

    # -- what the processes say ----------------------------------------------------------------------------------------

    async def _read(self, index: int, threads: ThreadPoolExecutor) -> ShareEnd:
        """Take the reports of one process until its last."""
        loop = asyncio.get_running_loop()
        while True:
            report = await loop.run_in_executor(threads, self._links[index].receive)
            if not isinstance(report, ShareReport):
                raise HarnessError(f"a generator process said {report!r}")
            self._take(index, report)
            if report.end is not None:
                return report.end

    def _take(self, index: int, report: ShareReport) -> None:
        self._reports[index] = report
        self.figures.include(report.times)
        self.tally, self.by_shape = LoadTally(), Counter()
        for one in self._reports.values():
            self.tally.include(one.tally)
            self.by_shape.update(one.by_shape)
        reports = self._reports.values()
        self.begun = sum(one.begun for one in reports)
        # of one that is lost, what was under way when it last said something
        self.unfinished = sum(one.unfinished if one.end is not None else one.totals.open for one in reports)
        self.lost_with_process = sum(one.lost_with_process for one in reports)
        self.troubles.include(index, report.troubles)


class ManyProcesses(ManyGenerators):
    """Generators are processes of this machine. They have the history of the pool from a file."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._folder = tempfile.TemporaryDirectory(prefix="epp-conformance-load-")
        self._history = Path(self._folder.name) / "moments"
        self._written: WrittenMoments | None = None

    async def run(self) -> None:
        """See `LoadRun`."""
        with self._folder:
            try:
                await super().run()
            finally:
                if self._written is not None:
                    self._written.close()

    def _moments(self, grace: float) -> Moments:
        self._written = WrittenMoments(grace, self.settings.longest_end, self._history)
        return self._written

    def _pool(self, moments: Moments) -> Path | State:  # noqa: ARG002 - they read the file
        return self._history

    def _started(self, share: Share) -> GeneratorLink:
        return ChildProcess(Generator, replace(share, pid=self._pid))

    def _heed(self, entry: Entry) -> None:
        super()._heed(entry)
        if isinstance(entry.event, ProcessStarted):
            self._tell(entry.event)


class ManyWorkers(ManyGenerators):
    """Generators are workers of a `LocustMaster`. The pool stays what it is when the load begins.

    A worker that is lost ends the load, which is incomplete then.
    """

    def __init__(self, *arguments: Any, master: LocustMaster, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._master = master

    def _pool(self, moments: Moments) -> Path | State:
        return moments.current

    def _started(self, share: Share) -> GeneratorLink:
        link = self._master.links[share.settings.index]
        link.send(share)
        return link

    def _heed_end(self, reader: asyncio.Task[ShareEnd]) -> None:
        try:
            super()._heed_end(reader)
        except IncompleteError as problem:
            self.cut_short, self.complete = problem.message, False

    async def _end(self) -> None:
        try:
            await super()._end()
        finally:
            self._name_workers()

    def _name_workers(self) -> None:
        for index, link in enumerate(self._master.links):
            found: dict[str, Any] = {"begun": 0, "judged": 0, "failed": 0, "complete": False}
            if (report := self._reports.get(index)) is not None:
                found = {
                    "begun": report.begun,
                    "judged": report.tally.exchanges,
                    "failed": report.tally.failed,
                    "complete": report.end is not None and report.end.complete,
                }
            self.workers.append({"name": link.name, **found})
