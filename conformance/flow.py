"""The course of a stream: which answer belongs to which message, the first that is out of order, and how it stopped.

`follow(conversation)` walks the log once. The first answer that Envoy would not accept is the `Offence`: it names the
rule (ENV-01 to ENV-05, ENV-15), and nothing after it is looked at, so that one deviation is one finding. Likewise the
walk ends where a wait for an answer expired, and where something opaque was said, of which nothing can be told.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from conformance.conversation import BUFFERED_MODES, DUPLEX, MODES, Conversation
from conformance.said import REQUEST, RESPONSE, Said, decode, has_unknown
from ext_proc.messages import CommonResponse
from ext_proc.record import Author, ClientAborted, Entry, HalfClosed, Malformed, Message, StreamEnded, Wait

AWAITED_ANSWER = "answer to "
"""How the names of those waits begin whose end without an answer is a hang."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """An answer that is not acceptable where it stands, and the requirement that says so."""

    requirement: str
    entry: Entry
    expected: tuple[str, ...]
    actual: str
    hint: str = ""
    side: str | None = None
    """The direction whose answers it spoils; None: the whole stream."""


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
class Stop:
    """Where and how. `what` says it in words: the wait that expired, the status."""

    kind: StopKind
    entry: Entry | None
    what: str
    status: int | None = None


@dataclass(slots=True, kw_only=True)
class Lane:
    """One direction of the exchange: what the data plane said, and the EPP's acceptable answers."""

    side: str
    mode: str | None
    headers: Said | None = None
    headers_answer: Said | None = None
    bodies: list[Said] = field(default_factory=list)
    body_answers: list[Said] = field(default_factory=list)
    trailers: Said | None = None
    trailers_answer: Said | None = None
    end: Said | None = None
    """The data plane's message that completed the direction."""
    finish: Said | None = None
    """The EPP's end of stream (full duplex only)."""

    @property
    def duplex(self) -> bool:
        """Whether bodies go in full duplex."""
        return self.mode == DUPLEX

    @property
    def header_only(self) -> bool:
        """Whether the headers were all there is."""
        return self.end is not None and self.end is self.headers

    @property
    def replaced(self) -> bool:
        """Whether the answer to the headers replaced the body: no body messages follow."""
        common = self.headers_answer.common if self.headers_answer else None
        return common is not None and common.status == CommonResponse.CONTINUE_AND_REPLACE

    @property
    def missing(self) -> str | None:
        """The first part that was said and is not answered: `headers`, `body`, `trailers`, or None."""
        if self.headers is not None and self.headers_answer is None:
            return "headers"
        if self.replaced or self.header_only:
            return None
        if self.duplex:
            seen = not any(said.partial for said in self.body_answers)
            if self.bodies and self.finish is None and self.trailers is None and seen:
                return "body"
        elif len(self.body_answers) < len(self.bodies):
            return "body"
        return "trailers" if self.trailers is not None and self.trailers_answer is None else None

    @property
    def complete(self) -> bool:
        """Whether the data plane said all of it, and all of it is answered."""
        return self.headers is not None and self.missing is None and (self.end is not None or self.replaced)

    @property
    def release(self) -> Said | None:
        """The answer after which the direction goes on to the other side; in full duplex, that of the headers."""
        if self.mode in BUFFERED_MODES and not (self.header_only or self.replaced):
            return self.body_answers[-1] if self.body_answers else None
        return self.headers_answer


