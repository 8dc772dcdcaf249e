"""Destination Endpoint (DP-DEST-*; with two pools DP-SCOPE-01, -02, DP-SPLIT-01): requests go where the EPP sent them.

A pick is judged where its meaning is clear: given in time, and in a place that the gateway reads. Header and metadata
that differ, or an answer that breaks ext_proc, leave the data plane to do what it likes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.judges.episode_view import EpisodeView
from conformance.judges.findings import not_applicable, passed
from conformance.judges.gateway.calling import takes_none
from conformance.judges.gateway.walk import Sort, WalkedItem, due, position, walked, without
from conformance.judges.gateway_exchange import GatewayExchange, UpstreamAttempt
from conformance.judges.picker_stream import PickerStream
from conformance.judges.registry import judge_of_episode, judge_of_gateway_exchange
from conformance.reading.endpoints import parse_list
from conformance.verdict import Finding

FOLLOWED, WALKED, FALLBACK, STEERED = "DP-DEST-01", "DP-DEST-02", "DP-DEST-03", "DP-DEST-04"
SAME_POOL, OTHER_POOL = "DP-SCOPE-01", "DP-SCOPE-02"
SPLIT = "DP-SPLIT-01"

LEAST = 6
"""Requests that must have followed the client before that is no chance: of three pods once in 729."""

AT_ONCE = 0.15
"""Seconds after the EPP's answer in which no attempt can have taken so long that it is hedged by another."""

HURRIED = 0.05
"""Those in which this holds also of an attempt that was not answered so soon, whatever its answer was."""

