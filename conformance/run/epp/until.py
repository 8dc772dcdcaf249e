"""Asking a target again and again until it follows what was changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

POLL_INTERVAL = 0.02
ENOUGH_POLLS = 25
"""So many that are answered as before the change show that it is not followed."""


async def until(condition: Callable[[], Awaitable[bool]], deadline: float) -> bool:
    """Whether it came true before loop time `deadline`. A target that stood still meanwhile, and answered few polls,
    gets more."""
    loop = asyncio.get_running_loop()
    polls = 0
    while not await condition():
        polls += 1
        if polls >= ENOUGH_POLLS and loop.time() > deadline:
            return False
        await asyncio.sleep(POLL_INTERVAL)
    return True
