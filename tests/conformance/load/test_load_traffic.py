"""A deadline that runs out is held against the target only where the machine had time for its answer; and the tally."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.load.course import Snapshot
from conformance.load.exchange import REOPENED, LiveExchange
from conformance.load.exposition import Exposition
from conformance.load.figures import Figures
from conformance.load.judgement import Judgement
from conformance.load.recovery import Troubles
from conformance.load.traffic import LoadTally, Traffic
from conformance.run.engine import LagMeter
from conformance.verdict import Finding, Verdict
from ext_proc.http2.errors import ConnectFailed, ConnectionRefused, ConnectTimedOut

DEADLINE, ENDING = 10.0, 1.0

LATE_CONNECTION = ConnectTimedOut("127.0.0.1:1", "the TLS handshake did not come within 5 s", "Look at it", 5.0)


class Finished(SimpleNamespace):
    """What is over; it is kept in a set, as exchanges are."""

    __hash__ = object.__hash__


def _ignore(*_: object) -> None:
    """Nothing."""


def traffic_of(late: float, withheld: float, transport: Any = _ignore) -> Traffic:
    """Traffic on a machine that is so late and withholds that part of the target's time."""
    lag = LagMeter()
    lag.woke(now := time.monotonic(), now + late)
    memory: Any = SimpleNamespace(ids=())
    channel: Any = SimpleNamespace(headers=_ignore, transport=transport)
    moments: Any = None
    return Traffic(
        lambda: channel,
        memory,
        moments,
        deadline=DEADLINE,
        lag=lag,
        withheld=lambda seconds: withheld * seconds,
        finished=_ignore,
        corrected=_ignore,
    )


@pytest.mark.parametrize(
    ("wait", "late", "other", "withheld", "excused"),
    [
        (DEADLINE, 0.02, None, 0.0, False),
        (DEADLINE, 0.02, 9.0, 0.0, False),  # slow answers alone are the target's
        (DEADLINE, 0.5, None, 0.0, False),
        (DEADLINE, 0.5, 2.0, 0.0, False),
        (DEADLINE, 0.5, 9.0, 0.0, True),
        (DEADLINE, 1.5, None, 0.0, True),
        (ENDING, 0.4, None, 0.0, False),
        (ENDING, 0.7, None, 0.0, True),
        (DEADLINE, 0.02, None, 0.4, False),
        (DEADLINE, 0.02, None, 0.6, True),
        (ENDING, 0.4, None, 0.3, True),  # both together
        (ENDING, 0.4, None, 0.05, False),
        (ENDING, 0.4, 0.2, 0.3, False),
        (DEADLINE, 0.02, 9.0, 0.6, True),
        (DEADLINE, 0.02, 2.0, 0.6, False),  # it had a processor for a request that came later
    ],
)
def test_a_wait_on_an_overloaded_machine(
    wait: float, late: float, other: float | None, withheld: float, excused: bool
) -> None:
    """`wait`: seconds until it ran out; `late`: that our loop was late; `other`: that another request took;
    `withheld`: the part of the wait in which the target was kept from running."""

    async def main() -> str:
        traffic = traffic_of(late, withheld)
        silent: Any = SimpleNamespace(progress=traffic.now() - wait, trouble="")
        if other is not None:
            answered: Any = Finished(started=silent.progress, decided=silent.progress + other, lost=False)
            traffic.done(answered)
        traffic.expired(silent, silent.progress)
        return str(silent.trouble)

    assert bool(asyncio.run(main())) is excused


def test_a_connection_that_was_not_made_is_no_answer_to_a_request() -> None:
    """It does not show that the target, which got no processor, had one."""

    async def main() -> str:
        traffic = traffic_of(0.02, 0.6)
        silent: Any = SimpleNamespace(trouble="")
        since = traffic.now() - DEADLINE
        lost: Any = Finished(started=since + 5.0, decided=since + 5.0, lost=True)
        traffic.done(lost)
        traffic.expired(silent, since)
        return str(silent.trouble)

    assert asyncio.run(main())


def test_unfinished_exchanges_do_not_end_later() -> None:
    """An answer that comes while the traffic is left would be judged as well."""
    seen: list[bool] = []

    async def main() -> None:
        under_way: Any = Finished(finished=False)
        async with traffic_of(0.0, 0.0) as traffic:
            traffic.open.add(under_way)
            asyncio.get_running_loop().call_soon(lambda: seen.append(under_way.finished))

    asyncio.run(main())
    assert seen == [True]


