"""The course of a stream: which answer belongs to which message, the first that is out of order, and how it stopped.

`follow(conversation)` walks the log once. The first answer that Envoy would not accept is the `Offence`: it names the
rule (ENV-01 to ENV-05, ENV-15), and nothing after it is looked at, so that one deviation is one finding. (`behind`
reads on: which endpoint or error the answers name is then still known.) Likewise the walk ends where a wait for an
answer expired, and at an opaque message, of which nothing can be told.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum

from conformance.reading.conversation import BUFFERED_MODES, DUPLEX, MODES, NONE, Conversation
from conformance.reading.decoded_message import DATA_PLANE, REQUEST, RESPONSE, STREAMED_REPLY, DecodedMessage
from conformance.reading.ordering import Offence, body_mutation, mistaken, needless, objection, offence
from conformance.reading.stream_direction import StreamDirection, streams_end
from ext_proc.record import Author, ClientAborted, Entry, HalfClosed, Malformed, Message, StreamEnded, Wait

AWAITED_ANSWER = "answer to "
"""How the names of those waits begin whose end without an answer is a hang."""


class StopKind(StrEnum):
    """How the stream stopped, or stopped being of interest."""

    HANG = "hang"
    CLOSED = "closed"
    STATUS = "grpc status"
    RESET = "reset by the EPP"
    LOST = "connection lost"
    REFUSED = "refused"
    CANCELLED = "cancelled by the data plane"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStop:
    """Where and how. `what` says it in words: the wait that expired, the status."""

    kind: StopKind
    entry: Entry | None
    what: str
    status: int | None = None


@dataclass(slots=True, kw_only=True)
class StreamState:
    """The course of one conversation. `answers` are the EPP's acceptable messages in order."""

    request: StreamDirection
    response: StreamDirection
    answers: list[DecodedMessage] = field(default_factory=list)
    immediate: DecodedMessage | None = None
    """The ImmediateResponse, or the headers of a StreamedImmediateResponse."""
    reply_ended: bool = False
    """The StreamedImmediateResponse has its end."""
    offence: Offence | None = None
    needless: DecodedMessage | None = None
    """The first answer to trailers that never came, where Envoy ignores it."""
    stop: StreamStop | None = None
    foreign: bool = False
    """The data plane is not ours, and may follow a `mode_override` (ENV-17)."""
    garbled: bool = False
    """The data plane itself sent bytes that are no message: then the EPP may end the stream in any way."""
    behind: bool = False
    """Answers that are not acceptable where they stand are taken for what they say, each part once."""
    unknown: bool = False
    """It sent a message of a kind that the schema does not know: likewise."""

    def direction(self, side: str) -> StreamDirection:
        """The direction of `request` or `response`."""
        return self.request if side == REQUEST else self.response

    @property
    def decision(self) -> DecodedMessage | None:
        """The answer that decided about the request: the ImmediateResponse instead of a release, or the release."""
        if self.request.headers is None:
            return None
        released, immediate = self.request.release, self.immediate
        waits = immediate is not None and (self.request.held_by_trailers or self.request.unclear)
        if released is not None and not waits and (immediate is None or released.seq < immediate.seq):
            return released
        return immediate if not self.response.headers_answer else None

    @property
    def missing(self) -> tuple[str, str] | None:
        """The first (side, part) that was sent and not answered; None if all was, or an ImmediateResponse ended it."""
        if self.immediate is not None:
            return None
        for direction in (self.request, self.response):
            if direction.missing:
                return direction.side, direction.missing
        return None


def follow(conversation: Conversation, *, behind: bool = False) -> StreamState:
    """The course of `conversation`. `behind`: read on behind the first offence, as far as answers can be told apart."""
    stream = StreamState(
        behind=behind,
        request=StreamDirection(side=REQUEST, mode=conversation.request_mode),
        response=StreamDirection(side=RESPONSE, mode=conversation.response_mode),
        foreign=conversation.opened is None,
    )
    if conversation.stream is None:
        if conversation.aborted is not None:  # maybe before the stream was opened again
            stream.stop = StreamStop(kind=StopKind.CANCELLED, entry=None, what="the client went away")
        elif conversation.refused:
            stream.stop = StreamStop(kind=StopKind.REFUSED, entry=None, what=f"refused {conversation.refused} times")
        return stream
    message = iter(conversation.messages)
    for entry in conversation.entries:
        match entry.event:
            case Message():
                _take(stream, next(message))
            case Malformed(author=Author.EPP, reason=reason):
                hint = "Envoy takes no compression: turn it off. Else the prefix of the message is wrong."
                _offend(stream, offence("ENV-01", entry, ("a gRPC message",), f"bytes that are none: {reason}", hint))
            case Malformed():
                stream.garbled = True
            case ClientAborted():
                stream.stop = StreamStop(kind=StopKind.CANCELLED, entry=entry, what="the client went away")
            case Wait(outcome="expired", what=what) if what.startswith(AWAITED_ANSWER):
                stream.stop = StreamStop(kind=StopKind.HANG, entry=entry, what=what)
            case HalfClosed(author=Author.DATA_PLANE) if stream.stop is not None and conversation.aborted is not None:
                break  # the EPP was told that no more comes: what it says of the rest reaches no client
            case HalfClosed(author=Author.DATA_PLANE) if stream.stop is None:
                stream.stop = StreamStop(kind=StopKind.CANCELLED, entry=entry, what="the data plane had all it wanted")
            case StreamEnded() as end if stream.stop is None:  # after the data plane is done, any end is normal
                _end(stream, entry, end)
            case _:
                continue
        spoiled = stream.offence is not None and not behind
        if spoiled or (stream.stop is not None and stream.stop.kind is not StopKind.CANCELLED):
            break
    return stream


