"""When what recurs has its turn: at the same moments for everything, as waking up costs a process more than its turn.

Four things that recur every 50 ms, each at another moment, wake a process up 80 times a second and not 20.
"""

from __future__ import annotations

import asyncio
import time

TICK = 0.05
"""Seconds between two moments."""


async def until_turn(last: float, interval: float) -> None:
    """Sleep until the moment nearest to `interval` seconds after `last`, a time of `time.monotonic`."""
    tick = min(TICK, interval)
    await asyncio.sleep(max(round((last + interval) / tick) * tick - time.monotonic(), 0))
