"""A load made by several generators, and its interrupt."""

from __future__ import annotations

import asyncio
import queue
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.evidence.episode import Context, Episode
from conformance.load.examples import Example, KeptExchange
from conformance.load.generators import ShareEnd, ShareReport, Stop
from conformance.load.many import ManyProcesses
from conformance.load.mix import Arrivals, LoadFile, MixedRequest
from conformance.load.settings import LoadSettings
from conformance.load.totals import Totals
from conformance.load.traffic import LoadTally
from conformance.run.engine import LagMeter
from conformance.targets.profile import Discovery, Fixed, Profile
from conformance.verdict import Finding, Verdict

FOUND = Finding(requirement="ENV-16", verdict=Verdict.FAIL)


class Draining:
    """A generator whose last exchanges go on. It says what they showed when it is told to stop."""

    def __init__(self) -> None:
        self._said: queue.Queue[ShareReport] = queue.Queue()

    def send(self, command: object) -> None:
        assert isinstance(command, Stop)
        example = Example(finding=FOUND, episode="x", shape="a", second=1.0)
        kept = KeptExchange(Episode(id="x", entries=()), Context(version="1.0.0", scenario="load"))
        end = ShareEnd(complete=False, examples=[example], shown={"x": kept}, vitals={"neverIdle": 0.5})
        tally = LoadTally.of(3, 2, 0, {("ENV-16", Verdict.FAIL): 2})
        report = ShareReport(
            covered=1.0, totals=Totals(), tally=tally, begun=4, by_shape=Counter(a=3), unfinished=1,
            lost_with_process=0, troubles=(), times={}, end=end,
        )  # fmt: skip
        self._said.put(report)

    def receive(self) -> ShareReport:
        return self._said.get(timeout=30)


def many_processes() -> ManyProcesses:
    file = LoadFile(mix=(MixedRequest(name="a"),), arrivals=(Arrivals(seconds=1, rate=1.0),))
    profile = Profile(discovery=Discovery(fixed=Fixed(endpoints=("127.0.0.1:8000",))))
    settings = LoadSettings(profile=profile, version="1.0.0", values={}, file=file, seed=1, of=3)
    return ManyProcesses(settings, lag=LagMeter(), status=lambda _: None, watch=lambda _: None)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.5, 1.5), st.booleans()), min_size=1))
def test_rates_are_right_whenever_reports_come(steps: list[tuple[int, float, bool]]) -> None:
    run = many_processes()
    run._folder.cleanup()
    covered = dict.fromkeys(range(3), 0.0)
    for index, more, look in [*steps, (0, 1.0, True)]:
        covered[index] += more
        due = round(1000 * covered[index])
        report = ShareReport(
            covered=due / 1000, totals=Totals(due=due), tally=LoadTally.of(due, due, 0, {}), begun=due,
            by_shape=Counter(), unfinished=0, lost_with_process=0, troubles=(), times={},
        )  # fmt: skip
        run._take(index, report)
        if look:
            run._take_stock()
    rates = [rate for one in run.course.stretches for rate in one.plain()["perSecond"].values()]
    assert rates
    assert rates == pytest.approx([3000] * len(rates), abs=0.1)
    assert sum(one.due for one in run.course.stretches) == run.totals.due
    before = len(run.course.stretches)
    run._take_stock()
    assert len(run.course.stretches) == before  # nothing has come since


def test_an_interrupt_while_the_last_exchanges_end_loses_nothing_that_was_seen() -> None:
    async def interrupted() -> ManyProcesses:
        run = many_processes()
        run.complete = True
        run._links = [Draining(), Draining()]
        with run._folder, ThreadPoolExecutor(2) as threads:
            run._readers = [asyncio.create_task(run._read(index, threads)) for index in range(2)]
            ending = asyncio.create_task(run._end())
            await asyncio.sleep(0)  # it waits now
            ending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ending
        return run

    run = asyncio.run(interrupted())
    assert (run.complete, run.begun, run.unfinished, run.tally.exchanges) == (False, 8, 2, 6)
    assert run.tally.counts == {("ENV-16", Verdict.FAIL): 4}
    assert [one.finding for one in run.examples.all] == [FOUND, FOUND]
    assert run.generators == [{"neverIdle": 0.5}] * 2
