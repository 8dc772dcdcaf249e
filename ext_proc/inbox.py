"""What the other side of a stream did, in order, for one reader: a listener at once, or a queue for `await`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ext_proc.record import HalfClosed, Malformed, Message, StreamEnded

Received = Message | Malformed | HalfClosed | StreamEnded
"""What can arrive. `Malformed` and `HalfClosed` are followed by no further message, `StreamEnded` by nothing at all."""

Listener = Callable[[Received], None]


def _nobody(_: Received) -> None:
    """The listener of a stream that has ended: connections know their streams long after that, for what comes late."""


class Inbox:
    """Hands each event to the listener if there is one, else keeps it for one reader, without limit."""

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener
        self._kept: deque[Received] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._over = False

    def put(self, event: Received) -> None:
        """An event arrived."""
        if self._listener is not None:
            listener = self._listener
            if isinstance(event, StreamEnded):
                self._listener = _nobody
            listener(event)
            return
        self._kept.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def keep(self, end: StreamEnded) -> None:
        """The owner's own doing, which a listener need not be told, but a reader must find."""
        if self._listener is None:
            self.put(end)
        else:
            self._listener = _nobody

    async def next(self) -> Received | None:
        """The next event; None once `StreamEnded` was read."""
        if not await self._some():
            return None
        event = self._kept.popleft()
        self._over = isinstance(event, StreamEnded)
        return event

    async def message(self) -> bytes | None:
        """The next message; None if there will be no more. The event that says so is not taken from the inbox."""
        if not await self._some() or not isinstance(event := self._kept[0], Message):
            return None
        self._kept.popleft()
        return event.raw

    async def _some(self) -> bool:
        """Wait until something is kept; False if the end was read."""
        while not self._kept and not self._over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return bool(self._kept)
