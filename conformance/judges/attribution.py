"""Which one rule a wrong answer to a request breaks: the only place where the sections are put in order.

Each section has functions that say what is wrong with an answer as far as its own rules go. For each kind of answer
they are asked in the order below; the first that finds fault has the finding. So one deviation is one finding, on the
requirement that says most about it.

What is not here is a separate deviation: answers out of order (`ext_proc.ordering`), streams that stop with something
unanswered (`ext_proc.answering`), and what is wrong with mutations, bodies and contents of answers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from conformance.judges.epp import destination, errors, isolation, model, subset
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.ext_proc.immediate import VALID
from conformance.judges.registry import judge_of_exchange
from conformance.verdict import Finding, Verdict

Section = Callable[[ExchangeView], Finding | None]

IF_AN_ENDPOINT_IS_DUE: tuple[Section, ...] = (
    errors.undecided,
    subset.undue_error,
    errors.undue_error,
    destination.undue_error,
)
"""An ImmediateResponse that is not tolerated although an endpoint is due."""

PICKS: tuple[Section, ...] = (model.deviation, errors.unshed, subset.wrong_pick, destination.wrong_pick)
"""An endpoint."""

_BEHIND = ("EPP-DEST-04", "EPP-DEST-05", "EPP-DEST-06", "EPP-SUB-", "EPP-ERR-", "EPP-MODEL-")
"""What is about the endpoint or the error that was given. What is missing may only be hidden by the other fault."""

_UNREADABLE = ("EPP-DEST-04", "EPP-DEST-05")
"""With a value that is malformed, or two, there is no telling which endpoint is meant."""


@judge_of_exchange(
    *(f"EPP-DEST-{number:02}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 10)),
    *(f"EPP-SUB-{number:02}" for number in range(1, 12)),
    *(f"EPP-ERR-{number:02}" for number in (1, 2, 3)),
    "EPP-MODEL-01",
    "EPP-MODEL-02",
    "EPP-STRM-01",
    "ENV-14",
    "ENV-21",
)
def request_phase(view: ExchangeView) -> Iterator[Finding]:
    """What is wrong with the way in which the request was answered; also where another fault has spoiled the answer, as
    far as that tells which endpoint or error was given."""
    yield from _answer(view)
    offence = view.stream.offence
    if view.behind is not None and offence is not None:
        for finding in _answer(view.behind):
            if finding.negative and finding.requirement.startswith(_BEHIND):
                mark = f"Seen behind {offence.requirement}, which is broken in the same exchange."
                yield dataclasses.replace(finding, hint=f"{mark} {finding.hint}".rstrip())


def _answer(view: ExchangeView) -> Iterator[Finding]:
    match view.answer:
        case AnswerKind.IMMEDIATE if view.code in VALID:
            found = _error(view)
            if found is not None:
                yield found
        case AnswerKind.UNSTEERED:
            yield _nothing(view)
        case AnswerKind.ENDPOINT:
            yield from _endpoint(view)


def _error(view: ExchangeView) -> Finding | None:
    found = model.deviation(view)
    if found is not None:
        return found
    if view.due.error_due:
        return _due_error(view)
    if errors.tolerated(view):
        return None
    if not view.due.endpoint_due:
        return destination.undue_error(view) if errors.never_due(view) else None
    return _first(view, IF_AN_ENDPOINT_IS_DUE)


def _due_error(view: ExchangeView) -> Finding | None:
    of_the_subset = subset.binding(view) and not view.due.pool_empty
    return subset.due_error(view) if of_the_subset else errors.due_error(view)


def _nothing(view: ExchangeView) -> Finding:
    found = model.deviation(view)
    if found is not None:
        return found
    if view.due.error_possible:
        of_the_subset = subset.binding(view) and not view.due.pool_empty
        return subset.missing_error(view) if of_the_subset else errors.missing_error(view)
    return destination.missing(view)


def _endpoint(view: ExchangeView) -> Iterator[Finding]:
    form = list(destination.form(view))
    yield from form
    if any(one.verdict is Verdict.FAIL and one.requirement in _UNREADABLE for one in form):
        return
    found = _first(view, PICKS)
    if found is not None:
        yield isolation.explained(view, found)


def _first(view: ExchangeView, sections: tuple[Section, ...]) -> Finding | None:
    return next((found for ask in sections if (found := ask(view)) is not None), None)
