"""Faults of streams: their configuration, their isolation, their ends, and the streaming mode of `next`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from reference_epp.conversation import Action, Close, Conversation
from reference_epp.deviations import DEAD, ENDED, FULL_DUPLEX, NEXT, SILENT, WITH_SUBSET, fault
from reference_epp.picker import Decision, Picked, Refused
from reference_epp.service import Service
from reference_epp.subset import Subset

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders, ProcessingRequest

FAILED_PRECONDITION = 9

# -- what the first message says


@fault(
    "protocol-config-required",
    breaks="ENV-19",
    why="A stream whose first message has no `protocol_config` is closed with a gRPC error.",
    also=ENDED,
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
    also=ENDED,
)
class BodiesWithoutWaitingRefused(Conversation):
    def configure(self, message: ProcessingRequest) -> Close | None:
        if message.protocol_config.send_body_without_waiting_for_header_response:
            return Close(FAILED_PRECONDITION, "bodies must wait")
        return super().configure(message)


# -- isolation


@fault(
    "shared-body-buffer",
    breaks="ENV-21",
    why="All streams collect their body in the same buffer, so that interleaved ones mix.",
    also={"ENV-09": "a body comes back with parts of another"},
    modes=FULL_DUPLEX,
)
class SharedBodyBuffer(Conversation):
    buffer: ClassVar[list[bytes]] = []

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.body = self.buffer
        return super().on_request_headers(headers)

    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        actions = list(super().release_with_body(end_of_stream=end_of_stream))
        self.buffer.clear()
        return actions


@fault(
    "shared-subset",
    breaks="ENV-21",
    why="The subset is kept for all streams together, so that interleaved requests get each other's.",
    also={"EPP-SUB-01": "the pick is outside the request's own subset"},
    versions=WITH_SUBSET,
    modes=("full-duplex", "buffered"),
)
class SharedSubset(Conversation):
    latest: ClassVar[list[Subset | None]] = [None]

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.latest[0] = self.subset
        return super().on_request_headers(headers)

    def choose(self, body: bytes) -> Decision:
        self.subset = self.latest[0]
        return super().choose(body)


@fault(
    "state-by-request-id",
    breaks="ENV-21",
    why="Decisions are kept by x-request-id, so that a request with the id of another gets that one's endpoint.",
    also={"EPP-SUB-01": "the pick may be outside the request's own subset"},
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
    "one-stream-at-a-time",
    breaks="ENV-21",
    why="A stream is answered only when the one before it has ended.",
    also=SILENT,
)
class OneStreamAtATime(Service):
    lock: ClassVar[asyncio.Lock] = asyncio.Lock()

    async def process(self, _: Any, context: Any) -> None:
        async with self.lock:
            await super().process(_, context)


# -- the data plane goes away


@fault(
    "dies-when-aborted",
    breaks="ENV-22",
    why="The process ends when a stream is reset before its request was answered.",
    also=DEAD,
)
class DiesWhenAborted(Conversation):
    def finished(self) -> None:
        super().finished()
        if self.held:
            os._exit(70)


@fault(
    "deaf-when-aborted",
    breaks="ENV-22",
    why="After a stream was reset before its request was answered, the next request is never answered.",
    also=SILENT,
)
class DeafWhenAborted(Conversation):
    owed: ClassVar[list[bool]] = []
    deaf = False

    def choose(self, body: bytes) -> Decision:
        if self.owed:
            self.owed.pop()
            self.deaf = True
        return super().choose(body)

    def emit(self, actions: list[Action]) -> list[Action]:
        return [] if self.deaf else super().emit(actions)

    def finished(self) -> None:
        super().finished()
        if self.held:
            self.owed.append(True)


# -- streaming mode


class RefusesBodies(Conversation):
    """Refuses bodies that are too much for it."""

    chunks = 0

    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        self.chunks += 1
        actions = list(super().on_request_body(body))
        if body.end_of_stream and self.too_much():
            return self.refuse(Refused(413, "too much"))
        return actions

    def too_much(self) -> bool:
        """True if the body so far is refused."""
        return self.chunks > 16


@fault(
    "many-chunks-refused",
    breaks="EPP-STRM-01",
    why="A request whose body comes in more than 16 chunks gets 413.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class ManyChunksRefused(RefusesBodies):
    pass


@fault(
    "large-bodies-refused",
    breaks="EPP-STRM-01",
    why="A request whose body has more than 4 MiB gets 413.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class LargeBodiesRefused(RefusesBodies):
    def too_much(self) -> bool:
        return sum(map(len, self.body)) > 4 * 1024 * 1024


@fault(
    "content-length-required",
    breaks="EPP-STRM-03",
    why="A request with a body is answered only if its headers say how long the body is.",
    also=SILENT,
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class ContentLengthRequired(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        if "content-length" not in self.headers:
            return []
        return super().release_with_body(end_of_stream=end_of_stream)
