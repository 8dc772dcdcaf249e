"""The state that a model server reports: queue, running requests, KV cache, LoRA adapters. Values, set at run time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSeries:
    """An out-of-date series of the LoRA metric, which vLLM leaves behind whenever the set of adapters changes.

    `age` is how many seconds its value lies before the current series', or `at` what it is (Unix time, seconds);
    `place` is where it stands relative to it.
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    max_lora: int = 0
    age: float = 60.0
    at: float | None = None
    place: Literal["before", "after"] = "before"

    def __post_init__(self) -> None:
        _check_adapters(self.running, self.waiting, self.max_lora)
        if not (math.isfinite(self.age) and self.age >= 0):
            raise ValueError(f"age is {self.age!r}; it is a number of seconds, 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """What a pod reports at one instant (model server protocol, "Metrics Reporting" and "LoRA Adapter Serving").

    `queue` and `running` count requests; `kv` is the used share of the KV cache, 0 to 1; the adapter tuples are
    names; `max_lora` is how many adapters fit (0 with no adapters: the pod has no LoRA metric).
    Raises `ValueError` if a value is outside its range.
    """

    queue: int = 0
    running: int = 0
    kv: float = 0.0
    running_loras: tuple[str, ...] = ()
    waiting_loras: tuple[str, ...] = ()
    max_lora: int = 0
    stale_loras: tuple[LoraSeries, ...] = ()

    def __post_init__(self) -> None:
        for name, count in (("queue", self.queue), ("running", self.running)):
            if not isinstance(count, int) or count < 0:
                raise ValueError(f"{name} is {count!r}; it is a number of requests, 0 or more")
        if not 0 <= self.kv <= 1:
            raise ValueError(f"kv is {self.kv!r}; it is a share of the cache, from 0 to 1")
        _check_adapters(self.running_loras, self.waiting_loras, self.max_lora)
        series = [(stale.running, stale.waiting, stale.max_lora) for stale in self.stale_loras]
        series.append((self.running_loras, self.waiting_loras, self.max_lora))
        if len(series) != len(set(series)):
            raise ValueError(f"stale_loras are {self.stale_loras!r}; each, and the current one, has its own labels")

    @property
    def adapters(self) -> frozenset[str]:
        """Every adapter that is running or waiting."""
        return frozenset(self.running_loras).union(self.waiting_loras)

    @property
    def has_lora(self) -> bool:
        """True if the pod reports the LoRA metric."""
        return bool(self.max_lora or self.running_loras or self.waiting_loras or self.stale_loras)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoy:
    """A further series of the gauges of load, told apart from the pod's own by `label`.

    What vLLM shows for other data-parallel engines (`engine`) and processes (`pid`), SGLang for ranks (`dp_rank`,
    `tp_rank`) and priorities (`priority`). `place` is where it stands relative to the own series, `families` are the
    meanings that have it, `own` is the value of the label on the own series (None: as without the decoy).
    """

    label: str
    value: str
    gauges: Gauges = field(default_factory=Gauges)
    place: Literal["before", "after"] = "before"
    families: tuple[Literal["queue", "running", "kv"], ...] = ("queue", "running", "kv")
    own: str | None = None

    def __post_init__(self) -> None:
        if not _LABEL.fullmatch(self.label):
            raise ValueError(f"label is {self.label!r}; it is a name of letters, digits and _")
        if self.value == self.own:
            raise ValueError(f"value is {self.value!r}, as the pod's series has; another series needs other labels")


_LABEL = re.compile("[a-zA-Z_][a-zA-Z0-9_]*")


def _check_adapters(running: tuple[str, ...], waiting: tuple[str, ...], max_lora: int) -> None:
    if max_lora < 0:
        raise ValueError(f"max_lora is {max_lora!r}; it is a number of adapters, 0 or more")
    for name in (*running, *waiting):
        if not name or "," in name or name != name.strip():
            raise ValueError(f"adapter name {name!r} cannot be told apart in a comma separated list")
