"""Faults of streams: their configuration, their isolation, their ends, and the streaming mode of `next`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from google.protobuf.message import DecodeError

from ext_proc.messages import ProcessingRequest
from ext_proc.server import ServedStream
from reference_epp.answers import Direction
from reference_epp.conversation import Conversation
from reference_epp.deviations import DEAD, ENDED, FULL_DUPLEX, NEXT, SILENT, WITH_SUBSET, fault, part_of
from reference_epp.epp import Action, Close, Epp
from reference_epp.picker import Decision, Picked, Refused
from reference_epp.service import Service
from reference_epp.subset import Subset

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders

FAILED_PRECONDITION = 9
DEADLINE_EXCEEDED = 4
RESOURCE_EXHAUSTED = 8

# -- what the first message says


@fault(
    "protocol-config-required",
    breaks="ENV-19",
    why="A stream whose first message has no `protocol_config` is closed with a gRPC error.",
    also_breaks=ENDED,
)
class ProtocolConfigRequired(Conversation):
    def configure(self, message: ProcessingRequest) -> Close | None:
        if not message.HasField("protocol_config"):
            return Close(FAILED_PRECONDITION, "protocol_config is required")
        return super().configure(message)


@fault(
    "bodies-without-waiting-refused",
    breaks="ENV-19",
    why="A stream is closed with a gRPC error if the data plane sends bodies without waiting for the headers' answer.",
    also_breaks=ENDED,
)
class BodiesWithoutWaitingRefused(Conversation):
    def configure(self, message: ProcessingRequest) -> Close | None:
        if message.protocol_config.send_body_without_waiting_for_header_response:
            return Close(FAILED_PRECONDITION, "bodies must wait")
        return super().configure(message)


@fault(
    "one-mode-for-both",
    breaks="ENV-04",
    why="The response's bodies are answered as the body mode of the request asks, not as their own does.",
)
class OneModeForBoth(Conversation):
    def configure(self, message: ProcessingRequest) -> Close | None:
        refusal = super().configure(message)
        if self.request_mode is not None:
            self.response_mode = self.request_mode
        return refusal


@fault(
    "pauses-are-the-end",
    breaks="ENV-16",
    why="A stream on which nothing comes for 1.5 s while the response is under way is closed with a gRPC error.",
    modes=FULL_DUPLEX,
)
class PausesAreTheEnd(Conversation):
    responding = False

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.responding = True
        return super().on_response_headers(headers)

    @property
    def impatient(self) -> bool:
        return self.responding or super().impatient

    def patience_is_over(self) -> list[Action]:
        return [Close(DEADLINE_EXCEEDED, "nothing comes")] if self.responding else super().patience_is_over()


@fault(
    "slow-bodies-in-another-mode",
    breaks="ENV-04",
    why="A request whose body does not come within 0.1 s of its headers is answered as in body mode STREAMED.",
    modes=FULL_DUPLEX,
)
class SlowBodiesInAnotherMode(Conversation):
    @property
    def impatient(self) -> bool:
        return self.held


# -- isolation


@fault(
    "shared-body-buffer",
    breaks="ENV-21",
    why="There are 96 buffers for the bodies to give back: when more streams are open, two share one.",
    also_breaks={"ENV-09": "a body comes back with parts of another"},
    modes=FULL_DUPLEX,
)
class SharedBodyBuffer(Conversation):
    buffers: ClassVar[list[list[bytes]]] = [[] for _ in range(96)]

    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        self.buffers[self.number % 96].append(body.body)
        return super().on_request_body(body)

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        if direction == "request":
            buffer = self.buffers[self.number % 96]
            body = b"".join(buffer)
            buffer.clear()
        return super().stream(direction, body, end_of_stream=end_of_stream)

    def finished(self) -> None:
        super().finished()
        if not isinstance(self.decision, Picked):  # a request that went nowhere leaves nothing behind
            self.buffers[self.number % 96].clear()


@fault(
    "one-lock-for-all-sends",
    breaks="ENV-21",
    why="A lock is held while an answer is sent, so that a connection of which nothing is read holds up all others.",
)
class OneLockForAllSends(Service):
    def __init__(self, epp: Epp, conversation: type[Conversation] = Conversation) -> None:
        super().__init__(epp, conversation)
        self.sending = asyncio.Lock()

    async def send(self, stream: ServedStream, answer: Action) -> None:
        async with self.sending:
            await super().send(stream, answer)


@fault(
    "shared-subset",
    breaks="ENV-21",
    why="There are 8 places for subsets of requests that come in pieces: when more are open, one gets another's.",
    also_breaks={
        "EPP-SUB-01": "the pick is outside the request's own subset",
        "EPP-SUB-02": "or it is refused, where nothing of the other's is eligible",
    },
    versions=WITH_SUBSET,
    modes=("full-duplex", "buffered"),
)
class SharedSubset(Conversation):
    latest: ClassVar[dict[int, Subset | None]] = {}

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        if self.subset:
            self.latest[self.number % 8] = self.subset
        return super().on_request_headers(headers)

    def choose(self, body: bytes) -> Decision:
        if self.subset and len(self.body) > 1:
            self.subset = self.latest.get(self.number % 8, self.subset)
        return super().choose(body)


@fault(
    "state-by-request-id",
    breaks="ENV-21",
    why="Decisions are kept by x-request-id, so that a request with the id of another gets that one's endpoint.",
    also_breaks={"EPP-SUB-01": "the pick may be outside the request's own subset"},
    versions=WITH_SUBSET,
)
class StateByRequestId(Conversation):
    decisions: ClassVar[dict[bytes, Picked]] = {}

    def choose(self, body: bytes) -> Decision:
        request_id = self.headers.get("x-request-id")
        decision = super().choose(body)
        if request_id is None or not isinstance(decision, Picked):
            return decision
        return self.decisions.setdefault(request_id, decision)


@fault(
    "fifty-streams-at-most",
    breaks="ENV-16",
    why="When fifty streams are open, further ones are refused with a gRPC error.",
    also_breaks={
        "ENV-21": "alone they would have been answered",
        "EPP-ERR-04": "so it is where no endpoint could be given",
    },
)
class FiftyStreamsAtMost(Service):
    open_streams = 0

    async def process(self, stream: ServedStream) -> None:
        if self.open_streams >= 50:
            stream.end(RESOURCE_EXHAUSTED, "too many streams")
            return
        self.open_streams += 1
        try:
            await super().process(stream)
        finally:
            self.open_streams -= 1


# -- the data plane goes away


@fault(
    "dies-when-aborted",
    breaks="ENV-22",
    why="The process ends when a stream is reset before its request was answered.",
    also_breaks=DEAD,
)
class DiesWhenAborted(Conversation):
    def finished(self) -> None:
        super().finished()
        if self.held:
            os._exit(70)


@fault(
    "nested-json-is-fatal",
    breaks="ENV-27",
    why="A body of deeply nested JSON ends the process.",
)
class NestedJsonIsFatal(Conversation):
    def read_model(self, body: bytes) -> str | None:
        if b"[" * 32 in body:
            os._exit(70)
        return super().read_model(body)


@fault(
    "unknown-message-is-fatal",
    breaks="ENV-27",
    why="A message of an unknown kind ends the process.",
    also_breaks={"ENV-26": "it is not left alone"},
)
class UnknownMessageIsFatal(Conversation):
    def receive(self, message: ProcessingRequest) -> list[Action]:
        if message.WhichOneof("request") is None:
            os._exit(70)
        return super().receive(message)


@fault(
    "malformed-message-is-fatal",
    breaks="ENV-27",
    why="The process ends when a message is none.",
)
class MalformedMessageIsFatal(Service):
    def parse(self, raw: bytes) -> ProcessingRequest:
        try:
            return super().parse(raw)
        except DecodeError:
            os._exit(70)


class DeafToUnknown(Conversation):
    """Hears nothing any more after a message of no known kind."""

    deaf = False

    def receive(self, message: ProcessingRequest) -> list[Action]:
        self.deaf = self.deaf or message.WhichOneof("request") is None
        return [] if self.deaf else super().receive(message)


@fault(
    "malformed-message-unanswered",
    breaks="ENV-27",
    why="A stream on which a message is none is neither answered nor ended: who reads it has left, the stream stays.",
    also_breaks=SILENT | {"ENV-26": "nor is one with a message of an unknown kind"},
)
class MalformedMessageUnanswered(Service):
    def parse(self, raw: bytes) -> ProcessingRequest:
        try:
            return super().parse(raw)
        except DecodeError:
            return ProcessingRequest()


@part_of("malformed-message-unanswered")
class StreamStays(DeafToUnknown):
    pass


@fault(
    "unknown-message-unanswered",
    breaks="ENV-26",
    why="After a message of an unknown kind nothing on the stream is answered any more.",
    also_breaks=SILENT,
)
class UnknownMessageUnanswered(DeafToUnknown):
    pass


# -- streaming mode


@fault(
    "many-chunks-refused",
    breaks="EPP-STRM-01",
    why="A request whose body comes in more than 16 chunks gets 413.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class ManyChunksRefused(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        if len(self.body) > 16:
            return self.refuse(Refused(413, "too many chunks"))
        return super().release_with_body(end_of_stream=end_of_stream)


@fault(
    "four-megabytes-refused",
    breaks="EPP-STRM-01",
    why="A request whose body has more than 3.5 million bytes gets 413, though one message may be as large.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class FourMegabytesRefused(Conversation):
    limit = 3_500_000

    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        if sum(map(len, self.body)) > self.limit:
            return self.refuse(Refused(413, "the body is too large"))
        return super().release_with_body(end_of_stream=end_of_stream)


@fault(
    "large-bodies-unanswered",
    breaks="ENV-16",
    why="A request whose body has more than a million bytes is never answered.",
    also_breaks={"EPP-STRM-01": "so it is in streaming mode, which has no such limit"},
    modes=FULL_DUPLEX,
)
class LargeBodiesUnanswered(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        large = sum(map(len, self.body)) > 1_000_000
        return [] if large else super().release_with_body(end_of_stream=end_of_stream)


@fault(
    "deadlock-after-eight-chunks",
    breaks="EPP-STRM-01",
    why="A body of more than eight chunks is never answered: the ninth waits for the headers to be, and they for it.",
    also_breaks=SILENT,
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class DeadlockAfterEightChunks(Conversation):
    def receive(self, message: ProcessingRequest) -> list[Action]:
        return [] if len(self.body) > 8 else super().receive(message)


@fault(
    "waits-for-a-length",
    breaks="EPP-STRM-03",
    why="A body of which the headers do not announce the length is never answered.",
    also_breaks=SILENT | {"ENV-06": "bodies that end with trailers have no length"},
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class WaitsForALength(Conversation):
    def receive(self, message: ProcessingRequest) -> list[Action]:
        is_body = message.WhichOneof("request") in ("request_body", "request_trailers")
        return [] if is_body and "content-length" not in self.headers else super().receive(message)
