"""The pool of a scenario: its pods, and what their metrics show. A part of the schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from conformance.evidence.episode import EngineName
from conformance.strict_yaml import FileModel


def _bare(name: str) -> str:
    return name.strip("{}")


Name = Annotated[str, Field(pattern=r"^\{?[a-z][a-z0-9-]*\}?$"), AfterValidator(_bare)]
"""A pod's name; a variable of the matrix may stand for it."""


Metrics = Literal[
    "ok", "down", "slow", "garbage", "nan", "negative", "stale", "error", "empty", "half", "no-newline"
]  # fmt: skip
Course = Literal["steady", "fills", "swings", "at-odds", "restarts"]


class Load(FileModel):
    """What a pod's metrics show."""

    queue: int | None = Field(None, ge=0, description="requests waiting")
    running: int | None = Field(None, ge=0, description="requests running")
    kv: float | None = Field(None, ge=0, le=1, description="share of the KV cache in use")
    loras: tuple[str, ...] | None = Field(None, description="LoRA adapters loaded")
    waiting_loras: tuple[str, ...] | None = Field(None, description="LoRA adapters waiting")
    metrics: Metrics | None = Field(None, description="how its /metrics behaves")
    course: Course | None = Field(
        None,
        description="how its gauges move: steady (default); fills: from idle to full in two seconds; swings: idle and "
        "full in turn; at-odds: the first rank is idle and the others are full; restarts: the server restarts, once",
    )


IDLE = {"queue": 0, "running": 0, "kv": 0.1, "loras": (), "waiting_loras": (), "metrics": "ok", "course": "steady"}
"""What a pod's metrics show where a scenario says nothing of them, by field of `Load`."""


class PodState(Load):
    """A pod's standing in the pool; what is not named stays as it is (`ready`, `selected`, …)."""

    ready: bool | Literal["unknown", "missing", "gated"] | None = Field(
        None,
        description="its Ready condition is True (default), False, Unknown, or missing; gated: False though its "
        "containers are ready",
    )
    selected: bool | Literal["one-label", "longer-value"] | None = Field(
        None,
        description="carries both labels that the pool selects (default), neither, one of the two, or both with a "
        "value that is longer than the right one",
    )
    terminating: bool | None = Field(None, description="is being deleted, and still answers")
    namespace: Literal["pool", "other"] | None = Field(None, description="the pool's namespace, or another")

    @property
    def is_ready(self) -> bool:
        """Whether it may be picked as far as readiness goes: only a Ready condition that is True says so."""
        return self.ready in (None, True)

    @property
    def is_selected(self) -> bool:
        """Whether the pool selects it: both labels, in the pool's namespace."""
        return self.selected in (None, True) and self.namespace != "other"


class Pod(PodState):
    """A pod: a fake model server on its own address."""

    name: Name = Field(description="what the scenario calls it")
    family: Literal["ipv4", "ipv6"] = Field("ipv4", description="its address family; IPv6 needs a machine with ::1")
    address_of: Name | None = Field(None, description="takes over the address of this pod, which must be gone by then")
    shares_name_with: Name | None = Field(None, description="has the same Kubernetes name, in the other namespace")
    engine: EngineName | None = Field(
        None, description="whose page of metrics it has, whole; default: what the protocol names of vLLM"
    )
    ranks: int | None = Field(None, ge=1, le=8, description="data-parallel ranks on its page")
    backend: Literal["first", "second"] = Field("first", description="the pool it is in, where a gateway has two")
    active_ports: tuple[int, ...] | None = Field(None, description="indexes of the pool's ports that it serves")


STANDARD_PODS = (Pod(name="a"), Pod(name="b"), Pod(name="c"))


class Pool(FileModel):
    """The pool that a scenario starts from: three idle, ready pods on one port, unless said otherwise."""

    pods: tuple[Pod, ...] = Field(STANDARD_PODS, description="its pods; default: a, b and c, idle and ready")
    ports: int = Field(1, ge=1, le=8, description="how many target ports the pool has")

    @model_validator(mode="after")
    def _names_are_unique(self) -> Pool:
        names = [pod.name for pod in self.pods]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"two pods are named {', '.join(repeated)}")
        return self


class KubernetesStep(FileModel):
    """Trouble with the Kubernetes API, until the next change of the pool was published in the midst of it."""

    fault: Literal["drop-watches", "refuse-watch-list", "compact", "restart", "slow", "error"] = Field(
        description="what is wrong with the API"
    )
