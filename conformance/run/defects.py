"""What breaks in our own code where no caller takes the error: in callbacks of the event loop, and in tasks beside.

The loop prints it and goes on. It closes a connection in whose callback something was raised, and our EPP or model
server answers with an error: both would seem to be the target's doing.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections import deque
from typing import Any

_KEPT = 100
"""How many are remembered."""


_SHORT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
"""What a process can be short of, such as file descriptors: then nothing can connect to it, for one thing."""


def defect_of(context: dict[str, Any]) -> BaseException | None:
    """The defect among what a loop tells of. Other errors of sockets are the world's; those of tasks reach who waits
    for them."""
    problem = context.get("exception")
    ours = problem is not None and (not isinstance(problem, OSError) or problem.errno in _SHORT_OF)
    return problem if ours and not context.keys() & {"future", "asyncgen"} else None


class DefectWatch:
    """The handler of a loop's exceptions that remembers the defects among them."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, BaseException]] = deque(maxlen=_KEPT)

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if (problem := defect_of(context)) is not None:
            self._seen.append((time.monotonic(), problem))
        loop.default_exception_handler(context)

    def since(self, begin: float) -> str:
        """The first defect since the monotonic time `begin`, in words; empty if there was none."""
        found = next((problem for when, problem in self._seen if when >= begin), None)
        return "" if found is None else f"a callback of the suite failed: {type(found).__name__}: {found}"


def defect_since(begin: float) -> str:
    """`DefectWatch.since` of the running loop, where it has such a handler."""
    handler = asyncio.get_running_loop().get_exception_handler()
    return handler.since(begin) if isinstance(handler, DefectWatch) else ""