def _offend(stream: StreamState, found: Offence) -> None:
    stream.offence = stream.offence or found


def _taken(direction: StreamDirection, message: DecodedMessage) -> bool:
    """Whether the part of the direction that an answer is about has its answer, or was not sent at all."""
    match message.part:
        case "headers":
            return direction.headers is None or direction.headers_answer is not None
        case "body":
            return not direction.bodies or direction.finish is not None
        case _:
            return direction.trailers is None or direction.trailers_answer is not None


def _end(stream: StreamState, entry: Entry, end: StreamEnded) -> None:
    kind, what = StopKind.CANCELLED, "the data plane ended the stream"
    match end.how:
        case "status" if end.status == 0:
            kind, what = StopKind.CLOSED, "the EPP closed the stream with status OK"
        case "status":
            kind, what = StopKind.STATUS, f"the EPP ended the stream with gRPC status {end.status} {end.message!r}"
        case "reset" if end.author is not DATA_PLANE:
            kind, what = StopKind.RESET, f"the EPP reset the stream with HTTP/2 code {end.code}"
        case "lost":
            kind, what = StopKind.LOST, end.message or "the connection broke"
        case "refused":
            kind, what = StopKind.REFUSED, "the stream was refused"
        case "malformed":
            headers = b", ".join(name + b": " + value for name, value in end.headers[:4])
            actual = f"an HTTP answer that is not gRPC ({headers.decode('latin-1') or end.message})"
            _offend(stream, offence("ENV-01", entry, ("a gRPC answer",), actual, "Is this the ext_proc port?"))
            return
    kind = StopKind.CANCELLED if stream.garbled or stream.unknown else kind
    stream.response.left = kind is StopKind.CLOSED and stream.immediate is None
    replied = stream.request.mode in BUFFERED_MODES and stream.response.headers is not None
    stream.request.left = stream.response.left and not replied  # Envoy holds back a request to which it replied itself
    stream.stop = StreamStop(kind=kind, entry=entry, what=what, status=end.status)


def _take(stream: StreamState, message: DecodedMessage) -> None:
    if message.author is DATA_PLANE:
        stream.garbled = stream.garbled or bool(message.problem)
        stream.unknown = stream.unknown or (message.opaque and message.what is None)
        _asked(stream, message)
        return
    if message.problem:
        expected = ("a ProcessingResponse",)
        actual = f"{message.size} bytes that are none: {message.problem}"
        _offend(stream, offence("ENV-01", message.entry, expected, actual))
    elif message.opaque:
        stream.stop = StreamStop(
            kind=StopKind.OPAQUE, entry=message.entry, what="something the schema does not know was answered"
        )
    elif message.only_timeout:
        return
    elif message.what == STREAMED_REPLY:
        _streamed_reply(stream, message)
    elif stream.immediate is not None:
        expected = ("nothing after the ImmediateResponse",)
        actual = f"{message.what or 'an empty message'} after the ImmediateResponse at #{stream.immediate.seq}"
        _offend(stream, offence("ENV-15", message.entry, expected, actual, "End the handler once the error is sent."))
    elif message.what is None:
        hint = "Envoy counts an empty ProcessingResponse as spurious and fails the request."
        _offend(stream, offence("ENV-01", message.entry, ("one member of `response` is set",), "none is set", hint))
    elif message.what == "immediate_response":
        if (released := _released(stream)) is not None:
            expected = ("nothing that lets the request go before an ImmediateResponse",)
            actual = f"an ImmediateResponse after {released.what} at #{released.seq}"
            hint = "Decide before the headers are answered."
            _offend(stream, offence("ENV-15", message.entry, expected, actual, hint))
            return
        stream.immediate = message
        stream.answers.append(message)
    else:
        _answered(stream, message)