CLOCK = 5_000_000
"""Nanoseconds by which an answer may come before its delay is over: the event loop counts whole milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenDestination:
    """What one EPP answered about the request: the text of its destination, and the fallback of 0.3.0."""

    asked: PickerStream
    since: int
    text: str | None
    fallback: str | None


def given(exchange: GatewayExchange, one: PickerStream) -> str | None:
    """The destination as this gateway has to read it; None if it need not follow any."""
    header, metadata = one.destination.header, one.destination.metadata
    if exchange.client_destinations and any(setting.conditional for setting in one.destination.settings):
        header = None  # it may have kept the client's
    match exchange.gateway.follows:
        case "header":
            return header
        case "metadata":
            return metadata
        case "either" if not (header and metadata):
            return header or metadata
        case _:
            return header if header == metadata else None


@judge_of_gateway_exchange(FOLLOWED, WALKED, FALLBACK, SAME_POOL, OTHER_POOL, SPLIT)
def destination(exchange: GatewayExchange) -> Iterator[Finding]:
    """The attempts of the request, EPP by EPP."""
    if exchange.opened is None:
        yield not_applicable(FOLLOWED, "the HTTP sides were not observed")
        return
    asked = [one for one in exchange.asked if not exchange.left_behind(one) and not _failed_open(exchange, one)]
    plans = [_plan(exchange, one) for one in asked if one.release is not None]
    if not plans:
        return
    under: dict[int, list[UpstreamAttempt]] = {plan.since: [] for plan in plans}
    for attempt in exchange.attempts:
        backend = exchange.backend_of(attempt.endpoint)
        before = [plan for plan in plans if plan.since < attempt.at]
        own = [plan for plan in before if backend is None or plan.asked.epp in ("", backend)]
        if not own and exchange.unsteered(attempt):
            continue
        if not own:
            yield _unasked(exchange, attempt, backend, before)
            return
        if (found := _reused(exchange, attempt, own[-1])) is not None:
            yield found
            return
        under[own[-1].since].append(attempt)
    if exchange.splits and exchange.attempts:
        yield passed(SPLIT)
    for number, plan in enumerate(plans):
        yield from _Walk(exchange, plan, under[plan.since], last=number == len(plans) - 1).judge()
    if len({plan.asked.epp for plan in plans if under[plan.since]}) > 1:
        yield passed(OTHER_POOL)


def _failed_open(exchange: GatewayExchange, one: PickerStream) -> bool:
    """Whether an EPP failed before it let the whole request go: then a gateway that fails open may do without it."""
    return exchange.fails_open and one.broke and not one.passed


def _plan(exchange: GatewayExchange, one: PickerStream) -> GivenDestination:
    release = one.release
    assert release is not None
    namespace = exchange.facts.context.destination_namespace
    found = (e.value for e in one.destination.fallbacks if e.namespace == namespace and e.message.seq <= release.seq)
    reads = exchange.gateway.follows in ("metadata", "either")
    return GivenDestination(
        asked=one, since=release.seq, text=given(exchange, one), fallback=next(found, None) if reads else None
    )


def _unasked(
    exchange: GatewayExchange, attempt: UpstreamAttempt, backend: str | None, before: Sequence[GivenDestination]
) -> Finding:
    rule = SPLIT if exchange.splits else OTHER_POOL
    if backend is not None and before and exchange.facts.applies(rule):
        expected = f"the EPP of the pool that {attempt.endpoint} is in ({backend}) is asked first"
        asked = ", ".join(dict.fromkeys(plan.asked.epp for plan in before))
        return exchange.fail(rule, expected, f"{asked} was; {exchange.describe()}", at=attempt)
    expected = "the request goes on when the EPP has answered"
    return exchange.fail(FOLLOWED, expected, f"it went to {attempt.endpoint} before", at=attempt)


def _reused(exchange: GatewayExchange, attempt: UpstreamAttempt, plan: GivenDestination) -> Finding | None:
    """The request had moved on to another pool, and came back to an endpoint of the one before."""
    if not exchange.backends or not exchange.facts.applies(OTHER_POOL):
        return None
    earlier = [one for one in exchange.attempts if plan.since < one.at < attempt.at]
    moved = [one for one in exchange.asked if one.epp != plan.asked.epp and plan.since < one.at < attempt.at]
    if not any(one.at < other.at for one in earlier for other in moved):
        return None
    expected = f"an endpoint that the EPP {moved[-1].epp} gave, which was asked last"
    return exchange.fail(OTHER_POOL, expected, f"{attempt.endpoint}, which is of the pool before", at=attempt)


class _Walk:
    """The attempts that one plan accounts for. `last`: no other EPP was asked later."""

    def __init__(
        self, exchange: GatewayExchange, plan: GivenDestination, attempts: Sequence[UpstreamAttempt], *, last: bool
    ) -> None:
        self._exchange = exchange
        self._plan = plan
        self._attempts = attempts
        self._last = last
        self._falls_back = False
        self._items: tuple[WalkedItem, ...] = ()

    def judge(self) -> Iterator[Finding]:
        exchange, applies = self._exchange, self._exchange.facts.applies
        if self._plan.text is None:
            return
        pool = exchange.pool_of(self._plan.asked.epp)
        self._items = walked(self._plan.text, pool, exchange.conduct)
        several = len(self._items) > 1
        if several and not applies(WALKED):
            yield not_applicable(FOLLOWED, "what a list means is not defined in this version")
            return
        if self._plan.fallback is not None and applies(FALLBACK):
            self._items += walked(self._plan.fallback, pool, exchange.conduct)
            self._falls_back = True
        start, spent = 0, 0
        for number, attempt in enumerate(self._attempts):
            next_due = due(self._items, start)
            before = self._attempts[number - 1] if number else None
            served = before is not None and before.status is not None and before.status < 400
            hasty = before is not None and self._is_hasty(attempt, before)
            if attempt.endpoint in next_due.allowed and not hasty:
                place = position(self._items, attempt.endpoint, start)
                spent += 1 + sum(item.sort is not Sort.INVALID for item in self._items[start:place])
                start = place + 1
                if not exchange.settled(attempt):
                    self._items = without(self._items, attempt.endpoint, start)
            elif before is not None and before.endpoint == attempt.endpoint and before.status is None:
                spent += 1  # HTTP clients repeat by themselves what went down with a connection
            elif next_due.endpoint is None and not served:
                return  # the list is used up: nothing is defined any more
            else:
                yield from self._astray(attempt, next_due.endpoint or "none", number, hasty=hasty)
                return
        yield from self._owed(start, spent)

    def _is_hasty(self, attempt: UpstreamAttempt, before: UpstreamAttempt) -> bool:
        """Whether an attempt is none after the failure of the one before: that succeeded, or had not been answered."""
        since, status = self._since_release(attempt), before.status
        if status is not None and status < 400:
            return since < AT_ONCE
        return since < HURRIED and before.endpoint != attempt.endpoint and attempt.t < before.answered - CLOCK

    def _since_release(self, attempt: UpstreamAttempt) -> float:
        """Seconds from the answer of the EPP to the arrival of an attempt; our own loop can only make them more."""
        release = self._plan.asked.release
        assert release is not None
        return (attempt.t - release.entry.t) / 1e9

    def _owed(self, start: int, spent: int) -> Iterator[Finding]:
        exchange = self._exchange
        owed = due(self._items, start)
        if owed.endpoint is not None and self._last and self._goes_on(owed.cost, spent):
            yield exchange.fail(
                self._about(failed=start > 0 or owed.cost > 0),
                f"the request at {owed.endpoint}, which takes requests and is next in {self._text!r}",
                hint=_why_not(self._items, start),
            )
        elif self._attempts:
            yield from self._kept()

    def _goes_on(self, cost: int, spent: int) -> bool:
        """Whether the gateway must make one attempt more, of which `cost` others may fail first."""
        exchange = self._exchange
        retries = 0 if exchange.long else exchange.gateway.retries
        if exchange.aborted or not self._plan.asked.passed or self._plan.asked.broke:
            return False
        if not self._attempts:
            refused = exchange.response is not None and exchange.status is not None and 400 <= exchange.status < 500
            too_late = exchange.response is not None and exchange.response[0] < self._plan.since
            return not refused and not too_late and cost <= retries
        if any(map(exchange.settled, self._attempts)):
            return False  # also where the last did not: they may have been sent at a time
        return self._attempts[-1].status in exchange.gateway.retry_statuses and spent + cost <= retries

    def _astray(self, attempt: UpstreamAttempt, expected: str, number: int, *, hasty: bool) -> Iterator[Finding]:
        exchange = self._exchange
        dead = bool(self._items) and self._items[0].sort is not Sort.SURE
        wanted = f"{expected}, which is next in {self._text!r}"
        before = self._attempts[number - 1] if number else None
        if before is not None and hasty and attempt.t < before.answered:
            wanted = f"no further attempt before {before.endpoint} has answered"
        elif before is not None and before.status not in (None, *exchange.gateway.retry_statuses):
            wanted = f"no further attempt: {before.endpoint} answered {before.status}, which is no status to retry"
        yield exchange.fail(self._about(failed=bool(number) or dead), wanted, at=attempt)

    def _about(self, *, failed: bool) -> str:
        """The requirement that a wrong attempt breaks; `failed`: others before it failed, or nothing listens there."""
        if self._falls_back:
            return FALLBACK if failed else FOLLOWED
        if failed and self._exchange.backends and self._exchange.facts.applies(SAME_POOL):
            return SAME_POOL
        return WALKED if len(self._items) > 1 else FOLLOWED

    def _kept(self) -> Iterator[Finding]:
        yield passed(FOLLOWED)
        if len(self._items) > 1:
            fallback = self._falls_back and self._attempts[-1].endpoint == self._items[-1].endpoint
            yield from [passed(FALLBACK)] if fallback else [] if self._falls_back else [passed(WALKED)]
            if self._exchange.backends and len(self._attempts) > 1:
                yield passed(SAME_POOL)

    @property
    def _text(self) -> str:
        fallback = f", fallback {self._plan.fallback}" if self._falls_back else ""
        return f"{self._plan.text}{fallback}"


def _why_not(items: Sequence[WalkedItem], start: int) -> str:
    odd = [item for item in items[start:] if item.sort is Sort.INVALID]
    if odd:
        return f"{odd[0].text!r} is no endpoint; the first valid one of the list counts."
    return "Clusters that dial the one endpoint of a header (ORIGINAL_DST) know no lists." if len(items) > 1 else ""


# -- the client --------------------------------------------------------------------------------------------------------


@judge_of_episode(STEERED, role="data-plane")
def client(episode_view: EpisodeView) -> Iterator[Finding]:
    """The client names an endpoint, and the EPP another or none: the client's word must not count.

    That one request comes to the endpoint named may be chance, unless the gateway does not even know that endpoint. So
    all of several must have come there, and not in turn: two after each other named the same, and others another.
    """
    every = episode_view.gateway_exchanges
    found = [(exchange, exchange.attempts[0]) for exchange in every if exchange.attempts and _on_its_own(exchange)]
    if not found:
        if any(exchange.client_destinations and takes_none(exchange) for exchange in every):
            yield not_applicable(STEERED, "the gateway takes no requests that name their destination")
        return
    for exchange, attempt in found:
        if (
            attempt.endpoint in exchange.client_destinations
            and exchange.known
            and attempt.endpoint not in exchange.known
        ):
            yield _steered(exchange, attempt, "no model server, or one that the gateway knows")
            return
    followed = all(attempt.endpoint in exchange.client_destinations for exchange, attempt in found)
    ends = [attempt.endpoint for _, attempt in found]
    in_blocks = any(one == other for one, other in itertools.pairwise(ends))
    if followed and len(found) >= LEAST and len(set(ends)) > 1 and in_blocks:
        yield _steered(*found[0], f"an endpoint that the client does not name; so did all of {len(found)} requests")
    elif not followed:
        yield passed(STEERED)


def _on_its_own(exchange: GatewayExchange) -> bool:
    """Whether the client named endpoints, and no EPP did of these, which let the request go or could not be asked."""
    asked = exchange.asked
    goes = any(one.release is not None for one in asked) or exchange.unsteered(exchange.attempts[0])
    if not goes or not exchange.client_destinations:
        return False
    texts = [text for one in asked for text in (one.destination.header, one.destination.metadata) if text]
    named = {endpoint for text in texts for endpoint in parse_list(text).endpoints}
    kept = any(setting.conditional for one in asked for setting in one.destination.settings)
    late = any(one.destination.late_metadata or one.destination.late_settings for one in asked)
    return not kept and not late and named.isdisjoint(exchange.client_destinations)


def _steered(exchange: GatewayExchange, attempt: UpstreamAttempt, expected: str) -> Finding:
    actual = f"{attempt.endpoint}, which the client named in its header"
    hint = "Remove the client's own header before the EPP is asked."
    return exchange.fail(STEERED, expected, actual, at=attempt, hint=hint)
