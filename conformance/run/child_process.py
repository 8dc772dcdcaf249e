"""A process of the suite with an engine in it: commands go in, answers come out. It is used for whatever needs a core.

The parent starts it with a `Service`, sends commands and receives answers; both are pickled. The process ends, and
leaves nothing behind, when its connection closes: on purpose, on Ctrl-C, or because its parent is gone.

A new interpreter takes most of a second of processor time until it has imported what it needs. `warm` forks processes
from one that has, as long as it has no threads.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, NoReturn, Protocol

from conformance.errors import (
    ConformanceError,
    GateFailedError,
    HarnessError,
    IncompleteError,
    TargetUnreachableError,
    UsageError,
)
from conformance.run import scratch
from conformance.run.engine import CLEAN_UP, EngineThread, collect_seldom

MAIN = "import sys; sys.path[:] = {path!r}; from conformance.run.child_process import serve; serve({fd})"

Say = Callable[[object], None]
"""Sends an answer to the parent. It blocks until there is room."""


class Service(Protocol):
    """What runs in the process. It is made with the engine, `Say`, and the arguments that the parent gives."""

    async def carry_out(self, command: Any) -> None:
        """Carry out one command and say what came of it. Commands overlap, unless the service takes them in turn.

        What it raises is raised again in the parent.
        """

    async def close(self, *, hurry: bool) -> None:
        """Leave nothing behind; with `hurry` at once: commands went on and were cancelled, or the parent says so."""


@dataclass(frozen=True, slots=True)
class Hurry:
    """In place of a command: the process is closed soon, in a hurry."""


class ChildProcess:
    """The process, as its parent sees it. It starts at once, and needs a moment until it carries out commands."""

    def __init__(self, service: type[Service], *arguments: object) -> None:
        """`service` is made in the process with these arguments, which can be pickled."""
        self._socket, self._process = _warm.pop() if _warm else _started()
        self.connection: Connection = Connection(os.dup(self._socket.fileno()))
        """For `multiprocessing.connection.wait`: ready when there is an answer."""
        self._receiver = ThreadPoolExecutor(max_workers=1)  # those of a loop may be fewer than the processes
        self.send((service, arguments))

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, command: object) -> None:
        """Give it a command. If it is gone, the next `receive` says so."""
        with contextlib.suppress(OSError):
            self.connection.send(command)

    def receive(self) -> Any:
        """The next answer. Raises what a command raised, and `HarnessError` if the process has ended."""
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            code = self._process.wait(CLEAN_UP)
            ended = f"exited with {code}" if code >= 0 else f"was ended by signal {-code}"
            raise HarnessError(f"a process of the suite {ended}") from None
        if isinstance(answer, ConformanceError):
            raise answer
        return answer

    async def answer(self) -> Any:
        """`receive`, without holding up the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._receiver, self.receive)

    def let_go(self) -> None:
        """Close the connection: the process cleans up and ends. A caller that waits for an answer is told."""
        with contextlib.suppress(OSError):  # it is gone
            self._socket.shutdown(socket.SHUT_RDWR)  # also ends what it still wants to say

    def close(self, *, hurry: bool = False) -> None:
        """Let go of it, and wait until it has cleaned up, in a hurry even if no command goes on. Idempotent."""
        if hurry:
            self.send(Hurry())
        self.let_go()
        try:
            self._process.wait(CLEAN_UP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._receiver.shutdown()
            self._socket.close()
            self.connection.close()


# -- how it starts -----------------------------------------------------------------------------------------------------


class Process(Protocol):
    """What is used of `subprocess.Popen`."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, negative for a signal. Raises `TimeoutExpired` after `timeout` seconds."""

    def kill(self) -> None:
        """End it at once."""


_warm: list[tuple[socket.socket, Process]] = []
"""Processes that have no service yet, each with the connection to it."""


@contextlib.contextmanager
def warm(number: int) -> Iterator[None]:
    """Have up to `number` processes ready while the context lasts, where the system can fork this one."""
    if sys.platform == "linux" and threading.active_count() == 1:
        while len(_warm) < number:
            _warm.append(_forked())
    try:
        yield
    finally:
        while _warm:
            connection, process = _warm.pop()
            connection.close()
            process.wait()


class _Forked:
    """A process that begins as a copy of this one, and serves its end of a connection."""

    def __init__(self, theirs: socket.socket, ours: Iterable[socket.socket]) -> None:
        """`ours` are connections that it must not hold open: they end with this process."""
        self._code: int | None = None
        self._reaping = threading.Lock()
        self.pid = os.fork()
        if not self.pid:
            _serve_as_a_copy(theirs, ours)
        self._descriptor = os.pidfd_open(self.pid)

    def wait(self, timeout: float | None = None) -> int:
        """See `Process`. Two threads may wait: one for an answer, and one that closes."""
        if self._code is None and not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired("serve", timeout or 0)
        with self._reaping:
            if self._code is None:
                self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def kill(self) -> None:
        """See `Process`."""
        signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def __del__(self) -> None:
        os.close(self._descriptor)  # not before: another thread may wait for it


def _serve_as_a_copy(theirs: socket.socket, ours: Iterable[socket.socket]) -> NoReturn:
    code = 1
    try:
        os.setsid()
        for connection in ours:
            connection.close()
        _warm.clear()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        serve(theirs.detach())
        code = 0
    except BaseException:  # noqa: BLE001 - there is nothing above that it could be raised to
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)  # what is to be done at exit is the parent's