def _streamed_reply(stream: StreamState, message: DecodedMessage) -> None:
    """A part of a StreamedImmediateResponse, in the places where Envoy 1.40 takes it: as the first answer, headers
    first, then in full duplex or NONE pieces of body and trailers, until the end of stream."""
    part, begun = message.reply_part, stream.immediate
    wrong: tuple[str, str] | None = None
    if part is None:
        stream.stop = StreamStop(kind=StopKind.OPAQUE, entry=message.entry, what="a reply of an unknown kind")
        return
    if begun is None and part != "headers_response":
        wrong = "headers_response as the first part of a StreamedImmediateResponse", f"{part} first"
    elif begun is None and stream.answers:
        wrong = "a StreamedImmediateResponse as the first answer on the stream", f"one after {stream.answers[0].what}"
    elif begun is not None and (begun.what != STREAMED_REPLY or stream.reply_ended or part == "headers_response"):
        wrong = "nothing after the end of the reply, and its headers once", f"{part} after #{begun.seq}"
    elif begun is not None and stream.request.mode not in (DUPLEX, NONE, None):
        wrong = "a reply of more than headers in full duplex or NONE only", f"{part} in mode {stream.request.mode}"
    if wrong is not None:
        expected, actual = wrong
        hint = "Envoy 1.40 answers 500 to this; an ImmediateResponse is taken in every mode."
        _offend(stream, offence("ENV-15", message.entry, (expected,), actual, hint))
        return
    stream.reply_ended = message.ends_reply
    if begun is None:
        stream.immediate = message
        stream.answers.append(message)


def _overridden(stream: StreamState) -> None:
    """The modes of what is to come are not known any more, unless one is full duplex: then an override is ignored."""
    directions = (stream.request, stream.response)
    if not any(direction.duplex for direction in directions):
        for direction in directions:
            direction.mode = direction.mode if direction.bodies else None


def _released(stream: StreamState) -> DecodedMessage | None:
    """The answer that has let the request go without a destination, or whole, as long as the request phase lasts.

    An error instead of the answer to the body reaches the client as it is, and at most the headers of the request
    reached the endpoint that was named (seen with Envoy 1.40 in each body mode): that is for the judges.

    Where no answer named a destination, it lasts until the EPP answers the response: without one the data plane may
    have a response (its own) before an ImmediateResponse that was sent at once arrives.
    """
    request, response = stream.request, stream.response
    steered = any(one.partial or one.names_destination for one in stream.answers)
    responded = response.headers is not None and (steered or response.headers_answer is not None)
    whole = request.complete and request.mode != NONE  # there the answer to the headers is the first and the last
    over = responded or steered or (whole and not request.header_only)
    return None if over or request.held_by_trailers or request.unclear else request.release


def _asked(stream: StreamState, message: DecodedMessage) -> None:
    if message.side is None:
        return
    direction = stream.direction(message.side)
    match message.part:
        case "headers":
            direction.headers = direction.headers or message
        case "body":
            direction.bodies.append(message)
        case "trailers":
            direction.trailers = direction.trailers or message
    if message.ends and direction.end is None:
        direction.end = message


def _answered(stream: StreamState, message: DecodedMessage) -> None:
    direction = stream.direction(message.side or REQUEST)
    if direction.mode not in MODES and message.part == "body":
        stream.stop = StreamStop(
            kind=StopKind.OPAQUE, entry=message.entry, what=f"body mode {direction.mode} is not known"
        )
        return
    if direction.duplex and message.part == "body" and body_mutation(message) == "unknown":
        stream.stop = StreamStop(
            kind=StopKind.OPAQUE, entry=message.entry, what="an unknown kind of body mutation was answered"
        )
        return
    if needless(direction, message):
        stream.needless = stream.needless or message
        return
    found = objection(direction, message)
    if found is not None and (found.requirement == "ENV-02" or (message.part == "body" and direction.body_over)):
        found = mistaken(stream.direction(RESPONSE if direction.side == REQUEST else REQUEST), message) or found
    if found is not None:
        _offend(stream, dataclasses.replace(found, side=direction.side))
        if not stream.behind or _taken(direction, message):
            return
    stream.answers.append(message)
    match message.part:
        case "headers":
            direction.headers_answer = message
            if stream.foreign and message.response is not None and message.response.HasField("mode_override"):
                _overridden(stream)
        case "body":
            direction.body_answers.append(message)
            direction.cut = direction.cut or message.partial
            if direction.duplex and streams_end(message):
                direction.finish = message
        case "trailers":
            direction.trailers_answer = message
