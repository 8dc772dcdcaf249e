"""Destination endpoint fallback: one endpoint under a separate key in 0.3.0 (EPP-FB-01), gone since (EPP-FB-02)."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.findings import not_applicable, passed, recorded
from conformance.judges.registry import judge_of_exchange
from conformance.reading.endpoints import parse_list
from conformance.verdict import Finding, Nature


@judge_of_exchange("EPP-FB-01", "EPP-FB-02")
def fallback(view: ExchangeView) -> Iterator[Finding]:
    """If a fallback is given, it is one endpoint, in the right namespace, of the pool and of the subset."""
    if not view.destination.fallbacks:
        yield not_applicable("EPP-FB-01", "no fallback was given")
        return
    namespace = view.context.destination_namespace
    in_place = [one for one in view.destination.fallbacks if one.namespace == namespace]
    entry = (in_place or view.destination.fallbacks)[-1]
    yield recorded(
        "EPP-FB-02", f"the fallback key is there: {entry.value}", exchange=view.exchange, seq=entry.message.seq
    )
    if entry.namespace != namespace:
        where = "at the top level" if entry.namespace is None else f"in namespace {entry.namespace!r}"
        yield view.fail("EPP-FB-01", f"the fallback in namespace {namespace!r}", f"it is {where}", at=entry.message)
        return
    if entry.value is None:
        yield view.fail("EPP-FB-01", "the fallback as a string", f"it is a {entry.kind}", at=entry.message)
        return
    found = parse_list(entry.value)
    if found.problems or len(found.items) != 1:
        actual = "; ".join(found.problems) or f"{len(found.items)} endpoints: {entry.value}"
        yield view.fail("EPP-FB-01", "one fallback as ip:port", actual, at=entry.message)
        return
    fallback_endpoint = found.endpoints[0]
    outside = _outside(view, fallback_endpoint)
    if outside:
        expected = "a fallback of the pool and of the subset"
        actual = f"{fallback_endpoint} is {outside}"
        yield view.fail("EPP-FB-01", expected, actual, at=entry.message, nature=Nature.MEMBERSHIP)
    elif view.picks and fallback_endpoint == view.picks[0]:
        yield view.warn(
            "EPP-FB-01", "a fallback other than the destination", f"both are {entry.value}", at=entry.message
        )
    elif found.padded:
        expected, actual = "one fallback as ip:port", f"blanks around an endpoint: {entry.value!r}"
        yield view.warn("EPP-FB-01", expected, actual, at=entry.message)
    elif found.respelled:
        expected = f"the usual spelling, {fallback_endpoint}: data planes look hosts up by their text"
        yield view.warn("EPP-FB-01", expected, entry.value, at=entry.message)
    else:
        yield passed("EPP-FB-01")


def _outside(view: ExchangeView, endpoint: str) -> str:
    if view.hint.set and view.hint.where != "body" and not view.hint.may_mean(endpoint):
        return "not in the subset"
    if view.due.known and endpoint not in view.due.pool:
        return "not a ready endpoint of the pool"
    return ""
