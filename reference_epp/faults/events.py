"""Faults in how event streams are passed on: parsed and put together again, or held back."""
# fmt: off

from __future__ import annotations

from typing import Any

from reference_epp.changes import changed, closing, events, header, method
from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, NEXT, fault
from reference_epp.epp import BodyMode
from reference_epp.variants.events import WholeEvents


def _only_data(_: Any, __: Any, whole: bytes) -> bytes:
    return b"".join(one for one in whole.splitlines(keepends=True) if one == b"\n" or one.startswith(b"data:"))


def _short_lines(up: Any, c: Any, body: Any) -> Any:
    long = c.is_events and any(len(line) > 65_536 for line in (c.rest + body.body).splitlines())
    return closing() if long else up(body)


fault("last-event-lost", "ENV-09",
      "An event stream is passed on by whole events; what ends without a blank line is lost.",
      changed(WholeEvents, left=lambda *_: b""), modes=FULL_DUPLEX)
fault("only-data-of-events", "ENV-09",
      "Only the data lines of an event stream are passed on: names, ids and comments are lost.",
      changed(WholeEvents, change=_only_data), modes=FULL_DUPLEX)
fault("crlf-events-held-back", "EPP-STRM-02",
      "An event ends with two LF: events with CR LF are held back to the end.",
      changed(WholeEvents, blank_line=rb"\n\n"), versions=NEXT, modes=FULL_DUPLEX)
fault("long-line-is-an-error", "ENV-16",
      "A line of more than 64 KiB in an event stream ends the stream with a gRPC error.",
      changed(WholeEvents, on_response_body=_short_lines), modes=FULL_DUPLEX)
fault("event-bodies-unanswered", "ENV-16",
      "The headers of an event stream are answered, its body is not.",
      changed(WholeEvents, on_response_body=lambda up, c, body: [] if c.is_events else up(body)), modes=FULL_DUPLEX)


@fault("event-streams-unanswered", "ENV-16",
       "Nothing of a response that is an event stream is answered.", modes=FULL_DUPLEX)
class EventStreamsUnanswered(Conversation):
    silent = False

    def on_response_headers(self, headers: Any) -> Any:
        self.silent = events(headers)
        return super().on_response_headers(headers)

    def emit(self, actions: Any) -> Any:
        return [] if self.silent else super().emit(actions)


# -- held back until the response is complete


class HoldsBack(Conversation):
    """Holds response bodies of event streams back."""

    held_response: list[bytes]
    content_type = b""

    def on_response_headers(self, headers: Any) -> Any:
        self.held_response = []
        self.content_type = header(headers, "content-type") if events(headers) else b""
        return super().on_response_headers(headers)

    def on_response_body(self, body: Any) -> Any:
        if not self.content_type or self.response_mode not in (BodyMode.FULL_DUPLEX_STREAMED, None):
            return super().on_response_body(body)
        self.held_response.append(body.body)
        if not body.end_of_stream:
            return []
        return self.stream("response", b"".join(self.held_response), end_of_stream=True)

    def on_response_trailers(self, trailers: Any) -> Any:
        body = b"".join(self.held_response) if self.content_type else b""
        return [*self.stream("response", body, end_of_stream=False), *super().on_response_trailers(trailers)]


fault("events-held-back", "EPP-STRM-02",
      "Server-sent events are held back until the response is complete.",
      HoldsBack, versions=NEXT, modes=FULL_DUPLEX)
fault("events-with-charset-held-back", "EPP-STRM-02",
      "Server-sent events are held back if their content-type is more than `text/event-stream`.",
      HoldsBack, when=lambda c: c.content_type != b"text/event-stream",
      versions=NEXT, modes=FULL_DUPLEX)
fault("events-without-a-request-body-held-back", "EPP-STRM-02",
      "Server-sent events are held back if the request's body did not ask for a stream.",
      HoldsBack, when=lambda c: method(c) == b"GET", versions=NEXT, modes=FULL_DUPLEX)
fault("events-of-hinted-requests-held-back", "EPP-STRM-02",
      "Server-sent events are held back if the request had a subset hint.",
      HoldsBack, when=lambda c: c.subset is not None, versions=NEXT, modes=FULL_DUPLEX)
