"""Exchanges that wait for each other, so that they are open at the target together and not at our end only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator

from conformance.planning.data_plane import APART


class Barrier:
    """Holds `size` exchanges after their first chunk. The last `scouts` go through first; then all others go on.

    What a target was sent it need not have read: sent in turn, a hundred streams may be dealt with one by one. A whole
    exchange that came after the others' beginnings was answered after the target had them; those that came on its own
    connection, so there is to be a scout on each. A target may open fewer streams: where no one comes for `apart`
    seconds, all go on. Made in a running loop.
    """

    def __init__(self, size: int, scouts: int = 1, apart: float = APART) -> None:
        self._absent = size
        """How many are still to come."""
        self._scouts = max(1, min(scouts, size // 2))
        self._abroad = 0
        """How many came, were not held, and are not over."""
        self._all_go_on = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._half = apart / 2
        self._timer = self._loop.call_later(self._half, self._expect_no_longer)

    @contextlib.contextmanager
    def place(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """One exchange, from its beginning to its end. What it gives is awaited after the first chunk."""
        came = False

        async def hold() -> None:
            nonlocal came
            came = True
            await self._come()

        try:
            yield hold
        finally:
            if came:
                self._abroad -= 1
            else:
                self._absent -= 1
            if self._absent <= 0 and self._abroad <= 0:
                self._go_on()

    async def _come(self) -> None:
        self._absent -= 1
        self._timer.cancel()
        if self._absent > 0:
            self._timer = self._loop.call_later(self._half, self._expect_no_longer)
        if self._absent >= self._scouts:
            await self._all_go_on.wait()
        self._abroad += 1

    def _expect_no_longer(self) -> None:
        """Half the time is over. The other half is for whom our own process kept waiting: it may have stood still."""
        self._timer = self._loop.call_later(self._half, self._go_on)

    def _go_on(self) -> None:
        self._timer.cancel()
        self._all_go_on.set()
