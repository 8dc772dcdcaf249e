"""Trials in several processes, one engine each: driving exchanges keeps a core busy, and one process has one core.

A worker gets deviations and gives trials back (`Trials`). Nothing of its targets outlives it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path

from conformance.errors import HarnessError
from conformance.run.child_process import ChildProcess, Say
from conformance.run.engine import EngineThread, cores
from conformance.selftest.deviation import Deviation
from conformance.selftest.trial import Trial, attempt

AT_A_TIME = 3
"""Trials that a worker has in hand: while one EPP is waited for, another is asked."""

AGAIN = 2
"""How often a trial in which something could not be judged is tried again, after the others: that is our trouble, or a
busy machine's, and no reason to doubt a judge."""


def run_trials(
    chosen: Sequence[Deviation],
    report: Callable[[Trial], None],
    *,
    jobs: int | None = None,
    full: bool = False,
    keep: Path | None = None,
) -> tuple[Trial, ...]:
    """Try each deviation, in `jobs` processes (default: one per core); `report` gets each trial as it comes.

    With `full` every fault runs every scenario. Evidence of what is inexact goes to the folder `keep`. Raises
    `HarnessError` if a worker fails.
    """
    waiting = deque(sorted(chosen, key=lambda one: one.breaks is not None))  # variants run longest: they begin
    trials: dict[str, Trial] = {}
    again = Counter({one.name: AGAIN for one in chosen})
    workers = [_Worker(full=full, keep=keep) for _ in range(min(jobs or cores(), len(chosen)))]
    try:
        for _ in range(AT_A_TIME):
            for worker in workers:
                worker.give(waiting)
        while len(trials) < len(chosen):
            ready = wait([worker.process.connection for worker in workers])
            for worker in (one for one in workers if one.process.connection in ready):
                trial = worker.take()
                name = trial.deviation.name
                if trial.trouble and again[name]:
                    again[name] -= 1
                    waiting.append(trial.deviation)
                else:
                    trials[name] = trial
                    report(trial)
                worker.give(waiting)
    finally:
        for worker in workers:
            worker.process.let_go()
        for worker in workers:
            worker.process.close()
    return tuple(trials[deviation.name] for deviation in chosen)


class _Worker:
    """A worker process, and what it has in hand."""

    def __init__(self, *, full: bool, keep: Path | None) -> None:
        self.process = ChildProcess(Trials, full, keep)
        self._tries: list[str] = []

    def give(self, waiting: deque[Deviation]) -> None:
        """Hand it the next deviation, if there is one."""
        if waiting:
            deviation = waiting.popleft()
            self._tries.append(deviation.name)
            self.process.send(deviation)

    def take(self) -> Trial:
        """A trial that it has finished. Raises `HarnessError`."""
        try:
            trial: Trial = self.process.receive()
        except HarnessError as problem:
            raise HarnessError(f"while these were tried: {', '.join(self._tries)}: {problem.message}") from None
        self._tries.remove(trial.deviation.name)
        return trial


class Trials:
    """In the worker process: tries each deviation that comes, several at a time."""

    def __init__(self, engine: EngineThread, say: Say, full: bool, keep: Path | None) -> None:
        self._engine = engine
        self._say = say
        self._full = full
        self._keep = keep

    async def carry_out(self, command: Deviation) -> None:
        """Try it, and give the trial back."""
        self._say(await attempt(command, self._engine, full=self._full, keep=self._keep))

    async def close(self, *, hurry: bool) -> None:
        """A trial that is cancelled stops its target itself."""
