"""One ext_proc stream that a data plane opened: what it told the EPP, as the EPP heard it, and what the EPP decided."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from conformance.reading.conversation import BUFFERED, DUPLEX, NONE, STREAMED, Conversation
from conformance.reading.decoded_message import DecodedMessage
from conformance.reading.destination import Destination
from conformance.reading.ordering import body_mutation
from conformance.reading.stream_state import StopKind, StreamState, follow
from ext_proc.record import (
    Author,
    ClientResponse,
    Entry,
    ExchangeOpened,
    HalfClosed,
    Message,
    StreamEnded,
    StreamOpened,
    UpstreamRequest,
)

PATIENCE = 0.15
"""Seconds for which a gateway must have waited for its EPP before it may go on without: Envoy's `message_timeout` is
200 ms by default, as our clock sees them."""


@dataclass(frozen=True, kw_only=True)
class _Heard(Conversation):
    """A stream as the EPP heard it: only the data plane itself says what its body modes are."""

    original: Conversation

    @cached_property
    def messages(self) -> tuple[DecodedMessage, ...]:
        """The messages, which are decoded once."""
        return self.original.messages

    def _mode(self, field: str) -> str | None:
        told = super()._mode(field)
        if told not in (None, NONE):
            return told
        side = field.partition("_")[0]
        bodies = [message for message in self.messages if message.side == side and message.part == "body"]
        asked = [message for message in bodies if message.author is Author.DATA_PLANE]
        if not asked:
            return NONE
        if any(body_mutation(message) == "streamed_response" for message in bodies if message.author is Author.EPP):
            return DUPLEX
        return BUFFERED if len(asked) == 1 and asked[0].ends else STREAMED


@dataclass(frozen=True, kw_only=True)
class PickerStream:
    """One ext_proc stream of the request: the EPP named `epp` was asked. `at` is where it was opened."""

    epp: str
    at: int
    conversation: Conversation
    namespace: str

    @cached_property
    def stream(self) -> StreamState:
        """The course of the stream."""
        return follow(self.conversation)

    @cached_property
    def destination(self) -> Destination:
        """The destination that the EPP gave."""
        return Destination(conversation=self.conversation, stream=self.stream, namespace=self.namespace)

    @property
    def immediate(self) -> DecodedMessage | None:
        """The ImmediateResponse by which the EPP decided about the request."""
        decision = self.stream.decision
        return decision if decision is not None and decision is self.stream.immediate else None

    @property
    def refusal(self) -> DecodedMessage | None:
        """The ImmediateResponse by which the EPP, having let the request go, refused the response when it was told of
        its headers; None also if it took its time, and the data plane may have gone on."""
        stream = self.stream
        immediate, response = stream.immediate, stream.response
        if immediate is None or not self.passed or response.headers is None or response.headers_answer is not None:
            return None
        return immediate if response.headers.seq < immediate.seq and self.slowest < PATIENCE else None

    @property
    def withdrawal(self) -> DecodedMessage | None:
        """The ImmediateResponse by which the EPP, having answered the headers, refused the rest of the request; None
        also if it took its time, and the data plane may have gone on."""
        stream = self.stream
        immediate, response = stream.immediate, stream.response
        withdrawn = self.release is not None and not self.passed and response.headers is None
        return immediate if withdrawn and self.slowest < PATIENCE else None

    @property
    def release(self) -> DecodedMessage | None:
        """The answer by which the EPP let the request go; None also if it broke the contract before or after."""
        stream = self.stream
        return stream.request.release if stream.offence is None and stream.decision is stream.request.release else None

    @property
    def passed(self) -> bool:
        """Whether the EPP let the whole request go: its headers, and in full duplex all of its body."""
        alone = self.conversation.request_mode == NONE
        return self.release is not None and (alone or self.stream.request.complete)

    @cached_property
    def left_early(self) -> bool:
        """Whether the EPP ended the stream, or it broke, before the data plane was done with it."""
        for entry in self.conversation.entries:
            match entry.event:
                case HalfClosed(author=Author.DATA_PLANE):
                    return False
                case StreamEnded(author=author):
                    return author is not Author.DATA_PLANE
        return False

    @cached_property
    def slowest(self) -> float:
        """The most seconds in which nothing happened before the EPP said something."""
        pairs = itertools.pairwise(self.conversation.entries)
        said = ((old, new) for old, new in pairs if isinstance(new.event, Message) and new.event.author is Author.EPP)
        return max(((new.t - old.t) / 1e9 for old, new in said), default=0.0)

    @cached_property
    def _since(self) -> tuple[Entry, ...]:
        """What happened from the opening of the stream on."""
        return tuple(entry for entry in self.conversation.entries if entry.seq >= self.at)

    @cached_property
    def _left(self) -> Entry | None:
        """Where the data plane did without an EPP that had said nothing: it left the stream, answered the client
        itself, or sent the request on."""
        for entry in self._since:
            match entry.event:
                case StreamEnded(author=Author.DATA_PLANE) | HalfClosed(author=Author.DATA_PLANE):
                    return entry
                case ClientResponse() | UpstreamRequest():
                    return entry
                case Message(author=Author.EPP) | StreamEnded():
                    return None
        return None

    @property
    def given_up(self) -> float:
        """Seconds after which the data plane did without an EPP that had said nothing; 0 if it did not."""
        return (self._left.t - self._since[0].t) / 1e9 if self._left is not None else 0.0

    @cached_property
    def unanswered(self) -> float:
        """Seconds for which what the data plane had told last was not answered, when it left the stream or the client
        had its response; 0 if it did neither, or had an answer."""
        told: Entry | None = None
        for entry in self._since:
            match entry.event:
                case Message(author=author):
                    told = entry if author is Author.DATA_PLANE else None
                case StreamEnded() | HalfClosed(author=Author.DATA_PLANE) | ClientResponse():
                    return (entry.t - told.t) / 1e9 if told is not None else 0.0
        return 0.0

    @property
    def held_back(self) -> float:
        """Of the seconds until it was given up, those in which the data plane told the EPP nothing more."""
        if self._left is None:
            return 0.0
        until = self._since[: self._since.index(self._left)]
        told = max((entry.t for entry in until if isinstance(entry.event, Message)), default=self._since[0].t)
        return (self._left.t - told) / 1e9

    @property
    def broke(self) -> bool:
        """Whether it came to an end that is an error, before the data plane was done with it."""
        stop = self.stream.stop
        return stop is not None and stop.kind in (StopKind.STATUS, StopKind.RESET, StopKind.LOST)

    @property
    def unavailable(self) -> str:
        """How the EPP was out of order: it gave no answer and did not just leave; empty if it was not."""
        stream = self.stream
        if stream.decision is not None or stream.offence is not None or stream.stop is None:
            return ""
        return stream.stop.what if self.broke else ""


def picker_stream(one: Conversation, namespace: str) -> PickerStream:
    """The stream of a conversation that has one; destinations are in `namespace`."""
    opened = next((entry for entry in one.entries if isinstance(entry.event, StreamOpened)), one.entries[0])
    heard = _Heard(
        exchange=one.exchange,
        entries=tuple(entry for entry in one.entries if not isinstance(entry.event, ExchangeOpened)),
        stream=one.stream,
        connection=one.connection,
        refused=one.refused,
        original=one,
    )
    epp = opened.event.epp if isinstance(opened.event, StreamOpened) else ""
    return PickerStream(epp=epp, at=opened.seq, conversation=heard, namespace=namespace)
