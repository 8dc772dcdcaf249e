"""What the scenario itself expects of an exchange or a health check, beyond the rules that hold for every one.

An expectation that is not met gives a finding on the requirement that the scenario names for it, unless a rule has
already found fault with the same answer: one deviation, one finding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.evidence.episode import Expectation
from conformance.judges.episode_facts import EpisodeFacts
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.findings import passed, recorded
from conformance.reading.endpoints import canonical
from conformance.verdict import Finding, Nature

TOO_LARGE, TOO_MANY = 413, 429

_TELLS_NOTHING = (AnswerKind.UNSEEN, AnswerKind.OFFENDED, AnswerKind.NOT_ASKED)
"""An answer that was not observed, that is itself the finding, or that no request asked for."""


def accepts(expected: Sequence[str], view: ExchangeView) -> bool:
    """Whether the kind of answer is one of `expected` (`endpoint`, `503`, `4xx`, `grpc-error`, `any`).

    Where an error is expected any is right in 0.2.0, which names neither codes nor forms (reading AMB-13).
    """
    if view.facts.counts("EPP-ERR-01") and (view.family >= 4 or _is("grpc-error", view)):
        return any(kind != "endpoint" for kind in expected)
    return any(_is(kind, view) for kind in expected)


def _is(kind: str, view: ExchangeView) -> bool:
    match kind:
        case "any":
            return view.answer in (AnswerKind.ENDPOINT, AnswerKind.IMMEDIATE, AnswerKind.ENDED)
        case "endpoint":
            return view.answer is AnswerKind.ENDPOINT
        case "grpc-error":
            return view.ended_in_error
        case _ if len(kind) == 3 and kind.endswith("xx"):
            return bool(view.refused) and str(view.family) == kind[0]
        case _:
            return str(view.refused) == kind


def dropped(view: ExchangeView) -> bool:
    """Whether a request for which there was an endpoint was dropped while pods were busy: the EPP's own decision, which
    tells nothing of other rules (EPP-ERR-03, reading AMB-06)."""
    due = view.due
    return view.answer is AnswerKind.IMMEDIATE and view.code == TOO_MANY and due.endpoint_due and not due.load.idle


_ERRORS = ("EPP-ERR-02", "EPP-ERR-03", "EPP-ERR-04")
"""What later versions say of errors, of which 0.2.0 only says that there must be one."""


def about(expectation: Expectation, facts: EpisodeFacts) -> str | None:
    """The requirement that is broken if `expectation` is not met: by default the first that the scenario names."""
    named = expectation.requirement or next(iter(facts.context.requirements), None)
    return "EPP-ERR-01" if named in _ERRORS and facts.applies("EPP-ERR-01") else named


def expectation(view: ExchangeView, *, blamed: bool) -> Iterator[Finding]:
    """The scenario's expectation of `view`; `blamed`: fault was already found with its answer."""
    expected = view.expectation
    requirement = about(expected, view.facts) if expected is not None else None
    if expected is None or requirement is None or view.answer in _TELLS_NOTHING:
        return
    if view.ended_by_exit and view.answer in (AnswerKind.ENDED, AnswerKind.SILENT):
        return  # the exit is the finding
    if dropped(view) and not accepts(expected.answer, view):
        yield recorded(requirement, f"{view.describe()}: the request was dropped, as any may be while pods are busy")
        return
    finding = _answer(view, requirement, expected) or _members(view, requirement, expected)
    finding = finding or _status(view, requirement, expected)
    if finding is None:
        if expected.answer or expected.within is not None or expected.absent or expected.status:
            yield passed(requirement)
    elif not blamed:
        yield finding


def _answer(view: ExchangeView, requirement: str, expected: Expectation) -> Finding | None:
    kinds = expected.answer or (("endpoint",) if expected.within is not None else ())
    if not kinds or accepts(kinds, view):
        return None
    return view.fail(requirement, kinds, view.describe())


def _members(view: ExchangeView, requirement: str, expected: Expectation) -> Finding | None:
    if view.answer is not AnswerKind.ENDPOINT:
        return None
    if expected.within is not None:
        within = {canonical(one) for one in expected.within}
        outside = [pick for pick in view.picks if pick not in within]
        if outside or not view.picks:
            wanted = f"an endpoint of {', '.join(expected.within) or 'nothing'}"
            return view.fail(requirement, wanted, nature=Nature.MEMBERSHIP)
    named = [one for one in expected.absent if canonical(one) in view.picks]
    if named:
        return view.fail(requirement, f"not {', '.join(named)}", nature=Nature.MEMBERSHIP)
    return None


def _status(view: ExchangeView, requirement: str, expected: Expectation) -> Finding | None:
    response = view.conversation.client_response
    if not expected.status or response is None or view.facts.exit is not None:
        return None
    entry, got = response
    if got.status in expected.status:
        return None
    wanted = [f"the client gets {status}" for status in expected.status]
    details = f" ({got.details})" if got.details else ""
    return view.fail(requirement, wanted, f"the client got {got.status}{details}", at=entry.seq)
