"""Steps of an exchange that the event loop or a connection calls, where no caller takes what they raise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar


class Answerable(Protocol):
    """Who raises a defect of the harness again, where somebody waits for it."""

    def defect(self, problem: Exception) -> None:
        """The harness failed."""


P = ParamSpec("P")
S = TypeVar("S", bound=Answerable)


def callback(step: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """A method that tells of an exception as a defect of its object: it ends one exchange, and no connection."""

    @functools.wraps(step)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            step(self, *args, **kwargs)
        except Exception as problem:  # noqa: BLE001 - raised again where the exchange is awaited
            self.defect(problem)

    return guarded
