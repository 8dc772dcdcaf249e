"""Faults of EPPs that close their stream before the end: of what they had answered until then."""
# fmt: off

from __future__ import annotations

from typing import Any

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.changes import changed, header
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, STREAMED, fault
from reference_epp.epp import BodyMode, Close
from reference_epp.picker import Picked
from reference_epp.variants.streaming import LeavesAtTheEnd

WITH_TRAILERS = {"ENV-06": "so it is where trailers end the response"}


def _last_byte_changed(up: Any, _: Any, direction: str, body: bytes, *, end_of_stream: bool) -> Any:
    ours = direction == "request" and body and not end_of_stream
    return up(direction, body[:-1] + b"?" if ours else body, end_of_stream=end_of_stream)


def _last_byte_lost(up: Any, c: Any, body: Any) -> Any:
    actions = list(up(body))
    if isinstance(c.decision, Picked) and not body.end_of_stream and isinstance(actions[0], ProcessingResponse):
        common = actions[0].request_body.response
        common.body_mutation.body = body.body[:-1]
        answers.set_header(common.header_mutation, "content-length", b"%d" % (len(body.body) - 1))
    return actions


def _closes_for_an_end(up: Any, _: Any, direction: str, body: bytes, *, end_of_stream: bool) -> Any:
    closes = direction == "response" and end_of_stream
    pieces = up(direction, body, end_of_stream=end_of_stream and not closes)
    return [*pieces, Close()] if closes else pieces


def _decided(c: Any) -> bool:
    return c.response_mode is BodyMode.FULL_DUPLEX_STREAMED and c.decision is not None


@fault("chunk-lost-before-a-close", "ENV-09",
       "The first chunk of a response is emptied; the last is answered with a close of the stream.", modes=STREAMED)
class ChunkLostBeforeAClose(LeavesAtTheEnd):
    chunks = 0

    def on_response_body(self, body: Any) -> Any:
        self.chunks += 1
        actions = list(super().on_response_body(body))
        if self.chunks == 1 and isinstance(actions[0], ProcessingResponse):
            actions[0].response_body.response.body_mutation.clear_body = True
        return actions


fault("byte-changed-before-a-close", "ENV-09",
      "The last byte of a body before trailers is another; the trailers are answered with a close.",
      changed(LeavesAtTheEnd, stream=_last_byte_changed), modes=FULL_DUPLEX)
fault("byte-lost-before-a-close", "ENV-09",
      "A buffered body before trailers loses its last byte; the trailers are answered with a close.",
      changed(LeavesAtTheEnd, on_request_body=_last_byte_lost), modes=BUFFERED)
fault("closes-at-the-response-body", "ENV-16",
      "The stream is closed when a response's body comes: what the data plane had of it is lost.",
      changed(Conversation, on_response_body=lambda *_: [Close()]),
      when=lambda c: c.response_mode is BodyMode.FULL_DUPLEX_STREAMED, also=WITH_TRAILERS, modes=FULL_DUPLEX)
fault("closes-for-an-end", "ENV-16",
      "A response comes back whole, and for its end of stream the stream is closed: it stays open.",
      changed(Conversation, stream=_closes_for_an_end), modes=FULL_DUPLEX)
fault("closes-when-a-response-comes", "ENV-16",
      "The stream is closed when a response's headers come: what was sent of its body is lost.",
      changed(Conversation, on_response_headers=lambda *_: [Close()]), when=_decided, modes=FULL_DUPLEX)
fault("closes-when-a-response-without-length-comes", "ENV-16",
      "Headers of a response without content-length close the stream, as a task that panics does.",
      changed(Conversation, on_response_headers=lambda up, _, headers:
              up(headers) if header(headers, "content-length") else [Close()]),
      when=_decided, also=WITH_TRAILERS, modes=FULL_DUPLEX)
