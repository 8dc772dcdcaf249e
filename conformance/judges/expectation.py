"""What the scenario itself expects of an exchange or a health check, beyond the rules that hold for every one.

An expectation that is not met gives a finding on the requirement that the scenario names for it, unless a rule has
already found fault with the same answer: one deviation, one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.endpoints import canonical
from conformance.episode import Context, Expectation
from conformance.judges.case import Answer, Case
from conformance.judges.ruling import Nature, Ruling, held

TOO_MANY = 429


def accepts(expected: Sequence[str], case: Case) -> bool:
    """Whether the kind of answer is one of `expected` (`endpoint`, `503`, `4xx`, `grpc-error`, `any`)."""
    return any(_is(kind, case) for kind in expected)


def _is(kind: str, case: Case) -> bool:
    match kind:
        case "any":
            return case.answer in (Answer.ENDPOINT, Answer.IMMEDIATE, Answer.ENDED)
        case "endpoint":
            return case.answer is Answer.ENDPOINT
        case "grpc-error":
            return case.answer is Answer.ENDED and bool(case.flow.stop and case.flow.stop.status)
        case _ if len(kind) == 3 and kind.endswith("xx"):
            return case.answer is Answer.IMMEDIATE and str(case.code)[:1] == kind[0]
        case _:
            return case.answer is Answer.IMMEDIATE and str(case.code) == kind


def about(expectation: Expectation, context: Context) -> str | None:
    """The requirement that is broken if `expectation` is not met."""
    return expectation.requirement or (context.requirements[0] if context.requirements else None)


def expectation(case: Case, *, blamed: bool) -> Iterator[Ruling]:
    """The scenario's expectation of `case`; `blamed`: fault was already found with its answer."""
    expected = case.expectation
    requirement = about(expected, case.context) if expected is not None else None
    if expected is None or requirement is None or case.answer in (Answer.UNSEEN, Answer.OFFENDED):
        return
    ruling = _answer(case, requirement, expected) or _members(case, requirement, expected)
    ruling = ruling or _status(case, requirement, expected)
    if ruling is None:
        if expected.answer or expected.within is not None or expected.absent or expected.status:
            yield held(requirement)
    elif not blamed:
        yield ruling


def _answer(case: Case, requirement: str, expected: Expectation) -> Ruling | None:
    kinds = expected.answer or (("endpoint",) if expected.within is not None else ())
    if not kinds or accepts(kinds, case):
        return None
    return case.fail(requirement, kinds, case.describe())


def _members(case: Case, requirement: str, expected: Expectation) -> Ruling | None:
    if case.answer is not Answer.ENDPOINT:
        return None
    if expected.within is not None:
        within = {canonical(one) for one in expected.within}
        outside = [pick for pick in case.picks if pick not in within]
        if outside or not case.picks:
            wanted = f"an endpoint of {', '.join(expected.within) or 'nothing'}"
            return case.fail(requirement, wanted, nature=Nature.MEMBERSHIP)
    named = [one for one in expected.absent if canonical(one) in case.picks]
    if named:
        return case.fail(requirement, f"not {', '.join(named)}", nature=Nature.MEMBERSHIP)
    return None


def _status(case: Case, requirement: str, expected: Expectation) -> Ruling | None:
    response = case.conversation.client_response
    if not expected.status or response is None:
        return None
    entry, got = response
    if got.status in expected.status:
        return None
    wanted = [f"the client gets {status}" for status in expected.status]
    details = f" ({got.details})" if got.details else ""
    return case.fail(requirement, wanted, f"the client got {got.status}{details}", at=entry.seq)
