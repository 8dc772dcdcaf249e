"""Faults of response bodies: how they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ext_proc.messages import HttpBody, ProcessingRequest
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, fault
from reference_epp.epp import Action
from reference_epp.faults.reporter import reporter_fault
from reference_epp.reporter.report import Report
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


@fault(
    "last-piece-of-json-responses-lost",
    breaks="ENV-09",
    why="Of a JSON response that is collected, what comes in the message with the end of stream is forgotten.",
    modes=FULL_DUPLEX,
)
class LastPieceOfJsonResponsesLost(HoldsJsonResponses):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        forgotten = self.collecting and body.end_of_stream
        return super().on_response_body(HttpBody(end_of_stream=True) if forgotten else body)


@fault(
    "end-of-stream-with-the-first-piece-of-a-response",
    breaks="ENV-05",
    why="The end of stream of a response message is on the first piece that it is cut into, and on no other.",
    modes=FULL_DUPLEX,
)
class EndOfStreamWithTheFirstPieceOfAResponse(Conversation):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        if direction == "request" or not body:
            return super().stream(direction, body, end_of_stream=end_of_stream)
        return [
            answers.streamed_answer(direction, part, end_of_stream=end_of_stream and index == 0)
            for index, part in enumerate(answers.pieces(body))
        ]


@reporter_fault(
    "reporter-leaves-the-last-message-unread",
    breaks="RAR-OUT-01",
    why="What comes in the message with the end of stream is not read for its usage.",
    modes=FULL_DUPLEX,
)
class LeavesTheLastMessageUnread(Report):
    def follow(self, message: ProcessingRequest, actions: Sequence[Any]) -> None:
        ends = message.HasField("response_body") and message.response_body.end_of_stream
        super().follow(ProcessingRequest(response_body=HttpBody(end_of_stream=True)) if ends else message, actions)
