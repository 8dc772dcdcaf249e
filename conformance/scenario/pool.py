"""The pool of a scenario: its pods, and what their metrics show. A part of the schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from conformance.evidence.episode import EngineName
from conformance.strict_yaml import FileModel


def _bare(name: str) -> str:
    return name.strip("{}")


Name = Annotated[str, Field(pattern=r"^\{?[a-z][a-z0-9-]*\}?$"), AfterValidator(_bare)]
"""A pod's name; a variable of the matrix may stand for it."""


Selector = Literal["both-labels", "one-label", "longer-value"]

_BOTH = {"app": "epp-conformance", "component": "model-server"}
LABELS: Mapping[bool | str, Mapping[str, str]] = {
    True: _BOTH,
    False: {"app": "something-else"},
    "both-labels": _BOTH,
    "one-label": {"app": _BOTH["app"]},
    "longer-value": {**_BOTH, "component": f"{_BOTH['component']}-canary"},
}
"""A pod's labels by what a scenario says of `selected`, and those that a pool selects by its `selector`."""

Metrics = Literal[
    "ok", "down", "slow", "hang", "garbage", "nan", "negative", "stale", "error", "empty", "half", "no-newline"
]  # fmt: skip
Course = Literal["steady", "fills", "swings", "at-odds", "restarts"]


class Load(FileModel):
    """What a pod's metrics show."""

    queue: int | None = Field(None, ge=0, description="requests waiting")
    running: int | None = Field(None, ge=0, description="requests running")
    kv: float | None = Field(None, ge=0, le=1, description="share of the KV cache in use")
    loras: tuple[str, ...] | None = Field(None, description="LoRA adapters loaded")
    waiting_loras: tuple[str, ...] | None = Field(None, description="LoRA adapters waiting")
    metrics: Metrics | None = Field(None, description="how its /metrics behaves; hang: it never answers")
    course: Course | None = Field(
        None,
        description="how its gauges move: steady (default); fills: from idle to full in two seconds; swings: idle and "
        "full in turn; at-odds: the first rank is idle and the others are full; restarts: the server restarts, once",
    )


IDLE: dict[str, Any] = {
    "queue": 0,
    "running": 0,
    "kv": 0.1,
    "loras": (),
    "waiting_loras": (),
    "metrics": "ok",
    "course": "steady",
}
"""What a pod's metrics show where a scenario says nothing of them, by field of `Load`."""


class PodState(Load):
    """A pod's standing in the pool; what is not named stays as it is (`ready`, `selected`, …)."""

    ready: bool | Literal["unknown", "missing", "gated", "pending", "ended"] | None = Field(
        None,
        description="its Ready condition is True (default), False, Unknown, or missing; gated: False though its "
        "containers are ready; pending: missing, as it has no address yet; ended: False, as it ran to its end",
    )
    selected: bool | Literal["one-label", "longer-value"] | None = Field(
        None,
        description="carries both labels that a pool selects at first (default), neither, one of the two, or both "
        "with a value that is longer than the right one",
    )
    terminating: bool | None = Field(None, description="is being deleted, and still answers")
    namespace: Literal["pool", "other"] | None = Field(None, description="the pool's namespace, or another")

    @property
    def is_ready(self) -> bool:
        """Whether it may be picked as far as readiness goes: only a Ready condition that is True says so."""
        return self.ready in (None, True)

    @property
    def labels(self) -> Mapping[str, str]:
        """Those that pools select by."""
        return LABELS[True if self.selected is None else self.selected]

    def is_selected_by(self, selector: Selector) -> bool:
        """Whether a pool with this selector selects it: all its labels, in the pool's namespace."""
        return LABELS[selector].items() <= self.labels.items() and self.namespace != "other"

    def changed(self, change: Load) -> Self:
        """This pod with what `change` names."""
        named = {name: value for name, value in change.model_dump(exclude_unset=True).items() if value is not None}
        return self.model_copy(update=named)


