"""What the metrics of a pod show: from a scenario's words to the fake model server's."""

from __future__ import annotations

from conformance.scenario.pool import Load, Pod, PodState
from fake_modelserver import FaultKind, Gauges, MetricsFault

IDLE = {"queue": 0, "running": 0, "kv": 0.1, "loras": (), "waiting_loras": (), "metrics": "ok"}

_LOAD = tuple(Load.model_fields)


def load(pod: PodState) -> dict[str, object]:
    """The part of a pod that its metrics show, as far as it is said."""
    return {name: value for name in _LOAD if (value := getattr(pod, name)) is not None}


def only_load(change: PodState) -> Load:
    """Of a change, what metrics show."""
    return Load.model_validate(load(change))


def full(pod: Pod) -> Load:
    """What the metrics of a pod show, said or not."""
    return Load.model_validate({**IDLE, **load(pod)})


def shown(pod: Pod) -> dict[str, object]:
    """The same for the log."""
    return {**IDLE, **load(pod)}


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
    "garbage": MetricsFault(kind=FaultKind.GARBAGE),
    "nan": MetricsFault(kind=FaultKind.NAN),
    "stale": MetricsFault(kind=FaultKind.STALE),
    "error": MetricsFault(kind=FaultKind.STATUS, status=500),
    "empty": MetricsFault(kind=FaultKind.MISSING),
}


def fault(pod: Pod) -> MetricsFault | None:
    """What is wrong with its metrics; None if nothing is."""
    return _FAULTS.get(pod.metrics or "ok")
