"""The deadline of an exchange: put off by what the EPP lacked of a processor, and never without end."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fake_proxy.message_timers import MessageTimers
from fake_proxy.pace import PATIENCE, Pace

SECONDS = st.floats(0, 60)


@given(st.floats(0.1, 20), SECONDS, SECONDS, st.floats(0, 1))
@example(12.557671588525574, 4.0, 12.557671588525574, 1.0)  # rounded, it was quiet for less than the deadline
def test_time_without_a_processor_does_not_count(deadline: float, busy: float, quiet: float, share: float) -> None:
    now = busy + quiet
    plain = Pace(deadline=deadline).left(0, busy, now)
    left = Pace(deadline=deadline, withheld=lambda seconds: seconds * share).left(0, busy, now)
    assert plain == pytest.approx(min(deadline - quiet, PATIENCE * deadline - now))
    assert plain <= left + 1e-9
    assert left <= max(plain + share * quiet, 0) + 1e-9
    assert left <= max(PATIENCE * deadline - now, 0) + 1e-9
    if quiet * (1 - share) < deadline - 0.1 and now < PATIENCE * deadline - 0.1:
        assert left > 0


async def test_a_message_timer_is_put_off_by_its_own_time_and_not_by_that_of_the_exchange() -> None:
    """What is to be answered leaves without end, piece by piece."""

    over: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    timers = MessageTimers(Pace(whole=3600), itertools.count(1).__next__, over.set_result)
    timers.start("request", 0.05)
    assert await asyncio.wait_for(over, 60)
