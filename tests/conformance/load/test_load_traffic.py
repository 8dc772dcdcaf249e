"""A deadline that runs out is held against the target only where the machine had time for its answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.load.traffic import Traffic

DEADLINE = 10.0


class Finished(SimpleNamespace):
    """What is over; it is kept in a set, as exchanges are."""

    __hash__ = object.__hash__


@pytest.mark.parametrize(
    ("late", "other", "excused"),
    [
        (0.02, None, False),
        (0.02, 9.0, False),  # slow answers alone are the target's
        (0.5, None, False),
        (0.5, 2.0, False),
        (0.5, 9.0, True),
        (1.5, None, True),
    ],
)
def test_a_deadline_on_an_overloaded_machine(late: float, other: float | None, excused: bool) -> None:
    """`late`: seconds that our loop was late; `other`: seconds that the answer to another request took meanwhile."""

    async def main() -> str:
        ignore: Any = lambda *_: None  # noqa: E731
        memory: Any = SimpleNamespace(ids=())
        channel: Any = SimpleNamespace(headers=ignore)
        traffic = Traffic(
            lambda: channel, memory, ignore, deadline=DEADLINE, lag=lambda _: late, finished=ignore, corrected=ignore
        )
        silent: Any = SimpleNamespace(progress=100.0, trouble="")
        if other is not None:
            answered: Any = Finished(started=100.0, decided=100.0 + other)
            traffic.done(answered)
        traffic.expired(silent)
        return str(silent.trouble)

    assert bool(asyncio.run(main())) is excused
