"""What the pool was, and when: the states that an exchange may rightly have acted on, and what in them matters to it.

A change may be followed from the moment it was asked, and must be followed a grace time after it was delivered. So an
exchange has a window of states: every one that was allowed at some instant between its sending and its decision.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from conformance.evidence.episode import PodFact
from conformance.judges.epp.due_answer import BUSY_KV, BUSY_QUEUE, IDLE_KV, IDLE_QUEUE
from conformance.reading.endpoints import address_of, canonical

Load: TypeAlias = tuple[bool, bool, bool]
"""Of a pod's metrics: idle, saturated, unreadable."""

IDLE: Load = (True, False, False)

_FAR: Mapping[bool, Mapping[str, Any]] = {
    True: {"queue": IDLE_QUEUE, "kv": 0.0},
    False: {"queue": BUSY_QUEUE, "kv": BUSY_KV},
}
_BETWEEN: Mapping[str, Any] = {"queue": (IDLE_QUEUE + BUSY_QUEUE) // 2, "kv": (IDLE_KV + BUSY_KV) / 2}

Signature: TypeAlias = tuple[object, ...]

_numbers = itertools.count(1)


def load_of(values: Mapping[str, Any]) -> Load:
    """What a pod's gauges amount to for the rules."""
    queue, kv = float(values.get("queue") or 0), float(values.get("kv") or 0)
    return (
        queue <= IDLE_QUEUE and kv <= IDLE_KV,
        queue >= BUSY_QUEUE or kv >= BUSY_KV,
        values.get("metrics", "ok") != "ok",
    )


class State:
    """The pool at one moment: its pods, and the load of each that is not idle."""

    def __init__(self, pods: tuple[PodFact, ...], loads: Mapping[str, Load]) -> None:
        self.pods = pods
        self.loads = loads

    @cached_property
    def _owners(self) -> Mapping[str, tuple[PodFact, ...]]:
        """The pods of each endpoint."""
        found: dict[str, tuple[PodFact, ...]] = {}
        for pod in self.pods:
            for endpoint in pod.endpoints:
                name = canonical(endpoint)
                found[name] = (*found.get(name, ()), pod)
        return found

    @cached_property
    def _addresses(self) -> tuple[Counter[str], Counter[str]]:
        """How many endpoints each address has: eligible ones, and all."""
        eligible, members = Counter[str](), Counter[str]()
        for endpoint, pods in self._owners.items():
            address = address_of(endpoint)
            members[address] += 1
            eligible[address] += any(pod.eligible for pod in pods)
        return eligible, members

    @cached_property
    def _eligible_loads(self) -> tuple[int, Counter[Load]]:
        """How many endpoints are eligible, and the loads of the pods that are."""
        eligible = [pod for pod in self.pods if pod.eligible]
        return sum(len(pod.endpoints) for pod in eligible), Counter(self.load(pod) for pod in eligible)

    @cached_property
    def eligible(self) -> frozenset[str]:
        """The endpoints that may be picked."""
        return frozenset(name for name, pods in self._owners.items() if any(pod.eligible for pod in pods))

    def load(self, pod: PodFact) -> Load:
        """The load of a pod."""
        return self.loads.get(pod.name, IDLE)

    def signature(self, mentions: Sequence[str]) -> Signature:
        """What of this state bears on an exchange that names `mentions`."""
        eligible, members = self._addresses
        owners = self._owners
        places: list[object] = []
        own_eligible: dict[str, None] = {}
        for endpoint in mentions:
            pods, address = owners.get(endpoint, ()), address_of(endpoint)
            allowed = endpoint in self.eligible
            if allowed:
                own_eligible[endpoint] = None
            places.append(
                (
                    allowed,
                    bool(pods),
                    tuple((pod.eligible, self.load(pod), len(pod.endpoints) > 1) for pod in pods),
                    eligible[address] - allowed > 0,
                    members[address] - bool(pods) > 0,
                    self._loads_at(address) if eligible[address] - allowed > 0 else None,
                )
            )
        count, loads = self._eligible_loads
        others = Counter(loads)
        for pod in {pod.name: pod for one in own_eligible for pod in owners[one] if pod.eligible}.values():
            others[self.load(pod)] -= 1
        return (
            tuple(places),
            min(count - len(own_eligible), 1),
            tuple(sorted(load for load, number in others.items() if number > 0)),
            min(len(members), 2),
            any(number > 1 for number in members.values()),
        )

    def _loads_at(self, address: str) -> frozenset[Load]:
        return frozenset(
            self.load(pod)
            for endpoint, pods in self._owners.items()
            if address_of(endpoint) == address
            for pod in pods
            if pod.eligible
        )


class Window:
    """The states that an exchange may have acted on, oldest first; `once` are all endpoints that ever were eligible.

    `number` is that of this window and no other: who remembers something of it need not keep it.
    """

    def __init__(self, states: Sequence[State], once: frozenset[str]) -> None:
        self.number = next(_numbers)
        self.states = tuple(states)
        self._once = once

    @cached_property
    def former(self) -> tuple[PodFact, ...]:
        """Pods at the endpoints that were eligible before these states, for the record."""
        gone = self._once - frozenset().union(*(state.eligible for state in self.states))
        return tuple(PodFact(name=f"former-{number}", endpoints=(one,)) for number, one in enumerate(sorted(gone)))

    @cached_property
    def gauges(self) -> Mapping[str, Mapping[str, Any]]:
        """What the metrics of pods show that were not idle throughout: what changed meanwhile is in between."""
        found: dict[str, Mapping[str, Any]] = {}
        names = {name for state in self.states for name in state.loads}
        for name in sorted(names):
            loads = list(self._loads_of(name))
            if not loads:
                continue
            idle, saturated = all(one[0] for one in loads), all(one[1] for one in loads)
            shown = _FAR[idle] if idle or saturated else _BETWEEN
            found[name] = {**shown, "metrics": "down" if any(one[2] for one in loads) else "ok"}
        return found

    def _loads_of(self, name: str) -> Iterator[Load]:
        return (state.load(pod) for state in self.states for pod in state.pods if pod.name == name and pod.eligible)

    def signature(self, mentions: Sequence[str]) -> Signature:
        """What of the window bears on an exchange that names `mentions`: equal signatures, equal verdicts."""
        return (
            *(state.signature(mentions) for state in self.states),
            tuple(endpoint in self._once for endpoint in mentions),
            tuple(self._changed()),
        )

    def _changed(self) -> Iterator[Load]:
        """The merged loads of pods whose load changed within the window, each once."""
        if len(self.states) > 1:
            names = {name for state in self.states for name in state.loads}
            merged = {tuple(sorted(set(self._loads_of(name)))) for name in names}
            yield from sorted(load for loads in merged if len(loads) > 1 for load in loads)


class Moments:
    """The history of a pool as it unfolds. `grace`: seconds within which a delivered change must be followed."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._states: list[State] = []
        self._asked: list[float] = []
        self._binding: list[float] = []
        """When each state must be followed at the latest: its predecessors are wrong from then on."""
        self._once: frozenset[str] = frozenset()
        self._windows: dict[tuple[int, int], Window] = {}

    @property
    def observed(self) -> bool:
        """Whether the pool is known."""
        return bool(self._states)

    @property
    def current(self) -> State:
        """The latest state."""
        return self._states[-1]

    def asked(self, state: State, at: float) -> None:
        """The pool is asked to become `state` at time `at`; nobody has been told yet."""
        self._forget(at)
        self._once |= state.eligible
        self._states.append(state)
        self._asked.append(at)
        self._binding.append(math.inf if len(self._states) > 1 else at)
        self._windows.clear()

    def delivered(self, at: float) -> None:
        """The target was told of the latest state, and of all before it."""
        for index, when in enumerate(self._binding):
            if when == math.inf:
                self._binding[index] = at + self.grace
        self._windows.clear()

    def window(self, sent: float, decided: float) -> Window | None:
        """What an exchange may have acted on that was sent at `sent` and decided at `decided`; None: nobody knows."""
        last = len(self._states) - 1
        if last < 0:
            return None
        while last > 0 and self._asked[last] > decided:
            last -= 1
        first = last
        while first > 0 and self._binding[first] > sent:
            first -= 1
        window = self._windows.get((first, last))
        if window is None:
            window = Window(self._states[first : last + 1], self._once)
            self._windows[first, last] = window
        return window

    def _forget(self, now: float) -> None:
        """Drop states that no exchange under way can have acted on."""
        keep = next((i for i in reversed(range(len(self._binding))) if self._binding[i] + _LONGEST < now), 0)
        del self._states[:keep], self._asked[:keep], self._binding[:keep]


_LONGEST = 120.0
"""Seconds that an exchange may take."""
