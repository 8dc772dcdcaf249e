"""Destination Endpoint (DP-DEST-*, and DP-SCOPE-01, -02 with two pools): the request goes where the EPP said.

A pick is judged where it is plain what was said: in time, and in a place that the gateway reads. Header and metadata
that differ, or an answer that breaks ext_proc, leave the data plane to do what it likes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.endpoints import parse_list
from conformance.judges.case import Scene
from conformance.judges.data_plane.walk import Sort, Stop, due, position, stops
from conformance.judges.registry import judge_of_relay, judge_of_scene
from conformance.judges.relay import Asked, Attempt, Relay
from conformance.judges.ruling import Ruling, held, moot

FOLLOWED, WALKED, FALLBACK, STEERED = "DP-DEST-01", "DP-DEST-02", "DP-DEST-03", "DP-DEST-04"
SAME_POOL, OTHER_POOL = "DP-SCOPE-01", "DP-SCOPE-02"

LEAST = 6
"""Requests that must have followed the client before that is no chance: of three pods once in 729."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one EPP said about the request: the text of its destination, and the fallback of 0.3.0."""

    asked: Asked
    since: int
    text: str | None
    fallback: str | None


def given(relay: Relay, one: Asked) -> str | None:
    """The destination as this gateway has to read it; None if it need not follow any."""
    header, metadata = one.steering.header, one.steering.metadata
    if relay.client_destinations and any(setting.conditional for setting in one.steering.settings):
        header = None  # it may have kept the client's
    match relay.gateway.follows:
        case "header":
            return header
        case "metadata":
            return metadata
        case _ if header and metadata and header != metadata:
            return None
        case _:
            return header or metadata


@judge_of_relay(FOLLOWED, WALKED, FALLBACK, SAME_POOL, OTHER_POOL)
def destination(relay: Relay) -> Iterator[Ruling]:
    """The attempts of the request, EPP by EPP."""
    if relay.opened is None:
        yield moot(FOLLOWED, "the HTTP sides were not observed")
        return
    plans = [_plan(relay, one) for one in relay.asked if one.release is not None]
    if not plans:
        return
    under: dict[int, list[Attempt]] = {plan.since: [] for plan in plans}
    for attempt in relay.attempts:
        backend = relay.backend_of(attempt.endpoint)
        before = [plan for plan in plans if plan.since < attempt.at]
        own = [plan for plan in before if backend is None or plan.asked.epp in ("", backend)]
        if not own:
            yield _unasked(relay, attempt, backend, before)
            return
        if (found := _reused(relay, attempt, own[-1])) is not None:
            yield found
            return
        under[own[-1].since].append(attempt)
    for number, plan in enumerate(plans):
        yield from _Walk(relay, plan, under[plan.since], last=number == len(plans) - 1).judge()
    if len({plan.asked.epp for plan in plans if under[plan.since]}) > 1:
        yield held(OTHER_POOL)


def _plan(relay: Relay, one: Asked) -> Plan:
    release = one.release
    assert release is not None
    namespace = relay.scene.context.destination_namespace
    found = (e.value for e in one.steering.fallbacks if e.namespace == namespace and e.said.seq <= release.seq)
    reads = relay.gateway.follows != "header"
    return Plan(asked=one, since=release.seq, text=given(relay, one), fallback=next(found, None) if reads else None)


def _unasked(relay: Relay, attempt: Attempt, backend: str | None, before: Sequence[Plan]) -> Ruling:
    if backend is not None and before and relay.scene.applies(OTHER_POOL):
        expected = f"the EPP of the pool that {attempt.endpoint} is in ({backend}) is asked first"
        return relay.fail(OTHER_POOL, expected, f"it was not; {relay.describe()}", at=attempt)
    expected = "the request goes on when the EPP has answered"
    return relay.fail(FOLLOWED, expected, f"it went to {attempt.endpoint} before", at=attempt)


def _reused(relay: Relay, attempt: Attempt, plan: Plan) -> Ruling | None:
    """The request had moved on to another pool, and came back to an endpoint of the one before."""
    if not relay.backends or not relay.scene.applies(OTHER_POOL):
        return None
    earlier = [one for one in relay.attempts if plan.since < one.at < attempt.at]
    moved = [one for one in relay.asked if one.epp != plan.asked.epp and plan.since < one.at < attempt.at]
    if not any(one.at < other.at for one in earlier for other in moved):
        return None
    expected = f"an endpoint that the EPP {moved[-1].epp} gave, which was asked last"
    return relay.fail(OTHER_POOL, expected, f"{attempt.endpoint}, which is of the pool before", at=attempt)


