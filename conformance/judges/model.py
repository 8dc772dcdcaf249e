"""Matching An InferenceModel (0.3.0 and 0.4.0): an unknown model gets 404, a request without a body has none."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.case import Answer, Case
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Ruling, held

NOT_FOUND = 404


def deviation(case: Case) -> Ruling | None:
    """What is wrong with the answer about the model, if anything."""
    if case.bodyless:
        refused = case.answer is Answer.IMMEDIATE and case.code == NOT_FOUND and case.demand.endpoint_due
        if refused and case.scene.applies("EPP-MODEL-02"):
            return case.fail("EPP-MODEL-02", "an endpoint: a request without a body has no model")
        return None
    if not case.unknown_model or not case.scene.applies("EPP-MODEL-01") or case.demand.error_due:
        return None
    if case.answer is Answer.IMMEDIATE and case.code == NOT_FOUND:
        return None
    hint = "The model of a request must be the name of an InferenceModel of this pool."
    return case.fail("EPP-MODEL-01", "an ImmediateResponse with 404", hint=hint)


@judge_of_case("EPP-MODEL-01", "EPP-MODEL-02")
def model(case: Case) -> Iterator[Ruling]:
    """What was seen to hold."""
    answered = case.answer in (Answer.ENDPOINT, Answer.IMMEDIATE)
    if case.bodyless and answered and case.code != NOT_FOUND:
        yield held("EPP-MODEL-02")
    if case.unknown_model and case.answer is Answer.IMMEDIATE and case.code == NOT_FOUND:
        yield held("EPP-MODEL-01")
