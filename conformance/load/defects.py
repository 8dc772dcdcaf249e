"""A defect of our own ends a load: no exchange since then is the target's (see `conformance.run.defects`)."""

from __future__ import annotations

import asyncio
from typing import Any

from conformance.run.defects import defect_of


class Defects:
    """The first defect of the running loop's callbacks, between `watch` and `leave`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._before = self._loop.get_exception_handler()
        self._first: BaseException | None = None

    def watch(self) -> None:
        """Look out for defects from now on."""
        self._loop.set_exception_handler(self._heed)

    def leave(self) -> None:
        """Look out no more."""
        self._loop.set_exception_handler(self._before)

    def check(self) -> None:
        """Raise the first defect, if there was one."""
        if self._first is not None:
            raise self._first

    def ended(self, task: asyncio.Task[None]) -> None:
        """A task is over that nobody waits for."""
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._first = self._first or problem

    def _heed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """What the loop tells of."""
        if (problem := defect_of(context)) is not None:
            self._first = self._first or problem  # it is raised: no need to tell of it for every connection
        elif self._before is not None:
            self._before(loop, context)
        else:
            loop.default_exception_handler(context)
