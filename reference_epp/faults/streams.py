"""Faults of streams: their configuration, their isolation, their ends, and the streaming mode of `next`."""
# fmt: off

from __future__ import annotations

import asyncio
import os
from typing import Any, ClassVar

from google.protobuf.message import DecodeError

from ext_proc.messages import ProcessingRequest
from reference_epp.answers import Direction
from reference_epp.changes import changed, nothing
from reference_epp.conversation import Conversation
from reference_epp.deviations import DEAD, ENDED, FULL_DUPLEX, NEXT, SILENT, WHOLE_BODY, WITH_SUBSET, fault
from reference_epp.epp import Close, Epp
from reference_epp.picker import Decision, Picked, Refused
from reference_epp.service import Service
from reference_epp.subset import Subset

DEADLINE_EXCEEDED, FAILED_PRECONDITION = 4, 9

# -- what the first message says


def _refusing_set_up(when: Any) -> type[Conversation]:
    """Closes streams for whose first message `when` is true with a gRPC error."""
    return changed(Conversation, configure=lambda up, _, message:
                   Close(FAILED_PRECONDITION, "not supported") if when(message) else up(message))


def _one_mode(up: Any, c: Any, message: Any) -> Any:
    refusal = up(message)
    if c.request_mode is not None:
        c.response_mode = c.request_mode
    return refusal


fault("protocol-config-required", "ENV-19",
      "A stream whose first message has no `protocol_config` is closed with a gRPC error.",
      _refusing_set_up(lambda message: not message.HasField("protocol_config")), also=ENDED)
fault("bodies-without-waiting-refused", "ENV-19",
      "Bodies that are sent without waiting for the headers' answer close the stream with a gRPC error.",
      _refusing_set_up(lambda message: message.protocol_config.send_body_without_waiting_for_header_response),
      also=ENDED)
fault("one-mode-for-both", "ENV-04",
      "The response's bodies are answered as the body mode of the request asks, not as their own does.",
      changed(Conversation, configure=_one_mode))


@fault("pauses-are-the-end", "ENV-16",
       "A stream without a message for 1.5 s during the response is closed with a gRPC error.", modes=FULL_DUPLEX)
class PausesAreTheEnd(Conversation):
    responding = False

    def on_response_headers(self, headers: Any) -> Any:
        self.responding = True
        return super().on_response_headers(headers)

    @property
    def impatient(self) -> bool:
        return self.responding or super().impatient

    def patience_is_over(self) -> Any:
        return [Close(DEADLINE_EXCEEDED, "nothing comes")] if self.responding else super().patience_is_over()


@fault("slow-bodies-in-another-mode", "ENV-04",
       "A request whose body does not come within 0.1 s of its headers is answered as in body mode STREAMED.",
       modes=FULL_DUPLEX)
class SlowBodiesInAnotherMode(Conversation):
    @property
    def impatient(self) -> bool:
        return self.held


# -- isolation


@fault("shared-body-buffer", "ENV-21",
       "There are 96 buffers for the bodies to give back: when more streams are open, two share one.",
       also={"ENV-09": "a body comes back with parts of another"}, modes=FULL_DUPLEX)
class SharedBodyBuffer(Conversation):
    buffers: ClassVar[list[list[bytes]]] = [[] for _ in range(96)]

    def on_request_body(self, body: Any) -> Any:
        self.buffers[self.number % 96].append(body.body)
        return super().on_request_body(body)

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
        if direction == "request":
            buffer = self.buffers[self.number % 96]
            body = b"".join(buffer)
            buffer.clear()
        return super().stream(direction, body, end_of_stream=end_of_stream)

    def finished(self) -> None:
        super().finished()
        if not isinstance(self.decision, Picked):  # a request that went nowhere leaves nothing behind
            self.buffers[self.number % 96].clear()


@fault("one-lock-for-all-sends", "ENV-21",
       "A lock is held while an answer is sent: a connection of which nothing is read holds up all others.")
class OneLockForAllSends(Service):
    def __init__(self, epp: Epp, conversation: type[Conversation] = Conversation) -> None:
        super().__init__(epp, conversation)
        self.sending = asyncio.Lock()

    async def send(self, stream: Any, answer: Any) -> None:
        async with self.sending:
            await super().send(stream, answer)


@fault("shared-subset", "ENV-21",
       "There are 8 places for subsets of requests that come in pieces: when more are open, one gets another's.",
       also={"EPP-SUB-01": "the pick is outside the request's own subset",
             "EPP-SUB-02": "or it is refused, where nothing of the other's is eligible"},
       versions=WITH_SUBSET, modes=WHOLE_BODY)
