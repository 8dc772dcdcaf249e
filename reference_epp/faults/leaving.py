"""Faults of EPPs that close their stream before the end: of what they had answered until then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, STREAMED, fault
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.picker import Picked
from reference_epp.variants.streaming import LeavesAtTheEnd

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders


@fault(
    "chunk-lost-before-a-close",
    breaks="ENV-09",
    why="The first of several chunks of a response is emptied; the last is answered with a close of the stream.",
    modes=STREAMED,
)
class ChunkLostBeforeAClose(LeavesAtTheEnd):
    chunks = 0

    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        self.chunks += 1
        actions = list(super().on_response_body(body))
        if self.chunks == 1 and isinstance(actions[0], ProcessingResponse):
            actions[0].response_body.response.body_mutation.clear_body = True
        return actions


@fault(
    "byte-changed-before-a-close",
    breaks="ENV-09",
    why="The last byte of a request body that trailers end is another; they are answered with a close of the stream.",
    modes=FULL_DUPLEX,
)
class ByteChangedBeforeAClose(LeavesAtTheEnd):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        changed = direction == "request" and body and not end_of_stream
        return super().stream(direction, body[:-1] + b"?" if changed else body, end_of_stream=end_of_stream)


@fault(
    "byte-lost-before-a-close",
    breaks="ENV-09",
    why="A buffered body that trailers follow loses its last byte; they are answered with a close of the stream.",
    modes=BUFFERED,
)
class ByteLostBeforeAClose(LeavesAtTheEnd):
    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        actions = list(super().on_request_body(body))
        if isinstance(self.decision, Picked) and not body.end_of_stream and isinstance(actions[0], ProcessingResponse):
            common = actions[0].request_body.response
            common.body_mutation.body = body.body[:-1]
            answers.set_header(common.header_mutation, "content-length", b"%d" % (len(body.body) - 1))
        return actions


@fault(
    "closes-at-the-response-body",
    breaks="ENV-16",
    why="In full duplex the stream is closed when a response's body comes: what the data plane had of it is lost.",
    also_breaks={"ENV-06": "so it is where trailers end the response"},
    modes=FULL_DUPLEX,
)
class ClosesAtTheResponseBody(Conversation):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        duplex = self.response_mode is BodyMode.FULL_DUPLEX_STREAMED
        return [Close()] if duplex else super().on_response_body(body)


@fault(
    "closes-for-an-end",
    breaks="ENV-16",
    why="In full duplex a response comes back whole, and for its end of stream the stream is closed: it stays open.",
    modes=FULL_DUPLEX,
)
class ClosesForAnEnd(Conversation):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        closes = direction == "response" and end_of_stream
        pieces = super().stream(direction, body, end_of_stream=end_of_stream and not closes)
        return [*pieces, Close()] if closes else pieces


@fault(
    "closes-when-a-response-comes",
    breaks="ENV-16",
    why="In full duplex the stream is closed when a response's headers come: what was sent of its body is lost.",
    modes=FULL_DUPLEX,
)
class ClosesWhenAResponseComes(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        duplex = self.response_mode is BodyMode.FULL_DUPLEX_STREAMED and self.decision is not None
        return [Close()] if duplex else super().on_response_headers(headers)


@fault(
    "closes-when-a-response-without-length-comes",
    breaks="ENV-16",
    why="In full duplex headers of a response without content-length close the stream, as a task that panics does.",
    also_breaks={"ENV-06": "so it is where trailers end the response"},
    modes=FULL_DUPLEX,
)
class ClosesWhenAResponseWithoutLengthComes(ClosesWhenAResponseComes):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        told = any(one.key == "content-length" for one in headers.headers.headers)
        return Conversation.on_response_headers(self, headers) if told else super().on_response_headers(headers)
