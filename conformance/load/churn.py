"""The pool while a load runs: changed on a schedule, through the same controller as in a run of scenarios."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Literal

from conformance.evidence.episode import GaugesShown, PoolState
from conformance.judges.due_answer import OVERRUN_KV, OVERRUN_QUEUE
from conformance.load.mix import Churn
from conformance.load.moments import IDLE, Moments, ShownLoad, State, load_of
from conformance.run.epp.pool import PoolController
from conformance.scenario.pool import Load, Pod, PodState, PoolStep
from conformance.strict_yaml import Document, Problem
from ext_proc.record import Entry

_BUSY = Load(queue=OVERRUN_QUEUE, running=20, kv=OVERRUN_KV)
_WELL = Load(queue=0, running=0, kv=0.1)

_AT_ONCE = 0.05
"""Seconds in which what several pods show is one change."""


class PoolWatcher:
    """Keeps `moments` of a pool from its log."""

    def __init__(self, moments: Moments, now: Callable[[], float]) -> None:
        self.moments = moments
        self._now = now
        self._loads: dict[str, ShownLoad] = {}
        self._latest: State | None = None
        """The state that pods' loads made last, and when that began."""
        self._since = 0.0

    def __call__(self, entry: Entry) -> None:
        """An entry of the log."""
        moments = self.moments
        match entry.event:
            case PoolState(phase="asked", pods=pods):
                there = {pod.name for pod in pods}  # of those that are gone nothing is kept, however long the load is
                self._loads = {name: load for name, load in self._loads.items() if name in there}
                self._blind(moments, there)
                moments.asked(State(pods, dict(self._loads)), self._now())
            case PoolState(phase="delivered"):
                moments.delivered(self._now())
            case GaugesShown(pod=pod, values=values):
                load = load_of(values)
                if load == self._loads.get(pod, IDLE):
                    return
                self._loads[pod] = load
                if moments.observed:
                    self._show(moments)

    def _blind(self, moments: Moments, there: Set[str]) -> None:
        """Who joins while no pod can be read can't be read either; the log says so only when the target has been told
        of it."""
        stay = {pod.name for pod in moments.current.pods} & there if moments.observed else set()
        if stay and all(self._loads.get(name, IDLE).unread for name in stay):
            self._loads |= {name: ShownLoad(idle=True, unread=True) for name in there - stay}

    def _show(self, moments: Moments) -> None:
        """What pods show has changed. Those that change one after the other do so at once for an exchange: a state for
        each of a thousand would be a thousand that it may have acted on."""
        now = self._now()
        state = State(moments.current.pods, dict(self._loads))
        at_once = moments.current is self._latest and moments.pending and now - self._since < _AT_ONCE
        moments.asked(state, now, instead=at_once)
        self._latest, self._since = state, self._since if at_once else now


class PoolChurn:
    """Changes the pool as `plan` says until cancelled. `alone` is held during each change. `done` counts the changes,
    `late` those that came late, as the one before took its time."""

    def __init__(
        self, pool: PoolController, plan: Sequence[Churn], moments: Moments, seed: int, alone: asyncio.Lock
    ) -> None:
        self._pool = pool
        self._alone = alone
        self._plan = plan
        self._moments = moments
        self._random = random.Random(seed)
        self._names = (f"n{number}" for number in itertools.count(1))
        self._unwell: set[str] = set()
        self.done: Counter[str] = Counter()
        self.lately: Counter[str] = Counter()
        """The changes since somebody last looked, who clears it."""
        self.late = 0
        self.metrics: Literal["ok", "down", "hang"] = "ok"
        """What new pods make of theirs."""

    async def run(self) -> None:
        """Make the changes in their order, one at a time."""
        order = itertools.count()
        start = time.monotonic()
        due: list[tuple[float, int, Churn, str]] = [(start + one.every, next(order), one, "") for one in self._plan]
        heapq.heapify(due)
        while due:
            when, _, churn, mending = heapq.heappop(due)
            now = time.monotonic()
            self.late += now > when + churn.every
            await asyncio.sleep(max(0.0, when - now))
            if mending:
                await self._mend(churn, mending)
                continue
            name = self._begin(churn)
            if name:
                await self._harm(churn, name)
            if name and churn.change != "restart":
                self._unwell.add(name)
                heapq.heappush(due, (time.monotonic() + churn.lasts, next(order), churn, name))
            heapq.heappush(due, (max(when + churn.every, time.monotonic()), next(order), churn, ""))

    def _begin(self, churn: Churn) -> str:
        """The pod that it happens to; none if that would leave no other that is well."""
        well = [fact.name for fact in self._pool.facts if fact.eligible and fact.name not in self._unwell]
        if len(well) < 2 and churn.change != "saturate":
            return ""
        return self._random.choice(well) if well else ""

    async def _harm(self, churn: Churn, name: str) -> None:
        match churn.change:
            case "remove":
                await self._change(PoolStep(remove=(name,), settle=False))
            case "restart":
                another = Pod(name=next(self._names), address_of=name, metrics=self.metrics)
                await self._change(PoolStep(remove=(name,), add=(another,), settle=False))
            case "un-ready":
                await self._change(PoolStep(set={name: PodState(ready=False)}, settle=False))
            case "saturate":
                await self._load(name, _BUSY)
        self.done[churn.change] += 1
        self.lately[churn.change] += 1

    async def _mend(self, churn: Churn, name: str) -> None:
        self._unwell.discard(name)
        match churn.change:
            case "remove":
                another = Pod(name=next(self._names), metrics=self.metrics)
                await self._change(PoolStep(add=(another,), settle=False))
            case "un-ready":
                await self._change(PoolStep(set={name: PodState(ready=True)}, settle=False))
            case "saturate":
                await self._load(name, _WELL)

    async def _change(self, step: PoolStep) -> None:
        async with self._alone:
            await self._pool.change(step)
            self._moments.delivered(time.monotonic())

    async def _load(self, name: str, load: Load) -> None:
        async with self._alone:
            await self._pool.load({name: load})
            self._moments.delivered(time.monotonic())


def problems(plan: Sequence[Churn], *, fixed: bool, pods: int, seconds: float, document: Document) -> Iterator[Problem]:
    """What of `plan` can't happen, in a load of so many seconds, to a pool of so many pods, or to one that is `fixed`,
    by its place in the file."""
    for index, one in enumerate(plan):
        place = ("churn", index)
        if one.change != "saturate" and fixed:
            yield document.problem(
                (*place, "change"),
                f"`{one.change}` needs a pool that changes; this target's endpoints are fixed",
                "give it discovery by a file or the Kubernetes API, or leave it out",
            )
        elif one.change != "saturate" and pods < 2:
            yield document.problem(
                (*place, "change"), f"`{one.change}` leaves one pod, and the pool has no other", "raise `pods`"
            )
        if one.every >= seconds:
            yield document.problem(
                (*place, "every"),
                f"the first comes after {one.every:g} s, and the load ends after {seconds:g} s",
                "`arrivals` say how long the load is",
            )


def blind(plan: Sequence[Churn], *, grace: float, seconds: float) -> Iterator[tuple[str, str]]:
    """The changes of `plan` that no pick can be wrong after, and why: what they take away may be picked for the time
    `grace`, and is back, or the load is over, by then."""
    for one in plan:
        if one.change == "un-ready" and one.lasts <= grace:
            yield one.change, f"it lasts {one.lasts:g} s, and may go unnoticed for {grace:g} s (grace time)"
        elif one.change in ("un-ready", "remove") and one.every + grace >= seconds:
            yield one.change, f"the load is over before the first has been for {grace:g} s (grace time)"
