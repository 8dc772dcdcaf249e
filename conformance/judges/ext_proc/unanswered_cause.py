"""Which requirement a stream breaks that stops with something unanswered. In this order:

1. the stimulus (`root_cause.STIMULI`; in the response, `root_cause.RESPONSES`), and what follows as well where that
   only warns and the stimulus is no offence: nothing excuses silence;
2. an error that was due and did not come as an ImmediateResponse (EPP-ERR-04; silence: the requirement of that error);
3. what is missing: headers without a body (ENV-07), trailers (ENV-06), one of several body answers (ENV-02), the end of
   stream when all bytes came back (ENV-05);
4. the circumstances (`root_cause.CIRCUMSTANCES`), an odd body (EPP-DEST-07), and else ENV-16.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges import root_cause
from conformance.judges.exchange_view import AnswerKind, ExchangeView, Shape
from conformance.reading.decoded_message import REQUEST, RESPONSE
from conformance.reading.stream_direction import StreamDirection
from conformance.reading.stream_state import StopKind, StreamStop

_UNIMPLEMENTED = (12, 9)
"""gRPC statuses by which a server refuses what it does not support: UNIMPLEMENTED, FAILED_PRECONDITION."""


def whose(view: ExchangeView, stop: StreamStop, side: str, part: str) -> Iterator[str]:
    """The requirements that a stream breaks which stopped like this, with this `part` of a `side` unanswered."""
    found = root_cause.first(view, root_cause.RESPONSES if side == RESPONSE else root_cause.STIMULI)
    if found is not None:
        yield found
    if found is None or (view.context.stimulus == "contract" and not view.facts.counts(found)):
        yield _as_any_other(view, stop, side, part)


def _as_any_other(view: ExchangeView, stop: StreamStop, side: str, part: str) -> str:
    """Whose it is if nothing was particular about the stimulus."""
    direction = view.stream.direction(side)
    if view.answer in (AnswerKind.ENDED, AnswerKind.SILENT) and (due := _error_due(view, stop)) is not None:
        return due
    if stop.kind in (StopKind.STATUS, StopKind.RESET) and view.promised_ready:
        return "EPP-HLTH-06"
    if stop.kind is StopKind.HANG and (found := _missing_part(direction, part)) is not None:
        return found
    if _refused_mode(view, stop, side):
        return "EPP-STRM-01"
    if side == REQUEST and view.shape is Shape.ODD and stop.kind is not StopKind.CLOSED:
        return "EPP-DEST-07"
    if stop.kind is StopKind.HANG and (found := root_cause.first(view, root_cause.CIRCUMSTANCES)) is not None:
        return found
    if part == "trailers":
        return "ENV-06"
    return "ENV-16"


def _error_due(view: ExchangeView, stop: StreamStop) -> str | None:
    """The requirement of the error that should have come, if one was due; of its form, if one was possible."""
    due, hint, counts = view.due, view.hint, view.facts.counts
    if stop.kind is StopKind.LOST:
        return None
    if stop.kind is not StopKind.HANG and counts("EPP-ERR-04"):
        return "EPP-ERR-04" if due.error_possible or due.load.saturated else None
    if not due.error_due:
        return None
    if counts("EPP-ERR-01"):
        return "EPP-ERR-01"
    if stop.kind is not StopKind.HANG:
        return None
    if view.context.claims.queues and counts("EPP-SUB-14"):
        return "EPP-SUB-14"
    rule = "EPP-ERR-02" if due.pool_empty or not hint.set else "EPP-SUB-02" if hint.items else "EPP-SUB-03"
    return rule if counts(rule) else None


def _missing_part(direction: StreamDirection, part: str) -> str | None:
    if part == "headers":
        if direction.header_only:
            return "ENV-07"
        return "ENV-06" if direction.duplex and direction.trailers is not None else None
    if part == "trailers":
        return "ENV-06"
    if direction.duplex:
        return "ENV-05" if direction.end is not None and direction.body_answers and all_came_back(direction) else None
    return "ENV-02" if direction.body_answers else None


def all_came_back(direction: StreamDirection) -> bool:
    """Whether as many bytes came back as were sent; a body that the EPP rewrites may have another length."""
    sent = sum(len(message.body) for message in direction.due_bodies)
    commons = (message.common for message in direction.body_answers)
    return sum(len(one.body_mutation.streamed_response.body) for one in commons if one is not None) >= sent


def _refused_mode(view: ExchangeView, stop: StreamStop, side: str) -> bool:
    """Whether it is full duplex that the EPP does not take: it says so, or the body is one that makes demands of it."""
    if side != REQUEST or not view.stream.request.duplex or not view.facts.counts("EPP-STRM-01"):
        return False
    return (stop.kind is StopKind.STATUS and stop.status in _UNIMPLEMENTED) or root_cause.demanding_body(view)