class SharedSubset(Conversation):
    latest: ClassVar[dict[int, Subset | None]] = {}

    def on_request_headers(self, headers: Any) -> Any:
        if self.subset:
            self.latest[self.number % 8] = self.subset
        return super().on_request_headers(headers)

    def choose(self, body: bytes) -> Decision:
        if self.subset and len(self.body) > 1:
            self.subset = self.latest.get(self.number % 8, self.subset)
        return super().choose(body)


@fault("state-by-request-id", "ENV-21",
       "Decisions are kept by x-request-id: a request with the id of another gets that one's endpoint.",
       also={"EPP-SUB-01": "the pick may be outside the request's own subset"}, versions=WITH_SUBSET)
class StateByRequestId(Conversation):
    decisions: ClassVar[dict[bytes, Picked]] = {}

    def choose(self, body: bytes) -> Decision:
        request_id = self.headers.get("x-request-id")
        decision = super().choose(body)
        if request_id is None or not isinstance(decision, Picked):
            return decision
        return self.decisions.setdefault(request_id, decision)


# -- the data plane goes away, or sends no message


def _parsing(otherwise: Any) -> type[Service]:
    """Calls `otherwise` for bytes that are no message."""
    def act(up: Any, _: Any, raw: bytes) -> Any:
        try:
            return up(raw)
        except DecodeError:
            return otherwise()

    return changed(Service, parse=act)


@fault("dies-when-aborted", "ENV-22",
       "The process ends when a stream is reset before its request was answered.", also=DEAD)
class DiesWhenAborted(Conversation):
    def finished(self) -> None:
        super().finished()
        if self.held:
            os._exit(70)


class DeafToUnknown(Conversation):
    """Hears nothing any more after a message of no known kind."""

    deaf = False

    def receive(self, message: Any) -> Any:
        self.deaf = self.deaf or message.WhichOneof("request") is None
        return [] if self.deaf else super().receive(message)


fault("nested-json-is-fatal", "ENV-27",
      "A body of deeply nested JSON ends the process.",
      changed(Conversation, read_model=lambda up, _, body: os._exit(70) if b"[" * 32 in body else up(body)))
fault("unknown-message-is-fatal", "ENV-27",
      "A message of an unknown kind ends the process.",
      changed(Conversation, receive=lambda up, _, message:
              up(message) if message.WhichOneof("request") else os._exit(70)),
      also={"ENV-26": "it is not left alone"})
fault("malformed-message-is-fatal", "ENV-27",
      "The process ends when bytes arrive that are no message.", _parsing(lambda: os._exit(70)))
fault("malformed-message-unanswered", "ENV-27",
      "A stream on which bytes arrive that are no message is neither answered nor ended.",
      _parsing(ProcessingRequest), DeafToUnknown,
      also=SILENT | {"ENV-26": "nor is one with a message of an unknown kind"})
fault("unknown-message-unanswered", "ENV-26",
      "After a message of an unknown kind nothing on the stream is answered any more.", DeafToUnknown, also=SILENT)

# -- streaming mode


def _refused(_: Any, c: Any, **__: Any) -> Any:
    return c.refuse(Refused(413, "the body is too large"))


def _size(c: Any) -> int:
    return sum(map(len, c.body))


fault("many-chunks-refused", "EPP-STRM-01",
      "A request whose body comes in more than 16 chunks gets 413.",
      changed(Conversation, release_with_body=_refused), when=lambda c: len(c.body) > 16,
      versions=NEXT, modes=FULL_DUPLEX)
fault("four-megabytes-refused", "EPP-STRM-01",
      "A request whose body has more than 3.5 million bytes gets 413, though one message may be as large.",
      changed(Conversation, release_with_body=_refused), when=lambda c: _size(c) > 3_500_000,
      versions=NEXT, modes=FULL_DUPLEX)
fault("large-bodies-unanswered", "ENV-16",
      "A request whose body has more than a million bytes is never answered.",
      changed(Conversation, release_with_body=nothing), when=lambda c: _size(c) > 1_000_000,
      also={"EPP-STRM-01": "so it is in streaming mode, which has no such limit"}, modes=FULL_DUPLEX)
fault("deadlock-after-eight-chunks", "EPP-STRM-01",
      "A body of more than eight chunks is never answered: the ninth and the headers wait for each other.",
      changed(Conversation, receive=lambda *_: []), when=lambda c: len(c.body) > 8,
      also=SILENT, versions=NEXT, modes=FULL_DUPLEX)
fault("waits-for-a-length", "EPP-STRM-03",
      "A body of which the headers do not announce the length is never answered.",
      changed(Conversation, receive=lambda up, c, message: [] if "content-length" not in c.headers
              and message.WhichOneof("request") in ("request_body", "request_trailers") else up(message)),
      also=SILENT | {"ENV-06": "bodies that end with trailers have no length"}, versions=NEXT, modes=FULL_DUPLEX)
