"""Faults in what the EPP makes of the report of the endpoint that served."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reference_epp.conversation import Conversation
from reference_epp.deviations import DEAD, ENDED, SILENT, WITH_SERVED, fault, part_of
from reference_epp.endpoints import Endpoint, parse_endpoint
from reference_epp.epp import Action, Close
from reference_epp.names import SERVED
from reference_epp.picker import Picked, Picker, Request
from reference_epp.service import INTERNAL

if TYPE_CHECKING:
    from ext_proc.messages import Metadata, Value


class LooksAtServed(Conversation):
    """Does something rash about the served endpoint."""

    end: Close | None = None
    deaf = False

    def note_served(self, metadata: Metadata) -> None:
        namespace = self.epp.metadata_namespace
        if namespace in metadata.filter_metadata and SERVED in metadata.filter_metadata[namespace].fields:
            self.look(metadata.filter_metadata[namespace].fields[SERVED])
        super().note_served(metadata)

    def look(self, value: Value) -> None:
        """Look at the value that the data plane reported."""

    def emit(self, actions: list[Action]) -> list[Action]:
        if self.end is not None:
            return [self.end]
        return [] if self.deaf else super().emit(actions)


@fault(
    "odd-served-is-fatal",
    breaks="EPP-SRVD-01",
    why="A served endpoint that is no string ends the process.",
    also_breaks=DEAD,
    versions=WITH_SERVED,
)
class OddServedIsFatal(LooksAtServed):
    def look(self, value: Value) -> None:
        if value.WhichOneof("kind") != "string_value":
            os._exit(70)


@fault(
    "unknown-served-unanswered",
    breaks="EPP-SRVD-01",
    why="A response served by an endpoint that is not in the pool is never answered.",
    also_breaks=SILENT,
    versions=WITH_SERVED,
)
class UnknownServedUnanswered(LooksAtServed):
    def look(self, value: Value) -> None:
        try:
            served = parse_endpoint(value.string_value)
        except ValueError:
            return
        self.deaf = served not in self.epp.picker.pool.endpoints


@fault(
    "other-served-is-an-error",
    breaks="EPP-SRVD-01",
    why="A response served by another endpoint than the first of the list ends the stream with a gRPC error.",
    also_breaks=ENDED,
    versions=WITH_SERVED,
)
class OtherServedIsAnError(LooksAtServed):
    def look(self, value: Value) -> None:
        first = self.decision.endpoints[0].text if isinstance(self.decision, Picked) else None
        if value.WhichOneof("kind") == "string_value" and first not in (None, value.string_value):
            self.end = Close(INTERNAL, "served by another endpoint")


@fault(
    "another-pod-served-is-an-error",
    breaks="EPP-SRVD-01",
    why="The first pod is picked, and no other; a response served by another one of the pool ends the stream.",
    also_breaks=ENDED,
    versions=WITH_SERVED,
)
class AnotherPodServedIsAnError(OtherServedIsAnError):
    def look(self, value: Value) -> None:
        if value.string_value in {one.text for one in self.epp.picker.pool.endpoints}:
            super().look(value)


@part_of("another-pod-served-is-an-error")
class PicksTheFirst(Picker):
    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        return list(candidates[:1])
