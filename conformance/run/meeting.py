"""Exchanges that wait for each other, so that they are open at the target together and not at our end only."""

from __future__ import annotations

import asyncio

APART = 1.5
"""Seconds after which nobody else is expected: all come as fast as we send, unless the target keeps them waiting."""


class Meeting:
    """Holds `size` exchanges after their first chunk. The last goes through first; when it is over, all go on.

    What a target was sent it need not have read: sent in turn, a hundred streams may be dealt with one by one. A whole
    exchange that came after all the others' beginnings was answered after the target had them. A target may open fewer
    streams: where nobody comes for `apart` seconds, all go on. Made in a running loop; `with meeting:` around each.
    """

    def __init__(self, size: int, apart: float = APART) -> None:
        self._size = size
        self._apart = apart
        self._waiting = self._over = 0
        self._all_go_on = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(apart, self._all_go_on.set)

    async def hold(self) -> None:
        """An exchange has sent its first chunk: wait, unless it is the last."""
        self._timer.cancel()
        if self._waiting + self._over + 1 >= self._size:
            return
        self._timer = self._loop.call_later(self._apart, self._all_go_on.set)
        self._waiting += 1
        await self._all_go_on.wait()

    def __enter__(self) -> None:
        """An exchange begins."""

    def __exit__(self, *_: object) -> None:
        """It is over."""
        self._over += 1
        if self._waiting + self._over >= self._size:
            self._timer.cancel()
            self._all_go_on.set()
