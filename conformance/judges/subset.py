"""Endpoint Subset (EPP-SUB-*): picks inside the list, 503 when nothing of it is eligible, the whole pool without it.

A pick or an error that is wrong is put down to what was particular about the hint, first that applies:

| what came back | particular | requirement |
|---|---|---|
| a pick outside | the hint was on the headers message alone | EPP-SUB-09 |
| | the list was empty | EPP-SUB-03 |
| | nothing of it was eligible; the address was right and the port wrong | EPP-SUB-06 |
| | nothing of it was eligible | EPP-SUB-02 |
| | the request had no body | EPP-SUB-08 |
| | the address was right, the port of another endpoint, and the pool has several addresses | EPP-SUB-06 |
| | IPv6 items only | EPP-SUB-07 |
| | – | EPP-SUB-01 |
| a pick inside that is not in the pool | it used to be | EPP-DEST-06 |
| | nothing of the list was eligible / something was | EPP-SUB-02 / EPP-SUB-05 |
| another error than 503 | the list was empty / nothing of it was eligible | EPP-SUB-03 / EPP-SUB-02 |
| 503 although some is eligible | headers alone; no body; IPv6; unknown items; several ports | 09, 08, 07, 05, 06 |
| | – | EPP-SUB-02 |
| 503 without a list | something like a hint was there, or earlier | EPP-SUB-04 |
| anything for a wrong type | a pick outside what it may mean | EPP-SUB-10 (warning) |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.endpoints import address_of, canonical
from conformance.judges.case import Answer, Case
from conformance.judges.errors import TOO_MANY, UNAVAILABLE, acceptable_error
from conformance.judges.peculiar import odd_hint, odd_items
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Nature, Ruling, held, noted

NONE_ELIGIBLE = "an ImmediateResponse with 503: nothing of the subset is eligible"


def binding(case: Case) -> bool:
    """Whether the request has a subset list that this version asks to be kept to."""
    return case.hint.set and case.hint.where in ("every", "headers") and case.scene.applies("EPP-SUB-01")


# -- an error ----------------------------------------------------------------------------------------------------------


def due_error(case: Case) -> Ruling | None:
    """What is wrong with an ImmediateResponse where nothing of the subset is eligible."""
    if acceptable_error(case):
        return None
    requirement = "EPP-SUB-02" if case.hint.items else "EPP-SUB-03"
    if case.code == TOO_MANY and case.sheddable:
        return case.warn(requirement, NONE_ELIGIBLE)
    return case.fail(requirement, NONE_ELIGIBLE, f"{case.describe()} ({case.hint})")


def undue_error(case: Case) -> Ruling | None:
    """What is wrong with a 503 although an endpoint is due, as far as the subset explains it."""
    if case.code != UNAVAILABLE or not case.scene.applies("EPP-SUB-01"):
        return None
    hint, demand = case.hint, case.demand
    if hint.set:
        requirement = _why_nothing_matched(case)
        expected = f"an endpoint of the subset: {', '.join(sorted(demand.allowed)[:4])} is eligible"
        return case.fail(requirement, expected, f"{case.describe()} ({hint})")
    if hint.kind == "unset" and (hint.near or any(one.hint.kind != "unset" for one in case.scene.before(case))):
        why = "the subset key is not set, so the whole pool is eligible"
        return case.fail("EPP-SUB-04", f"an endpoint: {why}")
    return None


def _why_nothing_matched(case: Case) -> str:
    hint, demand = case.hint, case.demand
    if hint.where == "headers":
        return "EPP-SUB-09"
    if case.bodyless:
        return "EPP-SUB-08"
    if hint.ipv6:
        return "EPP-SUB-07"
    if any(canonical(item) not in demand.allowed for item in hint.items):
        return "EPP-SUB-05"
    addresses = [address_of(endpoint) for endpoint in demand.members]
    return "EPP-SUB-06" if len(set(addresses)) < len(addresses) else "EPP-SUB-02"


# -- nothing -----------------------------------------------------------------------------------------------------------


def missing_error(case: Case) -> Ruling:
    """A request that was let go without a destination although nothing of the subset is eligible."""
    return case.fail("EPP-SUB-02" if case.hint.items else "EPP-SUB-03", NONE_ELIGIBLE)


# -- a pick ------------------------------------------------------------------------------------------------------------


def wrong_pick(case: Case) -> Ruling | None:
    """The first pick that the subset does not allow."""
    if odd_hint(case) and case.scene.applies("EPP-SUB-10"):
        return _widened(case)
    if not binding(case):
        return None
    outside = [pick for pick in case.picks if not case.hint.may_mean(pick)]
    if outside:
        requirement = _why_outside(case, outside)
        return _member_ruling(case, requirement, f"{', '.join(outside)} is not in the list ({case.hint})")
    gone = [pick for pick in case.picks if case.demand.known and pick not in case.demand.pool]
    if gone and not case.demand.pool_empty and not _used_to_be(case, gone):
        requirement = "EPP-SUB-02" if case.demand.error_due else "EPP-SUB-05"
        return _member_ruling(case, requirement, f"{', '.join(gone)} is in the list, and not eligible ({case.hint})")
    return None


def _member_ruling(case: Case, requirement: str, actual: str) -> Ruling:
    expected = NONE_ELIGIBLE if case.demand.error_due else "every endpoint given is in the subset and eligible"
    return case.fail(requirement, expected, actual, nature=Nature.MEMBERSHIP)


def _why_outside(case: Case, outside: Sequence[str]) -> str:
    hint = case.hint
    right_address = any(hint.has_address(pick) for pick in outside)
    if hint.where == "headers":
        return "EPP-SUB-09"
    if not hint.items:
        return "EPP-SUB-03"
    if case.demand.error_due:
        return "EPP-SUB-06" if right_address and not _fell_back(case) else "EPP-SUB-02"
    if case.bodyless:
        return "EPP-SUB-08"
    if right_address and len({address_of(endpoint) for endpoint in case.demand.members}) > 1:
        return "EPP-SUB-06"
    return "EPP-SUB-07" if hint.ipv6 else "EPP-SUB-01"


def _fell_back(case: Case) -> bool:
    """Whether another exchange shows that picks come from the whole pool when nothing of the list is eligible: then a
    pick with the address of the list is chance."""
    return any(
        one.hint.set and one.demand.error_due and any(not one.hint.has_address(pick) for pick in one.picks)
        for one in case.scene.cases
    )


def _used_to_be(case: Case, picks: Sequence[str]) -> bool:
    states = case.scene.episode.pool.states
    known = {canonical(e) for _, state in states for pod in state.pods if pod.eligible for e in pod.endpoints}
    return any(pick in known for pick in picks)


def _widened(case: Case) -> Ruling | None:
    """A pick outside what a lenient reader finds in a hint of the wrong type (reading AMB-04)."""
    strangers = [pick for pick in case.picks if not case.hint.may_mean(pick)]
    if not strangers or (case.demand.known and any(pick not in case.demand.pool for pick in strangers)):
        return None  # outside the pool: the destination's rules
    expected = ("an ImmediateResponse with 503", "an endpoint that the hint names, read leniently")
    actual = f"{', '.join(strangers)} ({case.hint})"
    hint = "An unexpected type opens the whole pool, where the data plane meant to limit it."
    return case.warn("EPP-SUB-10", expected, actual, hint=hint, nature=Nature.MEMBERSHIP)


# -- what holds --------------------------------------------------------------------------------------------------------


@judge_of_case(*(f"EPP-SUB-{number:02}" for number in range(1, 15)))
def subset(case: Case) -> Iterator[Ruling]:
    """What was seen to hold, where the stimulus could tell right from wrong."""
    if case.answer is Answer.IMMEDIATE:
        yield from _errors_that_hold(case)
    elif case.answer is Answer.ENDPOINT and case.picks:
        yield from _opened(case)
        yield from _picks_that_hold(case)


def _opened(case: Case) -> Iterator[Ruling]:
    """A busy subset that a sheddable request was let out of: beside the rule of the subset, EPP-SUB-13."""
    outside = [pick for pick in case.picks if not case.hint.may_mean(pick)]
    if binding(case) and outside and case.sheddable and case.demand.load.saturated:
        expected = ("an endpoint of the subset", "an ImmediateResponse with 429 or 503")
        yield case.fail("EPP-SUB-13", expected, f"{', '.join(outside)} ({case.hint})", nature=Nature.MEMBERSHIP)


def _errors_that_hold(case: Case) -> Iterator[Ruling]:
    hint, demand = case.hint, case.demand
    if odd_hint(case):
        yield held("EPP-SUB-10")
    if hint.near:
        yield noted("EPP-SUB-12", f"{case.code}, with the key in another namespace or another key")
    if not binding(case):
        return
    if demand.error_due and case.code == UNAVAILABLE:
        yield held("EPP-SUB-02" if hint.items else "EPP-SUB-03")
        if hint.items and any(hint.has_address(endpoint) for endpoint in demand.members):
            yield held("EPP-SUB-06")
        if case.bodyless:
            yield held("EPP-SUB-08")
        if hint.where == "headers":
            yield held("EPP-SUB-09")
        if case.context.claims.queues:
            yield held("EPP-SUB-14")
    if case.sheddable and demand.load.saturated and case.code in (UNAVAILABLE, TOO_MANY):
        yield held("EPP-SUB-13")


def _picks_that_hold(case: Case) -> Iterator[Ruling]:
    hint, demand = case.hint, case.demand
    inside_pool = demand.known and all(pick in demand.pool for pick in case.picks)
    if hint.kind == "unset":
        if inside_pool:
            yield held("EPP-SUB-04")
            if hint.near:
                yield noted("EPP-SUB-12", "a pick from the pool, with the key in another namespace or another key")
        return
    if odd_hint(case):
        if all(hint.may_mean(pick) for pick in case.picks):
            yield held("EPP-SUB-10")
        return
    if not binding(case) or not inside_pool or not all(demand.allows(pick) for pick in case.picks):
        return
    if demand.allowed < demand.pool:  # else a pick from the whole pool would look the same
        yield held("EPP-SUB-01")
        if case.bodyless:
            yield held("EPP-SUB-08")
        if hint.where == "headers":
            yield held("EPP-SUB-09")
        if hint.ipv6:
            yield held("EPP-SUB-07")
        if any(address_of(one) == address_of(pick) for pick in case.picks for one in demand.pool - demand.allowed):
            yield held("EPP-SUB-06")
        if case.sheddable and demand.load.saturated:
            yield held("EPP-SUB-13")
    if any(canonical(item) not in demand.pool for item in hint.items):
        yield held("EPP-SUB-05")
    if odd_items(case):
        yield held("EPP-SUB-11")
