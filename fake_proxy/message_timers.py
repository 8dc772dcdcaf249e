"""Envoy's timers for answers, one a direction: in lock-step modes an answer must come within `message_timeout`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from fake_proxy.actions import Side
from fake_proxy.pace import Pace


@dataclass(slots=True)
class _Timer:
    handle: asyncio.TimerHandle
    began: float
    since: float
    seen: int = 0


class MessageTimers:
    """`expired` is called when one runs out, with the seconds that were waited.

    As the deadline of an exchange they are put off by time that the `pace` does not count, and while the EPP's
    connection still takes what it is to answer: `sending` is 0, or a number that changes meanwhile.
    """

    def __init__(self, pace: Pace, sending: Callable[[], int], expired: Callable[[float], None]) -> None:
        self._pace = pace
        self._sending = sending
        self._expired = expired
        self._loop = asyncio.get_running_loop()
        self._running: dict[Side, _Timer] = {}

    def start(self, side: Side, seconds: float) -> None:
        """An answer of this direction is awaited from now on, for so many seconds."""
        self.stop(side)
        now = self._loop.time()
        self._running[side] = _Timer(self._loop.call_later(seconds, self._fire, side, seconds), now, now)

    def stop(self, side: Side) -> None:
        """It came, or is not awaited any more."""
        if (timer := self._running.pop(side, None)) is not None:
            timer.handle.cancel()

    def close(self) -> None:
        """Nothing is awaited any more."""
        for side in tuple(self._running):
            self.stop(side)

    def _fire(self, side: Side, seconds: float) -> None:
        timer, now = self._running[side], self._loop.time()
        if (sending := self._sending()) != timer.seen:
            timer.since, timer.seen = now, sending  # what has not left yet can't be answered
        pace = replace(self._pace, deadline=seconds, whole=0)
        if (left := pace.left(timer.began, timer.since, now)) > 0:
            timer.handle = self._loop.call_later(left, self._fire, side, seconds)
            return
        del self._running[side]
        self._expired(pace.waited(timer.since, now))
