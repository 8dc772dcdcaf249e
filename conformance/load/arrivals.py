"""When requests begin. Open loop: on a schedule that nothing delays; closed loop: the next when one is over."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence

from conformance.load.mix import Arrivals

Begin = Callable[[float], bool]
"""Begin a request that is due at this monotonic time; False if too many are under way for it to begin."""

_OVERDUE = 1.0
"""Seconds after the end of a stage in which what was due in it may still begin. Where more is due than can begin, the
load would take many times its time, and say less with each second."""

_TICK = 0.001
_AT_ONCE = 256
"""Requests begun between two looks at what came back."""


class Schedule:
    """Begins requests as `stages` say, one after the other. `stage` is the number of the one that runs, from 1.

    Where `of` schedules share the requests, this one begins every request whose number leaves `index` when divided.
    """

    def __init__(
        self,
        stages: Sequence[Arrivals],
        begin: Begin,
        *,
        index: int = 0,
        of: int = 1,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stages = stages
        self._begin = begin
        self._now = now
        self._index = index
        self._of = of
        self._loop = asyncio.get_running_loop()
        self._closed_since = math.inf
        """When the closed loop that goes on began; infinite: none does."""
        self._missing = 0
        """How many requests it has too few, as they could not begin."""
        self.stage = 0
        self.due = 0
        """How many were due."""
        self.crowded_out = 0
        """How many of them could not begin, as too many were under way."""
        self.left_out = 0
        """How many could not, as their stage was over: this machine is too slow."""

    async def run(self) -> None:
        """Until the last stage is over. What is under way then goes on."""
        start = self._now()
        for number, stage in enumerate(self._stages, 1):
            self.stage = number
            if stage.concurrent is not None:
                await self._keep(self._share(stage.concurrent), start + stage.seconds)
            elif stage.burst is not None:
                await self._bursts(self._share(stage.burst), stage.every, start, stage.seconds)
            else:
                assert stage.rate is not None
                first, last = stage.rate if isinstance(stage.rate, tuple) else (stage.rate, stage.rate)
                await self._at_rate(first, last, start, stage.seconds)
            start += stage.seconds

    def over(self, due: float) -> None:
        """The request that was due at `due` is over. In a closed loop that began it, the next begins."""
        own = due >= self._closed_since
        if own or self._missing:
            self._missing -= not own
            # not from within: one that is over at once would begin the next, and so on
            self._loop.call_soon(self._next, self._closed_since)

    def _next(self, since: float) -> None:
        if since == self._closed_since:
            self._missing += not self._one(self._now())

    def _one(self, due: float) -> bool:
        begun = self._begin(due)
        self.due += 1
        self.crowded_out += not begun
        return begun

    def _leave(self, number: int) -> None:
        """So many do not begin, as their stage is over."""
        self.due += number
        self.left_out += number

    def _share(self, number: int) -> int:
        return len(range(self._index, number, self._of))

    async def _keep(self, number: int, end: float) -> None:
        self._closed_since = self._now()
        try:
            for _ in range(number):
                self._missing += not self._one(self._now())
            await asyncio.sleep(max(0.0, end - self._now()))
        finally:
            self._closed_since, self._missing = math.inf, 0

    async def _bursts(self, number: int, every: float, start: float, seconds: float) -> None:
        turns = max(1, math.ceil(seconds / every - 1e-9))
        for turn in range(turns):
            due = start + turn * every
            await asyncio.sleep(max(0.0, due - self._now()))
            if self._now() - start > seconds + _OVERDUE:
                self._leave((turns - turn) * number)
                return
            for _ in range(number):
                self._one(due)
        await asyncio.sleep(max(0.0, start + seconds - self._now()))

    async def _at_rate(self, first: float, last: float, start: float, seconds: float) -> None:
        number, total = self._index, int((first + last) / 2 * seconds + 1e-6)
        while number < total:
            passed = self._now() - start
            if passed > seconds + _OVERDUE:
                self._leave(len(range(number, total, self._of)))
                return
            due = total if passed >= seconds else min(total, int(_until(passed, first, last, seconds)) + 1)
            numbers = range(number, due, self._of)[:_AT_ONCE]
            for one in numbers:
                self._one(start + _when(one, first, last, seconds))
            number += len(numbers) * self._of
            await asyncio.sleep(0 if number < due else _TICK)
        await asyncio.sleep(max(0.0, start + seconds - self._now()))


def _until(passed: float, first: float, last: float, seconds: float) -> float:
    """How many requests are due after `passed` seconds."""
    return first * passed + (last - first) * passed * passed / (2 * seconds)


def _when(number: int, first: float, last: float, seconds: float) -> float:
    """Seconds after which request `number`, from 0, is due: where `_until` is `number`."""
    rate = math.sqrt(max(0.0, first * first + 2 * (last - first) / seconds * number))  # that is reached then
    return 2 * number / (first + rate) if number else 0.0


async def first_of(arriving: asyncio.Task[None], *beside: asyncio.Task[None]) -> None:
    """Wait for the arrivals to end, or the target; a task beside that broke breaks the run."""
    watching, *_ = beside
    waited = {arriving, *beside}
    while not arriving.done() and not watching.done():
        done, waited = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


async def cancelled(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel `tasks`, and wait until they have ended, however."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
