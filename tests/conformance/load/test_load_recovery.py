"""What came of trouble: when it was recovered from, and which exchanges belong to it, in whatever order they end."""

from __future__ import annotations

import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.load.document import _untried
from conformance.load.judgement import Judgement
from conformance.load.mix import LoadFile
from conformance.load.recovery import TargetIsBack, TroubleBegan, TroubleEnded, Troubles
from conformance.load.run import LoadRun
from conformance.verdict import Finding, Verdict

BEGUN, ENDED = 10.0, 20.0
CONFORMANT: tuple[str, ...] = ()
BROKEN = ("ENV-16",)

exchanges = st.lists(
    st.tuples(st.floats(5, 60), st.floats(0, 5), st.sampled_from([CONFORMANT, BROKEN]), st.integers(0, 2)), max_size=60
)
"""When each began, how long it took, what it broke, and which process made it."""


def known(seen, limit: float | None = None) -> Troubles:
    troubles = Troubles()
    troubles.heed(TroubleBegan(number=0, kind="metrics-lost", at=BEGUN, limit=limit))
    troubles.heed(TroubleEnded(number=0, at=ENDED))
    for began, took, broken, _ in seen:
        troubles.count(began, began + took / 2, began + took, broken)
    return troubles


def last_bad(seen) -> float:
    return max((began for began, took, broken, _ in seen if broken and began + took >= BEGUN), default=-math.inf)


def recovered(seen) -> float:
    """When the first exchange began after which none failed, by looking at all of them; infinite: there was none."""
    bad = last_bad(seen)
    good = (began for began, _, broken, _ in seen if not broken and began >= ENDED and began > bad)
    return min(good, default=math.inf)


@given(seen=exchanges)
def test_the_time_of_recovery_is_that_of_all_exchanges(seen) -> None:
    """Exactly where they end in the order in which they began; else it is that of one which is as good."""
    exact = recovered(seen)
    for one in (known(sorted(seen)).all[0], known(seen).all[0]):
        assert (one.recovered is None) == math.isinf(exact)
        assert one.untried == all(
            began < ENDED for began, took, broken, _ in seen if not broken or began + took >= BEGUN
        )
    in_order, found = known(sorted(seen)).all[0], known(seen).all[0]
    if in_order.recovered is not None and found.recovered is not None:
        assert in_order.good[0][0] == exact <= found.good[0][0]
        assert found.good[0][0] in {began for began, _, broken, _ in seen if not broken}


@pytest.mark.parametrize("doubt", [Verdict.ERROR, Verdict.INCONCLUSIVE])
def test_an_exchange_that_is_undecided_does_not_show_that_the_target_recovered(doubt) -> None:
    """It may be trouble of the suite, which says nothing of the target."""
    run: Any = SimpleNamespace(troubles=known([]))
    for began, verdict in [(21.0, doubt), (25.0, Verdict.FAIL), (26.0, doubt), (30.0, Verdict.PASS)]:
        exchange: Any = SimpleNamespace(started=began, decided=began + 1, over=began + 1)
        LoadRun._count_trouble(run, exchange, Judgement.of([Finding(requirement="R", verdict=verdict)]))
    (found,) = run.troubles.all
    assert found.recovered == 11.0
    assert found.after == {"R": 1}


@given(seen=exchanges)
def test_processes_that_share_the_exchanges_come_to_the_same(seen) -> None:
    """To a twentieth."""
    whole = known(sorted(seen)).all[0]
    together = known(()).all[0]
    together.include(known(sorted(one for one in seen if one[3] == process)).all[0] for process in range(3))
    assert (together.during, together.after, together.last_bad) == (whole.during, whole.after, whole.last_bad)
    assert (together.recovered is None) == (whole.recovered is None)
    if whole.recovered is not None:
        exact = whole.good[0][0]
        assert exact <= together.good[0][0] <= exact + max(0.02, 0.05 * (exact - ENDED))


def test_processes_know_of_a_recovery_when_the_next_trouble_has_begun() -> None:
    """One saw the last failure, another the exchange that came after it, as both had few."""
    whole, one, other = known(()), known([(21, 0, CONFORMANT, 0), (23, 0, BROKEN, 0)]), known(())
    for began in (22.0, 25.0):
        other.count(began, began, began, CONFORMANT)
    for number in range(1, 30):
        for troubles in (whole, one, other):
            troubles.heed(TroubleBegan(number=number, kind="metrics-lost", at=20.0 + 10 * number))
            troubles.heed(TroubleEnded(number=number, at=21.0 + 10 * number))
        for process, share in enumerate((one, other)):
            whole.include(process, share.changed())
        assert whole.all[0].recovered == 5.0
    assert all(len(found.good) <= 1 for troubles in (whole, one, other) for found in troubles.all[:20])


