"""Every message is answered (ENV-16), and what in particular was not: trailers, headers without a body, the last chunk.

A stream that stops with something unanswered gives one ruling. What it is put down to, in this order:

1. the stimulus (`peculiar.STIMULI`; in the response, `peculiar.RESPONSES`);
2. an error that was due and did not come as an ImmediateResponse (EPP-ERR-04; silence: the requirement of that error);
3. what is missing: headers without a body (ENV-07), trailers (ENV-06), one of several body answers (ENV-02), the end of
   stream when all bytes came back (ENV-05);
4. the circumstances (`peculiar.CIRCUMSTANCES`), an odd body (EPP-DEST-07), and else ENV-16.

An EPP that closes the stream once the request is answered is right (design: fairness).
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.flow import Stop, StopKind
from conformance.judges import peculiar
from conformance.judges.case import Answer, Case, Scene, Shape
from conformance.judges.registry import judge_of_case, judge_of_scene
from conformance.judges.ruling import Nature, Ruling, held, moot, noted
from conformance.lane import Lane, empty_chunk
from conformance.said import REQUEST, RESPONSE
from conformance.verdict import Verdict
from ext_proc.record import Author, Wait

_UNIMPLEMENTED = (12, 9)
"""gRPC statuses by which a server refuses what it does not support: UNIMPLEMENTED, FAILED_PRECONDITION."""


@judge_of_case(
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
def unanswered(case: Case) -> Iterator[Ruling]:
    """The stream does not stop with something unanswered."""
    flow, stop = case.flow, case.flow.stop
    if flow.offence is not None or (stop is not None and stop.kind is StopKind.OPAQUE):
        return
    missing = flow.missing
    if stop is not None and stop.kind is StopKind.REFUSED:
        yield case.fail(
            "ENV-16",
            "a stream that is refused is accepted when it is opened again",
            f"the stream was refused, {case.conversation.refused or 1} times",
            hint="Allow as many concurrent streams as requests, or tell the limit in SETTINGS.",
        )
    elif stop is not None and stop.kind is not StopKind.CANCELLED and missing is not None:
        side, part = missing
        if stop.kind is StopKind.CLOSED and _may_close(case, side, part):
            if side == RESPONSE:
                yield from _moot_response()
        elif _error_by_status(case, stop):
            yield held("EPP-ERR-01")
        elif stop.kind is StopKind.HANG and (_unfinished(case, side) or _goes_on(case, stop)):
            yield _cut_short(case, stop, side)
        elif not case.scene.explains_end(case):
            yield _unanswered(case, stop, side, part)
    elif stop is not None and stop.kind in (StopKind.STATUS, StopKind.RESET) and _between_the_phases(case):
        if not case.scene.explains_end(case):
            at = stop.entry.seq if stop.entry is not None else None
            hint = "Only a clean end lets Envoy go on without the target; to this it answers 500."
            yield case.fail("ENV-16", "the stream stays, or ends with gRPC status OK", stop.what, at=at, hint=hint)
    elif missing is None:
        yield from _answered(case)


def _between_the_phases(case: Case) -> bool:
    """Whether the data plane was still to say something when the stream ended, with all it said answered."""
    flow = case.flow
    return flow.immediate is None and not flow.response.complete


def _unfinished(case: Case, side: str) -> bool:
    """Whether the data plane itself had not said everything: in full duplex nothing is owed before that."""
    lane = case.flow.lane(side)
    return lane.duplex and bool(lane.bodies) and lane.end is None


def _goes_on(case: Case, stop: Stop) -> bool:
    """Whether answers still came while it was waited: then nothing hung, and only the exchange as a whole was long.

    Nine tenths of the wait, as the clocks of a deadline and of the log are read at different places.
    """
    entry = stop.entry
    seconds = entry.event.seconds if entry is not None and isinstance(entry.event, Wait) else 0.0
    said = next((one for one in reversed(case.flow.answers) if not empty_chunk(one)), None)
    return entry is not None and said is not None and entry.t - said.entry.t < 0.9 * seconds * 1e9


def _cut_short(case: Case, stop: Stop, side: str) -> Ruling:
    return case.fail(
        "ENV-16",
        f"the whole {side} is sent before the deadline",
        f"the deadline came first ({stop.what})",
        at=stop.entry.seq if stop.entry is not None else None,
        hint="The machine is slow or busy, or the pace of this exchange is: give it more time.",
        verdict=Verdict.INCONCLUSIVE,
    )


def _error_by_status(case: Case, stop: Stop) -> bool:
    """Whether this is an error as 0.2.0 allows it: it names no form (reading AMB-13)."""
    in_words = stop.kind in (StopKind.STATUS, StopKind.RESET)
    return in_words and case.decided is None and case.demand.error_due and case.scene.counts("EPP-ERR-01")


@judge_of_scene("ENV-20")
def observability(scene: Scene) -> Iterator[Ruling]:
    """Whether anything is answered where no answers are wanted."""
    for one in scene.conversations:
        if one.observed_only:
            answers = sum(said.author is Author.EPP for said in one.said)
            yield noted("ENV-20", f"{answers} answers in observability mode", exchange=one.exchange)


def _unanswered(case: Case, stop: Stop, side: str, part: str) -> Ruling:
    requirement = _whose(case, stop, side, part)
    nature = Nature.CONDUCT if requirement in ("EPP-ERR-01", "EPP-ERR-04") else Nature.HANG
    silent = stop.kind is StopKind.HANG
    awaited = "" if stop.what == f"answer to {side}_{part}" else f" ({stop.what})"
    actual = f"no answer to {side}_{part}{awaited}" if silent else f"{stop.what}, {side}_{part} unanswered"
    return case.fail(
        requirement,
        _expected(case, requirement, side, part),
        actual,
        at=stop.entry.seq if stop.entry is not None else None,
        hint=_HINTS.get(requirement, "" if silent else "Send an ImmediateResponse instead of ending the stream."),
        nature=nature,
    )


_HINTS = {
    "ENV-05": "Mark the last chunk with end_of_stream, also when the last chunk from Envoy is empty.",
    "ENV-06": "Trailers end the body; answer them, and flush what is held back first.",
    "ENV-07": "Answer headers with end_of_stream at once: no body message follows.",
    "EPP-ERR-04": "Return the error as an ImmediateResponse; a gRPC status becomes a 500 at the client.",
    "EPP-STRM-03": "Do not wait for a content-length, or for the end of stream in the headers.",
}


def _expected(case: Case, requirement: str, side: str, part: str) -> tuple[str, ...]:
    if requirement in ("EPP-ERR-02", "EPP-ERR-04", "EPP-SUB-02", "EPP-SUB-03", "EPP-SUB-14"):
        return (f"an ImmediateResponse with {503 if case.demand.error_due else 429}",)
    if requirement == "EPP-ERR-01":
        return ("an ImmediateResponse with 400 or more", "a gRPC error")
    if requirement == "ENV-05":
        return (f"the last {side} body answer has end_of_stream",)
    if case.flow.request.release is None and side == REQUEST:
        return (f"an answer to {side}_{part}", "an ImmediateResponse")
    return (f"an answer to {side}_{part}",)


def _whose(case: Case, stop: Stop, side: str, part: str) -> str:
    lane = case.flow.lane(side)
    found = peculiar.first(case, peculiar.RESPONSES if side == RESPONSE else peculiar.STIMULI)
    if found is not None:
        return found
    if case.answer in (Answer.ENDED, Answer.SILENT) and (due := _error_due(case, stop)) is not None:
        return due
    if stop.kind in (StopKind.STATUS, StopKind.RESET) and case.scene.promised_ready(case):
        return "EPP-HLTH-06"
    if stop.kind is StopKind.HANG and (found := _missing_part(lane, part)) is not None:
        return found
    if _refused_mode(case, stop, side):
        return "EPP-STRM-01"
    if side == REQUEST and case.shape is Shape.ODD and stop.kind is not StopKind.CLOSED:
        return "EPP-DEST-07"
    if stop.kind is StopKind.HANG and (found := peculiar.first(case, peculiar.CIRCUMSTANCES)) is not None:
        return found
    if part == "trailers":
        return "ENV-06"
    return "ENV-16"


def _error_due(case: Case, stop: Stop) -> str | None:
    """The requirement of the error that should have come, if one was due."""
    demand, hint, counts = case.demand, case.hint, case.scene.counts
    if stop.kind is StopKind.LOST:
        return None
    if not demand.error_due:
        dropped = demand.load.saturated and stop.kind is not StopKind.HANG and counts("EPP-ERR-04")
        return "EPP-ERR-04" if dropped else None
    if counts("EPP-ERR-01"):
        return "EPP-ERR-01"
    if stop.kind is not StopKind.HANG:
        return "EPP-ERR-04" if counts("EPP-ERR-04") else None
    if case.context.claims.queues and counts("EPP-SUB-14"):
        return "EPP-SUB-14"
    due = "EPP-ERR-02" if demand.pool_empty or not hint.set else "EPP-SUB-02" if hint.items else "EPP-SUB-03"
    return due if counts(due) else None


def _missing_part(lane: Lane, part: str) -> str | None:
    if part == "headers":
        if lane.header_only:
            return "ENV-07"
        return "ENV-06" if lane.duplex and lane.trailers is not None else None
    if part == "trailers":
        return "ENV-06"
    if lane.duplex:
        return "ENV-05" if lane.end is not None and lane.body_answers and _all_came_back(lane) else None
    return "ENV-02" if lane.body_answers else None


def _all_came_back(lane: Lane) -> bool:
    """Whether as many bytes came back as were sent; a body that the EPP rewrites may have another length."""
    sent = sum(len(said.body) for said in lane.bodies)
    commons = (said.common for said in lane.body_answers)
    return sum(len(one.body_mutation.streamed_response.body) for one in commons if one is not None) >= sent


def _refused_mode(case: Case, stop: Stop, side: str) -> bool:
    """Whether it is full duplex that the EPP does not take: it says so, or the body is one that makes demands of it."""
    if side != REQUEST or not case.flow.request.duplex or not case.scene.counts("EPP-STRM-01"):
        return False
    return (stop.kind is StopKind.STATUS and stop.status in _UNIMPLEMENTED) or peculiar.demanding_body(case)


def _may_close(case: Case, side: str, part: str) -> bool:
    """Whether a clean close is right with this part unanswered: Envoy then goes on without the EPP."""
    lane = case.flow.lane(side)
    if side == RESPONSE:
        return lane.headers_answer is None or not lane.duplex or _all_came_back(lane)
    if case.flow.response.complete:
        return True  # an early response, which the client has
    return not lane.duplex and part != "headers"  # unsteered is another matter (EPP-DEST-01)


def _moot_response() -> Iterator[Ruling]:
    for requirement in ("EPP-SRVD-01", "EPP-STRM-02"):
        yield moot(requirement, "the EPP closed the stream once the request was answered")


def _answered(case: Case) -> Iterator[Ruling]:
    """What was seen to hold, where nothing was left unanswered."""
    flow = case.flow
    request, response = flow.request, flow.response
    if not flow.answers:
        return
    if request.complete or flow.immediate is not None or (response.complete and request.headers is None):
        yield held("ENV-16")
        if request.header_only or response.header_only:
            yield held("ENV-07")
        if request.trailers_answer is not None or response.trailers_answer is not None:
            yield held("ENV-06")
        if request.headers is not None and case.answer in (Answer.ENDPOINT, Answer.IMMEDIATE):
            yield from _survived(case)
    if response.headers_answer is not None:
        if peculiar.early_response(case):
            yield held("ENV-23")
        if case.served is not None:
            yield held("EPP-SRVD-01")


def _survived(case: Case) -> Iterator[Ruling]:
    for requirement, peculiar_in in peculiar.STIMULI:
        if peculiar_in(case) and requirement != "EPP-SUB-10":
            yield held(requirement)
    if peculiar.without_length(case) or case.flow.request.duplex:
        yield held("EPP-STRM-03")
    if peculiar.after_an_abort(case):
        yield held("ENV-22")
