"""Faults of response bodies: how they end."""

from __future__ import annotations

from collections.abc import Iterable

from reference_epp.answers import Direction
from reference_epp.deviations import FULL_DUPLEX, fault
from reference_epp.epp import Action
from reference_epp.variants.streaming import HoldsJsonResponses


@fault(
    "empty-responses-never-end",
    breaks="ENV-16",
    why="A JSON response is collected and cut into pieces: of one without a byte there is none, and nothing ends it.",
    modes=FULL_DUPLEX,
)
class EmptyResponsesNeverEnd(HoldsJsonResponses):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        without_a_byte = direction == "response" and self.collecting and not body
        return [] if without_a_byte else super().stream(direction, body, end_of_stream=end_of_stream)
