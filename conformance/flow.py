"""The course of a stream: which answer belongs to which message, the first that is out of order, and how it stopped.

`follow(conversation)` walks the log once. The first answer that Envoy would not accept is the `Offence`: it names the
rule (ENV-01 to ENV-05, ENV-15), and nothing after it is looked at, so that one deviation is one finding. Likewise the
walk ends where a wait for an answer expired, and where something opaque was said, of which nothing can be told.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import StrEnum

from conformance.conversation import MODES, Conversation
from conformance.lane import Lane, streams_end
from conformance.order import Offence, body_mutation, mistaken, objection, offence
from conformance.said import DATA_PLANE, REQUEST, RESPONSE, Said
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
class Stop:
    """Where and how. `what` says it in words: the wait that expired, the status."""

    kind: StopKind
    entry: Entry | None
    what: str
    status: int | None = None


@dataclass(slots=True, kw_only=True)
class Flow:
    """The course of one conversation. `answers` are the EPP's acceptable messages in order."""

    request: Lane
    response: Lane
    answers: list[Said] = field(default_factory=list)
    immediate: Said | None = None
    offence: Offence | None = None
    stop: Stop | None = None
    foreign: bool = False
    """The data plane is not ours, and may follow a `mode_override` (ENV-17)."""
    garbled: bool = False
    """The data plane itself said what is no message: then the EPP may end the stream in any way."""
    unknown: bool = False
    """It said a message of a kind that the schema does not know: likewise."""

    def lane(self, side: str) -> Lane:
        """The lane of `request` or `response`."""
        return self.request if side == REQUEST else self.response

    @property
    def decision(self) -> Said | None:
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
        foreign=conversation.opened is None,
    )
    if conversation.stream is None:
        if conversation.refused:
            flow.stop = Stop(kind=StopKind.REFUSED, entry=None, what=f"refused {conversation.refused} times")
        return flow
    said = iter(conversation.said)
    for entry in conversation.entries:
        match entry.event:
            case Message():
                _take(flow, next(said))
            case Malformed(author=Author.EPP, reason=reason):
                flow.offence = offence("ENV-01", entry, ("a gRPC message",), f"bytes that are none: {reason}")
            case Malformed():
                flow.garbled = True
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
        case "reset" if end.author is not DATA_PLANE:
            kind, what = StopKind.RESET, f"the EPP reset the stream with HTTP/2 code {end.code}"
        case "lost":
            kind, what = StopKind.LOST, f"the connection broke {end.message}".rstrip()
        case "refused":
            kind, what = StopKind.REFUSED, "the stream was refused"
        case "malformed":
            headers = b", ".join(name + b": " + value for name, value in end.headers[:4])
            actual = f"an HTTP answer that is not gRPC ({headers.decode('latin-1') or end.message})"
            flow.offence = offence("ENV-01", entry, ("a gRPC answer",), actual, "Is this the ext_proc port?")
            return
    kind = StopKind.CANCELLED if flow.garbled or flow.unknown else kind
    flow.request.left = kind is StopKind.CLOSED and flow.immediate is None
    flow.stop = Stop(kind=kind, entry=entry, what=what, status=end.status)


def _take(flow: Flow, said: Said) -> None:
    if said.author is DATA_PLANE:
        flow.garbled = flow.garbled or bool(said.problem)
        flow.unknown = flow.unknown or (said.opaque and said.what is None)
        _asked(flow, said)
        return
    if said.problem:
        expected = ("a ProcessingResponse",)
        flow.offence = offence("ENV-01", said.entry, expected, f"{said.size} bytes that are none: {said.problem}")
    elif said.opaque:
        flow.stop = Stop(kind=StopKind.OPAQUE, entry=said.entry, what="something the schema does not know was answered")
    elif said.only_timeout:
        return
    elif flow.immediate is not None:
        flow.offence = offence(
            "ENV-15",
            said.entry,
            ("nothing after the ImmediateResponse",),
            f"{said.what or 'an empty message'} after the ImmediateResponse at #{flow.immediate.seq}",
            "End the handler once the error is sent.",
        )
    elif said.what is None:
        hint = "Envoy counts an empty ProcessingResponse as spurious and fails the request."
        flow.offence = offence("ENV-01", said.entry, ("one member of `response` is set",), "none is set", hint)
    elif said.what == "immediate_response":
        if (released := _released(flow)) is not None:
            expected = ("nothing that lets the request go before an ImmediateResponse",)
            actual = f"an ImmediateResponse after {released.what} at #{released.seq}"
            flow.offence = offence("ENV-15", said.entry, expected, actual, "Decide before the headers are answered.")
            return
        flow.immediate = said
        flow.answers.append(said)
    else:
        _answered(flow, said)


def _overridden(flow: Flow) -> None:
    """The modes of what is to come are not known any more, unless one is full duplex: then nobody heeds an override."""
    lanes = (flow.request, flow.response)
    if not any(lane.duplex for lane in lanes):
        for lane in lanes:
            lane.mode = lane.mode if lane.bodies else None


def _released(flow: Flow) -> Said | None:
    """The answer that has let the request go, as long as the request phase lasts.

    Where no answer named a destination, it lasts until the EPP answers the response: without one the data plane may
    have a response (its own) before an ImmediateResponse that was sent at once arrives.
    """
    request, response = flow.request, flow.response
    steered = any(one.partial or one.names_destination for one in flow.answers)
    responded = response.headers is not None and (steered or response.headers_answer is not None)
    over = responded or (request.complete and not request.header_only)
    return None if over or request.held_by_trailers or request.unclear else request.release


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
    if lane.mode not in MODES and said.part == "body":
        flow.stop = Stop(kind=StopKind.OPAQUE, entry=said.entry, what=f"body mode {lane.mode} is not known")
        return
    if lane.duplex and said.part == "body" and body_mutation(said) == "unknown":
        flow.stop = Stop(kind=StopKind.OPAQUE, entry=said.entry, what="an unknown kind of body mutation was answered")
        return
    found = objection(lane, said)
    if found is not None and found.requirement == "ENV-02":
        found = mistaken(flow.lane(RESPONSE if lane.side == REQUEST else REQUEST), said) or found
    if found is not None:
        flow.offence = dataclasses.replace(found, side=lane.side)
        return
    flow.answers.append(said)
    match said.part:
        case "headers":
            lane.headers_answer = said
            if flow.foreign and said.response is not None and said.response.HasField("mode_override"):
                _overridden(flow)
        case "body":
            lane.body_answers.append(said)
            if lane.duplex and streams_end(said):
                lane.finish = said
        case "trailers":
            lane.trailers_answer = said