@dataclass(slots=True, kw_only=True)
class Flow:
    """The course of one conversation. `answers` are the EPP's acceptable messages in order."""

    request: Lane
    response: Lane
    answers: list[Said] = field(default_factory=list)
    immediate: Said | None = None
    offence: Offence | None = None
    stop: Stop | None = None

    def lane(self, side: str) -> Lane:
        """The lane of `request` or `response`."""
        return self.request if side == REQUEST else self.response

    @property
    def decision(self) -> Said | None:
        """The answer that decided about the request: the ImmediateResponse instead of a release, or the release."""
        released, immediate = self.request.release, self.immediate
        if released is not None and (immediate is None or released.seq < immediate.seq):
            return released
        return immediate if not self.response.headers_answer else None

    @property
    def missing(self) -> tuple[str, str] | None:
        """The first (side, part) that was said and not answered; None if all was, or an ImmediateResponse ended it."""
        if self.immediate is not None:
            return None
        for lane in (self.request, self.response):
            if lane.missing:
                return lane.side, lane.missing
        return None


def follow(conversation: Conversation) -> Flow:
    """The course of `conversation`."""
    flow = Flow(
        request=Lane(side=REQUEST, mode=conversation.request_mode),
        response=Lane(side=RESPONSE, mode=conversation.response_mode),
    )
    if conversation.stream is None:
        if conversation.refused:
            flow.stop = Stop(kind=StopKind.REFUSED, entry=None, what=f"refused {conversation.refused} times")
        return flow
    said = {one.entry.seq: one for one in conversation.said}
    for entry in conversation.entries:
        match entry.event:
            case Message():
                _take(flow, said.get(entry.seq) or decode(entry, entry.event))
            case Malformed(author=Author.EPP, reason=reason):
                flow.offence = _offence("ENV-01", entry, ("a gRPC message",), f"bytes that are none: {reason}")
            case ClientAborted():
                flow.stop = Stop(kind=StopKind.CANCELLED, entry=entry, what="the client went away")
            case Wait(outcome="expired", what=what) if what.startswith(AWAITED_ANSWER):
                flow.stop = Stop(kind=StopKind.HANG, entry=entry, what=what)
            case HalfClosed(author=Author.DATA_PLANE) if flow.stop is None:
                flow.stop = Stop(kind=StopKind.CANCELLED, entry=entry, what="the data plane had all it wanted")
            case StreamEnded() as end if flow.stop is None:  # after the data plane is done, any end is normal
                _end(flow, entry, end)
            case _:
                continue
        if flow.offence is not None or (flow.stop is not None and flow.stop.kind is not StopKind.CANCELLED):
            break
    return flow


def _end(flow: Flow, entry: Entry, end: StreamEnded) -> None:
    kind, what = StopKind.CANCELLED, "the data plane ended the stream"
    match end.how:
        case "status" if end.status == 0:
            kind, what = StopKind.CLOSED, "the EPP closed the stream with status OK"
        case "status":
            kind, what = StopKind.STATUS, f"the EPP ended the stream with gRPC status {end.status} {end.message!r}"
        case "reset" if end.author is not Author.DATA_PLANE:
            kind, what = StopKind.RESET, f"the EPP reset the stream with HTTP/2 code {end.code}"
        case "lost":
            kind, what = StopKind.LOST, f"the connection broke {end.message}".rstrip()
        case "refused":
            kind, what = StopKind.REFUSED, "the stream was refused"
        case "malformed":
            headers = b", ".join(name + b": " + value for name, value in end.headers[:4])
            actual = f"an HTTP answer that is not gRPC ({headers.decode('latin-1') or end.message})"
            flow.offence = _offence("ENV-01", entry, ("a gRPC answer",), actual, "Is this the ext_proc port?")
            return
    flow.stop = Stop(kind=kind, entry=entry, what=what, status=end.status)


