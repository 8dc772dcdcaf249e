"""What mutated source calls. One place of a program is mutated at a time, so each of them has one state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

DELAY = 20.0
"""Seconds by which `late` is late: longer than any answer is waited for."""

PERIOD = 7
"""Every so many values of `stale` are the one before."""

_first: list[Any] = []
_count = 0
_before: Any = None


def shared(value: Any) -> Any:
    """The first `value` that was ever given."""
    if not _first:
        _first.append(value)
    return _first[0]


def stale(value: Any) -> Any:
    """`value`; every seventh time, the one that was given before it."""
    global _count, _before
    _count += 1
    given = _before if _count % PERIOD == 0 else value
    _before = value
    return given


async def late(awaited: Awaitable[Any]) -> Any:
    """What `awaited` gives, which is asked for much later."""
    await asyncio.sleep(DELAY)
    return await awaited


NAMES = {"_shared": shared, "_stale": stale, "_late": late}
"""As mutated source knows them."""
