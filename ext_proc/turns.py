"""How much of what a peer sends is read in one turn of the event loop.

What has arrived is read without waiting. A peer that sends thousands of tiny pieces would keep all others waiting,
deadlines included, and the suite would find its own loop late.
"""

from __future__ import annotations

import asyncio

PIECES = 100
"""Pieces, or heads, that are read in a turn."""


class Turns:
    """Counts what one peer sends."""

    def __init__(self) -> None:
        self._left = PIECES

    async def taken(self) -> None:
        """A piece was read: lets others have their turn, now and then."""
        self._left -= 1
        if not self._left:
            self._left = PIECES
            await asyncio.sleep(0)
