"""Exchanges that wait for each other, so that they are open at the target together and not at our end only."""

from __future__ import annotations

import asyncio
import contextlib


class Meeting:
    """Holds `size` exchanges after their first chunk. The last goes through first; when it is over, all go on.

    What a target was sent it need not have read: sent in turn, a hundred streams may be dealt with one by one. A whole
    exchange that came after all the others' beginnings was answered after the target had them. Nobody waits longer than
    `timeout` seconds: a target may open fewer streams.
    """

    def __init__(self, size: int, timeout: float) -> None:
        self._size = size
        self._timeout = timeout
        self._waiting = self._over = 0
        self._all_go_on = asyncio.Event()

    async def hold(self) -> None:
        """An exchange has sent its first chunk: wait, unless it is the last."""
        if self._waiting + self._over + 1 >= self._size:
            return
        self._waiting += 1
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timeout):
                await self._all_go_on.wait()

    def leave(self) -> None:
        """An exchange is over."""
        self._over += 1
        if self._waiting + self._over >= self._size:
            self._all_go_on.set()
