"""The faults of `/metrics` by the names that scenarios have for them; each stands for a `Fault`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from fake_modelserver.faults.fault import Fault
from fake_modelserver.faults.kinds import FaultType

NAME = "metrics"
"""The name of the fault that a pod has by `Pod.metrics_fault`."""


class FaultKind(StrEnum):
    """How `/metrics` can fail.

    `down`: the connection is reset without an answer (the port itself stays open, since inference is served on it:
    see `Pod.refuse` for that). `slow`: answers late. `hang`: takes requests and answers none. `status`: an error
    status. `garbage`: 200 with a body that is not metrics. `nan`: every gauge is NaN. `missing`: families are left
    out. `stale`: values stay as they were. `negative`: every gauge is -1. `half`: the page ends inside a line.
    `no_newline`: its last line has no end.
    """

    DOWN = "down"
    SLOW = "slow"
    HANG = "hang"
    STATUS = "status"
    GARBAGE = "garbage"
    NAN = "nan"
    MISSING = "missing"
    STALE = "stale"
    NEGATIVE = "negative"
    HALF = "half"
    NO_NEWLINE = "no_newline"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsFault:
    """A fault of `/metrics`: its kind, `delay` in seconds for `slow`, `status` for `status`, and for `missing` the
    `families` left out (meanings or full metric names; none given: all of them)."""

    kind: FaultKind
    delay: float = 1.0
    status: int = 500
    families: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.fault("/")

    def fault(self, path: str) -> Fault:
        """The fault of the page at `path`. Raises `ValueError` if a value is out of range."""
        kind, attributes = _FAULTS[self.kind]
        values: dict[str, Any] = {"delay": self.delay * 1000, "status": self.status, "families": self.families}
        found = {name: values.get(value, value) for name, value in attributes.items()}
        if found.get("latency") is not None:
            found["latency"] = round(found["latency"])
        return Fault(type=kind, name=NAME, path=path, attributes=found)


_FAULTS: dict[FaultKind, tuple[FaultType, dict[str, Any]]] = {
    FaultKind.DOWN: (FaultType.RESET_PEER, {}),
    FaultKind.SLOW: (FaultType.LATENCY, {"latency": "delay"}),
    FaultKind.HANG: (FaultType.TIMEOUT, {}),
    FaultKind.STATUS: (FaultType.STATUS, {"status": "status"}),
    FaultKind.GARBAGE: (FaultType.GARBAGE, {}),
    FaultKind.NAN: (FaultType.VALUE, {"value": "NaN"}),
    FaultKind.MISSING: (FaultType.MISSING, {"families": "families"}),
    FaultKind.STALE: (FaultType.FROZEN, {}),
    FaultKind.NEGATIVE: (FaultType.VALUE, {"value": "-1"}),
    FaultKind.HALF: (FaultType.HALF, {}),
    FaultKind.NO_NEWLINE: (FaultType.NO_NEWLINE, {}),
}
