"""Whether a target got a processor while it was waited for.

A machine that is busy with other things keeps a target from answering in time, and that says nothing about the target.
Linux counts for each thread how long it ran, and how long it was ready to run and did not
(`/proc/PID/task/TID/schedstat`). Elsewhere, and in containers, nothing is known, and nothing is excused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.run.engine import cores
from conformance.targets.listening import PROC, family

INTERVAL = 0.5
"""Seconds between two looks."""

KEPT = 240
"""Looks that are kept: two minutes."""

_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class _Span:
    """The time between two looks. `ready`: seconds in which its thread that waited longest was ready and did not run;
    `ran`: seconds of processor time of all its threads."""

    begin: float
    end: float
    ready: float
    ran: float

    def part(self, begin: float, end: float) -> float:
        """How much of it is between two times."""
        return max(0.0, min(end, self.end) - max(begin, self.begin)) / (self.end - self.begin)


class ProcessorTime:
    """That of one process and of all that descend from it. Of process 0, as a container's is told, nothing is known."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._spans: deque[_Span] = deque(maxlen=KEPT)
        self._looked = time.monotonic()
        self._threads = dict(self._now())

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            self._look()

    def withheld(self, seconds: float, ago: float) -> float:
        """Of so many seconds, which ended `ago` seconds ago: those in which it could have run and others did.

        0 if it used half of all cores itself: then its threads kept each other waiting.
        """
        self._look()
        end = self._looked - ago
        begin = end - seconds
        parts = [(span, span.part(begin, end)) for span in self._spans]
        if sum(span.ran * part for span, part in parts) >= cores() * seconds / 2:
            return 0.0
        return min(sum(span.ready * part for span, part in parts), seconds)

    def _look(self) -> None:
        before, began = self._threads, self._looked
        self._looked = time.monotonic()
        self._threads = dict(self._now())
        if self._looked > began:
            more = [_more(before.get(thread), now) for thread, now in self._threads.items()]
            ran = sum(seconds for seconds, _ in more)
            self._spans.append(_Span(began, self._looked, max((ready for _, ready in more), default=0.0), ran))

    def _now(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Each thread with the nanoseconds that it ran, and that it was ready and did not."""
        for pid in family(self._pid):
            for thread in _threads(PROC / str(pid) / "task"):
                with contextlib.suppress(OSError, ValueError):
                    ran, ready, _ = (thread / "schedstat").read_text().split()
                    yield str(thread), (int(ran), int(ready))


def _threads(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(folder.iterdir())
    return []


def _more(before: tuple[int, int] | None, now: tuple[int, int]) -> tuple[float, float]:
    """What was added, in seconds."""
    ran, ready = before or (0, 0)
    return (now[0] - ran) / _SECOND, (now[1] - ready) / _SECOND
