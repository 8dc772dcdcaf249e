"""How much a target may be asked: so many exchanges at a time, so many a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from conformance.targets.profile import Limits

LONG = 2.0
"""Seconds between requests at which people wonder what is waited for."""


class Throttle:
    """`async with throttle:` around each exchange. `status` gets in words that a low rate makes one wait."""

    def __init__(self, limits: Limits, status: Callable[[str], None]) -> None:
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._interval = 1 / limits.rate if limits.rate else 0.0
        self._next = 0.0
        self._status = status

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        if not self._interval:
            return
        now = asyncio.get_running_loop().time()
        due = max(now, self._next)
        self._next = due + self._interval
        if due > now and self._interval > LONG:
            self._status(f"waiting: limits.rate lets one request through every {self._interval:.10g} s")
        try:
            await asyncio.sleep(due - now)
        except BaseException:
            self._slots.release()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.release()
