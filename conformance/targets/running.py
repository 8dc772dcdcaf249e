"""What a target that the suite started looks like to the rest of the suite, whether it is a process or a container."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import Protocol

from conformance.errors import TargetUnreachableError
from conformance.printable import quoted
from conformance.reading.crash import cause_of

_PORT_TAKEN = re.compile(
    r"address (?:is )?already in use|EADDRINUSE|failed to bind to address|port is already allocated|"
    r"is taken by another socket",
    re.IGNORECASE,
)


class Running(Protocol):
    """A target that was started."""

    command: tuple[str, ...]
    """What was run, for people."""
    pid: int
    """Its process id on this machine; 0 where it has none here."""
    image: str | None
    """The digest of its image; None for a process."""
    asked_to_stop: bool
    exited: asyncio.Task[int]
    """Ends as soon as the target has ended, with its exit code (negative: the signal). Raises `HarnessError` if what
    ran it went away."""

    @property
    def running(self) -> bool:
        """False once it has ended."""

    def tail(self) -> str:
        """The last lines of its output, with secrets redacted."""

    def reach(self, address: str) -> str:
        """Where the suite reaches what listens on `address`, as the target has it."""

    async def stop(self, patience: float) -> int:
        """Ask it to end, end it by force after `patience` seconds; its exit code. Nothing of it is left.

        With a `patience` of 0 it is not asked.
        """


def port_was_taken(target: Running) -> bool:
    """Whether it ended because somebody else listens on its port, by what it said."""
    return not target.running and bool(_PORT_TAKEN.search(target.tail()))


async def exited_early(target: Running) -> TargetUnreachableError:
    """The error for a target that ended before it was ready."""
    code = await target.exited
    ended = f"was ended by signal {-code}" if code < 0 else f"exited with {code}"
    tail = target.tail()
    hint = "run it by hand; `epp-conformance profile check` explains start-up problems"
    if code == 0:
        hint = "it must stay in the foreground: what it leaves behind in the background is ended with it"
    cause = " ".join(cause_of(tail.splitlines()))
    return TargetUnreachableError(
        f"the target {ended} before it was ready{f', with {cause!r}' if cause else ''}: {shlex.join(target.command)}\n"
        + (f"its last output:\n{quoted(tail)}" if tail else "it printed nothing"),
        hint=hint,
    )
