"""Faults in how event streams are passed on: parsed, and put together again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, fault
from reference_epp.epp import Action, BodyMode

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders, HttpTrailers

HELD = {"EPP-STRM-02": "an event waits until it is whole"}


class WholeEvents(Conversation):
    """Passes on event streams by whole events."""

    is_events = False
    rest = b""

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        types = [entry.raw_value for entry in headers.headers.headers if entry.key == "content-type"]
        duplex = self.response_mode in (BodyMode.FULL_DUPLEX_STREAMED, None)
        self.is_events = duplex and any(value.startswith(b"text/event-stream") for value in types)
        return super().on_response_headers(headers)

    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        if not self.is_events:
            return super().on_response_body(body)
        events, blank, self.rest = (self.rest + body.body).rpartition(b"\n\n")
        passed = self.change(events + blank) + (self.left() if body.end_of_stream else b"")
        return self.stream("response", passed, end_of_stream=body.end_of_stream)

    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        return [*self.stream("response", self.left(), end_of_stream=False), *super().on_response_trailers(trailers)]

    def change(self, events: bytes) -> bytes:
        """What is passed on for whole events."""
        return events

    def left(self) -> bytes:
        """What is passed on of an event that the end of the stream cut short."""
        return self.rest


@fault(
    "last-event-lost",
    breaks="ENV-09",
    why="An event stream is passed on by whole events; what ends without a blank line is lost.",
    also_breaks=HELD,
    modes=FULL_DUPLEX,
)
class LastEventLost(WholeEvents):
    def left(self) -> bytes:
        return b""


@fault(
    "only-data-of-events",
    breaks="ENV-09",
    why="Of an event stream only the lines with data are passed on: names, ids and comments are lost.",
    also_breaks=HELD,
    modes=FULL_DUPLEX,
)
class OnlyDataOfEvents(WholeEvents):
    def change(self, events: bytes) -> bytes:
        lines = [line for line in events.splitlines(keepends=True) if line == b"\n" or line.startswith(b"data:")]
        return b"".join(lines)
