"""Variants that read event streams."""
# fmt: off

from __future__ import annotations

import re
from typing import Any, ClassVar

from reference_epp.changes import events
from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, variant
from reference_epp.epp import BodyMode


@variant("passes-whole-events",
         "An event that comes in several pieces waits until it is whole: a token is no later for it.",
         modes=FULL_DUPLEX)
class WholeEvents(Conversation):
    blank_line: ClassVar[bytes] = rb"\n\n|\r\n\r\n|\r\r"
    """What ends an event."""
    is_events = False
    rest = b""

    def on_response_headers(self, headers: Any) -> Any:
        self.is_events = self.response_mode in (BodyMode.FULL_DUPLEX_STREAMED, None) and events(headers)
        return super().on_response_headers(headers)

    def on_response_body(self, body: Any) -> Any:
        if not self.is_events:
            return super().on_response_body(body)
        data = self.rest + body.body
        whole = max((found.end() for found in re.finditer(self.blank_line, data)), default=0)
        self.rest = data[whole:]
        passed = self.change(data[:whole]) + (self.left() if body.end_of_stream else b"")
        return self.stream("response", passed, end_of_stream=body.end_of_stream)

    def on_response_trailers(self, trailers: Any) -> Any:
        return [*self.stream("response", self.left(), end_of_stream=False), *super().on_response_trailers(trailers)]

    def change(self, whole: bytes) -> bytes:
        """What is passed on for whole events."""
        return whole

    def left(self) -> bytes:
        """What is passed on of an event that the end of the stream cut short."""
        return self.rest
