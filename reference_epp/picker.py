"""Choose endpoints for a request: filter the pool, weigh what is left, decide.

`Picker.pick` is the whole of it. Filters leave out what may not be picked; scorers say, in thresholds' worth of load,
how unattractive an endpoint is. The lowest score wins; the next ones follow in the list.
"""

# ruff: noqa: ARG002  (seams have the arguments that an override may need)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reference_epp.accounting import Accounting
from reference_epp.endpoints import Endpoint, Pool
from reference_epp.gauges import Gauges
from reference_epp.prefixes import Prefixes
from reference_epp.scraper import Readings
from reference_epp.subset import Subset

NOT_FOUND = 404
TOO_MANY_REQUESTS = 429
SERVICE_UNAVAILABLE = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the choice depends on."""

    model: str | None = None
    """The model that the body names."""
    body: bytes = b""
    subset: Subset | None = None
    """The only endpoints that may be picked; None if the data plane set no limit."""
    sheddable: bool = False
    """Its objective has a priority below zero: it may be dropped when all servers are under heavy load."""


@dataclass(frozen=True, slots=True)
class Picked:
    """The request may go to these endpoints, best first."""

    endpoints: tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The request is answered with HTTP status `code`; `reason` is for people."""

    code: int
    reason: str


Decision = Picked | Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much load is heavy, and how many endpoints a decision names."""

    queue_threshold: int = 5
    kv_threshold: float = 0.8
    endpoints: int = 2


class Picker:
    """Decides for one request after the other; remembers only what spreads them."""

    def __init__(self, pool: Pool, readings: Readings, accounting: Accounting, limits: Limits) -> None:
        self.pool = pool
        self.readings = readings
        self.accounting = accounting
        self.limits = limits
        self.prefixes = Prefixes()
        self._turn = 0

    def pick(self, request: Request) -> Decision:
        """Decide. Having no endpoint (503) is asked before being overloaded (429): without servers there is no load."""
        candidates = self.eligible(request)
        if not candidates:
            return self.none_eligible(request)
        if request.sheddable and self.saturated(candidates):
            return self.shed(request)
        ranked = self.rank(candidates, request)
        self.prefixes.learn(request.body, ranked[0])
        return Picked(tuple(ranked[: self.limits.endpoints]))

    # -- filters

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        """The ready endpoints that the data plane lets us choose from (section Endpoint Subset)."""
        return inside_subset(self.pool.endpoints, request)

    def none_eligible(self, request: Request) -> Decision:
        """What becomes of a request without candidates (sections Endpoint Subset and Destination Endpoint)."""
        return Refused(SERVICE_UNAVAILABLE, "no ready endpoints" if request.subset is None else "no endpoint in subset")

    # -- saturation

    def saturated(self, candidates: Sequence[Endpoint]) -> bool:
        """True if every candidate is known to be under heavy load; silence is no proof of load."""
        return all(self._overloaded(endpoint) for endpoint in candidates)

    def _overloaded(self, endpoint: Endpoint) -> bool:
        gauges = self.readings.get(endpoint)
        return gauges is not None and (
            gauges.queued > self.limits.queue_threshold or gauges.kv_cache > self.limits.kv_threshold
        )

    def shed(self, request: Request) -> Decision:
        """What becomes of a sheddable request when all candidates are saturated (section Destination Endpoint)."""
        return Refused(TOO_MANY_REQUESTS, "servers are under heavy load and the request is sheddable")

    # -- scorers

    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        """The candidates, best first; equal ones take turns."""
        self._turn += 1
        start = self._turn % len(candidates)
        turned = [*candidates[start:], *candidates[:start]]
        match = seen_prefix(self.prefixes, request)
        bonus = {match[0]: match[1]} if match else {}
        return sorted(turned, key=lambda endpoint: self.score(endpoint, request) - bonus.get(endpoint, 0.0))

    def score(self, endpoint: Endpoint, request: Request) -> float:
        """How unattractive `endpoint` is: 1.0 is one threshold's worth of load."""
        gauges = self.readings.get(endpoint)
        in_flight = open_requests(self.accounting, endpoint)
        if gauges is None:
            return UNKNOWN_LOAD + in_flight
        return (
            waiting_requests(gauges, self.limits)
            + cache_pressure(gauges, self.limits)
            - adapter_affinity(gauges, request)
            + in_flight
        )


# -- scorers

UNKNOWN_LOAD = 1.0
"""A server that says nothing counts as one at a threshold, so that it is neither flooded nor starved."""


def waiting_requests(gauges: Gauges, limits: Limits) -> float:
    """Requests that wait delay the next one by as much, so their number weighs in proportion."""
    return gauges.queued / max(limits.queue_threshold, 1)


def cache_pressure(gauges: Gauges, limits: Limits) -> float:
    """A server whose KV cache is full preempts requests that run, so it counts even while none waits."""
    return gauges.kv_cache / limits.kv_threshold


def adapter_affinity(gauges: Gauges, request: Request) -> float:
    """Loading a LoRA adapter takes seconds: best is a server that runs it, then one that is to, then one with room."""
    if request.model in gauges.running_adapters:
        return 0.5
    if request.model in gauges.waiting_adapters:
        return 0.25
    return 0.1 if len(gauges.running_adapters) < gauges.max_adapters else 0.0


def open_requests(accounting: Accounting, endpoint: Endpoint) -> float:
    """Gauges are older than what was sent since: it decides among servers that say they are equal."""
    return accounting.in_flight[endpoint] / 100


def seen_prefix(prefixes: Prefixes, request: Request) -> tuple[Endpoint, float] | None:
    """The server that saw the beginning of this prompt has it in its KV cache; which one, and for how much of it."""
    return prefixes.match(request.body) if request.body else None


# -- filters


def inside_subset(endpoints: Sequence[Endpoint], request: Request) -> Sequence[Endpoint]:
    """The data plane may limit the choice (section Endpoint Subset); what is outside can't be reached through it."""
    return endpoints if request.subset is None else [one for one in endpoints if one in request.subset]
