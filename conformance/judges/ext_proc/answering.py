"""Every message is answered (ENV-16), and what in particular was not: trailers, headers without a body, the last chunk.

A stream that stops with something unanswered gives one finding, or two where the first only warns (`unanswered_cause`).

An EPP that closes the stream once the request is answered is right: Envoy goes on without it.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges import root_cause
from conformance.judges.episode_view import EpisodeView
from conformance.judges.epp import expectation
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.ext_proc.unanswered_cause import all_came_back, whose
from conformance.judges.findings import not_applicable, passed, recorded
from conformance.judges.registry import judge_of_episode, judge_of_exchange
from conformance.reading.decoded_message import REQUEST, RESPONSE
from conformance.reading.stream_direction import StreamDirection, brings_forward
from conformance.reading.stream_state import StopKind, StreamStop
from conformance.verdict import Finding, Nature, Verdict
from ext_proc.record import Author, Wait

_ENDED = (StopKind.CLOSED, StopKind.STATUS, StopKind.RESET)
_BROKEN = (StopKind.STATUS, StopKind.RESET, StopKind.LOST)
LATE = 1_000_000_000
"""Nanoseconds after which a close that was meant for the end of the request has arrived. The record of a load has no
clock: there no response is late."""


@judge_of_exchange(
    "ENV-02",
    "ENV-05",
    "ENV-06",
    "ENV-07",
    "ENV-16",
    "ENV-19",
    "ENV-21",
    "ENV-22",
    "ENV-23",
    "ENV-26",
    "ENV-27",
    "EPP-DEST-07",
    "EPP-ERR-01",
    "EPP-ERR-02",
    "EPP-ERR-04",
    "EPP-HLTH-06",
    "EPP-SRVD-01",
    "EPP-STRM-01",
    "EPP-STRM-02",
    "EPP-STRM-03",
    "EPP-SUB-02",
    "EPP-SUB-03",
    "EPP-SUB-10",
    "EPP-SUB-11",
    "EPP-SUB-14",
    hygiene=True,
)
def unanswered(view: ExchangeView) -> Iterator[Finding]:
    """The stream does not stop with something unanswered."""
    stream, stop = view.stream, view.stream.stop
    if stream.offence is not None or (stop is not None and stop.kind is StopKind.OPAQUE):
        return
    missing = stream.missing
    if stop is not None and stop.kind is StopKind.REFUSED:
        if view.ended_by_exit:
            return
        yield view.fail(
            "ENV-16",
            "a stream that is refused is accepted when it is opened again",
            "the stream was refused" + (f", {times} times" if (times := view.conversation.refused) > 1 else ""),
            hint="Allow as many concurrent streams as requests, or tell the limit in SETTINGS.",
        )
    elif stop is not None and stop.kind is not StopKind.CANCELLED and missing is not None:
        side, part = missing
        if stop.kind is StopKind.CLOSED and _may_close(view, side, part):
            if part == "trailers":
                yield passed("ENV-06")
            if side == RESPONSE:
                yield from _response_not_reached()
        elif view.ended_by_exit:
            return
        elif _in_words(view) and _error_was_due(view):
            yield from (passed("EPP-ERR-01"), passed("ENV-16"))
        elif stop.kind in _ENDED and not view.due.known and (view.settling or _in_words(view)):
            return  # whether the pool had anything eligible is not known
        elif stop.kind is StopKind.HANG and (_unfinished(view, side) or _goes_on(view, stop)):
            yield _cut_short(view, stop, side)
        else:
            for requirement in whose(view, stop, side, part):
                yield _unanswered(view, stop, side, part, requirement)
    elif stop is not None and stop.kind in _BROKEN and _between_the_phases(view):
        if not view.ended_by_exit:
            at = stop.entry.seq if stop.entry is not None else None
            hint = "Only a clean end lets Envoy go on without the target; to this it answers 500."
            yield view.fail("ENV-16", "the stream stays, or ends with gRPC status OK", stop.what, at=at, hint=hint)
    elif missing is None:
        yield from _answered(view)


def _between_the_phases(view: ExchangeView) -> bool:
    """Whether the data plane had messages left to send when the stream ended, with all before answered."""
    stream = view.stream
    return stream.immediate is None and not stream.response.complete


def _unfinished(view: ExchangeView, side: str) -> bool:
    """Whether the data plane itself had not sent everything: in full duplex nothing is due before that."""
    direction = view.stream.direction(side)
    return direction.duplex and bool(direction.bodies) and direction.end is None


def _goes_on(view: ExchangeView, stop: StreamStop) -> bool:
    """Whether answers still came while it was waited: then nothing hung, and only the exchange as a whole was long.

    Nine tenths of the wait, as the clocks of a deadline and of the log are read at different places.
    """
    entry = stop.entry
    seconds = entry.event.seconds if entry is not None and isinstance(entry.event, Wait) else 0.0
    message = next(filter(brings_forward, reversed(view.stream.answers)), None)
    return entry is not None and message is not None and entry.t - message.entry.t < 0.9 * seconds * 1e9


def _cut_short(view: ExchangeView, stop: StreamStop, side: str) -> Finding:
    return view.fail(
        "ENV-16",
        f"the whole {side} is sent before the deadline",
        f"the deadline came first ({stop.what})",
        at=stop.entry.seq if stop.entry is not None else None,
        hint="The machine is slow or busy, or the pace of this exchange is: give it more time.",
        verdict=Verdict.INCONCLUSIVE,
    )


def _in_words(view: ExchangeView) -> bool:
    """Whether a request was answered with an error as 0.2.0 allows it: it names no form (reading AMB-13)."""
    return view.ended_in_error and view.facts.counts("EPP-ERR-01")


def _error_was_due(view: ExchangeView) -> bool:
    load = view.due.load
    if view.hint_leaves_nothing or load.saturated or load.blind or view.unknown_model or view.misread:
        return True
    return view.expectation is not None and expectation.accepts(view.expectation.answer, view)


@judge_of_episode("ENV-20")
def observability(episode_view: EpisodeView) -> Iterator[Finding]:
    """Whether anything is answered where no answers are wanted."""
    for one in episode_view.conversations:
        if one.observed_only:
            answers = sum(message.author is Author.EPP for message in one.messages)
            yield recorded("ENV-20", f"{answers} answers in observability mode", exchange=one.exchange)


def _unanswered(view: ExchangeView, stop: StreamStop, side: str, part: str, requirement: str) -> Finding:
    nature = Nature.CONDUCT if requirement in ("EPP-ERR-01", "EPP-ERR-04") else Nature.HANG
    silent = stop.kind is StopKind.HANG
    awaited = "" if stop.what == f"answer to {side}_{part}" else f" ({stop.what})"
    actual = f"no answer to {side}_{part}{awaited}" if silent else f"{stop.what}, {side}_{part} unanswered"
    hint = _HINTS.get(requirement, "" if silent else _BREAKS.get(stop.kind) or _ends(stop, side))
    if silent and requirement == "ENV-21" and root_cause.beside_unread(view):
        actual += ", while nothing was read of another connection"
        hint = _UNREAD
    elif silent and requirement == "ENV-21":
        actual += f", with {len(view.overlapping) + 1} streams open at the same time"
        hint = _CROWDED
    elif silent and requirement == "ENV-16":
        hint = _silence(view, f"{side}_{part}")
    return view.fail(
        requirement,
        _expected(view, requirement, side, part),
        actual,
        at=stop.entry.seq if stop.entry is not None else None,
        hint=hint,
        nature=nature,
    )


def _ends(stop: StreamStop, side: str) -> str:
    """What to do about a stream that ended before this side was answered."""
    if stop.kind is StopKind.STATUS and stop.status in _OF_LIBRARIES:
        return _FAILED
    if side == RESPONSE:
        return "Answer the whole response before the stream ends: what was let through can't be taken back."
    return _TOO_EARLY if stop.kind is StopKind.CLOSED else "Send an ImmediateResponse instead of ending the stream."


_OF_LIBRARIES = (2, 13)
"""UNKNOWN and INTERNAL: what libraries send for a handler that failed."""
_FAILED = (
    "Libraries end a stream so when its handler fails: what does the target print? An error that is meant is an "
    "ImmediateResponse."
)
_TOO_EARLY = (
    "More messages follow: end the stream when the data plane has closed its side (onCompleted of grpc-java's request "
    "observer), or after an ImmediateResponse. A task that panics ends it like this, too, where answers go through its "
    "channel (tokio): what does the target print?"
)
_LOST = (
    "The process ended, or it closed the connection while a stream was open on it. Where connections have a limit of "
    "age, or the server stops, let open streams end first. Of age: MaxConnectionAgeGrace in grpc-go, "
    "maxConnectionAgeGrace in grpc-java, grpc.max_connection_age_grace_ms in Python and grpc-js. Of a stop: "
    "GracefulStop in grpc-go, shutdown in grpc-java, stop(grace) in Python, tryShutdown in grpc-js, "
    "serve_with_shutdown in tonic."
)
_RESET = (
    "A reset without a gRPC status is seldom what a handler means: look for a panic, for a time limit on whole streams "
    "(WriteTimeout and ReadTimeout of net/http), and for a limit of a connection's age with little grace."
)
_BREAKS = {StopKind.LOST: _LOST, StopKind.RESET: _RESET}
_CROWDED = (
    "Requests like this one are answered when fewer streams are open. A server with a thread for each stream may have "
    "run out of threads; a lock or a queue that streams share looks the same."
)
_UNREAD = (
    "Requests like this one are answered while each connection is read. Hold no lock while a message is sent: a stream "
    "whose flow-control window is used up may keep it without end."
)


def _silence(view: ExchangeView, missing: str) -> str:
    """What was answered, and what the message that was not needs."""
    kinds = dict.fromkeys(message.what for message in view.stream.answers if message.what)
    answered = ", ".join(kinds)
    if missing in kinds:
        return f"A part of {missing} was answered, and not its last piece (in full duplex, the one with end_of_stream)."
    if not answered:
        return f"Nothing was answered. Answer {missing} as soon as it comes, and do not wait for what follows it."
    return (
        f"{answered} came, and for {missing} nothing: each message needs an answer of its kind, if only an empty one."
    )


_HINTS = {
    "ENV-05": "Mark the last chunk with end_of_stream, also when the last chunk from Envoy is empty.",
    "ENV-06": "Trailers end the body; answer them, and flush what is held back first.",
    "ENV-07": "Answer headers with end_of_stream at once: no body message follows.",
    "EPP-ERR-04": "Return the error as an ImmediateResponse; a gRPC status becomes a 500 at the client.",
    "EPP-STRM-03": "Do not wait for a content-length, or for the end of stream in the headers.",
}


def _expected(view: ExchangeView, requirement: str, side: str, part: str) -> tuple[str, ...]:
    if requirement in ("EPP-ERR-02", "EPP-ERR-04", "EPP-SUB-02", "EPP-SUB-03", "EPP-SUB-14"):
        error = f"an ImmediateResponse with {503 if view.due.error_possible else 429}"
        return (error,) if view.due.error_due or not view.due.error_possible else (error, "an endpoint")
    if requirement == "EPP-ERR-01":
        return ("an ImmediateResponse with 400 or more", "a gRPC error")
    if requirement == "ENV-05":
        return (f"the last {side} body answer has end_of_stream",)
    if view.stream.request.release is None and side == REQUEST:
        return (f"an answer to {side}_{part}", "an ImmediateResponse")
    return (f"an answer to {side}_{part}",)


def _may_close(view: ExchangeView, side: str, part: str) -> bool:
    """Whether a clean close is right with this part unanswered: Envoy then goes on without the EPP.

    Not so with bytes of a body in full duplex, which are with the EPP: what did not come back is lost, and without the
    end of stream Envoy 1.40 does not end the body. Trailers it still has, and passes on. But a close with nothing of
    the response answered may have been under way before the response came, unless that was late. An end without bytes
    is with the EPP, too, once Envoy has let the headers go.
    """
    direction = view.stream.direction(side)
    if side == REQUEST and view.stream.response.complete:
        return True  # an early response, which the client has
    if side == RESPONSE and part == "headers":
        return not (_in_hand(direction) and _was_late(view))
    if _in_hand(direction):
        return part == "trailers" and all_came_back(direction)
    answered, end = direction.headers_answer, direction.end
    if part == "body" and direction.duplex and answered and end and end.seq > answered.seq:
        return False
    return side == RESPONSE or part != "headers"  # unsteered is another matter (EPP-DEST-01)


def _was_late(view: ExchangeView) -> bool:
    """Whether the response came when the EPP had left the stream open for long, with all of the request answered."""
    response, answers = view.stream.response.headers, view.stream.answers
    return response is not None and bool(answers) and response.entry.t - answers[-1].entry.t > LATE


def _in_hand(direction: StreamDirection) -> bool:
    """Whether the EPP has been given bytes of a body that the data plane has not kept."""
    return direction.duplex and any(message.body or message.partial for message in direction.bodies)


def _response_not_reached() -> Iterator[Finding]:
    for requirement in ("EPP-SRVD-01", "EPP-STRM-02"):
        yield not_applicable(requirement, "the EPP closed the stream once the request was answered")


def _answered(view: ExchangeView) -> Iterator[Finding]:
    """What was seen to hold, where nothing was left unanswered."""
    stream = view.stream
    request, response = stream.request, stream.response
    if not stream.answers:
        return
    if request.complete or stream.immediate is not None or (response.complete and request.headers is None):
        yield passed("ENV-16")
        if request.header_only or response.header_only:
            yield passed("ENV-07")
        if request.trailers_answer is not None or response.trailers_answer is not None:
            yield passed("ENV-06")
        if request.headers is not None and view.answer in (AnswerKind.ENDPOINT, AnswerKind.IMMEDIATE):
            yield from _survived(view)
    if response.headers_answer is not None:
        if root_cause.early_response(view):
            yield passed("ENV-23")
        if view.served is not None:
            yield passed("EPP-SRVD-01")


def _survived(view: ExchangeView) -> Iterator[Finding]:
    for requirement, peculiar_in in root_cause.STIMULI:
        if peculiar_in(view) and requirement != "EPP-SUB-10":
            yield passed(requirement)
    if root_cause.without_length(view) or view.stream.request.duplex:
        yield passed("EPP-STRM-03")
    if root_cause.after_an_abort(view):
        yield passed("ENV-22")
