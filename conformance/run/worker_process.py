"""A lane in a process of its own: judging is most of a run, and one Python process has one core.

The process gets a `StartTarget` for each protocol version and `Share` after `Share`, one command at a time, and answers
each with what it has to say and a `CommandDone`. It ends, and leaves nothing behind, when its connection is let go of:
on purpose, on Ctrl-C, or because the process that started it is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection

from conformance.errors import (
    ConformanceError,
    GateFailedError,
    HarnessError,
    IncompleteError,
    TargetUnreachableError,
    UsageError,
)
from conformance.events import Status
from conformance.evidence.redaction import Redactor, Secret
from conformance.outcome import Anomaly
from conformance.planning.data_plane import DataPlaneChoice
from conformance.planning.plan import Batch
from conformance.requirements.catalogue import Catalogue
from conformance.run.batches import BatchRunner, JudgedResult, reproducing
from conformance.run.engine import CLEAN_UP, EngineThread, collect_seldom
from conformance.run.epp.runner import EppRunner
from conformance.targets.profile import Profile

MAIN = "import sys; sys.path[:] = {path!r}; from conformance.run.worker_process import serve; serve({fd})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTarget:
    """Start a target of this version, in place of the one before. The fields are those of `EppRunner`."""

    profile: Profile
    version: str
    values: dict[str, str]
    seed: int
    number: int
    redactor: Redactor
    data_plane: DataPlaneChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Run this batch; `command` is the beginning of the commands that reproduce its results."""

    batch: Batch
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandDone:
    """A command was carried out. `redacted` are the secrets replaced meanwhile."""

    reads_no_metrics: bool = False
    redacted: Counter[Secret]


Command = StartTarget | Share
Answer = JudgedResult | Status | Anomaly | CommandDone | ConformanceError


class WorkerProcess:
    """The process, as its parent sees it. It is started at once; its first target is, when `start` asks for it."""

    def __init__(
        self, redactor: Redactor, status: Callable[[Status], None], anomaly: Callable[[Anomaly], None]
    ) -> None:
        self.version = ""
        self.reads_no_metrics = False
        self._redactor = redactor
        self._status = status
        self._anomaly = anomaly
        self._socket, theirs = socket.socketpair()
        self._connection: Connection = Connection(os.dup(self._socket.fileno()))
        with theirs:
            # In a session of its own it gets no Ctrl-C: whoever started it does, and lets go of it.
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN.format(path=sys.path, fd=theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def start(self, start: StartTarget) -> None:
        """Start a target, and stop the one before. Raises what stops the target from starting."""
        async for _ in self._carry_out(start):
            pass
        self.version = start.version

    async def run(self, batch: Batch, command: str) -> AsyncIterator[JudgedResult]:
        """The results of the batch, as they come. Raises as `BatchRunner.run`; `HarnessError` if the process ends."""
        async for judged in self._carry_out(Share(batch=batch, command=command)):
            yield judged

    async def close(self) -> None:
        """Let go of it, and wait until it has cleaned up."""
        with contextlib.suppress(OSError):  # it is gone
            self._socket.shutdown(socket.SHUT_RDWR)  # also ends what it still wants to say
        try:
            await asyncio.to_thread(self._process.wait, CLEAN_UP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._socket.close()
            self._connection.close()

    async def _carry_out(self, command: Command) -> AsyncIterator[JudgedResult]:
        with contextlib.suppress(OSError):  # it is gone, which the next line finds out
            self._connection.send(command)
        while True:
            match await asyncio.to_thread(self._answer):
                case JudgedResult() as judged:
                    yield judged
                case Status() as status:
                    self._status(status)
                case Anomaly() as anomaly:
                    self._anomaly(anomaly)
                case CommandDone() as done:
                    self.reads_no_metrics = done.reads_no_metrics
                    self._redactor.add_counts(done.redacted)
                    return
                case ConformanceError() as problem:
                    raise problem

    def _answer(self) -> Answer:
        try:
            answer: Answer = self._connection.recv()
        except (EOFError, OSError):
            code = self._process.wait(CLEAN_UP)
            raise HarnessError(f"a process that runs scenarios ended with {code}") from None
        return answer


# -- in the process ----------------------------------------------------------------------------------------------------


def serve(fd: int) -> None:
    """Carry out what comes over the connection, until it is closed."""
    collect_seldom()
    connection = Connection(fd)
    with EngineThread() as engine:
        host = _Host(engine, connection)
        running: Future[None] | None = None
        try:
            while True:
                running = engine.submit(host.carry_out(connection.recv()))
        except (EOFError, OSError):
            pass
        finally:
            if running is not None:
                running.cancel()
            engine.call(host.close())


class _Host:
    """Holds the lane. What it does, it does one after the other."""

    def __init__(self, engine: EngineThread, connection: Connection) -> None:
        self._catalogue = Catalogue.load()
        self._engine = engine
        self._connection = connection
        self._turn = asyncio.Lock()
        self._lane: EppRunner | None = None
        self._redactor = Redactor()

    async def carry_out(self, command: Command) -> None:
        """Do it, and say how it went."""
        try:
            async with self._turn:
                await (self._start(command) if isinstance(command, StartTarget) else self._run(command))
        except Exception as problem:  # noqa: BLE001 - whatever it is, its cause is here and it is told there
            self._say(_told(problem))
            return
        unread = self._lane is not None and self._lane.pool.reads_no_metrics
        self._say(CommandDone(reads_no_metrics=unread, redacted=self._redactor.take_counts()))

    async def close(self) -> None:
        """Stop the target, after what still goes on."""
        async with self._turn:
            await self._stop()

    async def _start(self, start: StartTarget) -> None:
        await self._stop()
        self._redactor = start.redactor
        self._redactor.take_counts()  # those of its parent
        lane = EppRunner(
            start.profile,
            start.version,
            start.values,
            seed=start.seed,
            lag=self._engine.lag,
            status=lambda text: self._say(Status(text=text)),
            redactor=start.redactor,
            number=start.number,
            data_plane=start.data_plane,
        )
        self._lane = await lane.__aenter__()

    async def _run(self, share: Share) -> None:
        assert self._lane is not None, "a target is started before it gets work"
        runner = BatchRunner(self._lane, self._catalogue, self._say, reproducing(share.command))
        async for judged in runner.run(share.batch):
            self._say(judged)

    async def _stop(self) -> None:
        lane, self._lane = self._lane, None
        if lane is not None:
            await lane.close()

    def _say(self, answer: Answer) -> None:
        """Blocks until there is room; results come when nothing is in flight, so that this makes no answer late."""
        with contextlib.suppress(OSError):  # nobody listens any more
            self._connection.send(answer)


def _told(problem: Exception) -> ConformanceError:
    """The error in a form that a pipe can carry; what is no error of the target's or the user's, with its cause."""
    for kind in (GateFailedError, TargetUnreachableError, IncompleteError, UsageError):
        if isinstance(problem, kind):
            return kind(problem.message, hint=problem.hint)
    return HarnessError("".join(traceback.format_exception(problem)))
