"""Variants that read event streams."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, variant
from reference_epp.epp import Action, BodyMode

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders, HttpTrailers


@variant(
    "passes-whole-events",
    why="An event that comes in several pieces waits until it is whole: a token is no later for it.",
    modes=FULL_DUPLEX,
)
class WholeEvents(Conversation):
    blank_line: ClassVar[bytes] = rb"\n\n|\r\n\r\n|\r\r"
    """What ends an event."""
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
        data = self.rest + body.body
        whole = max((found.end() for found in re.finditer(self.blank_line, data)), default=0)
        self.rest = data[whole:]
        passed = self.change(data[:whole]) + (self.left() if body.end_of_stream else b"")
        return self.stream("response", passed, end_of_stream=body.end_of_stream)

    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        return [*self.stream("response", self.left(), end_of_stream=False), *super().on_response_trailers(trailers)]

    def change(self, events: bytes) -> bytes:
        """What is passed on for whole events."""
        return events

    def left(self) -> bytes:
        """What is passed on of an event that the end of the stream cut short."""
        return self.rest
