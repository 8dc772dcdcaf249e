"""Destination endpoint fallback: one endpoint under a key of its own in 0.3.0 (EPP-FB-01), gone since (EPP-FB-02)."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.endpoints import parse_list
from conformance.judges.case import Case
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Nature, Ruling, held, moot, noted


@judge_of_case("EPP-FB-01", "EPP-FB-02")
def fallback(case: Case) -> Iterator[Ruling]:
    """If a fallback is given, it is one endpoint, in the right namespace, of the pool and of the subset."""
    if not case.steering.fallbacks:
        yield moot("EPP-FB-01", "no fallback was given")
        return
    namespace = case.context.destination_namespace
    in_place = [one for one in case.steering.fallbacks if one.namespace == namespace]
    entry = (in_place or case.steering.fallbacks)[-1]
    yield noted("EPP-FB-02", f"the fallback key is there: {entry.value}", exchange=case.exchange, seq=entry.said.seq)
    if entry.namespace != namespace:
        where = "at the top level" if entry.namespace is None else f"in namespace {entry.namespace!r}"
        yield case.fail("EPP-FB-01", f"the fallback in namespace {namespace!r}", f"it is {where}", at=entry.said)
        return
    if entry.value is None:
        yield case.fail("EPP-FB-01", "the fallback as a string", f"it is a {entry.kind}", at=entry.said)
        return
    found = parse_list(entry.value)
    if found.problems or len(found.items) != 1:
        actual = "; ".join(found.problems) or f"{len(found.items)} endpoints: {entry.value}"
        yield case.fail("EPP-FB-01", "one fallback as ip:port", actual, at=entry.said)
        return
    fallback_endpoint = found.endpoints[0]
    outside = _outside(case, fallback_endpoint)
    if outside:
        expected = "a fallback of the pool and of the subset"
        actual = f"{fallback_endpoint} is {outside}"
        yield case.fail("EPP-FB-01", expected, actual, at=entry.said, nature=Nature.MEMBERSHIP)
    elif case.picks and fallback_endpoint == case.picks[0]:
        yield case.warn("EPP-FB-01", "a fallback other than the destination", f"both are {entry.value}", at=entry.said)
    else:
        yield held("EPP-FB-01")


def _outside(case: Case, endpoint: str) -> str:
    if case.hint.set and case.hint.where != "body" and not case.hint.may_mean(endpoint):
        return "not in the subset"
    if case.demand.known and endpoint not in case.demand.pool:
        return "not a ready endpoint of the pool"
    return ""
