"""Whether the process that makes requests had time to spare: one that has none measures itself.

In a closed loop each request begins when it can, so none is ever late; but its answer may have been there for long
before a process that is always at work looks at it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

FULL = 0.9
"""The share of a time at work from which on there was none to spare. A thread that always had work was at it for 0.949
to 1 of each second: now and then it waits for a disk, for a lock, or for the host of a virtual machine."""

_SECOND = 1e9


class Idleness:
    """Looks at the thread that calls it, which is to be the one that makes the requests."""

    def __init__(self) -> None:
        self._looked = time.monotonic()
        self._worked = _worked()
        self._done = self._in_full = 0

    def look(self, done: int) -> None:
        """So many exchanges were judged since the last look."""
        before, self._looked = self._looked, time.monotonic()
        worked, self._worked = self._worked, _worked()
        self._done += done
        if self._worked - worked >= FULL * (self._looked - before):
            self._in_full += done

    def summary(self) -> Mapping[str, float]:
        """`neverIdle`: the share of exchanges that were judged while there was no time to spare."""
        return {"neverIdle": round(self._in_full / self._done, 4) if self._done else 0.0}


def _worked() -> float:
    """Seconds in which this thread ran, or could have run and others did: it was not idle then. Only Linux tells."""
    with contextlib.suppress(OSError, ValueError):
        ran, ready, _ = Path("/proc/thread-self/schedstat").read_text().split()
        return (int(ran) + int(ready)) / _SECOND
    return time.thread_time()