def test_many_waits_that_run_out_at_once_hold_up_no_answer() -> None:
    """Judging each takes a while; the loop would stand still for all of it, and other waits run out meanwhile."""
    called: list[Any] = []

    async def main() -> None:
        loop, all_over = asyncio.get_running_loop(), asyncio.Event()

        def judge(_now: float, _deadline: float) -> None:
            if not called:
                loop.call_soon(answer)
            called.append(None)
            until = time.monotonic() + 0.02
            while time.monotonic() < until:
                pass

        def answer() -> None:
            for one in silent:
                one.finished = True
            all_over.set()

        silent: list[Any] = [Finished(finished=False, due=judge) for _ in range(1000)]
        async with traffic_of(0.0, 0.0) as traffic:
            traffic.open.update(silent)
            await all_over.wait()
            traffic.open.clear()

    asyncio.run(main())
    assert 0 < len(called) < 1000


@pytest.mark.parametrize("answered", [True, False])
def test_a_stream_that_stays_refused_after_an_answer_was_reset(monkeypatch: pytest.MonkeyPatch, answered: bool) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(LiveExchange, "step", lambda _, what: steps.append(what))
    surroundings: Any = None
    shape: Any = None
    exchange = LiveExchange(surroundings, shape, b"id", 0.0)
    exchange.tries = REOPENED + 1
    if answered:
        exchange.on_headers(((b":status", b"200"), (b"content-type", b"application/grpc")), False)
    exchange.on_closed("refused", 7, "")
    assert [one.how for one in steps] == ["reset" if answered else "refused"]


@pytest.mark.parametrize(
    ("problem", "late", "withheld", "excused"),
    [
        (LATE_CONNECTION, 0.0, 0.0, False),
        (LATE_CONNECTION, 0.0, 0.6, True),
        (LATE_CONNECTION, 0.04, 0.0, True),
        (ConnectionRefused("127.0.0.1:1", "connection refused", "Start it"), 0.04, 0.6, False),
    ],
)
def test_a_connection_that_is_not_made_in_time(
    problem: ConnectFailed, late: float, withheld: float, excused: bool
) -> None:
    """On an overloaded machine that is no fault of the target's, as an answer that does not come is not."""

    async def transport() -> None:
        await asyncio.sleep(0.05)
        raise problem

    async def main() -> str:
        traffic = traffic_of(late, withheld, transport)
        waiting: Any = SimpleNamespace(trouble="", unreachable=_ignore)
        traffic.waiting.append(waiting)
        await traffic._open_waiting()
        return str(waiting.trouble)

    assert bool(asyncio.run(main())) is excused


@given(st.lists(st.lists(st.sampled_from(Verdict), max_size=4), max_size=8), st.integers(0, 8))
def test_each_exchange_failed_is_undecided_or_conforms(exchanges, cut) -> None:
    """By its worst verdict, also where two processes counted, and where a judgement is taken back."""

    def tally(part) -> LoadTally:
        counted = LoadTally()
        for said in part:
            findings = [Finding(requirement=f"R-{n}", verdict=verdict) for n, verdict in enumerate(said)]
            counted.add(Judgement.of(findings))
        return counted

    both = tally(exchanges[:cut])
    both.include(tally(exchanges[cut:]))
    failed = [Verdict.FAIL in said for said in exchanges]
    undecided = [
        not bad and bool({Verdict.ERROR, Verdict.INCONCLUSIVE} & {*said})
        for bad, said in zip(failed, exchanges, strict=True)
    ]
    assert (both.exchanges, both.failed, both.undecided) == (len(exchanges), sum(failed), sum(undecided))
    both.add(spoilt := Judgement.of([Finding(requirement="R", verdict=Verdict.INCONCLUSIVE)]))
    both.add(spoilt, -1)
    assert both.undecided == sum(undecided)


def test_no_counter_falls_when_an_exchange_turns_out_to_be_wrong() -> None:
    """Who reads one takes that for a new beginning, and counts all that there is a second time."""
    right, wrong = (Judgement.of([Finding(requirement="R", verdict=one)]) for one in (Verdict.PASS, Verdict.FAIL))
    run: Any = SimpleNamespace(tally=LoadTally(), figures=Figures(), troubles=Troubles(), lost_with_process=0)
    with Exposition(0) as shown:

        def outcomes() -> dict[str, float]:
            shown.renew(run, Snapshot.beginning())
            (exchanges,) = (one for one in shown.collect() if one.name == "epp_load_exchanges")
            return {one.labels["outcome"]: one.value for one in exchanges.samples}

        run.tally.add(right, 3)
        assert outcomes()["conformant"] == 3
        run.tally.add(right, -1)
        run.tally.add(wrong)
        assert (outcomes()["conformant"], outcomes()["failed"]) == (3, 1)
        run.tally.add(right, 2)
        assert outcomes()["conformant"] == 4