def _take(flow: Flow, said: Said) -> None:
    if said.author is Author.DATA_PLANE:
        _asked(flow, said)
        return
    if said.problem:
        expected = ("a ProcessingResponse",)
        flow.offence = _offence("ENV-01", said.entry, expected, f"{said.size} bytes that are none: {said.problem}")
    elif said.opaque:
        flow.stop = Stop(kind=StopKind.OPAQUE, entry=said.entry, what="something the schema does not know was answered")
    elif said.only_timeout:
        return
    elif flow.immediate is not None:
        flow.offence = _offence(
            "ENV-15",
            said.entry,
            ("nothing after the ImmediateResponse",),
            f"{said.what or 'an empty message'} after the ImmediateResponse at #{flow.immediate.seq}",
            "End the handler once the error is sent.",
        )
    elif said.what is None:
        hint = "Envoy counts an empty ProcessingResponse as spurious and fails the request."
        flow.offence = _offence("ENV-01", said.entry, ("one member of `response` is set",), "none is set", hint)
    elif said.what == "immediate_response":
        if (released := _released(flow)) is not None:
            expected = ("nothing that lets the request go before an ImmediateResponse",)
            actual = f"an ImmediateResponse after {released.what} at #{released.seq}"
            flow.offence = _offence("ENV-15", said.entry, expected, actual, "Decide before the headers are answered.")
            return
        flow.immediate = said
        flow.answers.append(said)
    else:
        _answered(flow, said)


def _released(flow: Flow) -> Said | None:
    """The answer that has let the request go, as long as the request phase lasts."""
    request = flow.request
    over = flow.response.headers is not None or (request.complete and not request.header_only)
    return None if over else request.release


def _asked(flow: Flow, said: Said) -> None:
    if said.side is None:
        return
    lane = flow.lane(said.side)
    match said.part:
        case "headers":
            lane.headers = lane.headers or said
        case "body":
            lane.bodies.append(said)
        case "trailers":
            lane.trailers = lane.trailers or said
    if said.ends and lane.end is None:
        lane.end = said


def _answered(flow: Flow, said: Said) -> None:
    lane = flow.lane(said.side or REQUEST)
    check: dict[str | None, Callable[[Lane, Said], Offence | None]] = {
        "headers": _check_headers,
        "body": _check_body,
        "trailers": _check_trailers,
    }
    if lane.mode not in MODES and said.part == "body":
        flow.stop = Stop(kind=StopKind.OPAQUE, entry=said.entry, what=f"body mode {lane.mode} is not known")
        return
    if lane.duplex and said.part == "body" and _mutation(said) == "unknown":
        flow.stop = Stop(kind=StopKind.OPAQUE, entry=said.entry, what="an unknown kind of body mutation was answered")
        return
    found = check[said.part](lane, said)
    if found is not None and found.requirement == "ENV-02":
        found = _mistaken(flow, lane, said) or found
    if found is not None:
        flow.offence = dataclasses.replace(found, side=lane.side)
        return
    flow.answers.append(said)
    match said.part:
        case "headers":
            lane.headers_answer = said
        case "body":
            lane.body_answers.append(said)
            if lane.duplex and streams_end(said):
                lane.finish = said
        case "trailers":
            lane.trailers_answer = said


def _check_headers(lane: Lane, said: Said) -> Offence | None:
    if lane.headers is None:
        return _unasked(lane, said)
    if lane.headers_answer is not None:
        return _twice(said, lane.headers_answer)
    common = said.common
    if lane.duplex and common is not None and common.status == CommonResponse.CONTINUE_AND_REPLACE:
        actual = "CONTINUE_AND_REPLACE in the answer to the headers"
        return _offence("ENV-04", said.entry, ("in full duplex, bodies travel as streamed_response",), actual)
    return None


