"""Whether an episode's pool is that of its scenario: the one it starts from, and each change that its steps make.

Where pods are follows from no scenario; that they are there, how many endpoints they have, and whether they are ready,
terminating and selected does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from conformance.evidence.episode import Episode, PoolState
from conformance.printable import plural
from conformance.report.verify.expected import Planned
from conformance.report.verify.steps import short
from conformance.scenario.pool import Pool
from conformance.scenario.schema import Step

Standing: TypeAlias = dict[str, tuple[bool, bool, bool]]
"""By pod: whether it is ready, terminating, selected."""

State: TypeAlias = tuple[str, Standing]
"""A state of the pool and its phase."""


def problems(
    planned: Planned, episode: Episode, begun: Sequence[tuple[int, int]], *, ended_early: bool, fixed: bool
) -> Iterator[str]:
    """What speaks against the pool of `episode`; `begun`: the step and the first entry of each exchange, in order.

    Where endpoints are `fixed`, the pods of one scenario may have them otherwise than those of another.
    """
    if planned.pool is None or planned.work.mode == "direct":
        return  # a model server is in no pool
    gateway = planned.work.mode == "gateway"
    pool, steps = planned.work.instance.scenario.pool if gateway else planned.pool, planned.work.instance.scenario.steps
    first = begun[0][1] if begun else None
    wanted = standing(pool)
    found = [(entry.seq, state.phase, _found(state, wanted, gateway=gateway)) for entry, state in episode.of(PoolState)]
    before = [one for seq, phase, one in found if phase == "effective" and (first is None or seq < first)]
    if wanted not in before:
        if before or not ended_early:
            has = f"the pods {short(before[-1])}" if before else "no pool"
            yield f"its evidence begins with {has}, its scenario with the pods {short(wanted)}"
        return
    begin = next(number for number, one in enumerate(found) if one[1:] == ("effective", wanted))
    if not gateway and first is not None:
        start = max(entry.seq for entry, _ in episode.of(PoolState) if entry.seq < first)
        kept = [state for entry, state in episode.of(PoolState) if entry.seq >= start]
        if not fixed and any(itertools.starmap(_swapped, itertools.pairwise(one for _, one in episode.of(PoolState)))):
            yield "pods of its pool have changed places"
        yield from _places(kept, [*itertools.accumulate(steps, _after, initial=pool)])
    whole = (len(steps), episode.entries[-1].seq + 1)
    for step, until in (whole, *begun):  # when an exchange begins, the steps before its step are over, and no others
        states = [(phase, one) for seq, phase, one in found[begin:] if seq < until]
        due: list[State] = [("effective", wanted), *_changes(pool, steps[:step])]
        if problem := next(_compared(states, due, ended_early=ended_early), None):
            yield problem if step == len(steps) else f"when an exchange of step {step + 1} begins, {problem}"
            return


def standing(pool: Pool) -> Standing:
    """Of a scenario's pods."""
    return {pod.name: (pod.is_ready, bool(pod.terminating), pod.is_selected_by(pool.selector)) for pod in pool.pods}


def _after(pool: Pool, step: Step) -> Pool:
    return pool if step.pool is None else pool.after(step.pool)


def _swapped(before: PoolState, after: PoolState) -> bool:
    """Whether pods have the endpoints of each other: one that moves gets an address that none has."""
    was, now = ({fact.name: fact.endpoints for fact in state.pods} for state in (before, after))
    moved = [name for name in was if now.get(name, was[name]) != was[name]]
    return bool(moved) and sorted(was[name] for name in moved) == sorted(now[name] for name in moved)


def _places(states: Sequence[PoolState], pools: Sequence[Pool]) -> Iterator[str]:
    """Whether each pod has no more endpoints than ports, and none of another pod.

    `pools` are those of the scenario in their order. A pod may have the address of another only where one of them does.
    """
    ports: dict[str, int] = {}
    for pool in pools:
        for pod in pool.pods:
            own = pool.ports if pod.active_ports is None else len(pod.active_ports)
            ports[pod.name] = max(ports.get(pod.name, 0), own)
    shared = any(pod.address_of is not None for pool in pools for pod in pool.pods)
    for state in states:
        every = [endpoint for fact in state.pods for endpoint in fact.endpoints]
        if any(len(fact.endpoints) > ports.get(fact.name, 0) for fact in state.pods):
            yield f"its pods have {plural(len(every), 'endpoint')}, more than in its scenario"
            return
        if len({*every}) < len(every) and not shared:
            yield "its pods have endpoints in common"
            return


def _found(state: PoolState, wanted: Standing, *, gateway: bool) -> Standing:
    found = {fact.name: (fact.ready, fact.terminating, fact.selected) for fact in state.pods}
    if gateway:  # its pools keep their endpoints: those that a scenario has no pod for are spare
        return {name: one for name, one in found.items() if name in wanted or name[:6] != "spare-"}
    return found


def _changes(pool: Pool, steps: Sequence[Step]) -> Iterator[State]:
    """What must be in the log of each step that changes the pool: that it was begun, and that it was over."""
    exists, last = True, standing(pool)
    for step in (one.pool for one in steps if one.pool is not None):
        pool = pool.after(step)
        exists = exists if step.pool is None else step.pool == "create"
        now = standing(pool) if exists else {}
        if now != last:
            yield "asked", now
        if now != last and step.settle:
            yield "effective", now
        last = now


def _compared(found: Sequence[State], wanted: Sequence[State], *, ended_early: bool) -> Iterator[str]:
    """The same standings, one after the other, and each phase that must be there."""
    path, due = _path(found), _path(wanted)
    if path != due and not (ended_early and path == due[: len(path)]):
        changes = plural(len(path) - 1, "change")
        yield f"its evidence has {changes} of the pool, its scenario {len(due) - 1}, or it has others"
        return
    left = iter(found)
    missing = [one for one in wanted if one not in left]  # in this order: `in` takes the states before it
    if missing and not ended_early:
        yield f"its evidence does not say that the pool was {short(missing[0][1])}: {missing[0][0]}"


def _path(states: Sequence[State]) -> list[Standing]:
    path: list[Standing] = []
    for _, one in states:
        if not path or path[-1] != one:
            path.append(one)
    return path
