"""The suite's own errors. What a target does wrong is a verdict, never one of these.

    ConformanceError                  everything the suite raises on purpose
    ├── UsageError                    exit 2: what the user asked for, or a file of theirs, is wrong
    │   ├── UnknownNameError          an id, a fault, a profile… that does not exist; offers the nearest
    │   └── FileError                 (conformance.strict_yaml) problems in a YAML file, each with file:line:column
    ├── HarnessError                  exit 3: the suite itself, or the machine, is in trouble
    └── IncompleteError               exit 4: no full verdict could be reached
        ├── TargetUnreachableError    the system under test does not start, listen or speak
        └── GateFailedError           the first plain request got no endpoint

Every error says what went wrong (its message), has a stable `code` for machines, and a `hint`: what to do next.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import ClassVar


class ConformanceError(Exception):
    """Root of the tree. `code` is stable, `exit_code` is what the command line ends with, `hint` is the next step."""

    code: ClassVar[str] = "conformance"
    exit_code: ClassVar[int] = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(ConformanceError):
    """What the user asked for can't be done: a flag, a name or a file is wrong."""

    code = "usage"
    exit_code = 2


class UnknownNameError(UsageError):
    """A name that does not exist. `what` is the kind of thing ("requirement"), `known` are the names there are."""

    code = "usage.unknown-name"

    def __init__(self, what: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        self.what = what
        self.name = name
        super().__init__(f"there is no {what} {name!r}", hint=hint or did_you_mean(name, known))


class HarnessError(ConformanceError):
    """The suite or the machine it runs on is in trouble; the target is not to blame."""

    code = "harness"
    exit_code = 3


class IncompleteError(ConformanceError):
    """The run could not reach a full verdict."""

    code = "incomplete"
    exit_code = 4


class TargetUnreachableError(IncompleteError):
    """The system under test does not start, does not listen, or does not speak gRPC."""

    code = "incomplete.unreachable"


class GateFailedError(IncompleteError):
    """The first plain request got no endpoint, so that every other scenario would fail for the same reason."""

    code = "incomplete.gate"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name closest to `name`, ignoring case and leading zeros of numbers; None if none is close."""
    by_folded = {_folded(candidate): candidate for candidate in sorted(known, reverse=True)}
    found = difflib.get_close_matches(_folded(name), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def _folded(name: str) -> str:
    return re.sub(r"\b0+(?=[0-9])", "", name.casefold())


def did_you_mean(name: str, known: Iterable[str], *, limit: int = 12) -> str:
    """A hint: the nearest of `known`, else the first `limit` of them, else nothing."""
    names = list(dict.fromkeys(map(str, known)))  # members of a StrEnum, too
    if best := nearest(name, names):
        return f"did you mean {best!r}?"
    if not names:
        return ""
    more = f", … ({len(names)} in all)" if len(names) > limit else ""
    return f"known: {', '.join(sorted(names)[:limit])}{more}"
