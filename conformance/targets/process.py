"""A target started by us: a process group of its own, its output captured, never outliving the run.

Output goes through a pipe into a bounded tail, so a target that floods its log can't fill memory or a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import shlex
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conformance.errors import TargetUnreachableError, UsageError

TAIL_LINES = 40
TAIL_BYTES = 16_384


class TargetProcess:
    """A running command. Make one with `start_process`."""

    def __init__(
        self, process: asyncio.subprocess.Process, command: tuple[str, ...], redact: Callable[[str], str]
    ) -> None:
        self.command = command
        self.pid = process.pid
        self.asked_to_stop = False
        self._process = process
        self._redact = redact
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._reader = asyncio.create_task(self._read())
        self.exited = asyncio.create_task(self._wait())
        """Ends with the exit code (negative: the signal) as soon as the process has ended."""

    @property
    def running(self) -> bool:
        """False once the process has ended."""
        return self._process.returncode is None

    def tail(self) -> str:
        """The last lines of its output (both streams), with secrets redacted."""
        text = b"".join(self._tail)[-TAIL_BYTES:].decode(errors="replace")
        return self._redact("".join(char if char.isprintable() or char in "\n\t" else "�" for char in text))

    async def stop(self, patience: float) -> int:
        """SIGTERM to the group, SIGKILL after `patience` seconds; returns the exit code. Nothing of it is left."""
        self.asked_to_stop = True
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self.exited), patience)
        self._signal(signal.SIGKILL)  # also for children that outlive their parent
        code = await self.exited
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        return code

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    async def _wait(self) -> int:
        code = await self._process.wait()
        with contextlib.suppress(TimeoutError):  # its last words; a child may hold the pipe open for ever
            await asyncio.wait_for(asyncio.shield(self._reader), 0.2)
        return code

    async def _read(self) -> None:
        assert self._process.stdout is not None
        rest = b""
        while piece := await self._process.stdout.read(65_536):
            *lines, rest = (rest + piece).splitlines(keepends=True)[-TAIL_LINES - 1 :] or [b""]
            self._tail.extend(line[-2000:] for line in lines)
            if len(rest) > TAIL_BYTES or rest.endswith(b"\n"):
                self._tail.append(rest[-2000:])
                rest = b""
        self._tail.append(rest)


async def start_process(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    redact: Callable[[str], str] = str,
) -> TargetProcess:
    """Start `command` (no shell) with `env` added to ours. Raises `UsageError` if it can't be run, saying why."""
    program = resolve_program(command[0], cwd)
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **env},
            cwd=cwd,
            start_new_session=True,
            preexec_fn=_die_with_parent if sys.platform == "linux" else None,
        )
    except OSError as problem:
        raise UsageError(f"{command[0]} can't be started: {problem.strerror}", hint=_start_hint(problem)) from problem
    return TargetProcess(process, tuple(command), redact)


def resolve_program(program: str, cwd: Path | None) -> str:
    """The path of the program, from `cwd` or PATH. Raises `UsageError` if it is missing or can't be run."""
    path = Path(program)
    if path.parent == Path():
        found = shutil.which(program)
        if found is None:
            raise UsageError(f"the command {program!r} is not on PATH", hint="give a path, such as ./my-epp")
        return found
    path = path if path.is_absolute() else (cwd or Path()) / path
    if not path.exists():
        raise UsageError(f"there is no file {path}", hint="build the target first, or correct the path")
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name the program in it")
    if not os.access(path, os.X_OK):
        raise UsageError(f"{path} may not be run", hint=f"chmod +x {shlex.quote(str(path))}")
    return str(path.absolute())  # not resolved: what a symbolic link is called matters to interpreters


async def exited_early(process: TargetProcess) -> TargetUnreachableError:
    """The error for a target that ended before it was ready."""
    code = await process.exited
    ended = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    tail = process.tail().strip()
    return TargetUnreachableError(
        f"the target {ended} before it was ready: {shlex.join(process.command)}\n"
        + (f"its last output:\n{tail}" if tail else "it printed nothing"),
        hint="run the command by hand; `epp-conformance profile check` explains start-up problems",
    )


def _start_hint(problem: OSError) -> str:
    match problem.errno:
        case errno.ENOEXEC:
            return "it is neither a program for this machine (other architecture?) nor a script with a #! line"
        case errno.EACCES:
            return "check the permissions of the file and of the folders above it"
        case errno.ENOENT:
            return "if the file exists: its #! interpreter, or the dynamic loader of another C library, is missing"
        case _:
            return "check that it runs by hand"


def _die_with_parent() -> None:
    """Linux: be killed when the suite's process dies, even by SIGKILL (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
