"""What the conversations of one EPP share, the body modes they are held in, and what they want sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from ext_proc.messages import ProcessingResponse
from reference_epp.accounting import Accounting
from reference_epp.names import METADATA_NAMESPACE, SUBSET_NAMESPACE
from reference_epp.picker import Picker
from reference_epp.reporter.attributes import Reporter
from reference_epp.reporter.report import Report
from reference_epp.versions import VERSIONS, Version


class BodyMode(IntEnum):
    """How the data plane sends a body (`ProcessingMode.BodySendMode`)."""

    NONE = 0
    STREAMED = 1
    BUFFERED = 2
    BUFFERED_PARTIAL = 3
    FULL_DUPLEX_STREAMED = 4


@dataclass(frozen=True, slots=True)
class Close:
    """End the stream: gRPC status `code` (0 is OK) and its message."""

    code: int = 0
    message: str = ""


Action = ProcessingResponse | Close
"""What a conversation wants sent: an answer, or the end of the stream."""


@dataclass(slots=True)
class Habit:
    """How data planes that do not say their body modes have been seen to send bodies, last."""

    mode: BodyMode | None = None


@dataclass(slots=True, kw_only=True)
class Bodies:
    """How many bytes the request bodies that wait for a decision may have."""

    each: int = 64 * 1024 * 1024
    """A body with more is refused with 413."""
    together: int = 1024 * 1024 * 1024
    """A body that makes all of them more is refused with 503."""
    held: int = 0
    """What all of them have now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epp:
    """What the conversations of one EPP share."""

    picker: Picker
    accounting: Accounting
    version: Version = VERSIONS["1.0.0"]
    models: frozenset[str] = frozenset()
    """Names of the InferenceModels; empty: any model will do. Only versions that know InferenceModels look at it."""
    objectives: Mapping[str, int] = field(default_factory=dict)
    """Priority by name of InferenceObjective."""
    metadata_namespace: str = METADATA_NAMESPACE
    subset_namespace: str = SUBSET_NAMESPACE
    habit: Habit = field(default_factory=Habit)
    bodies: Bodies = field(default_factory=Bodies)
    reporter: Reporter = field(default_factory=Reporter)
    report: type[Report] = Report
    patience: float = 0.1
    """Seconds to wait for a body when the data plane has not said in which mode it sends it: half of what Envoy waits
    for an answer."""
