"""A process of the target's while it runs: its start and end are in the log, and its death is noticed at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from conformance.errors import HarnessError, TargetUnreachableError
from conformance.evidence.episode import HarnessTrouble, ProcessExited, ProcessStarted
from conformance.evidence.local_paths import without_folders
from conformance.run.processor import ProcessorTime
from conformance.targets.running import Running, exited_early
from ext_proc.http2.errors import ConnectFailed
from ext_proc.record import Event

HURRY = 0.3
"""Seconds that a process has to end when it is not waited for."""

DYING = 1.0
"""Seconds that a process may take from its last connection's end to its own."""

T = TypeVar("T")


class Watched:
    """Watches over what is given to `adopt`. `emit` gets the events of the process.

    An end by itself that is `excused` is no event: the process could not start, for a reason that is not its own.
    """

    def __init__(
        self,
        emit: Callable[[Event], object],
        redact: Callable[[str], str] = str,
        *,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.crashed = False
        """True from the moment it ended by itself until another is adopted."""
        self.process: Running | None = None
        self._emit = emit
        self._redact = redact
        self._excused = excused
        self._watcher: asyncio.Task[None] | None = None
        self._processor = ProcessorTime(0)
        self._looking: asyncio.Task[None] | None = None

    @property
    def output(self) -> str:
        """The last lines of its output."""
        return self.process.tail() if self.process else ""

    def adopt(self, process: Running) -> None:
        """Watch over `process`, which was just started."""
        self.crashed = False
        self.process = process
        command = tuple(without_folders(self._redact(argument)) for argument in process.command)
        self._emit(ProcessStarted(pid=process.pid, command=command, image=process.image))
        self._watcher = asyncio.create_task(self._watch(process))
        self._processor = ProcessorTime(process.pid)
        self._looking = asyncio.create_task(self._processor.watch())

    async def stop(self, patience: float) -> None:
        """Stop it, if there is one. Idempotent."""
        if self.process is not None:
            running = self.process.running
            code = await self.process.stop(patience)
            if running:
                self._emit(ProcessExited(pid=self.process.pid, code=code, asked=True))
            self.process = None
        for task in (self._watcher, self._looking):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self._watcher = self._looking = None

    async def given_time_to_end(self, patience: float = DYING) -> None:
        """A connection broke: if the process is ending, its end must be in the log before anybody judges."""
        if self._watcher is not None and not self.crashed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._watcher), patience)

    async def explain_end(self) -> TargetUnreachableError:
        """Why a process that is not running any more ended, in words."""
        assert self.process is not None
        return await exited_early(self.process)

    def withheld(self, seconds: float, ago: float) -> float:
        """See `ProcessorTime`."""
        return self._processor.withheld(seconds, ago)

    async def unless_it_ends(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; that the process ends before that is told at once."""
        if self.process is None:
            return await work
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self.process.exited), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise await self.explain_end()
            return task.result()
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectFailed, OSError):
                await task

    async def _watch(self, process: Running) -> None:
        try:
            code = await asyncio.shield(process.exited)
        except HarnessError as problem:
            self.crashed = True
            self._emit(HarnessTrouble(what=problem.message))
            return
        if not process.asked_to_stop:
            self.crashed = True
            if self._excused():
                return
            self._emit(ProcessExited(pid=process.pid, code=code, asked=False, output=without_folders(process.tail())))
