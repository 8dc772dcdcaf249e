"""The members of the pool as the suite keeps them: a scenario's pod, where it serves, and its standing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from conformance.evidence.episode import PodFact
from conformance.scenario.pool import Load, Pod, Selector

OTHER_NAMESPACE = "elsewhere"


def target_ports(lowest: int, count: int) -> tuple[int, ...]:
    """So many target ports of a pool, of which none follows from another: neither in turn nor side by side."""
    return tuple(lowest + 3 * index for index in reversed(range(count)))


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What the pool itself says: its target ports, and the labels that it selects."""

    ports: tuple[int, ...]
    selector: Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pod of the pool, or beside it. `endpoints` has one `ip:port` per port that the pod serves."""

    pod: Pod
    endpoints: tuple[str, ...]
    generation: int = 0
    """Grows when a pod is replaced under its name."""
    serves: bool = True
    """False once another pod has its address: it has no model server any more."""
    spec: PoolSpec
    """The pool that it is in, or beside."""

    @property
    def name(self) -> str:
        """The scenario's name of the pod."""
        return self.pod.name

    @property
    def fact(self) -> PodFact:
        """What is true of it, for the log."""
        return PodFact(
            name=self.pod.name,
            endpoints=self.endpoints,
            ready=self.pod.is_ready,
            terminating=bool(self.pod.terminating),
            selected=self.pod.is_selected_by(self.spec.selector),
        )

    def changed(self, change: Load) -> Member:
        """This member with what `change` names."""
        return dataclasses.replace(self, pod=self.pod.changed(change))
