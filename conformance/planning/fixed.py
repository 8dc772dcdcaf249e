"""What can be asked of a target whose endpoints are fixed: all of them are always in its pool, and ready.

A scenario keeps its pods. Endpoints that are left over are further pods, under the load of the scenario's last one, so
that a pool that is busy all over stays so. Of pods that are alike and that nothing refers to, some are left out where
the target knows fewer endpoints; if the scenario names pods, one that it does not name stays, or a pick of those named
would prove nothing.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Sequence

from conformance.printable import plural
from conformance.scenario import references
from conformance.scenario.pool import Load, Pod, Pool
from conformance.scenario.schema import Scenario


def pod_names(count: int, taken: Sequence[str] = ()) -> tuple[str, ...]:
    """So many names for pods (`a`, `b`, … `z`, `p27`, …), none of `taken`."""
    return tuple(itertools.islice((name for name in _names() if name not in taken), count))


def _names() -> Iterator[str]:
    yield from string.ascii_lowercase
    yield from (f"p{number}" for number in itertools.count(len(string.ascii_lowercase) + 1))


def fixed_pool(count: int) -> Pool:
    """The pool of a target that knows `count` endpoints, with nothing particular about any."""
    return Pool(pods=tuple(Pod(name=name) for name in pod_names(count)))


def fitted(scenario: Scenario, count: int) -> Pool | str:
    """The pool that the scenario has on a target that knows `count` endpoints, or why it can't have one."""
    pool = scenario.pool
    if another := _another_pool(scenario):
        return f"needs {another}; this target's endpoints are fixed"
    if count != len(pool.pods) and _about_all(scenario):
        return f"is about a pool of exactly {plural(len(pool.pods), 'endpoint')}, the target knows {count}"
    pods = list(pool.pods)
    load = {name: getattr(pods[-1], name) for name in Load.model_fields}
    pods += [Pod(name=name, **load) for name in pod_names(max(count - len(pods), 0), [pod.name for pod in pods])]
    named = {name for _, name in references.names(scenario.model_dump(mode="json", include={"steps"}))}
    while len(pods) > count:
        dispensable = _dispensable(pods, named)
        if dispensable is None:
            return f"needs {plural(len(pods), 'endpoint')}, the target knows {count}"
        pods.remove(dispensable)
    return pool.model_copy(update={"pods": tuple(pods)})


def _another_pool(scenario: Scenario) -> str:
    """What the scenario needs that a pool of endpoints which the target takes for ready is not; empty if nothing."""
    pool = scenario.pool
    if any(step.pool for step in scenario.steps):
        return "a pool that changes"
    if not pool.pods:
        return "an empty pool"
    if pool.ports != 1:
        return f"a pool with {pool.ports} ports"
    if any(pod.family == "ipv6" for pod in pool.pods):
        return "an IPv6 pod"
    if any(not pod.is_ready or not pod.is_selected_by(pool.selector) or pod.terminating for pod in pool.pods):
        return "a pod that may not be picked"
    return ""


def _about_all(scenario: Scenario) -> bool:
    """Whether a right answer depends on every pod of the pool, so that others would spoil it."""
    steers = ("subset", "subsets", "hint")
    return any(
        step.gauges is not None
        or (
            step.expect is not None
            and (step.expect.within is not None or bool(step.expect.absent))
            and (step.exchange is None or not any(name in step.exchange.model_fields_set for name in steers))
        )
        for step in scenario.steps
    )


def _dispensable(pods: Sequence[Pod], named: set[str]) -> Pod | None:
    """A pod that nothing refers to, of which another is the like; the last one of them."""
    idle = [pod for pod in pods if pod.name not in named]
    if named & {pod.name for pod in pods} and len(idle) == 1:
        return None
    for pod in reversed(idle):
        if any(other is not pod and other.model_copy(update={"name": pod.name}) == pod for other in pods):
            return pod
    return None
