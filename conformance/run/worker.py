"""A worker: one target after the other, and the batches that run on it, in this process or in another.

One Python process uses one core, so further workers have separate processes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from conformance.errors import HarnessError
from conformance.events import ScenarioFinished, Status
from conformance.evidence.redaction import Redactor, Secret
from conformance.outcome import Anomaly
from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.plan import Batch, Work
from conformance.requirements.catalogue import Catalogue
from conformance.run.batches import BatchRunner
from conformance.run.child_process import ChildProcess, Say
from conformance.run.engine import EngineThread, LagMeter
from conformance.run.roles import runner_of
from conformance.run.target_runner import TargetRunner
from conformance.targets.gateway import AnyProfile
from ext_proc.record import Entry

Tell = Callable[[Status | Anomaly], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTarget:
    """A target, and how it is started. The fields are those of `TargetRunner`, and which `data_plane` it is behind."""

    profile: AnyProfile
    version: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    number: int = 0
    redactor: Redactor = field(default_factory=Redactor)
    data_plane: DataPlaneChoice = field(default_factory=DataPlaneChoice)


class Worker(Protocol):
    """What runs batches on one target."""

    version: str
    """The protocol version for which its target was started; empty: none was."""

    @property
    def image(self) -> str | None:
        """The digest of the image that its target runs, or ran."""

    @property
    def reads_no_metrics(self) -> bool:
        """Whether its target was given time to read metrics, and never did."""

    async def start(self, start: StartTarget) -> None:
        """Start a target, in place of the one before. Raises what stops it from starting."""

    def run(self, batch: Batch) -> AsyncIterator[ScenarioFinished]:
        """The results of the batch, as they come. Raises `IncompleteError` if the target can't be had back."""

    async def ends(self) -> tuple[Entry, ...]:
        """See `TargetRunner`."""

    async def close(self, *, hurry: bool = False) -> None:
        """Stop the target. Nothing is left. With `hurry` it gets no time to end by itself."""


class LocalWorker:
    """A worker in this process (`Worker`). `tell` gets what is waited for, and anomalies."""

    def __init__(self, catalogue: Catalogue, lag: LagMeter, tell: Tell) -> None:
        self.version = ""
        self.image: str | None = None
        self._catalogue = catalogue
        self._lag = lag
        self._tell = tell
        self._runner: TargetRunner | None = None

    @property
    def reads_no_metrics(self) -> bool:
        """See `Worker`."""
        return self._runner is not None and self._runner.reads_no_metrics

    async def start(self, start: StartTarget) -> None:
        """See `Worker`."""
        await self.close()
        runner = runner_of(start.profile.role).runner(
            start.profile,
            start.version,
            start.values,
            seed=start.seed,
            lag=self._lag,
            status=lambda text: self._tell(Status(text=text)),
            redactor=start.redactor,
            number=start.number,
            data_plane=start.data_plane,
            anomaly=self._tell,
        )
        self._runner = await runner.__aenter__()
        self.version, self.image = start.version, runner.image

    async def run(self, batch: Batch) -> AsyncIterator[ScenarioFinished]:
        """See `Worker`."""
        async for judged in self._batches().run(batch):
            yield judged

    async def ends(self) -> tuple[Entry, ...]:
        """See `TargetRunner`."""
        return await self._runner.ends() if self._runner is not None else ()

    async def alone(self, work: Work) -> ScenarioFinished:
        """The result of one piece of work, on the pool as it is."""
        return await self._batches().alone(work)

    async def close(self, *, hurry: bool = False) -> None:
        """See `Worker`."""
        runner, self._runner, self.version = self._runner, None, ""
        if runner is not None:
            await runner.close(hurry=hurry)

    def _batches(self) -> BatchRunner:
        assert self._runner is not None, "a target is started before it gets work"
        execution = runner_of(self._runner.profile.role).execution
        return BatchRunner(self._runner, execution, self._catalogue, self._tell)


# -- in its own process ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TellEnds:
    """Tell the ends of the target by itself that no episode has: no more work comes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDone:
    """A command was carried out. `ends` are what was asked for, `redacted` the secrets replaced meanwhile."""

    ends: tuple[Entry, ...]
    image: str | None
    reads_no_metrics: bool
    redacted: Counter[Secret]


class RemoteWorker:
    """A worker in its own process (`Worker`), which starts at once; its first target does when `start` asks."""

    def __init__(self, redactor: Redactor, tell: Tell) -> None:
        self.version = ""
        self.image: str | None = None
        self.reads_no_metrics = False
        self._ends: tuple[Entry, ...] = ()
        self._redactor = redactor
        self._tell = tell
        self._process = ChildProcess(WorkerService)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def start(self, start: StartTarget) -> None:
        """See `Worker`."""
        async for _ in self._carry_out(start):
            pass
        self.version = start.version

    async def run(self, batch: Batch) -> AsyncIterator[ScenarioFinished]:
        """See `Worker`. Raises `HarnessError` if the process ends."""
        async for judged in self._carry_out(batch):
            yield judged

    async def ends(self) -> tuple[Entry, ...]:
        """See `TargetRunner`. Raises `HarnessError` if the process ends."""
        async for _ in self._carry_out(TellEnds()):
            pass
        return self._ends

    async def close(self, *, hurry: bool = False) -> None:
        """See `Worker`."""
        await asyncio.to_thread(self._process.close, hurry=hurry)

    async def _carry_out(self, command: StartTarget | Batch | TellEnds) -> AsyncIterator[ScenarioFinished]:
        self._process.send(command)
        while True:
            match await self._process.answer():
                case ScenarioFinished() as judged:
                    yield judged
                case Status() | Anomaly() as said:
                    self._tell(said)
                case CommandDone() as done:
                    self.image, self.reads_no_metrics, self._ends = done.image, done.reads_no_metrics, done.ends
                    self._redactor.add_counts(done.redacted)
                    return
                case other:
                    raise HarnessError(f"a process that runs scenarios said {other!r}")


class WorkerService:
    """In the process: a `LocalWorker` that gets its commands one after the other."""

    def __init__(self, engine: EngineThread, say: Say) -> None:
        self._worker = LocalWorker(Catalogue.load(), engine.lag, say)
        self._say = say
        self._turn = asyncio.Lock()
        self._redactor = Redactor()

    async def carry_out(self, command: Any) -> None:
        """Do it, and say what came of it. Results come when nothing is in flight, so that this makes no answer late."""
        ends: tuple[Entry, ...] = ()
        async with self._turn:
            match command:
                case StartTarget(redactor=redactor):
                    self._redactor = redactor
                    redactor.take_counts()  # those of its parent
                    await self._worker.start(command)
                case Batch() as batch:
                    async for judged in self._worker.run(batch):
                        self._say(judged)
                case TellEnds():
                    ends = await self._worker.ends()
        worker, redacted = self._worker, self._redactor.take_counts()
        unread = worker.reads_no_metrics
        self._say(CommandDone(ends=ends, image=worker.image, reads_no_metrics=unread, redacted=redacted))

    async def close(self, *, hurry: bool) -> None:
        """Stop the target, after what still goes on."""
        async with self._turn:
            await self._worker.close(hurry=hurry)
