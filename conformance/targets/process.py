"""A target that is a process: in its own process group, its output captured, and nothing of it left afterwards.

A supervisor process (`supervisor.py`) is the parent of each target, and answers for what it forks.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conformance.errors import HarnessError, UsageError
from conformance.targets import supervisor
from conformance.targets.output import Output
from conformance.targets.paths import no_file, no_folder

FIRM = 5.0
"""Seconds that the supervisor gets to kill everything before it is killed itself."""

LAST_WORDS = 1.0
"""Seconds to read what the target printed before it ended."""

CHUNK = 65_536


class TargetProcess:
    """A running command (`Running`). Make one with `start_process`."""

    image: str | None = None

    def __init__(
        self, supervisor: asyncio.subprocess.Process, pid: int, command: tuple[str, ...], redact: Callable[[str], str]
    ) -> None:
        self.command = command
        self.pid = pid
        self.asked_to_stop = False
        self._supervisor = supervisor
        self._output = Output(redact)
        self.exited = asyncio.create_task(self._wait())

    @property
    def running(self) -> bool:
        """False once the process has ended."""
        return not self.exited.done()

    def tail(self) -> str:
        """The last lines of its output (both streams), with secrets redacted."""
        return self._output.tail()

    def reach(self, address: str) -> str:
        """It runs on this machine."""
        return address

    async def stop(self, patience: float) -> int:
        """SIGTERM to its group, SIGKILL to all its descendants after `patience` seconds; returns the exit code.

        With a `patience` of 0 it is killed without SIGTERM.
        """
        self.asked_to_stop = True
        leash = self._supervisor.stdin
        assert leash is not None
        try:
            with contextlib.suppress(TimeoutError, ConnectionError, RuntimeError):  # uvloop's word for a closed pipe
                if patience:
                    leash.write(b"t")
                    await asyncio.wait_for(asyncio.shield(self.exited), patience)
        finally:
            leash.close()
        try:
            return await asyncio.wait_for(asyncio.shield(self.exited), FIRM)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._supervisor.kill()
            return await self.exited

    async def _wait(self) -> int:
        assert self._supervisor.stdout is not None
        assert self._supervisor.stderr is not None
        reader = asyncio.create_task(self._read(self._supervisor.stdout))
        status = await self._supervisor.stderr.read()
        await self._supervisor.wait()
        with contextlib.suppress(TimeoutError):  # what could not be killed may hold the pipe open without end
            await asyncio.wait_for(reader, LAST_WORDS)
        *said, last = status.decode(errors="replace").splitlines() or [""]
        word, _, code = last.partition(" ")
        if word == "ended":
            return int(code)
        if self.asked_to_stop or not (said or last):  # somebody killed the supervisor, and so the target
            return -signal.SIGKILL
        raise HarnessError("what watches over the target failed:\n" + "\n".join([*said, last]))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(CHUNK):
            self._output.feed(data)


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    """That of a target: ours and `env`. Where there is a proxy, it is not for what the suite serves on loopback."""
    found = {**os.environ, **env}
    if any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") and value for name, value in found.items()):
        for name in ("NO_PROXY", "no_proxy"):
            found[name] = ",".join(filter(None, (found.get(name), "localhost,127.0.0.1,127.0.0.0/8,::1")))
    return found


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
            sys.executable,
            *("-I", "-S", supervisor.__file__),
            program,
            *command[1:],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(env),
            cwd=cwd,
            start_new_session=True,  # Ctrl-C in the terminal is ours to handle
        )
        assert process.stderr is not None
        word, _, number = (await process.stderr.readline()).decode(errors="replace").strip().partition(" ")
        if word == "failed":
            await process.communicate()
            raise OSError(int(number), os.strerror(int(number)))
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise UsageError(f"{command[0]} can't be started: {reason}", hint=_start_hint(problem)) from problem
    if word != "started":
        rest, _ = await process.stderr.read(), await process.wait()
        raise HarnessError(f"what watches over the target failed: {word} {number}\n{rest.decode(errors='replace')}")
    return TargetProcess(process, int(number), tuple(command), redact)


def resolve_program(program: str, cwd: Path | None) -> str:
    """The path of the program, from `cwd` or PATH. Raises `UsageError` if it or `cwd` is missing, or can't be run."""
    if cwd is not None and (missing := no_folder(cwd)):
        raise UsageError(f"start.workdir: {missing}", hint="make it, or correct the path")
    path = Path(program)
    if path.parent == Path() and not program.startswith("./"):
        found = shutil.which(program)
        if found is None:
            raise UsageError(f"the command {program!r} is not on PATH", hint="give a path, such as ./my-epp")
        return found
    path = path if path.is_absolute() else (cwd or Path()) / path
    if missing := no_file(path):
        raise UsageError(missing, hint="build the target first, or correct the path")
    if not os.access(path, os.X_OK):
        raise UsageError(f"{path} may not be run", hint=f"chmod +x {shlex.quote(str(path))}")
    return str(path.absolute())  # not resolved: what a symbolic link is called matters to interpreters


def _start_hint(problem: OSError | ValueError) -> str:
    match getattr(problem, "errno", None):
        case errno.ENOEXEC:
            return "it is neither a program for this machine (other architecture?) nor a script with a #! line"
        case errno.EACCES:
            return "check the permissions of the file, of its #! interpreter and of the folders above it"
        case errno.ENOENT:
            return "if the file exists: its #! interpreter, or the dynamic loader of another C library, is missing"
        case errno.E2BIG:
            return "its arguments and environment are longer than the system allows"
        case _:
            return "check that it runs by hand"
