"""What recurs has its turn at the same moments, so that a process wakes up once for all of it."""

from __future__ import annotations

import contextlib
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from reference_epp import ticks
from reference_epp.ticks import TICK, until_turn

TIMES = st.integers(0, 10**9).map(lambda number: number / 1000)


def turn(last: float, interval: float, now: float) -> float:
    """The moment of the turn that is waited for at `now`."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    with (
        mock.patch.object(ticks.asyncio, "sleep", sleep),
        mock.patch.object(ticks.time, "monotonic", return_value=now),
        contextlib.closing(until_turn(last, interval)) as waiting,
        contextlib.suppress(StopIteration),
    ):
        waiting.send(None)
    [seconds] = waited
    assert seconds >= 0
    return now + seconds


@given(last=TIMES, interval=st.integers(1, 5000).map(lambda number: number / 1000), took=st.floats(0, 10))
def test_a_turn_comes_near_its_interval_and_at_the_moments_of_all_others(last, interval, took) -> None:
    now, tick = last + took, min(TICK, interval)
    found = turn(last, interval, now)
    if found > now:  # else its moment has passed
        assert abs(found - (last + interval)) <= tick / 2 + 1e-6
        assert abs(found / tick - round(found / tick)) * tick < 1e-5