def test_a_process_tells_of_a_trouble_only_when_an_exchange_was_counted_for_it() -> None:
    """A load of days has thousands."""
    troubles, told = known(()), []
    for number in range(1, 30):
        troubles.heed(TroubleBegan(number=number, kind="metrics-lost", at=20.0 + 10 * number))
        troubles.heed(TroubleEnded(number=number, at=21.0 + 10 * number))
        for began in (22.0, 23.0):
            troubles.count(*(3 * [began + 10 * number]), BROKEN)
        told.append([one.number for one in troubles.changed()])
    assert told == [[number] for number in range(1, 30)]
    assert not troubles.changed()


@given(seen=exchanges)
def test_violations_are_those_of_exchanges_that_ended_after_it_began(seen) -> None:
    troubles = known(seen)
    belong = [one for one in seen if one[2] and one[0] + one[1] >= BEGUN]
    (found,) = troubles.all
    assert +found.during == +Counter({"ENV-16": sum(one[0] < ENDED for one in belong)})
    assert +found.after == +Counter({"ENV-16": sum(one[0] >= ENDED for one in belong)})


@pytest.mark.parametrize(
    ("seen", "exceeded", "unsettled"),
    [
        ([(21, 1, CONFORMANT, 0)], False, False),
        ([(29, 1, CONFORMANT, 0)], False, False),  # no failure after the end: there was no request before
        ([(21, 0, BROKEN, 0), (22, 1, CONFORMANT, 0)], False, False),
        ([(28, 0, BROKEN, 0), (29, 1, CONFORMANT, 0)], True, False),
        ([(21, 0, BROKEN, 0)], True, True),
        ([(19, 0, BROKEN, 0)], False, True),  # no request came after its end
    ],
)
def test_a_limit_of_recovery_is_exceeded_or_still_open(seen, exceeded, unsettled) -> None:
    """Open: the load is over before the limit."""
    (found,) = known(seen, limit=5.0).all
    assert (found.exceeded(60.0), found.unsettled(24.9)) == (exceeded, unsettled)
    (found,) = known(seen).all
    assert not found.exceeded(60.0)
    assert not found.unsettled(24.9)


def test_a_connection_is_lost_to_the_trouble_only_while_the_target_is_away() -> None:
    """Also where the loss is noticed late, after another trouble has begun."""
    troubles = Troubles()
    assert not troubles.lose(1.0, 1.0)
    troubles.heed(TroubleBegan(number=0, kind="kill-target", at=10.0))
    assert troubles.away
    assert not troubles.lose(9.0, 9.9)
    assert troubles.lose(9.0, 10.1)
    troubles.heed(TroubleEnded(number=0, at=12.0))
    assert troubles.away
    assert troubles.lose(12.5, 12.5)
    troubles.heed(TargetIsBack(number=0, at=13.0, address="127.0.0.1:1"))
    assert not troubles.away
    assert not troubles.lose(12.5, 13.5)
    troubles.heed(TroubleBegan(number=1, kind="metrics-lost", at=14.0))
    assert not troubles.lose(14.0, 14.5)
    assert troubles.lose(11.0, 12.9)
    assert (troubles.all[0].lost, troubles.all[1].lost, troubles.lost) == (3, 0, 3)


def test_an_exchange_belongs_to_current_trouble_and_the_last_that_ended() -> None:
    troubles = Troubles()
    troubles.heed(TroubleBegan(number=0, kind="metrics-lost", at=10.0))
    troubles.heed(TroubleBegan(number=1, kind="model-servers-reset", at=11.0))
    troubles.heed(TroubleEnded(number=0, at=12.0))
    troubles.count(12.0, 12.0, 12.0, BROKEN)
    troubles.heed(TroubleBegan(number=2, kind="metrics-lost", at=20.0))
    troubles.count(20.5, 20.5, 20.5, BROKEN)
    assert [one.during.total() for one in troubles.all] == [0, 2, 1]
    assert [one.after.total() for one in troubles.all] == [1, 0, 0]


def test_trouble_that_never_came_is_told() -> None:
    """On a slow machine what was before may take all the time of the load: of a kill that was not tried, say so."""
    file = LoadFile.model_validate(
        {
            "mix": [{"name": "plain"}],
            "arrivals": [{"seconds": 10, "rate": 1}],
            "trouble": [{"kind": "metrics-lost", "every": 3}, {"kind": "kill-target", "at": 8}],
        }
    )
    troubles = Troubles()
    troubles.heed(TroubleBegan(number=0, kind="metrics-lost", at=3))
    run: Any = SimpleNamespace(
        complete=True,
        crashes=[],
        churn=None,
        totals=SimpleNamespace(due=10),
        by_shape=Counter(plain=10),
        settings=SimpleNamespace(file=file),
        troubles=troubles,
    )
    told = list(_untried(run))
    assert [line.partition(":")[0] for line in told] == [
        "trouble `kill-target` came 0 of 1 times",
        "trouble `metrics-lost` came 1 of 3 times",
    ]
    for number in (1, 2):
        troubles.heed(TroubleBegan(number=number, kind="metrics-lost", at=3 + number))
    troubles.heed(TroubleBegan(number=3, kind="kill-target", at=8))
    assert not list(_untried(run))
