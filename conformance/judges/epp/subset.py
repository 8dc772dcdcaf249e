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

from conformance.judges.epp.errors import UNAVAILABLE, acceptable_error
from conformance.judges.epp.expectation import TOO_MANY
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.findings import passed, recorded
from conformance.judges.registry import judge_of_exchange
from conformance.judges.root_cause import odd_hint, odd_items
from conformance.reading.endpoints import address_of, canonical, parse
from conformance.verdict import Finding, Nature

NONE_ELIGIBLE = "an ImmediateResponse with 503: nothing of the subset is eligible"
_OVERLOOKED = (
    "The cache of the pool lacks the endpoint, as a new one, or items of the list are compared as they are spelt."
)


def binding(view: ExchangeView) -> bool:
    """Whether the request has a subset list that this version asks to be kept to."""
    return view.hint.set and view.hint.where in ("every", "headers") and view.facts.applies("EPP-SUB-01")


# -- an error ----------------------------------------------------------------------------------------------------------


def due_error(view: ExchangeView) -> Finding | None:
    """What is wrong with an ImmediateResponse where nothing of the subset is eligible."""
    if acceptable_error(view):
        return None
    requirement = "EPP-SUB-02" if view.hint.items else "EPP-SUB-03"
    if view.code == TOO_MANY and view.sheddable:
        return view.warn(requirement, NONE_ELIGIBLE)
    hint = "A refusal is right here, and its status must be 503."
    return view.fail(requirement, NONE_ELIGIBLE, f"{view.describe()} ({view.hint})", hint=hint)


def undue_error(view: ExchangeView) -> Finding | None:
    """What is wrong with a 503 although an endpoint is due, as far as the subset explains it."""
    if view.code != UNAVAILABLE or not view.facts.applies("EPP-SUB-01"):
        return None
    hint, due = view.hint, view.due
    if hint.set:
        requirement = _why_nothing_matched(view)
        expected = f"an endpoint of the subset: {', '.join(sorted(due.allowed)[:4])} is eligible"
        actual, why = f"{view.describe()} ({hint})", _OVERLOOKED if requirement == "EPP-SUB-02" else ""
        return view.fail(requirement, expected, actual, hint=why)
    if hint.kind == "unset" and (hint.near or any(one.hint.kind != "unset" for one in view.before())):
        why = "the subset key is not set, so the whole pool is eligible"
        return view.fail("EPP-SUB-04", f"an endpoint: {why}")
    return None


def _why_nothing_matched(view: ExchangeView) -> str:
    hint, due = view.hint, view.due
    if hint.where == "headers":
        return "EPP-SUB-09"
    if view.bodyless:
        return "EPP-SUB-08"
    if hint.ipv6:
        return "EPP-SUB-07"
    if any(canonical(item) not in due.allowed for item in hint.items):
        return "EPP-SUB-05"
    addresses = [address_of(endpoint) for endpoint in due.members]
    return "EPP-SUB-06" if len(set(addresses)) < len(addresses) else "EPP-SUB-02"


# -- nothing -----------------------------------------------------------------------------------------------------------


def missing_error(view: ExchangeView) -> Finding:
    """A request that was let go without a destination although nothing of the subset is eligible."""
    return view.fail("EPP-SUB-02" if view.hint.items else "EPP-SUB-03", NONE_ELIGIBLE)


# -- a pick ------------------------------------------------------------------------------------------------------------


def wrong_pick(view: ExchangeView) -> Finding | None:
    """The first pick that the subset does not allow."""
    if odd_hint(view) and view.facts.applies("EPP-SUB-10"):
        return _widened(view)
    if not binding(view):
        return None
    outside = [pick for pick in view.picks if not view.hint.may_mean(pick)]
    if outside:
        requirement = _why_outside(view, outside)
        return _member_ruling(view, requirement, f"{', '.join(outside)} is not in the list ({view.hint})")
    gone = [pick for pick in view.picks if view.due.known and pick not in view.due.pool]
    if gone and not view.due.pool_empty and not _used_to_be(view, gone):
        requirement = "EPP-SUB-02" if view.due.error_due else "EPP-SUB-05"
        return _member_ruling(view, requirement, f"{', '.join(gone)} is in the list, and not eligible ({view.hint})")
    return None


def _member_ruling(view: ExchangeView, requirement: str, actual: str) -> Finding:
    expected = NONE_ELIGIBLE if view.due.error_due else "every endpoint given is in the subset and eligible"
    return view.fail(requirement, expected, actual, nature=Nature.MEMBERSHIP)


def _why_outside(view: ExchangeView, outside: Sequence[str]) -> str:
    hint = view.hint
    right_address = any(hint.has_address(pick) for pick in outside)
    if hint.where == "headers":
        return "EPP-SUB-09"
    if not hint.items:
        return "EPP-SUB-03"
    if view.due.error_due:
        return "EPP-SUB-06" if right_address and not _fell_back(view) else "EPP-SUB-02"
    if view.bodyless:
        return "EPP-SUB-08"
    if right_address and len({address_of(endpoint) for endpoint in view.due.members}) > 1:
        return "EPP-SUB-06"
    return "EPP-SUB-07" if hint.ipv6 else "EPP-SUB-01"


