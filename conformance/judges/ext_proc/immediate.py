"""ImmediateResponses: complete and final (ENV-15). Those in the place of a response are ENV-24."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.case import Case
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Ruling, held

VALID = range(200, 600)
"""Codes that an ImmediateResponse may have."""


@judge_of_case("ENV-15", hygiene=True)
def immediate_response(case: Case) -> Iterator[Ruling]:
    """An ImmediateResponse has a valid status, and the stream ends well after it."""
    said = case.flow.immediate
    if said is None or said.response is None or case.flow.offence is not None:
        return
    immediate = said.response.immediate_response
    if not immediate.HasField("status") or case.code not in VALID:
        actual = f"code {case.code}" if immediate.HasField("status") else "no status"
        expected = "a status with a code from 200 to 599"
        yield case.fail("ENV-15", expected, actual, at=said, hint="Envoy takes a missing status for 200.")
        return
    if case.flow.response.complete:
        expected = "no ImmediateResponse once the response is complete"
        hint = "Envoy takes the response away from the client, which may have it already."
        yield case.fail("ENV-15", expected, f"ImmediateResponse {case.code}", at=said, hint=hint)
        return
    released = case.decided if case.decided is not said and case.flow.response.headers is None else None
    if released is not None and case.demand.known and case.demand.load.idle and not case.demand.load.blind:
        expected = "no answer that lets the request go before an ImmediateResponse"
        hint = "Only eviction under load would be a reason to take a pick back."
        yield case.warn("ENV-15", expected, f"ImmediateResponse {case.code} after {released.what}", at=said, hint=hint)
        return
    end = case.conversation.end
    if end is not None and end[1].how == "status" and end[1].status:
        expected = "after an ImmediateResponse the stream ends with gRPC status OK"
        yield case.warn("ENV-15", expected, f"it ended with {end[1].status} {end[1].message!r}", at=end[0].seq)
    elif case.conversation.drained:
        yield held("ENV-15")
