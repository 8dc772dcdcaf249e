"""What the pool was, and when: the states that an exchange may rightly have acted on, and what in them matters to it.

A change may be followed from the moment it was asked, and must be followed a grace time after it was delivered. So an
exchange has a window of states: every one that was allowed at some instant between its sending and its decision.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from conformance.evidence.episode import PodFact
from conformance.judges.due_answer import BUSY_KV, BUSY_QUEUE, IDLE_KV, IDLE_QUEUE, OVERRUN_KV, OVERRUN_QUEUE
from conformance.reading.endpoints import address_of, canonical


class ShownLoad(NamedTuple):
    """What a pod's metrics amount to for the rules (`judges.due_answer.PoolLoad`)."""

    idle: bool = False
    saturated: bool = False
    overrun: bool = False
    unread: bool = False

    @property
    def gauges(self) -> Mapping[str, Any]:
        """Gauges that amount to it."""
        if self.overrun:
            found = {"queue": OVERRUN_QUEUE, "kv": OVERRUN_KV}
        elif self.saturated:
            found = {"queue": BUSY_QUEUE, "kv": BUSY_KV}
        elif self.idle:
            found = {"queue": IDLE_QUEUE, "kv": 0.0}
        else:
            found = {"queue": (IDLE_QUEUE + BUSY_QUEUE) // 2, "kv": (IDLE_KV + BUSY_KV) / 2}
        return {**found, "metrics": "down" if self.unread else "ok"}


IDLE = ShownLoad(idle=True)

Signature: TypeAlias = tuple[object, ...]

_numbers = itertools.count(1)


def load_of(values: Mapping[str, Any]) -> ShownLoad:
    """What a pod's gauges amount to for the rules."""
    queue, kv = float(values.get("queue") or 0), float(values.get("kv") or 0)
    return ShownLoad(
        idle=queue <= IDLE_QUEUE and kv <= IDLE_KV,
        saturated=queue >= BUSY_QUEUE or kv >= BUSY_KV,
        overrun=queue >= OVERRUN_QUEUE and kv >= OVERRUN_KV,
        unread=values.get("metrics", "ok") != "ok",
    )


class State:
    """The pool at one moment: its pods, and the load of each that is not idle."""

    def __init__(self, pods: tuple[PodFact, ...], loads: Mapping[str, ShownLoad]) -> None:
        self.pods = pods
        self.loads = loads

    @cached_property
    def eligible(self) -> frozenset[str]:
        """The endpoints that may be picked."""
        return frozenset(canonical(one) for pod in self.pods if pod.eligible for one in pod.endpoints)

    @cached_property
    def in_order(self) -> tuple[str, ...]:
        """Those endpoints in order."""
        return tuple(sorted(self.eligible))

    @cached_property
    def eligible_pods(self) -> frozenset[str]:
        """The names of pods that may be picked."""
        return frozenset(pod.name for pod in self.pods if pod.eligible)

    @cached_property
    def owners(self) -> Mapping[str, frozenset[str]]:
        """The names of each endpoint's pods."""
        found: dict[str, frozenset[str]] = {}
        for pod in self.pods:
            for one in map(canonical, pod.endpoints):
                found[one] = found.get(one, frozenset()) | {pod.name}
        return found


class Window:
    """The states that an exchange may have acted on, oldest first; `once` are all endpoints that ever were eligible.

    `number` is that of this window and no other: who remembers something of it need not keep it.
    """

    def __init__(self, states: Sequence[State], once: frozenset[str]) -> None:
        self.number = next(_numbers)
        self.states = tuple(states)
        self._once = once

    # -- for the record ------------------------------------------------------------------------------------------------

    def former(self, mentions: Iterable[str]) -> tuple[PodFact, ...]:
        """Pods at those of the endpoints `mentions` that were eligible before these states."""
        gone = self._once.intersection(mentions) - self._eligible
        return tuple(PodFact(name=f"former-{number}", endpoints=(one,)) for number, one in enumerate(sorted(gone)))

    @cached_property
    def gauges(self) -> Mapping[str, Mapping[str, Any]]:
        """What the metrics of pods show that were not idle throughout: what changed meanwhile is in between."""
        return {name: load.gauges for name, load in sorted(self._loads.items())}

    # -- what bears on an exchange -------------------------------------------------------------------------------------

    def signature(self, mentions: Sequence[str]) -> Signature:
        """What of the window bears on an exchange that names the endpoints `mentions`: equal signatures and equal
        exchanges, equal verdicts.

        Of the endpoints that it names: in which states they were eligible, whether with one pod throughout, and whether
        they were members at all. Of all others no more than whether there are any, elsewhere and at the same address,
        and what they all amount to.
        """
        named = set(mentions)
        eligible, members = self._addresses
        near = named.union(*(eligible.get(address_of(one), ()) for one in mentions))
        rows = frozenset(
            (tuple(one in own for one in mentions), not own.isdisjoint(near - named), not own <= near)
            for own in (state.eligible for state in self.states)
        )
        stay = self._staying
        staying = tuple(one in stay for one in mentions), not stay.isdisjoint(near - named), not stay <= near
        own = frozenset().union(*(self._owners.get(one, frozenset()) for one in mentions))
        places = tuple(
            (
                one in self._owners,
                one in self._once,
                tuple(sorted({self._loads.get(pod, IDLE) for pod in self._owners.get(one, ()) if pod in self._pods})),
                not named.issuperset(eligible.get(address_of(one), ())),
                not named.issuperset(members.get(address_of(one), ())),
                self._all(self._pods_at(address_of(one)) - own),
            )
            for one in mentions
        )
        shared = any(len(endpoints) > 1 for endpoints in members.values())
        return rows, staying, places, self._all(self._pods - own), min(len(members), 2), shared

    def _all(self, pods: frozenset[str]) -> ShownLoad | None:
        """What all of these pods amount to; None if there are none."""
        if not pods:
            return None
        busy = [self._loads[name] for name in self._loads.keys() & pods]
        everyone = len(busy) == len(pods)
        return ShownLoad(
            idle=all(one.idle for one in busy),
            saturated=everyone and all(one.saturated for one in busy),
            overrun=everyone and all(one.overrun for one in busy),
            unread=everyone and all(one.unread for one in busy),
        )

    def _pods_at(self, address: str) -> frozenset[str]:
        """The pods that were eligible at an address."""
        _, members = self._addresses
        owners = (self._owners[endpoint] for endpoint in members.get(address, ()))
        return frozenset().union(*owners) & self._pods

    @cached_property
    def _eligible(self) -> frozenset[str]:
        return frozenset().union(*(state.eligible for state in self.states))

    @cached_property
    def _staying(self) -> frozenset[str]:
        """The endpoints at which one pod was eligible throughout."""
        pairs = (
            {(canonical(one), pod.name) for pod in state.pods if pod.eligible for one in pod.endpoints}
            for state in self.states
        )
        return frozenset(one for one, _ in functools.reduce(set.intersection, pairs))

    @cached_property
    def _pods(self) -> frozenset[str]:
        return frozenset().union(*(state.eligible_pods for state in self.states))

    @cached_property
    def _owners(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for state in self.states:
            for endpoint, pods in state.owners.items():
                found[endpoint] = found.get(endpoint, frozenset()) | pods
        return found

    @cached_property
    def _addresses(self) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
        """The endpoints at each address: those that were eligible, and all."""
        eligible: dict[str, set[str]] = defaultdict(set)
        members: dict[str, set[str]] = defaultdict(set)
        for endpoint in self._owners:
            members[address_of(endpoint)].add(endpoint)
            if endpoint in self._eligible:
                eligible[address_of(endpoint)].add(endpoint)
        return eligible, members

    @cached_property
    def _loads(self) -> Mapping[str, ShownLoad]:
        """The loads of eligible pods that were not idle throughout, over all states."""
        found: dict[str, ShownLoad] = {}
        for name in {name for state in self.states for name in state.loads}:
            loads = [state.loads.get(name, IDLE) for state in self.states if name in state.eligible_pods]
            if loads and any(one != IDLE for one in loads):
                found[name] = ShownLoad(
                    idle=all(one.idle for one in loads),
                    saturated=all(one.saturated for one in loads),
                    overrun=all(one.overrun for one in loads),
                    unread=any(one.unread for one in loads),
                )
        return found


class Moments:
    """The history of a pool as it unfolds. `grace`: seconds within which a delivered change must be followed;
    `longest`: those that an exchange may take until it has a pick."""

    def __init__(self, grace: float, longest: float = 120.0) -> None:
        self.grace = grace
        self._longest = longest
        self._states: list[State] = []
        self._asked: list[float] = []
        self._binding: list[float] = []
        """When each state must be followed at the latest: its predecessors are wrong from then on."""
        self._once: frozenset[str] = frozenset()
        self._windows: dict[tuple[int, int], Window] = {}
        self._holds = 0

    @property
    def observed(self) -> bool:
        """Whether the pool is known."""
        return bool(self._states)

    @property
    def current(self) -> State:
        """The latest state."""
        return self._states[-1]

    @property
    def pending(self) -> bool:
        """Whether the target was not told of the latest state."""
        return self._binding[-1] == math.inf

    def asked(self, state: State, at: float, *, instead: bool = False) -> None:
        """The pool is asked to become `state` at time `at`; the target has not been told yet.

        With `instead` it is so in place of the latest state, since that was asked: both are parts of one change.
        """
        self._once |= state.eligible
        if instead:
            self._states[-1] = state
            self._windows.clear()
            return
        self._forget(at)
        self._states.append(state)
        self._asked.append(at)
        self._binding.append(math.inf if len(self._states) > 1 else at)
        self._windows.clear()

    def delivered(self, at: float) -> None:
        """The target was told of the latest state, and of all before it, at the latest at `at`; not so while deliveries
        are held."""
        if not self._holds:
            self._bind(at)

    def hold(self) -> None:
        """The target can't be told of anything, until `release`."""
        self._holds += 1

    def release(self, at: float) -> None:
        """It was told at `at` of what it could not be told before, unless another hold goes on."""
        self._holds -= 1
        self.delivered(at)

    def window(self, sent: float, decided: float) -> Window | None:
        """What an exchange may have acted on that was sent at `sent` and decided at `decided`; None: not known."""
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

    def _bind(self, at: float) -> None:
        self._binding = [min(when, at + self.grace) for when in self._binding]
        self._windows.clear()

    def _forget(self, now: float) -> None:
        """Drop states that no exchange under way can have acted on."""
        keep = next((i for i in reversed(range(len(self._binding))) if self._binding[i] + self._longest < now), 0)
        del self._states[:keep], self._asked[:keep], self._binding[:keep]
