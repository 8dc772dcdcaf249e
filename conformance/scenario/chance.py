"""The chance that an endpoint picker without a rule passes the scenarios of that rule.

A pick may be inside the allowed set by luck. Two pickers stand for all that ignore a rule: one picks at random among
the endpoints that it considers without the rule (`chance`), one always names the same of them (`constants`). A rule is
tested if neither gets past its scenarios; `docs/reference/coverage.md` lists the figures, and a test holds them.

The pool is taken as the scenario says it: readiness, ports and changes of the pool, not load. What a scenario expects
beyond picks (an error, a status) is not counted; it can only make the chance smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.scenario import references
from conformance.scenario.expect import Expect
from conformance.scenario.loader import Instance
from conformance.scenario.pool import Pod, Pool
from conformance.scenario.schema import Exchange, Scenario

SUBSET_RULES = frozenset(f"EPP-SUB-{number:02}" for number in (1, 5, 7, 8, 9, 11))
"""Without one of these an endpoint picker considers the whole eligible pool."""

PORT_RULE = "EPP-SUB-06"
"""Without it an endpoint picker considers every port of the addresses in the subset."""

MEMBER_RULE = "EPP-DEST-06"
"""Without it an endpoint picker considers every pod that it ever saw, whatever its standing."""

RULES = frozenset({*SUBSET_RULES, PORT_RULE, MEMBER_RULE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """One pick: the endpoints `considered` without the rule, and those `allowed` by it (none: an error is due)."""

    considered: frozenset[str]
    allowed: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """What luck may do about `requirement` in all instances of `scenario`: so many `picks`, and the `chance`."""

    requirement: str
    scenario: str
    picks: int
    chance: float


def by_scenario(instances: Sequence[Instance]) -> list[Luck]:
    """For each rule and each scenario in which a picker without the rule may go wrong: how it may pass by luck.

    In order of requirements, then of scenarios. Each scenario is taken alone, as the path that it takes may be the only
    one on which a rule is broken.
    """
    groups: dict[str, list[Instance]] = {}
    for one in instances:
        groups.setdefault(one.group, []).append(one)
    found = []
    for requirement in sorted(RULES):
        for group, every in groups.items():
            drawn = [one for each in every for one in draws(requirement, each.scenario)]
            telling = sum(bool(one.considered - one.allowed) for one in drawn)
            if telling:
                luck = chance(requirement, every)
                found.append(Luck(requirement=requirement, scenario=group, picks=telling, chance=luck))
    return found


def chance(requirement: str, instances: Iterable[Instance]) -> float:
    """The chance that an endpoint picker that picks at random without `requirement` passes all of `instances`.

    From 0 to 1; 1.0 where no instance draws, as they say nothing about luck.
    """
    drawn = (one for instance in instances for one in draws(requirement, instance.scenario))
    return math.prod(len(one.allowed & one.considered) / len(one.considered) for one in drawn)


def constants(requirement: str, instances: Iterable[Instance]) -> frozenset[str]:
    """The endpoints that an endpoint picker without `requirement` may always name and pass all of `instances`.

    Endpoints go by the name of their pod, as every instance has its own pods: a picker that always takes the first
    pod of its list takes `a` in all of them. Empty where no instance draws.
    """
    drawn = [one for instance in instances for one in draws(requirement, instance.scenario)]
    return frozenset.intersection(*(one.allowed for one in drawn)) if drawn else frozenset()


def draws(requirement: str, scenario: Scenario) -> list[Draw]:
    """Every pick of the scenario that bears on `requirement`; none if the scenario does not name it."""
    if requirement not in scenario.requirements or requirement not in RULES:
        return []
    pool = scenario.pool
    ever = {pod.name: pod for pod in pool.pods}
    found: list[Draw] = []
    for step in scenario.steps:
        if step.pool is not None:
            pool = pool.after(step.pool)
            ever = {pod.name: pod for pod in pool.pods} | ever
        elif step.exchange is not None:
            endpoints = _endpoints(ever.values(), pool.ports)
            eligible = frozenset(_eligible(pool))
            found += _picks(requirement, step.exchange, step.expect, endpoints, eligible)
    return found


def _picks(
    requirement: str,
    exchange: Exchange,
    expect: Expect | None,
    endpoints: Mapping[str, tuple[str, ...]],
    eligible: frozenset[str],
) -> Iterator[Draw]:
    everything = frozenset(one for name, own in endpoints.items() if name != references.NOBODY for one in own)
    for index in range(exchange.repeat):
        hint = exchange.subsets[index % len(exchange.subsets)] if exchange.subsets else exchange.subset
        listed = None if hint is None else frozenset(references.resolve(hint, endpoints))
        allowed = eligible if listed is None else eligible & listed
        if expect is not None and expect.within is not None:
            allowed &= frozenset(references.resolve(expect.within, endpoints))
        if requirement == MEMBER_RULE and listed is None:
            yield Draw(considered=everything, allowed=allowed)
        elif requirement == PORT_RULE and listed:
            addresses = {one.rpartition(":")[0] for one in listed}
            considered = frozenset(one for one in eligible if one.rpartition(":")[0] in addresses)
            if considered:
                yield Draw(considered=considered, allowed=allowed)
        elif requirement in SUBSET_RULES and listed and eligible:
            yield Draw(considered=eligible, allowed=allowed)


def _endpoints(pods: Iterable[Pod], ports: int) -> dict[str, tuple[str, ...]]:
    """Every pod's endpoints, with addresses that stand for those it will have."""
    where = {pod.name: pod.address_of or pod.name for pod in pods}
    own = {name: tuple(f"{address}.pod:{8000 + port}" for port in range(ports)) for name, address in where.items()}
    return {**own, references.NOBODY: ("no.pod:8000",)}


def _eligible(pool: Pool) -> Sequence[str]:
    ready = [pod for pod in pool.pods if pod.is_ready and pod.is_selected_by(pool.selector) and not pod.terminating]
    endpoints = _endpoints(ready, pool.ports)
    return [
        one
        for pod in ready
        for index, one in enumerate(endpoints[pod.name])
        if pod.active_ports is None or index in pod.active_ports
    ]
