"""Standard output and error as the command line needs them: a reader who goes away ends nothing, and no line of a
console is an order to a CI system."""

from __future__ import annotations

import codecs
import io
import os
import sys
from pathlib import Path
from typing import Any, TextIO

from conformance.printable import without_orders

_ONE_FOR_ONE = zip("✓✗–○§·×▶◀“”", '+x-oS|x><""', strict=True)
SIGNS = {**dict(_ONE_FOR_ONE), "‼": "!!", "≠": "!=", "→": "->", "…": "..."}
"""What stands for the suite's signs where an encoding lacks them, as ASCII does."""


def _plainer(problem: UnicodeError) -> tuple[str, int]:
    assert isinstance(problem, UnicodeEncodeError)
    lacking = problem.object[problem.start : problem.end]
    return "".join(SIGNS.get(one, "?") for one in lacking), problem.end


codecs.register_error("epp-conformance.plainer", _plainer)


def prepare() -> None:
    """Make both last: one that its reader leaves, as `epp-conformance … | head` does, takes what comes after without an
    error, so that the exit code still says what came out. One that was closed from the start likewise."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        elif isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, _Lasting(stream))


def reader_is_gone(stream: TextIO) -> None:
    """The reader of `stream` is gone: from here on it leads to the null device, so that printing does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


class _Lasting(io.TextIOWrapper):
    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            stream.encoding,
            "epp-conformance.plainer",  # not every terminal knows every letter
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            reader_is_gone(self)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            reader_is_gone(self)


class Log:
    """Standard output or error, whichever stream that is at the time, for what a target said: its lines may be wrapped
    at places that it has chosen, and none of them is an order to a CI system."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> int:
        """Write it, with orders escaped."""
        written: int = getattr(sys, self._name).write(without_orders(text))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(sys, self._name), name)
