"""What a target prints: only its end is kept, however much it is."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from conformance.reading.crash import cause_of

KEPT = 65_536
"""Bytes that are kept, so that a target that floods its log fills neither memory nor a disk."""

LINES = 40
LINE_LENGTH = 2000

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
"""Colours, titles and other orders to a terminal."""


class Output:
    """The last of what one target printed, on both of its streams. May be fed and read from any thread."""

    def __init__(self, redact: Callable[[str], str] = str) -> None:
        self._redact = redact
        self._kept = bytearray()
        self._truncated = False
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """It printed this."""
        with self._lock:
            self._kept += data
            if len(self._kept) > 2 * KEPT:
                del self._kept[:-KEPT]
                self._truncated = True

    def tail(self) -> str:
        """The last lines, readable and without secrets."""
        with self._lock:
            text = bytes(self._kept).decode(errors="replace")
        if self._truncated:  # half a line might hold half a secret, which no one would recognise
            text = text.partition("\n")[2] or text
        text = _ESCAPES.sub("", self._redact(text))
        lines = [line for line in re.split(r"\r\n|\n|\r", text) if line.strip()]
        last, cause = lines[-LINES:], cause_of(lines)
        if cause and cause[0] not in last:  # Go prints every goroutine after it
            last = [*cause, "…", *last[len(cause) + 1 :]]
        return "\n".join(_shown(line) for line in last)


def _shown(line: str) -> str:
    line = "".join(char if char.isprintable() or char == "\t" else "\N{REPLACEMENT CHARACTER}" for char in line)
    return line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]}…"
