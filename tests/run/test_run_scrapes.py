"""Waiting for a target: for metrics to be read, bounded where it reads none; for changes of the pool to be followed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from conformance.run.epp.discovery import FixedEndpoints
from conformance.run.epp.pool import UNREAD, PoolController
from conformance.scenario.pool import Load, Pod, Pool, PoolStep
from conformance.targets.profile import Discovery, File, Profile, Timeouts
from ext_proc.record import Event, Wait
from fake_modelserver import Fleet

pytestmark = pytest.mark.program

PROFILE = Profile(name="quiet", discovery=Discovery(file=File()), timeouts=Timeouts(scrape=0.01))


async def probe(subset: object) -> str | None:
    return None


def waits_of(changes: int, *, scraped_after: int | None = None) -> int:
    """How often `changes` changes of a gauge were waited for, if the first scrape comes after so many of them."""
    events: list[Event] = []

    async def run() -> None:
        async with Fleet() as fleet:
            pool = PoolController(fleet, FixedEndpoints(), PROFILE, events.append)
            await pool.reset(Pool())
            pool.probe = probe
            for number in range(changes):
                if number == scraped_after:
                    pool.was_scraped = True
                await pool.load({"a": Load(queue=number + 1)})

    asyncio.run(run())
    return sum(isinstance(event, Wait) and event.what.startswith("two scrapes") for event in events)


def test_a_target_that_reads_no_metrics_is_not_waited_for_again_and_again() -> None:
    assert waits_of(UNREAD + 5) == UNREAD


def test_a_slow_reader_is_waited_for_again_once_it_has_read() -> None:
    assert waits_of(UNREAD + 5, scraped_after=UNREAD + 2) == UNREAD + 3


def test_a_reader_of_metrics_is_always_waited_for() -> None:
    assert waits_of(UNREAD + 5, scraped_after=0) == UNREAD + 5


def test_a_pool_that_changes_for_hours_keeps_no_more_than_asked_of_pods_that_are_gone() -> None:
    async def run() -> None:
        async with Fleet() as fleet:
            pool = PoolController(fleet, FixedEndpoints(), PROFILE, lambda _: None)
            await pool.reset(Pool())
            first = dict(pool.endpoints)
            for number in range(20):
                gone = f"n{number - 1}" if number else "c"
                await pool.change(PoolStep(remove=(gone,), add=(Pod(name=f"n{number}"),)))
            pool.forget_gone({"c"})
            assert set(pool.endpoints) == {*first, "n19"}
            assert pool.endpoints["c"] == first["c"]

    asyncio.run(run())


class Timed(FixedEndpoints):
    """It takes note of how long a change may take."""

    def __init__(self) -> None:
        self.given: list[float] = []

    async def delivered(self, timeout: float) -> bool:
        self.given.append(timeout)
        return True


@pytest.mark.parametrize(("own", "least", "given"), [(5.0, None, 5.0), (5.0, 15.0, 15.0), (30.0, 15.0, 30.0)])
def test_a_change_has_the_time_of_the_profile_or_more(own: float, least: float | None, given: float) -> None:
    channel = Timed()
    profile = PROFILE.model_copy(update={"timeouts": Timeouts(convergence=own)})

    async def run() -> None:
        async with Fleet() as fleet:
            pool = PoolController(fleet, channel, profile, lambda _: None)
            await pool.reset(Pool())
            pool.probe = probe
            await pool.change(PoolStep(remove=("c",), settle=False, convergence=least))

    asyncio.run(run())
    assert channel.given[-1] == given


def test_a_pool_that_was_read_and_is_gone_may_count_as_read() -> None:
    found: list[bool | None] = []

    async def run() -> None:
        async with Fleet() as fleet:
            pool = PoolController(fleet, FixedEndpoints(), PROFILE, lambda _: None)
            for begins in (False, True):
                await pool.change(PoolStep(pool="create", settle=False))
                found.append(pool.synced)
                await pool.change(PoolStep(pool="delete", settle=False))
                if begins:
                    pool.begin()
                found.append(pool.synced)

    asyncio.run(run())
    assert found == [True, None, True, False]


def test_each_worker_behind_a_connection_is_given_the_time_to_follow() -> None:
    """Connections are taken in turn; the second leads to a worker that reads the pool later."""
    asked: list[bool] = []

    async def run() -> None:
        async with Fleet() as fleet:
            pool = PoolController(fleet, FixedEndpoints(), PROFILE, lambda _: None)
            await pool.reset(Pool())
            gone = pool.endpoints["c"][0]

            async def poll(subset: Sequence[str] | None) -> str | None:
                late = len(asked) % 2 == 1 and len(asked) < 12
                asked.append(late)
                return (subset or pool.eligible)[0] if late or not subset or subset[0] in pool.eligible else None

            pool.probe = poll
            await pool.change(PoolStep(remove=("c",)))
            assert gone not in pool.eligible

    asyncio.run(run())
    assert len(asked) > 12