def _forked() -> tuple[socket.socket, Process]:
    ours, theirs = socket.socketpair()
    with theirs:
        return ours, _Forked(theirs, [ours, *(connection for connection, _ in _warm)])


def _started() -> tuple[socket.socket, Process]:
    ours, theirs = socket.socketpair()
    with theirs:
        # In its own session it gets no Ctrl-C: its parent does, and lets go of it.
        process = subprocess.Popen(
            [sys.executable, "-c", MAIN.format(path=sys.path, fd=theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    return ours, process


# -- in the process ----------------------------------------------------------------------------------------------------


class Pipe(Protocol):
    """What is used of a `Connection`: one may encode what passes it in another way."""

    def recv(self) -> Any:
        """What came next. Raises `EOFError` when the other end has closed it."""

    def send(self, obj: Any, /) -> None:
        """Send one thing. Raises `OSError` if the other end is gone."""


def serve(fd: int) -> None:
    """`serve_over` the connection that the parent has left open as `fd`."""
    serve_over(Connection(fd))


def serve_over(connection: Pipe) -> None:
    """Make the service that comes over the connection, and carry out what comes after it, until it is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the parent gets them too, and lets go
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which targets would inherit
    collect_seldom()
    atexit.unregister(scratch.clear)  # the parent does it when its report is written

    def say(answer: object) -> None:
        with contextlib.suppress(OSError):  # the parent does not listen any more
            connection.send(answer)

    ongoing: set[asyncio.Task[Any]] = set()

    async def told(command: object) -> None:
        task = asyncio.current_task()
        assert task is not None, "it is run by the engine"
        ongoing.add(task)
        try:
            await served.carry_out(command)
        except Exception as problem:  # noqa: BLE001 - whatever it is, its cause is here and it is raised there
            say(_portable(problem))
        finally:
            ongoing.discard(task)

    async def over(*, hurry: bool) -> None:
        interrupted = tuple(ongoing)
        for task in interrupted:
            task.cancel()
        if interrupted:
            await asyncio.wait(interrupted, timeout=CLEAN_UP)
        await served.close(hurry=hurry or bool(interrupted))

    try:
        service, arguments = connection.recv()
    except (EOFError, OSError):
        return  # it was not needed
    with EngineThread() as engine, contextlib.suppress(EOFError, OSError):
        served: Service = service(engine, say, *arguments)
        hurry = False
        try:
            while True:
                match connection.recv():
                    case Hurry():
                        hurry = True
                    case command:
                        engine.submit(told(command))
        finally:
            engine.call(over(hurry=hurry))


def _portable(problem: Exception) -> ConformanceError:
    """The error in a form that a pipe can carry; what is not the target's or the user's, with its cause."""
    for kind in (GateFailedError, TargetUnreachableError, IncompleteError, UsageError):
        if isinstance(problem, kind):
            return kind(problem.message, hint=problem.hint)
    return HarnessError("".join(traceback.format_exception(problem)))
