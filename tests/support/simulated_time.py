"""An event loop whose time is simulated: a wait that nothing ends takes no time, and is over exactly when it is due."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class SimulatedTime(asyncio.SelectorEventLoop):
    """Its `time` is `now`, which a test may set forward as a loop that stands still would."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        return self.now


class _Skipping(selectors.DefaultSelector):
    """Where nothing is ready, the time of the loop goes on to the next timer."""

    def __init__(self, loop: SimulatedTime) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self._loop.now += timeout
        return ready


def simulated(main: Callable[[SimulatedTime], Coroutine[Any, Any, T]]) -> T:
    """Run `main` in a loop with simulated time."""
    with asyncio.Runner(loop_factory=SimulatedTime) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedTime)
        return runner.run(main(loop))
