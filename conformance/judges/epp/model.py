"""Matching An InferenceModel (0.3.0 and 0.4.0): an unknown model gets 404, a request without a body has none."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.reading.conversation import NONE, STREAMED
from conformance.verdict import Finding

NOT_FOUND = 404

_ANSWERED_BEFORE = (NONE, STREAMED)
"""Body modes in which the request is let go before any of its body is shown: its model can't be known by then."""


def deviation(view: ExchangeView) -> Finding | None:
    """What is wrong with the answer about the model, if anything."""
    if view.bodyless:
        due = view.due.endpoint_due or view.due.error_due
        refused = view.answer is AnswerKind.IMMEDIATE and view.code == NOT_FOUND and not view.incomprehensible
        if due and refused and view.facts.applies("EPP-MODEL-02"):
            return view.fail("EPP-MODEL-02", "an endpoint: a request without a body has no model")
        return None
    if not view.unknown_model or not view.facts.applies("EPP-MODEL-01") or view.due.error_due:
        return None
    if view.conversation.request_mode in _ANSWERED_BEFORE:
        return None
    if view.refused == NOT_FOUND:
        return None
    hint = "The model of a request must be the name of an InferenceModel of this pool."
    return view.fail("EPP-MODEL-01", "an ImmediateResponse with 404", hint=hint)


@judge_of_exchange("EPP-MODEL-01", "EPP-MODEL-02")
def model(view: ExchangeView) -> Iterator[Finding]:
    """What was seen to hold."""
    answered = view.answer in (AnswerKind.ENDPOINT, AnswerKind.IMMEDIATE)
    if view.bodyless and answered and view.code != NOT_FOUND:
        yield passed("EPP-MODEL-02")
    if view.unknown_model and view.refused == NOT_FOUND:
        yield passed("EPP-MODEL-01")
