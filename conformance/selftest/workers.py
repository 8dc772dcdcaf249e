"""Trials in several processes, one engine each: driving exchanges keeps a core busy, and one process has one core.

A worker gets what is to be tried and gives trials back (`Trials`). Nothing of its targets outlives it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, Generic, Protocol, TypeVar

from conformance.errors import HarnessError
from conformance.run.child_process import ChildProcess, Say, warm
from conformance.run.engine import EngineThread, cores


class TrialSubject(Protocol):
    """What is tried. It can be pickled."""

    @property
    def name(self) -> str:
        """What it is known by, among those that are tried together."""


class Tried(Protocol):
    """What came of it."""

    @property
    def name(self) -> str:
        """The subject's name."""

    @property
    def trouble(self) -> tuple[str, ...]:
        """What could not be judged."""


S = TypeVar("S", bound=TrialSubject)
T = TypeVar("T", bound=Tried)
Attempt = Callable[[S, EngineThread], Awaitable[T]]
"""Tries a subject on the engine's loop. It can be pickled."""

AT_A_TIME = 5
"""Trials that a worker has in hand: while one EPP is waited for, another is asked."""

AGAIN = 2
"""How often a trial in which something could not be judged is tried again, after the others and at last with nothing
beside it: that is our trouble, or a busy machine's, and no reason to doubt a judge."""


def try_each(
    subjects: Sequence[S], attempt: Attempt[S, T], report: Callable[[T], None], jobs: int | None = None
) -> tuple[T, ...]:
    """Try each subject, in `jobs` processes (default: one per core); `report` gets each trial as it comes.

    Raises `HarnessError` if a worker fails.
    """
    waiting, alone = deque(subjects), deque[S]()
    trials: dict[str, T] = {}
    again = Counter({one.name: AGAIN for one in subjects})
    number = min(jobs or cores(), len(subjects))
    with warm(number):
        workers = [_Worker[S, T](attempt) for _ in range(number)]
    tried = {one.name: one for one in subjects}
    try:
        for _ in range(AT_A_TIME):
            for worker in workers:
                worker.give(waiting)
        while len(trials) < len(subjects):
            ready = wait([worker.process.connection for worker in workers])
            for worker in (one for one in workers if one.process.connection in ready):
                trial = worker.take()
                if trial.trouble and again[trial.name]:
                    again[trial.name] -= 1
                    (waiting if again[trial.name] else alone).append(tried[trial.name])
                else:
                    trials[trial.name] = trial
                    report(trial)
                worker.give(waiting)
            if not any(worker.busy for worker in workers):
                workers[0].give(alone)
    finally:
        for worker in workers:
            worker.process.let_go()
        for worker in workers:
            worker.process.close()
    return tuple(trials[one.name] for one in subjects)


class _Worker(Generic[S, T]):
    """A worker process, and what it has in hand."""

    def __init__(self, attempt: Attempt[S, T]) -> None:
        self.process = ChildProcess(Trials, attempt)
        self._tries: list[str] = []

    @property
    def busy(self) -> bool:
        """Whether it has something in hand."""
        return bool(self._tries)

    def give(self, waiting: deque[S]) -> None:
        """Hand it the next subject, if there is one."""
        if waiting:
            subject = waiting.popleft()
            self._tries.append(subject.name)
            self.process.send(subject)

    def take(self) -> T:
        """A trial that it has finished. Raises `HarnessError`."""
        try:
            trial: T = self.process.receive()
        except HarnessError as problem:
            raise HarnessError(f"while these were tried: {', '.join(self._tries)}: {problem.message}") from None
        self._tries.remove(trial.name)
        return trial


class Trials:
    """In the worker process: tries each subject that comes, several at a time."""

    def __init__(self, engine: EngineThread, say: Say, attempt: Attempt[Any, Any]) -> None:
        self._engine = engine
        self._say = say
        self._attempt = attempt

    async def carry_out(self, command: Any) -> None:
        """Try it, and give the trial back."""
        self._say(await self._attempt(command, self._engine))

    async def close(self, *, hurry: bool) -> None:
        """A trial that is cancelled stops its target itself."""
