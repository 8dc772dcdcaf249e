"""The LoRA metric of vLLM (model server protocol, "LoRA Adapter Serving"), as its releases really write it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fake_modelserver.gauges import Gauges


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraForm:
    """How a server writes the metric.

    - `alike`: both labels list every adapter in flight (vLLM from 0.11.1 on), instead of running and waiting apart;
    - `drained`: with none in flight there is an empty series (Python), else none (the front end in Rust);
    - `keeps`: series of sets that are no more stay on the page (Python);
    - `ordered`: adapters by name, else in the order given; `separator` stands between them;
    - `max_lora`: the label of that name is there;
    - `processes`: the value is the sum of so many processes' times; `whole_seconds`: it is cut to seconds, so that
      changes within one tie; `skew`: seconds by which the server's clock is ahead.

    Raises `ValueError` if a value makes no sense.
    """

    alike: bool = False
    drained: bool = True
    keeps: bool = True
    ordered: bool = False
    separator: str = ","
    max_lora: bool = True
    processes: int = 1
    whole_seconds: bool = False
    skew: float = 0.0

    def __post_init__(self) -> None:
        if self.separator.strip() != ",":
            raise ValueError(f"separator is {self.separator!r}; it is a comma, with or without blanks")
        if self.processes < 1:
            raise ValueError(f"processes is {self.processes!r}; it is a number of processes, from 1")
        if not math.isfinite(self.skew):
            raise ValueError(f"skew is {self.skew!r}; it is a number of seconds")

    def series(self, gauges: Gauges, updated: float) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series. `updated` is when `gauges` were set (Unix time, seconds)."""
        stale = gauges.stale_loras if self.keeps else ()
        before, after = (
            [
                (one.running, one.waiting, one.max_lora, updated - one.age if one.at is None else one.at)
                for one in stale
                if one.place == place
            ]
            for place in ("before", "after")
        )
        current = [(gauges.running_loras, gauges.waiting_loras, gauges.max_lora, updated)]
        found: dict[tuple[str, ...], tuple[dict[str, str], float]] = {}
        for running, waiting, max_lora, at in [*before, *(current if self.drained or gauges.adapters else ()), *after]:
            labels = self._labels(running, waiting, max_lora)
            key = tuple(labels.values())  # what was told apart may look alike here
            found[key] = (labels, max(self._value(at), found[key][1] if key in found else 0.0))
        return list(found.values())

    def _labels(self, running: tuple[str, ...], waiting: tuple[str, ...], max_lora: int) -> dict[str, str]:
        if self.alike:
            running = waiting = tuple(dict.fromkeys((*running, *waiting)))
        if self.ordered:
            running, waiting = tuple(sorted(running)), tuple(sorted(waiting))
        labels = {"max_lora": str(max_lora)} if self.max_lora else {}
        return labels | {
            "running_lora_adapters": self.separator.join(running),
            "waiting_lora_adapters": self.separator.join(waiting),
        }

    def _value(self, at: float) -> float:
        value = (at + self.skew) * self.processes
        return math.floor(value) if self.whole_seconds else value