class _Walk:
    """The attempts that one plan accounts for. `last`: no other EPP was asked later."""

    def __init__(self, relay: Relay, plan: Plan, attempts: Sequence[Attempt], *, last: bool) -> None:
        self._relay = relay
        self._plan = plan
        self._attempts = attempts
        self._last = last
        self._falls_back = False
        self._items: tuple[Stop, ...] = ()

    def judge(self) -> Iterator[Ruling]:
        relay, applies = self._relay, self._relay.scene.applies
        if self._plan.text is None:
            return
        self._items = stops(self._plan.text, relay.known, relay.conduct)
        several = len(self._items) > 1
        if several and not applies(WALKED):
            yield moot(FOLLOWED, "what a list means is not defined in this version")
            return
        if self._plan.fallback is not None and applies(FALLBACK):
            self._items += stops(self._plan.fallback, relay.known, relay.conduct)
            self._falls_back = True
        start, spent = 0, 0
        for number, attempt in enumerate(self._attempts):
            next_due = due(self._items, start)
            before = self._attempts[number - 1] if number else None
            if attempt.endpoint in next_due.allowed:
                place = position(self._items, attempt.endpoint, start)
                spent += 1 + sum(item.sort is not Sort.INVALID for item in self._items[start:place])
                start = place + 1
            elif before is not None and before.endpoint == attempt.endpoint and before.status is None:
                spent += 1  # HTTP clients repeat by themselves what went down with a connection
            elif next_due.endpoint is None:
                return  # the list is used up: nothing is defined any more
            else:
                yield from self._astray(attempt, next_due.endpoint, number)
                return
        yield from self._owed(start, spent)

    def _owed(self, start: int, spent: int) -> Iterator[Ruling]:
        relay = self._relay
        owed = due(self._items, start)
        if owed.endpoint is not None and self._last and self._goes_on(owed.cost, spent):
            yield relay.fail(
                self._about(failed=start > 0 or owed.cost > 0),
                f"the request at {owed.endpoint}, which takes requests and is next in {self._text!r}",
                hint=_why_not(self._items, start),
            )
        elif self._attempts:
            yield from self._kept()

    def _goes_on(self, cost: int, spent: int) -> bool:
        """Whether the gateway must make one attempt more, of which `cost` others may fail first."""
        relay = self._relay
        retries = relay.gateway.retries
        if relay.aborted or not self._plan.asked.passed:
            return False
        if not self._attempts:
            refused = relay.response is not None and relay.status is not None and 400 <= relay.status < 500
            return not refused and cost <= retries
        status = self._attempts[-1].status
        return status in relay.gateway.retry_statuses and spent + cost <= retries

    def _astray(self, attempt: Attempt, expected: str, number: int) -> Iterator[Ruling]:
        relay = self._relay
        dead = bool(self._items) and self._items[0].sort is not Sort.SURE
        wanted = f"{expected}, which is next in {self._text!r}"
        yield relay.fail(self._about(failed=bool(number) or dead), wanted, at=attempt)

    def _about(self, *, failed: bool) -> str:
        """The requirement that a wrong attempt breaks; `failed`: others before it failed, or nothing listens there."""
        if self._falls_back:
            return FALLBACK if failed else FOLLOWED
        if failed and self._relay.backends and self._relay.scene.applies(SAME_POOL):
            return SAME_POOL
        return WALKED if len(self._items) > 1 else FOLLOWED

    def _kept(self) -> Iterator[Ruling]:
        yield held(FOLLOWED)
        if len(self._items) > 1:
            fallback = self._falls_back and self._attempts[-1].endpoint == self._items[-1].endpoint
            yield from [held(FALLBACK)] if fallback else [] if self._falls_back else [held(WALKED)]
            if self._relay.backends and len(self._attempts) > 1:
                yield held(SAME_POOL)

    @property
    def _text(self) -> str:
        fallback = f", fallback {self._plan.fallback}" if self._falls_back else ""
        return f"{self._plan.text}{fallback}"


def _why_not(items: Sequence[Stop], start: int) -> str:
    odd = [item for item in items[start:] if item.sort is Sort.INVALID]
    if odd:
        return f"{odd[0].text!r} is no endpoint; the first valid one of the list counts."
    return "Clusters that dial the one endpoint of a header (ORIGINAL_DST) know no lists." if len(items) > 1 else ""


# -- the client --------------------------------------------------------------------------------------------------------


@judge_of_scene(STEERED, role="data-plane")
def client(scene: Scene) -> Iterator[Ruling]:
    """The client names an endpoint, and the EPP another or none: the client's word must not count.

    That one request comes to the endpoint named may be chance, unless the gateway does not even know that endpoint. So
    all of several must have come there, and not in turn: two after each other named the same, and others another.
    """
    found = [(relay, relay.attempts[0]) for relay in scene.relays if relay.attempts and _on_its_own(relay)]
    if not found:
        return
    for relay, attempt in found:
        if attempt.endpoint in relay.client_destinations and relay.known and attempt.endpoint not in relay.known:
            yield _steered(relay, attempt, "no model server, or one that the gateway knows")
            return
    followed = all(attempt.endpoint in relay.client_destinations for relay, attempt in found)
    ends = [attempt.endpoint for _, attempt in found]
    in_blocks = any(one == other for one, other in itertools.pairwise(ends))
    if followed and len(found) >= LEAST and len(set(ends)) > 1 and in_blocks:
        yield _steered(*found[0], f"an endpoint that the client does not name; so did all of {len(found)} requests")
    elif not followed:
        yield held(STEERED)


def _on_its_own(relay: Relay) -> bool:
    """Whether the client named endpoints, and the EPP let the request go without naming any of these."""
    asked = [one for one in relay.asked if one.release is not None]
    if not asked or not relay.client_destinations:
        return False
    texts = [text for one in asked for text in (one.steering.header, one.steering.metadata) if text]
    named = {endpoint for text in texts for endpoint in parse_list(text).endpoints}
    kept = any(setting.conditional for one in asked for setting in one.steering.settings)
    late = any(one.steering.late_metadata or one.steering.late_settings for one in asked)
    return not kept and not late and named.isdisjoint(relay.client_destinations)


def _steered(relay: Relay, attempt: Attempt, expected: str) -> Ruling:
    actual = f"{attempt.endpoint}, which the client named in its header"
    hint = "Remove the client's own header before the EPP is asked."
    return relay.fail(STEERED, expected, actual, at=attempt, hint=hint)
