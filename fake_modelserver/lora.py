"""The LoRA metric of vLLM (model server protocol, "LoRA Adapter Serving"), as its releases really write it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fake_modelserver.gauges import Gauges


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraForm:
    """How a server writes the metric.

    - `alike`: both labels list every adapter in flight (vLLM from 0.11.1 on), instead of running and waiting apart;
    - `drained`: with none in flight there is an empty series (Python), else none (the front end in Rust);
    - `ordered`: adapters by name, else in the order given; `separator` stands between them;
    - `max_lora`: the label of that name is there;
    - `processes`: the value is the sum of so many processes' times; `whole_seconds`: it is cut to seconds, so that
      changes within one tie; `skew`: seconds by which the server's clock is ahead.

    Raises `ValueError` if a value makes no sense.
    """

    alike: bool = False
    drained: bool = True
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

    def series(self, gauges: Gauges, updated: float) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of each series. `updated` is when `gauges` were set (Unix time, seconds)."""
        stale = [(one.place, (one.running, one.waiting, one.max_lora), one.age) for one in gauges.stale_loras]
        for place, adapters, age in stale:
            if place == "before":
                yield self._labels(*adapters, alike=False), self._value(updated - age)
        if self.drained or gauges.adapters:
            current = (gauges.running_loras, gauges.waiting_loras, gauges.max_lora)
            yield self._labels(*current, alike=self.alike), self._value(updated)
        for place, adapters, age in stale:
            if place == "after":
                yield self._labels(*adapters, alike=False), self._value(updated - age)

    def _labels(
        self, running: tuple[str, ...], waiting: tuple[str, ...], max_lora: int, *, alike: bool
    ) -> dict[str, str]:
        if alike:
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
