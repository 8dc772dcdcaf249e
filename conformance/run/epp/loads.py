"""What the metrics of a pod show: from a scenario's words to the fake model server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.evidence.episode import EngineName
from conformance.scenario.pool import Load, Pod, PodState
from fake_modelserver import Engine, FaultKind, Gauges, MetricsFault, Ramp, Signal, Square
from fake_modelserver import Pod as Server

RESTING = Load(queue=0, running=0, kv=0.1, course="steady")
"""A pod that is not busy, whatever else its metrics show."""


def only_load(change: PodState) -> Load:
    """Of a change, what metrics show."""
    return Load.model_validate(change.model_dump(include=set(Load.model_fields), exclude_none=True))


def full(pod: Pod) -> Load:
    """What the metrics of a pod show, said or not."""
    return Load.model_validate(pod.shown)


def gauges(pod: Pod) -> Gauges:
    """What its model server shows."""
    loras, waiting = pod.loras or (), pod.waiting_loras or ()
    return Gauges(
        queue=pod.queue or 0,
        running=pod.running or 0,
        kv=0.1 if pod.kv is None else pod.kv,
        running_loras=loras,
        waiting_loras=waiting,
        max_lora=4 if loras or waiting else 0,
    )


_FAULTS = {
    "down": MetricsFault(kind=FaultKind.DOWN),
    "slow": MetricsFault(kind=FaultKind.SLOW, delay=5.0),
    "hang": MetricsFault(kind=FaultKind.HANG),
    "garbage": MetricsFault(kind=FaultKind.GARBAGE),
    "nan": MetricsFault(kind=FaultKind.NAN),
    "stale": MetricsFault(kind=FaultKind.STALE),
    "error": MetricsFault(kind=FaultKind.STATUS, status=500),
    "empty": MetricsFault(kind=FaultKind.MISSING),
    "negative": MetricsFault(kind=FaultKind.NEGATIVE),
    "half": MetricsFault(kind=FaultKind.HALF),
    "no-newline": MetricsFault(kind=FaultKind.NO_NEWLINE),
}

FULL = Gauges(queue=64, running=8, kv=0.99)
"""What a pod shows that can take no more."""

_RANGES = {"queue": (0, FULL.queue), "running": (0, FULL.running), "kv": (0.1, FULL.kv)}
_COURSES: Mapping[str, Mapping[str, Signal]] = {
    "fills": {name: Ramp(start=low, stop=high, seconds=2) for name, (low, high) in _RANGES.items()},
    "swings": {name: Square(low=low, high=high, period=0.4) for name, (low, high) in _RANGES.items()},
}
_ENGINES: Mapping[EngineName, tuple[Engine, str | None]] = {
    "vllm": (Engine.VLLM, None),
    "vllm-rust": (Engine.VLLM, "0.33.0-rust"),
    "vllm-0.10.2": (Engine.VLLM, "0.10.2"),
    "vllm-0.8.5": (Engine.VLLM, "0.8.5"),
    "sglang": (Engine.SGLANG, None),
    "sglang-0.5.10": (Engine.SGLANG, "0.5.10"),
    "trtllm-serve": (Engine.TRTLLM_SERVE, None),
}


def engine_of(pod: Pod) -> Engine | None:
    """Which model server it is; None if the scenario does not say."""
    return _ENGINES[pod.engine][0] if pod.engine is not None else None


def page(pod: Pod) -> dict[str, Any]:
    """Whose page of metrics its model server has, and of how many ranks: arguments of `PodSpec`."""
    found: dict[str, Any] = {"ranks": pod.ranks or 1}
    if pod.engine is not None:
        engine, generation = _ENGINES[pod.engine]
        found |= {"engine": engine, "generation": generation, "page": "real"}
    return found


def moved(server: Server, pod: Pod) -> None:
    """Let the gauges of its model server take their course."""
    server.unpin()
    for gauge, signal in _COURSES.get(pod.course or "", {}).items():
        server.pin(gauge, signal)
    for rank in range(1, pod.ranks or 1):
        server.set_gauges(FULL if pod.course == "at-odds" else gauges(pod), rank=rank)


def fault(pod: Pod) -> MetricsFault | None:
    """What is wrong with its metrics; None if nothing is."""
    return _FAULTS.get(pod.metrics or "ok")
