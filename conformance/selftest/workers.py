"""Trials in several processes, one engine each: judging is what a selftest does most, and one process has one core.

A worker holds one end of a pipe. It gets deviations, gives trials back, and ends when the other end is let go of: on
purpose, on Ctrl-C, or because whoever started it is gone. Nothing of its targets outlives it.
"""

from __future__ import annotations

import multiprocessing
import signal
import traceback
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path

from conformance.errors import HarnessError
from conformance.run.engine import CLEAN_UP, EngineThread, collect_seldom, cores
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
            ready = wait([worker.connection for worker in workers])
            for worker in (one for one in workers if one.connection in ready):
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
            worker.connection.close()
        for worker in workers:
            worker.end()
    return tuple(trials[deviation.name] for deviation in chosen)


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, *, full: bool, keep: Path | None) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks as they are
        self.connection, theirs = context.Pipe()
        settings = {"full": full, "keep": keep}
        self._process = context.Process(target=_serve, args=(theirs,), kwargs=settings, daemon=True)
        self._process.start()
        theirs.close()
        self._tries: list[str] = []

    def give(self, waiting: deque[Deviation]) -> None:
        """Hand it the next deviation, if there is one."""
        if waiting:
            deviation = waiting.popleft()
            self._tries.append(deviation.name)
            with suppress(OSError):  # it is gone, which `take` will say
                self.connection.send(deviation)

    def take(self) -> Trial:
        """A trial that it has finished. Raises `HarnessError`."""
        try:
            said = self.connection.recv()
        except (EOFError, OSError):
            self._process.join(CLEAN_UP)
            tried = ", ".join(self._tries)
            raise HarnessError(f"a worker ended with {self._process.exitcode} while it tried {tried}") from None
        if isinstance(said, str):
            raise HarnessError(said)
        assert isinstance(said, Trial)
        self._tries.remove(said.deviation.name)
        return said

    def end(self) -> None:
        """Wait until it has cleaned up, which it does once its connection is closed."""
        self._process.join(CLEAN_UP)
        self._process.kill()
        self._process.join()


# -- in the worker -----------------------------------------------------------------------------------------------------


def _serve(connection: Connection, *, full: bool, keep: Path | None) -> None:
    """The worker: until the connection is closed. What it has in hand then is cancelled and cleaned up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # whoever started us gets them too, and lets go
        signal.signal(number, signal.SIG_IGN)
    collect_seldom()
    with EngineThread() as engine:
        while True:
            try:
                deviation: Deviation = connection.recv()
            except (EOFError, OSError):
                return
            trial = engine.submit(attempt(deviation, engine, full=full, keep=keep))
            trial.add_done_callback(lambda done, name=deviation.name: _hand_back(connection, name, done))  # type: ignore[misc]


def _hand_back(connection: Connection, name: str, done: Future[Trial]) -> None:
    """Send a trial, or what went wrong as text. On the engine's thread, so that one is sent after the other."""
    try:
        said: Trial | str = done.result()
    except CancelledError:
        return
    except Exception as problem:  # noqa: BLE001 - whatever it is, its cause is here and it is told there
        said = f"the trial of {name} failed:\n{''.join(traceback.format_exception(problem))}"
    with suppress(OSError):
        connection.send(said)