def _fell_back(view: ExchangeView) -> bool:
    """Whether another exchange shows that picks come from the whole pool when nothing of the list is eligible: then a
    pick with the address of the list is chance."""
    return any(
        one.hint.set and one.due.error_due and any(not one.hint.has_address(pick) for pick in one.picks)
        for one in view.siblings
    )


def _used_to_be(view: ExchangeView, picks: Sequence[str]) -> bool:
    states = view.facts.episode.pool.states
    known = {canonical(e) for _, state in states for pod in state.pods if pod.eligible for e in pod.endpoints}
    return any(pick in known for pick in picks)


def _widened(view: ExchangeView) -> Finding | None:
    """A pick outside what a lenient reader finds in a hint of the wrong type (reading AMB-04)."""
    strangers = [pick for pick in view.picks if not view.hint.may_mean(pick)]
    if not strangers or (view.due.known and any(pick not in view.due.pool for pick in strangers)):
        return None  # outside the pool: the destination's rules
    expected = ("an ImmediateResponse with 503", "an endpoint that the hint names, read leniently")
    actual = f"{', '.join(strangers)} ({view.hint})"
    hint = "An unexpected type opens the whole pool, where the data plane meant to limit it."
    return view.warn("EPP-SUB-10", expected, actual, hint=hint, nature=Nature.MEMBERSHIP)


# -- what holds --------------------------------------------------------------------------------------------------------


@judge_of_exchange(*(f"EPP-SUB-{number:02}" for number in range(1, 15)))
def subset(view: ExchangeView) -> Iterator[Finding]:
    """What was seen to hold, where the stimulus could tell right from wrong."""
    if view.answer is AnswerKind.IMMEDIATE:
        yield from _errors_that_hold(view)
        yield from _trimmed(view, "no")
    elif view.answer is AnswerKind.ENDPOINT and view.picks:
        yield from _opened(view)
        yield from _picks_that_hold(view)
        if all(view.hint.may_mean(pick) for pick in view.picks):
            yield from _trimmed(view, "yes")


def _trimmed(view: ExchangeView, answer: str) -> Iterator[Finding]:
    """Whether blanks around items are trimmed, where all items that name an eligible endpoint have them."""
    padded = {item.canonical for item in map(parse, view.hint.items) if item.padded}
    if view.hint.set and padded & view.due.allowed and not view.due.allowed & set(view.hint.items):
        actual = f"blanks around items are trimmed: {answer} ({view.describe()})"
        yield recorded("EPP-SUB-11", actual, exchange=view.exchange)


def _opened(view: ExchangeView) -> Iterator[Finding]:
    """A busy subset that a sheddable request was let out of: beside the rule of the subset, EPP-SUB-13."""
    outside = [pick for pick in view.picks if not view.hint.may_mean(pick)]
    if binding(view) and outside and view.sheddable and view.due.load.saturated:
        expected = ("an endpoint of the subset", "an ImmediateResponse with 429 or 503")
        yield view.fail("EPP-SUB-13", expected, f"{', '.join(outside)} ({view.hint})", nature=Nature.MEMBERSHIP)


def _errors_that_hold(view: ExchangeView) -> Iterator[Finding]:
    hint, due = view.hint, view.due
    if odd_hint(view):
        yield passed("EPP-SUB-10")
    if hint.near:
        yield recorded("EPP-SUB-12", f"{view.code}, with the key in another namespace or another key")
    if not binding(view):
        return
    if due.error_due and view.code == UNAVAILABLE:
        yield passed("EPP-SUB-02" if hint.items else "EPP-SUB-03")
        if hint.items and any(hint.has_address(endpoint) for endpoint in due.members):
            yield passed("EPP-SUB-06")
        if view.bodyless:
            yield passed("EPP-SUB-08")
        if hint.where == "headers":
            yield passed("EPP-SUB-09")
        if view.context.claims.queues:
            yield passed("EPP-SUB-14")
    if view.sheddable and due.load.saturated and view.code in (UNAVAILABLE, TOO_MANY):
        yield passed("EPP-SUB-13")


def _picks_that_hold(view: ExchangeView) -> Iterator[Finding]:
    hint, due = view.hint, view.due
    inside_pool = due.known and all(pick in due.pool for pick in view.picks)
    if hint.kind == "unset":
        if inside_pool:
            yield passed("EPP-SUB-04")
            if hint.near:
                yield recorded("EPP-SUB-12", "a pick from the pool, with the key in another namespace or another key")
        return
    if odd_hint(view):
        if all(hint.may_mean(pick) for pick in view.picks):
            yield passed("EPP-SUB-10")
        return
    if not binding(view) or not inside_pool or not all(due.allows(pick) for pick in view.picks):
        return
    if due.allowed < due.pool:  # else a pick from the whole pool would look the same
        yield passed("EPP-SUB-01")
        if view.bodyless:
            yield passed("EPP-SUB-08")
        if hint.where == "headers":
            yield passed("EPP-SUB-09")
        if hint.ipv6:
            yield passed("EPP-SUB-07")
        if any(address_of(one) == address_of(pick) for pick in view.picks for one in due.pool - due.allowed):
            yield passed("EPP-SUB-06")
        if view.sheddable and due.load.saturated:
            yield passed("EPP-SUB-13")
    if any(canonical(item) not in due.pool for item in hint.items):
        yield passed("EPP-SUB-05")
    if odd_items(view):
        yield passed("EPP-SUB-11")
