"""Destination Endpoint, Constraints: what is answered when no endpoint is given (EPP-ERR-*).

With no ready endpoint 503 is due (EPP-ERR-02); 503 although there is one breaks the same sentence. Dropping a request
under load is 429 and nothing else (EPP-ERR-03). 429 while the pool is idle can't be told from a wrong reading of the
load, so it is inconclusive. Version 0.2.0 takes any error (EPP-ERR-01). A gRPC status in the place of the error is
found in `ext_proc.answering` (EPP-ERR-04).
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges import expectation
from conformance.judges.case import Answer, Case, Shape
from conformance.judges.ext_proc.immediate import VALID
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Ruling, held, noted
from conformance.verdict import Verdict

UNAVAILABLE, TOO_MANY, TOO_LARGE = 503, 429, 413
LARGE_BODY = 1024 * 1024
"""Above so many bytes 413 is an answer, as long as streaming is an option (before `next`)."""

NO_ENDPOINT = "an ImmediateResponse with 503: no endpoint is eligible"


def due_error(case: Case) -> Ruling | None:
    """What is wrong with an ImmediateResponse where an error is due because the pool has nothing."""
    if not case.scene.applies("EPP-ERR-02"):
        return None if case.code >= 400 else case.fail("EPP-ERR-01", "an error: 400 or more, or a gRPC status")
    if acceptable_error(case):
        return None
    if case.code == TOO_MANY and case.sheddable:
        hint = "429 means that there is capacity, and contention for it; without endpoints there is none."
        return case.warn("EPP-ERR-02", NO_ENDPOINT, hint=hint)
    return case.fail("EPP-ERR-02", NO_ENDPOINT)


def acceptable_error(case: Case) -> bool:
    """Whether the code is right where no endpoint is eligible: 503, or what a bad request gets in any case."""
    if case.code == UNAVAILABLE:
        return True
    bad_request = case.incomprehensible or case.unknown_model
    return bad_request and case.code in range(400, 500) and case.code != TOO_MANY


def undue_error(case: Case) -> Ruling | None:
    """What is wrong with an ImmediateResponse although an endpoint is due; None also where the code is acceptable."""
    load, code = case.demand.load, case.code
    dropped = code == UNAVAILABLE or case.shape is Shape.ORDINARY  # other codes may be about an odd request
    if load.saturated and code != TOO_MANY and dropped:
        if case.scene.applies("EPP-ERR-03"):
            expected = ("an endpoint", "an ImmediateResponse with 429, if the request is dropped")
            return case.fail("EPP-ERR-03", expected)
    elif code == UNAVAILABLE and case.scene.applies("EPP-ERR-02"):
        hint = "503 says that no endpoint is ready; the pool has " + ", ".join(sorted(case.demand.pool)[:4])
        return case.fail("EPP-ERR-02", "an endpoint", hint=hint)
    return None


def undecided(case: Case) -> Ruling | None:
    """A 429 while the pool is idle."""
    if case.code != TOO_MANY or not case.demand.load.idle:
        return None
    hint = "The pool's gauges are idle, so nothing should be dropped; does the target read the metrics?"
    return case.fail("EPP-DEST-01", "an endpoint", hint=hint, verdict=Verdict.INCONCLUSIVE)


def tolerated(case: Case) -> bool:
    """Whether an error is right although an endpoint is due.

    The scenario says so; the EPP is blind; it sheds; its own filters may leave nothing of a busy subset (AMB-11);
    nobody could understand the request; or, before `next`, it is very large.
    """
    code, load = case.code, case.demand.load
    if case.expectation is not None and expectation.accepts(case.expectation.answer, case):
        return True
    if code == UNAVAILABLE and (load.blind or (load.saturated and case.hint.set)):
        return True
    if code == TOO_MANY:
        return load.blind or not load.idle
    if code >= 400 and load.saturated and case.scene.counts("EPP-ERR-01"):
        return True  # 0.2.0 names no code
    if code in range(400, 500) and (case.unknown_model or case.incomprehensible):
        return True
    large = len(case.request_body or b"") > LARGE_BODY
    return code == TOO_LARGE and large and not case.scene.counts("EPP-STRM-01")


def missing_error(case: Case) -> Ruling:
    """A request that was let go although no endpoint is ready."""
    requirement = "EPP-ERR-02" if case.scene.applies("EPP-ERR-02") else "EPP-ERR-01"
    expected = NO_ENDPOINT if requirement == "EPP-ERR-02" else "an error: 400 or more, or a gRPC status"
    return case.fail(requirement, expected, hint="Envoy sends such a request to an endpoint of its own choice.")


def unshed(case: Case) -> Ruling | None:
    """An endpoint for a request that a target which claims to shed should have dropped."""
    claimed = case.context.claims.sheds is True and case.sheddable and case.demand.load.saturated
    if case.hint.set:
        return None  # whether the saturation of a subset counts, while the rest of the pool is idle, is not said
    if not claimed or not case.scene.applies("EPP-ERR-03"):
        return None
    hint = "The profile claims that such requests are shed; every pod is saturated."
    return case.fail("EPP-ERR-03", "an ImmediateResponse with 429", hint=hint)


@judge_of_case("EPP-ERR-01", "EPP-ERR-02", "EPP-ERR-03", "EPP-ERR-04", "EPP-ERR-05", "EPP-ERR-06", "EPP-ERR-07")
def errors(case: Case) -> Iterator[Ruling]:
    """What was seen to hold; and that an error carries no destination."""
    demand = case.demand
    if case.answer is Answer.ENDPOINT and case.sheddable and demand.load.saturated:
        yield noted("EPP-ERR-03", "an endpoint was given: this target did not shed")
    if case.answer is not Answer.IMMEDIATE or case.code not in VALID:
        return
    if demand.error_due:
        yield held("EPP-ERR-04")
        if case.code >= 400:
            yield held("EPP-ERR-01")
        if case.code == UNAVAILABLE and demand.pool_empty:
            yield held("EPP-ERR-02")
    if case.code == TOO_MANY and demand.endpoint_due and not demand.load.idle:
        yield held("EPP-ERR-03")
    yield from _contents(case)


def _contents(case: Case) -> Iterator[Ruling]:
    said = case.flow.immediate
    if said is None or said.response is None:
        return
    if said.names_destination:
        expected = "no destination header and no destination metadata in an error"
        yield case.fail("EPP-ERR-05", expected, f"ImmediateResponse {case.code} with a destination", at=said)
    else:
        yield held("EPP-ERR-05")
    immediate = said.response.immediate_response
    yield noted("EPP-ERR-06", f"body of {len(immediate.body)} bytes, details {immediate.details[:60]!r}")
    if case.code not in (UNAVAILABLE, TOO_MANY):
        yield noted("EPP-ERR-07", f"code {case.code}", exchange=case.exchange, seq=said.seq)
