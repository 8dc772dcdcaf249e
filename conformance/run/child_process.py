"""A process of the suite with an engine in it: commands go in, answers come out. It is used for whatever needs a core.

The parent starts it with a `Service`, sends commands and receives answers; both are pickled. The process ends, and
leaves nothing behind, when its connection closes: on purpose, on Ctrl-C, or because its parent is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, Protocol

from conformance.errors import (
    ConformanceError,
    GateFailedError,
    HarnessError,
    IncompleteError,
    TargetUnreachableError,
    UsageError,
)
from conformance.run.engine import CLEAN_UP, EngineThread, collect_seldom

MAIN = "import sys; sys.path[:] = {path!r}; from conformance.run.child_process import serve; serve({fd}, '{service}')"

Say = Callable[[object], None]
"""Sends an answer to the parent. It blocks until there is room."""


class Service(Protocol):
    """What runs in the process. It is made with the engine, `Say`, and the arguments that the parent gives."""

    async def carry_out(self, command: Any) -> None:
        """Carry out one command and say what came of it. Commands overlap, unless the service takes them in turn.

        What it raises is raised again in the parent.
        """

    async def close(self, *, hurry: bool) -> None:
        """Leave nothing behind. With `hurry` commands still went on, and have been cancelled."""


class ChildProcess:
    """The process, as its parent sees it. It starts at once, and needs a moment until it carries out commands."""

    def __init__(self, service: type[Service], *arguments: object) -> None:
        """`service` is made in the process with these arguments, which can be pickled."""
        self._socket, theirs = socket.socketpair()
        self.connection: Connection = Connection(os.dup(self._socket.fileno()))
        """For `multiprocessing.connection.wait`: ready when there is an answer."""
        name = f"{service.__module__}:{service.__qualname__}"
        with theirs:
            # In its own session it gets no Ctrl-C: its parent does, and lets go of it.
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN.format(path=sys.path, fd=theirs.fileno(), service=name)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.send(arguments)

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
        return await asyncio.to_thread(self.receive)

    def let_go(self) -> None:
        """Close the connection: the process cleans up and ends. A caller that waits for an answer is told."""
        with contextlib.suppress(OSError):  # it is gone
            self._socket.shutdown(socket.SHUT_RDWR)  # also ends what it still wants to say

    def close(self) -> None:
        """Let go of it, and wait until it has cleaned up. Idempotent."""
        self.let_go()
        try:
            self._process.wait(CLEAN_UP)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._socket.close()
            self.connection.close()


# -- in the process ----------------------------------------------------------------------------------------------------


def serve(fd: int, service: str) -> None:
    """Make the service (`module:class`) and carry out what comes over the connection, until it is closed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the parent gets them too, and lets go
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which targets would inherit
    collect_seldom()
    connection = Connection(fd)
    module, _, name = service.partition(":")
    kind = getattr(importlib.import_module(module), name)

    def say(answer: object) -> None:
        with contextlib.suppress(OSError):  # the parent does not listen any more
            connection.send(answer)

    async def told(command: object) -> None:
        try:
            await served.carry_out(command)
        except Exception as problem:  # noqa: BLE001 - whatever it is, its cause is here and it is raised there
            say(_portable(problem))

    with EngineThread() as engine, contextlib.suppress(EOFError, OSError):
        served: Service = kind(engine, say, *connection.recv())
        running: set[Future[None]] = set()
        try:
            while True:
                command = engine.submit(told(connection.recv()))
                running.add(command)
                command.add_done_callback(running.discard)
        finally:
            interrupted = tuple(running)
            for command in interrupted:
                command.cancel()
            engine.call(served.close(hurry=bool(interrupted)))


def _portable(problem: Exception) -> ConformanceError:
    """The error in a form that a pipe can carry; what is not the target's or the user's, with its cause."""
    for kind in (GateFailedError, TargetUnreachableError, IncompleteError, UsageError):
        if isinstance(problem, kind):
            return kind(problem.message, hint=problem.hint)
    return HarnessError("".join(traceback.format_exception(problem)))
