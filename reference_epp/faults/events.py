"""Faults in how event streams are passed on: parsed, and put together again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, NEXT, fault
from reference_epp.epp import Action, Close
from reference_epp.service import INTERNAL
from reference_epp.variants.events import WholeEvents

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders


@fault(
    "last-event-lost",
    breaks="ENV-09",
    why="An event stream is passed on by whole events; what ends without a blank line is lost.",
    modes=FULL_DUPLEX,
)
class LastEventLost(WholeEvents):
    def left(self) -> bytes:
        return b""


@fault(
    "only-data-of-events",
    breaks="ENV-09",
    why="Of an event stream only the lines with data are passed on: names, ids and comments are lost.",
    modes=FULL_DUPLEX,
)
class OnlyDataOfEvents(WholeEvents):
    def change(self, events: bytes) -> bytes:
        lines = [line for line in events.splitlines(keepends=True) if line == b"\n" or line.startswith(b"data:")]
        return b"".join(lines)


@fault(
    "crlf-events-held-back",
    breaks="EPP-STRM-02",
    why="An event ends for it with two LF: those whose lines end with CR and LF are held back to the end.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class CrlfEventsHeldBack(WholeEvents):
    blank_line = rb"\n\n"


@fault(
    "long-line-is-an-error",
    breaks="ENV-16",
    why="An event stream is read by lines of at most 64 KiB; a longer one ends the stream with a gRPC error.",
    modes=FULL_DUPLEX,
)
class LongLineIsAnError(WholeEvents):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        if self.is_events and any(len(line) > 65_536 for line in (self.rest + body.body).splitlines()):
            return [Close(INTERNAL, "token too long")]
        return super().on_response_body(body)


@fault(
    "event-streams-unanswered",
    breaks="ENV-16",
    why="Nothing of a response that is an event stream is answered.",
    modes=FULL_DUPLEX,
)
class EventStreamsUnanswered(Conversation):
    silent = False

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.silent = any(one.raw_value.startswith(b"text/event-stream") for one in headers.headers.headers)
        return super().on_response_headers(headers)

    def emit(self, actions: list[Action]) -> list[Action]:
        return [] if self.silent else super().emit(actions)


@fault(
    "event-bodies-unanswered",
    breaks="ENV-16",
    why="Of a response that is an event stream the headers are answered, and the body is not.",
    modes=FULL_DUPLEX,
)
class EventBodiesUnanswered(WholeEvents):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        return [] if self.is_events else super().on_response_body(body)
