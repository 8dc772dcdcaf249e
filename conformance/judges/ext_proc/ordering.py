"""The order and the kinds of answers (ENV-01 to ENV-05).

The offence itself is found where the stream is followed (`conformance.flow`); here it becomes a ruling, and what was
seen to hold is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.case import Case
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Ruling, held
from conformance.lane import Lane
from conformance.order import Offence


@judge_of_case("ENV-01", "ENV-02", "ENV-03", "ENV-04", "ENV-05", "ENV-15", "ENV-19", hygiene=True)
def order_of_answers(case: Case) -> Iterator[Ruling]:
    """Each answer is of a kind, in a place and of a form that Envoy accepts there."""
    flow = case.flow
    if flow.offence is not None:
        yield _offence(case, flow.offence)
    if not flow.answers:
        return
    yield held("ENV-01")
    yield held("ENV-02")
    for lane in (flow.request, flow.response):
        yield from _seen_to_hold(lane)


def _offence(case: Case, found: Offence) -> Ruling:
    if found.requirement == "ENV-04" and not _mode_was_said(case):
        actual = f"{found.actual}, without a protocol_config"
        hint = "Without it only an endpoint picker of one body mode knows what is expected."
        return case.warn("ENV-19", found.expected, actual, at=found.entry.seq, hint=hint)
    return case.fail(found.requirement, found.expected, found.actual, at=found.entry.seq, hint=found.hint)


def _mode_was_said(case: Case) -> bool:
    first = case.conversation.first
    return first is None or first.request is None or first.request.HasField("protocol_config")


def _seen_to_hold(lane: Lane) -> Iterator[Ruling]:
    if lane.headers_answer is not None and (lane.body_answers or lane.trailers_answer):
        yield held("ENV-03")
    if lane.body_answers:
        yield held("ENV-04")
    if lane.duplex and (lane.finish is not None or lane.trailers_answer is not None):
        yield held("ENV-05")
