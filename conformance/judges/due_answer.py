"""Which answer to a request is due: which endpoints it may name, and whether an endpoint or an error is demanded.

From the pool's states while the request was decided, and its subset hint. Between the moment a change is asked for and
the moment it must be followed both states are right: an endpoint is right if any state allows it, and an error is due
only if every state demands it (AMB-10 reads "ready endpoints"). Changes need not be followed in their order: who has
dropped a pod may not know yet of the one that came before or at once. So an endpoint is due only if a pod stays.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from conformance.evidence.episode import GaugesShown, PodFact, PoolHistory
from conformance.reading.endpoints import canonical
from conformance.reading.request_metadata import SubsetHint
from ext_proc.record import Entry

GaugesHistory = Sequence[tuple[Entry, GaugesShown]]
"""What the pods' metrics showed from when on, in order."""

BUSY_QUEUE, BUSY_KV = 5, 0.8
"""A pod with as many requests waiting, or as much of its KV cache in use, is saturated; this is only ever used to
accept a 429. Targets may set their limits higher."""
OVERRUN_QUEUE, OVERRUN_KV = 100, 0.99
"""With as much of both, a pod is beyond any limit: then 429 is asked of a target that claims to shed."""
IDLE_QUEUE, IDLE_KV = 0, 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLoad:
    """How busy the eligible pods were. `idle` and `saturated` are both False in between."""

    idle: bool = True
    saturated: bool = False
    overrun: bool = False
    """Saturated by any measure."""
    blind: bool = False
    """No pod's metrics could be read: an EPP may then answer 503 or 429 as well (AMB-10)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DueAnswer:
    """The answer that is due to one request. Endpoints are in canonical spelling.

    `pool`: what the pool had eligible in any state, `allowed`: what of it the hint leaves. `known` is False if the
    pool was not observed: then nothing is due, and only the hint limits the pick.
    """

    known: bool
    pool: frozenset[str]
    members: frozenset[str]
    """Every endpoint of the pool's pods, eligible or not."""
    allowed: frozenset[str]
    endpoint_due: bool
    error_due: bool
    error_possible: bool
    """No pod was eligible in every state: an error is then right, and has the form that errors have."""
    pool_empty: bool
    """No state of the pool had an eligible endpoint."""
    load: PoolLoad

    def allows(self, endpoint: str) -> bool:
        """Whether the request may go to `endpoint`."""
        return canonical(endpoint) in self.allowed


def due_answer(pool: PoolHistory, shown: GaugesHistory, first: int, last: int, hint: SubsetHint) -> DueAnswer:
    """The answer that is due to a request that was sent at `first` and decided at `last` (sequence numbers)."""
    states = [_known(pods) for pods in pool.between(first, last)]
    anywhere = frozenset[str]().union(*(state.eligible.keys() for state in states))
    members = frozenset[str]().union(*(state.members for state in states))
    named = [_named(hint, state.eligible.keys()) for state in states]
    meant = [_meant(hint, state.eligible.keys()) for state in states]
    allowed = frozenset[str]().union(*meant)
    empty_hint = hint.set and not hint.items
    odd = hint.kind == "wrong-type" or hint.where in ("body", "mixed")
    return DueAnswer(
        known=bool(states),
        pool=anywhere,
        members=members,
        allowed=allowed,
        endpoint_due=bool(states) and _stays(states, named) and not odd,
        error_due=empty_hint or (bool(states) and not any(meant)),
        error_possible=empty_hint or not _stays(states, meant),
        pool_empty=bool(states) and not anywhere,
        load=_load(shown, states, allowed, last),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """One state of the pool. Endpoints are in canonical spelling."""

    members: frozenset[str]
    eligible: Mapping[str, frozenset[str]]
    """By endpoint that may be picked: the names of its pods."""


@functools.lru_cache(maxsize=64)  # under load there are few states and many requests
def _known(pods: tuple[PodFact, ...]) -> _State:
    members: set[str] = set()
    eligible: dict[str, frozenset[str]] = {}
    for pod in pods:
        for endpoint in map(canonical, pod.endpoints):
            members.add(endpoint)
            if pod.eligible:
                eligible[endpoint] = eligible.get(endpoint, frozenset()) | {pod.name}
    return _State(members=frozenset(members), eligible=eligible)


def _named(hint: SubsetHint, endpoints: Set[str]) -> Set[str]:
    return {one for one in endpoints if hint.names(one)} if hint.set else endpoints


def _meant(hint: SubsetHint, endpoints: Set[str]) -> Set[str]:
    if hint.kind == "list" and hint.where in ("every", "headers"):
        return {one for one in endpoints if hint.may_mean(one)}
    return endpoints


def _stays(states: Sequence[_State], endpoints: Sequence[Set[str]]) -> bool:
    """Whether a pod is eligible at one of these endpoints in every state; `endpoints`: those of each state."""
    places = (
        {(one, pod) for one in own for pod in state.eligible[one]} for state, own in zip(states, endpoints, strict=True)
    )
    return bool(functools.reduce(set.intersection, places)) if states else True


def _load(history: GaugesHistory, states: Iterable[_State], allowed: frozenset[str], last: int) -> PoolLoad:
    pods = {name for state in states for one in allowed & state.eligible.keys() for name in state.eligible[one]}
    if not pods:
        return PoolLoad()
    shown: dict[str, dict[str, Any]] = {}
    for entry, gauges in history:
        if entry.seq <= last and gauges.pod in pods:
            shown.setdefault(gauges.pod, {}).update(gauges.values)
    each = [*shown.values(), *([{}] if len(shown) < len(pods) else [])]
    return PoolLoad(
        idle=all(_at_most(values, IDLE_QUEUE, IDLE_KV) for values in each),
        saturated=all(_at_least(values, BUSY_QUEUE, BUSY_KV) for values in each),
        overrun=all(
            _number(values.get("queue")) >= OVERRUN_QUEUE and _number(values.get("kv")) >= OVERRUN_KV for values in each
        ),
        blind=all(values.get("metrics", "ok") != "ok" for values in each),
    )


def _at_most(values: Mapping[str, Any], queue: float, kv: float) -> bool:
    """Whether no gauge is above these; of gauges that move, where each began is all that is known."""
    if values.get("course", "steady") != "steady":
        return False
    return _number(values.get("queue")) <= queue and _number(values.get("kv")) <= kv


def _at_least(values: Mapping[str, Any], queue: float, kv: float) -> bool:
    return _number(values.get("queue")) >= queue or _number(values.get("kv")) >= kv


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


NOTHING = DueAnswer(
    known=False,
    pool=frozenset(),
    members=frozenset(),
    allowed=frozenset(),
    endpoint_due=False,
    error_due=False,
    error_possible=False,
    pool_empty=False,
    load=PoolLoad(),
)
"""What is due to an exchange that asked for nothing."""
