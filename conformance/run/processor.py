"""Whether a target got a processor while it was waited for.

A machine that is busy with other things keeps a target from answering in time, and that says nothing about the target.
Linux counts for each thread how long it ran, and how long it was ready to run and did not
(`/proc/PID/task/TID/schedstat`). Elsewhere, and in containers, nothing is known, and nothing is excused.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.run.engine import cores
from conformance.targets.listening import family, threads

INTERVAL = 0.5
"""Seconds between two looks."""

_FRESH = 0.02
"""Seconds in which no second look is taken: under load, thousands of waits run out at once."""

KEPT = 120.0
"""Seconds for which looks are kept."""

STARVED = 0.5
"""A target that got no processor for more than this part of a wait is not accused of it."""

_TOLD = 0.05
"""Seconds of standstills that are told of."""

_SECOND = 1e9


def starved(withheld: float, seconds: float, what: str, *, ours: float = 0.0) -> str:
    """Why a wait of so many seconds for `what`, which ran out, is not held against the target; "" if it is.

    In `ours` of them the suite's own event loop stood still, maybe in the same.
    """
    if not withheld or withheld + ours <= STARVED * seconds:
        return ""
    waited = f"{withheld:.1f} of the {seconds:.1f} s in which it was waited for ({what})"
    also = f", and the suite's own event loop stood still for {ours:.1f} s" if ours >= _TOLD else ""
    return f"the target got no processor for {waited}{also}: this machine is too busy"


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
        self._spans: deque[_Span] = deque()
        self._looked = time.monotonic()
        self._threads = dict(self._now())

    async def watch(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.look()

    def withheld(self, seconds: float, ago: float) -> float:
        """Of so many seconds, which ended `ago` seconds ago: those in which it could have run and others did.

        0 if it used half of all cores itself: then its threads kept each other waiting.
        """
        if time.monotonic() - self._looked > _FRESH:
            self.look()
        end = self._looked - ago
        begin = end - seconds
        since = itertools.takewhile(lambda span: span.end > begin, reversed(self._spans))
        parts = [(span, span.part(begin, end)) for span in since]
        if sum(span.ran * part for span, part in parts) >= cores() * seconds / 2:
            return 0.0
        return min(sum(span.ready * part for span, part in parts), seconds)

    def look(self) -> None:
        """See how long each thread ran and waited since the last look."""
        before, began = self._threads, self._looked
        self._looked = time.monotonic()
        self._threads = dict(self._now())
        if self._looked > began:
            more = [_more(before.get(thread), now) for thread, now in self._threads.items()]
            ran = sum(seconds for seconds, _ in more)
            self._spans.append(_Span(began, self._looked, max((ready for _, ready in more), default=0.0), ran))
        while self._spans and self._spans[0].end < self._looked - KEPT:
            self._spans.popleft()

    def _now(self) -> Iterator[tuple[str, tuple[int, int]]]:
        """Each thread with the nanoseconds that it ran, and that it was ready and did not."""
        for pid in family(self._pid):
            for thread in threads(pid):
                with contextlib.suppress(OSError, ValueError):
                    ran, ready, _ = (thread / "schedstat").read_text().split()
                    yield str(thread), (int(ran), int(ready))


def _more(before: tuple[int, int] | None, now: tuple[int, int]) -> tuple[float, float]:
    """What was added, in seconds."""
    ran, ready = before or (0, 0)
    return (now[0] - ran) / _SECOND, (now[1] - ready) / _SECOND
