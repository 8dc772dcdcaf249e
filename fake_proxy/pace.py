"""How fast an exchange may go, and how long it may take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

PATIENCE = 4
"""Deadlines that an exchange may take at most, however much goes on in it."""

_STEP = 0.05
"""Seconds by which a deadline is put off at least, or it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast an exchange may go and how long it may take, in seconds.

    `deadline`: so long may nothing happen. An exchange that goes on (a large body on a slow machine) may take longer,
    but no longer than `PATIENCE` times as long, or than `whole` where that is more; what the EPP has not taken yet it
    can't have answered. `withheld` says how many of the last so many seconds the EPP could have run and got no
    processor, where that is known: they do not count.
    `lock_step`: each piece of response body is sent only when the one before has come back from the EPP, for at most
    `echo_timeout`; the same limit holds for the waits of the request's chunks.
    `ending_timeout`: a stream that was half-closed is reset when the EPP has not ended it after this.
    `hold` is awaited when the first chunk of the request's body has been sent; meanwhile no deadline runs.
    """

    deadline: float = 10.0
    whole: float = 0.0
    lock_step: bool = False
    echo_timeout: float = 1.0
    ending_timeout: float = 1.0
    hold: Callable[[], Awaitable[None]] | None = None
    withheld: Callable[[float], float] = lambda _: 0.0

    def left(self, began: float, progress: float, now: float) -> float:
        """Seconds until the deadline of an exchange in which the last thing happened at `progress`; 0 or less: over."""
        left = progress + self.deadline - now
        more = self.withheld(now - progress) if left <= 0 else 0.0
        left = min(left + more, began + max(PATIENCE * self.deadline, self.whole) - now)
        return 0.0 if more and 0 < left <= _STEP else left

    def waited(self, progress: float, now: float) -> float:
        """Seconds that such an exchange waited in the end: its deadline, or how long it was put off to."""
        return max(self.deadline, round(now - progress, 1))