class Pod(PodState):
    """A pod: a fake model server on its own address."""

    @property
    def shown(self) -> dict[str, Any]:
        """What its metrics show, said or not."""
        return {name: idle if (said := getattr(self, name)) is None else said for name, idle in IDLE.items()}

    name: Name = Field(description="what the scenario calls it")
    family: Literal["ipv4", "ipv6"] = Field("ipv4", description="its address family; IPv6 needs a machine with ::1")
    address_of: Name | None = Field(
        None, description="takes over the address of this pod, which is gone by then, or serves no longer"
    )
    shares_name_with: Name | None = Field(None, description="has the same Kubernetes name, in the other namespace")
    engine: EngineName | None = Field(
        None, description="whose page of metrics it has, whole; default: what the protocol names of vLLM"
    )
    ranks: int | None = Field(None, ge=1, le=8, description="data-parallel ranks on its page")
    backend: Literal["first", "second"] = Field("first", description="the pool it is in, where a gateway has two")
    active_ports: tuple[int, ...] | None = Field(None, description="indexes of the pool's ports that it serves")


STANDARD_PODS = (Pod(name="a"), Pod(name="b"), Pod(name="c"))


class PoolStep(FileModel):
    """A change of the pool, which settles before the next step (unless `settle` is false)."""

    add: tuple[Pod, ...] = Field((), description="pods that come")
    remove: tuple[Name, ...] = Field((), description="pods that go")
    set: dict[Name, PodState] = Field({}, description="pods that change, by name")
    ports: int | None = Field(None, ge=1, le=8, description="how many target ports the pool has from here on")
    other_ports: bool = Field(False, description="they are others than those that it had at first")
    selector: Selector | None = Field(None, description="what labels the pool selects from here on")
    pool: Literal["delete", "create"] | None = Field(None, description="the InferencePool object itself")
    settle: bool | Literal["quietly"] = Field(
        True,
        description="whether the target is polled until it follows, before the next step; quietly: it is given the "
        "time to converge, and nothing is sent meanwhile",
    )
    convergence: float | None = Field(
        None, gt=0, le=120, description="seconds to settle in, at least; the profile's if it has more"
    )


class Pool(FileModel):
    """The pool that a scenario starts from: three idle, ready pods on one port, unless said otherwise."""

    pods: tuple[Pod, ...] = Field(STANDARD_PODS, description="its pods; default: a, b and c, idle and ready")
    ports: int = Field(1, ge=1, le=8, description="how many target ports the pool has")
    selector: Selector = Field("both-labels", description="what labels the pool selects")

    @model_validator(mode="after")
    def _names_are_unique(self) -> Pool:
        names = [pod.name for pod in self.pods]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"two pods are named {', '.join(repeated)}")
        return self

    def after(self, step: PoolStep) -> Pool:
        """The pool that `step` makes of it."""
        pods = {pod.name: pod for pod in self.pods if pod.name not in step.remove}
        pods |= {name: pods[name].changed(change) for name, change in step.set.items() if name in pods}
        pods |= {pod.name: pod for pod in step.add}
        named = {"ports": step.ports, "selector": step.selector}
        return self.model_copy(
            update={"pods": tuple(pods.values()), **{name: value for name, value in named.items() if value is not None}}
        )


KubernetesFault = Literal[
    "drop-watches",
    "end-watches",
    "refuse-watch-list",
    "bookmark",
    "longer-versions",
    "other-pools",
    "compact",
    "restart",
    "outage",
    "slow",
    "error",
]


class KubernetesStep(FileModel):
    """Trouble with the Kubernetes API, until the next change of the pool was published in the midst of it."""

    fault: KubernetesFault = Field(
        description="what is wrong with the API, or rare: watches are cut, or end as after their time; watches with "
        "initial events are refused; a bookmark comes before the change; resource versions have a digit more from here "
        "on; other pools are there, of pods that this one does not select, also of its name in other namespaces, and "
        "InferenceModels of other pools; history is forgotten; the API restarts before the change; it is down during "
        "the change, and comes back without history (outage); it is slow; it answers 500"
    )
