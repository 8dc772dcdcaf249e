"""A load made by several generators, and its interrupt."""

from __future__ import annotations

import asyncio
import queue
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

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
            totals=Totals(), tally=tally, begun=4, by_shape=Counter(a=3), unfinished=1, lost_with_process=0,
            troubles=(), times={}, end=end,
        )  # fmt: skip
        self._said.put(report)

    def receive(self) -> ShareReport:
        return self._said.get(timeout=30)


def test_an_interrupt_while_the_last_exchanges_end_loses_nothing_that_was_seen() -> None:
    file = LoadFile(mix=(MixedRequest(name="a"),), arrivals=(Arrivals(seconds=1, rate=1.0),))
    profile = Profile(discovery=Discovery(fixed=Fixed(endpoints=("127.0.0.1:8000",))))
    settings = LoadSettings(profile=profile, version="1.0.0", values={}, file=file, seed=1)

    async def interrupted() -> ManyProcesses:
        run = ManyProcesses(settings, lag=LagMeter(), status=lambda _: None, watch=lambda _: None)
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
