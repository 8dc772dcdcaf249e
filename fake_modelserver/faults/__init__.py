"""Everything that can be wrong with a fake model server, by name."""

from __future__ import annotations

from fake_modelserver.faults.fault import Active, Fault, Faults
from fake_modelserver.faults.kinds import KINDS, Attribute, FaultType, Kind
from fake_modelserver.faults.metrics import FaultKind, MetricsFault

__all__ = ["KINDS", "Active", "Attribute", "Fault", "FaultKind", "FaultType", "Faults", "Kind", "MetricsFault"]