def _check_body(lane: Lane, said: Said) -> Offence | None:
    if not lane.bodies:
        return _unasked(lane, said)
    if lane.headers_answer is None:
        return _too_early(lane, said)
    if lane.trailers_answer is not None:
        expected = (f"no {lane.side} body after the answer to the trailers",)
        return _offence("ENV-03", said.entry, expected, f"{said.what} after {lane.side}_trailers")
    if not lane.duplex:
        if len(lane.body_answers) >= len(lane.bodies):
            return _twice(said, lane.body_answers[-1])
        if _mutation(said) == "streamed_response":
            expected = (f"`body`, `clear_body` or no body mutation in mode {lane.mode}",)
            return _offence("ENV-04", said.entry, expected, "streamed_response outside full duplex")
        return None
    if lane.finish is not None:
        expected = (f"no {lane.side} body answer after the one with end_of_stream (#{lane.finish.seq})",)
        actual = f"another with {_describe(said)}"
        return _offence("ENV-05", said.entry, expected, actual, "Send end_of_stream once, on the last chunk.")
    mutation = _mutation(said)
    if mutation != "streamed_response" and not said.partial:
        expected = ("body_mutation.streamed_response in every body answer in full duplex",)
        actual = f"body_mutation.{mutation}" if mutation else "no body mutation"
        hint = "Echo each chunk as streamed_response; Envoy fails the request otherwise."
        return _offence("ENV-04", said.entry, expected, actual, hint)
    if streams_end(said) and lane.trailers is not None:
        expected = ("no end_of_stream where trailers end the body",)
        return _offence("ENV-05", said.entry, expected, _describe(said), "The answer to the trailers ends it.")
    if streams_end(said) and lane.end is None:
        expected = (f"end_of_stream only after the data plane has ended the {lane.side} body",)
        return _offence("ENV-05", said.entry, expected, _describe(said))
    return None


def _check_trailers(lane: Lane, said: Said) -> Offence | None:
    if lane.trailers is None:
        return _unasked(lane, said)
    if lane.trailers_answer is not None:
        return _twice(said, lane.trailers_answer)
    if lane.headers_answer is None:
        return _too_early(lane, said)
    return None


def _unasked(lane: Lane, said: Said) -> Offence:
    expected = ("the answer has the name of a message that was sent, or is an ImmediateResponse",)
    asked = "nothing" if lane.headers is None else f"no {said.what}"
    hint = "Envoy counts it as spurious and fails the request (before 1.35 it was ignored)."
    return _offence("ENV-01", said.entry, expected, f"{said.what}, where {asked} was sent", hint)


def _twice(said: Said, first: Said) -> Offence:
    expected = (f"one {said.what} for each one sent",)
    return _offence("ENV-02", said.entry, expected, f"one more {said.what}; the last was #{first.seq}")


def _mistaken(flow: Flow, lane: Lane, said: Said) -> Offence | None:
    """A second answer of a kind is of the wrong kind if the other direction waits for its own of the same part."""
    other = flow.lane(RESPONSE if lane.side == REQUEST else REQUEST)
    if other.missing != said.part:
        return None
    expected = (f"{other.side}_{said.part}, which is awaited", "an ImmediateResponse")
    return _offence("ENV-01", said.entry, expected, f"{said.what}, which is answered already")


def _too_early(lane: Lane, said: Said) -> Offence:
    expected = (f"{lane.side}_headers first, then body and trailers",)
    hint = "If the answer to the headers is held back, hold the body back too."
    return _offence("ENV-03", said.entry, expected, f"{said.what} before {lane.side}_headers", hint)


def _mutation(said: Said) -> str | None:
    """The kind of body mutation in an answer; "unknown" for one that the schema does not know."""
    common = said.common
    if common is None or not common.HasField("body_mutation"):
        return None
    kind = common.body_mutation.WhichOneof("mutation")
    return "unknown" if kind is None and has_unknown(common.body_mutation) else kind


def streams_end(said: Said) -> bool:
    """Whether an answer to a body carries the end of stream of full duplex."""
    common = said.common
    if common is None:
        return False
    streamed = common.body_mutation.streamed_response
    return bool(streamed.end_of_stream or streamed.end_of_stream_without_message)


def _describe(said: Said) -> str:
    common = said.common
    size = len(common.body_mutation.streamed_response.body) if common is not None else 0
    return f"{size} bytes and end_of_stream={'true' if streams_end(said) else 'false'}"


def _offence(requirement: str, entry: Entry, expected: tuple[str, ...], actual: str, hint: str = "") -> Offence:
    return Offence(requirement=requirement, entry=entry, expected=expected, actual=actual, hint=hint)
