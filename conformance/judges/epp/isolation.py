"""One stream is one request: picks that belong to another stream (ENV-21) or to an earlier request (EPP-DEST-10).

An answer that holds the id of another request is cross-talk (ENV-21). A single pick outside the subset can't tell it
from a subset that is ignored. So from picks both are only concluded with controls in the same episode:

- ENV-21: several requests with a body, or without one, as this one, that met no other (alone on the wire, with ids that
  no other had) kept to their subsets, and this one, which did meet others, got what one of them was due;
- EPP-DEST-10: several wrong picks, each exactly what the request before it on the same connection was due, and no
  other request at the same time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from conformance.judges.episode_view import EpisodeView
from conformance.judges.exchange_view import AnswerKind, ExchangeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_episode, judge_of_exchange
from conformance.verdict import Finding, Nature, Verdict
from ext_proc.record import Author, Event, Malformed, Message, StreamEnded

CONTROLS = 3
"""So many right picks, or wrong ones of a pattern, are no coincidence."""

OF_ANOTHER = "; another request at the same time was due it"
"""How a finding ends about a pick that is another stream's."""

_MEMBERSHIP = ("EPP-SUB-", "EPP-DEST-06")


def explained(view: ExchangeView, finding: Finding) -> Finding:
    """`finding` about a wrong pick, or the same on ENV-21 or EPP-DEST-10 if the controls say so."""
    if finding.nature is not Nature.MEMBERSHIP or not finding.requirement.startswith(_MEMBERSHIP):
        return finding
    if view.facts.applies("EPP-DEST-10") and _left_behind(view):
        actual = f"{finding.actual}; the request before it on this connection was due it"
        verdict = Verdict.WARN if view.facts.effect(finding.requirement) == "warn" else finding.verdict
        return dataclasses.replace(finding, requirement="EPP-DEST-10", actual=actual, verdict=verdict)
    if _mixed_up(view):
        actual = f"{finding.actual}{OF_ANOTHER}"
        hint = "Requests that were alone kept to their subsets; look for state that streams share."
        return dataclasses.replace(finding, requirement="ENV-21", actual=actual, hint=hint, nature=Nature.CROSS_TALK)
    return finding


def _telling(view: ExchangeView) -> bool:
    """Whether a right pick of it says something: a subset that leaves a part of the pool."""
    return view.answer is AnswerKind.ENDPOINT and view.hint.set and bool(view.due.allowed) and bool(view.picks)


def _right(view: ExchangeView) -> bool:
    return all(view.due.allows(pick) for pick in view.picks)


def _due(other: ExchangeView, view: ExchangeView) -> bool:
    """Whether what `view` got was due to `other`, which had a subset."""
    return other.hint.set and all(other.due.allows(pick) for pick in view.picks)


def _mixed_up(view: ExchangeView) -> bool:
    if not any(_due(one, view) for one in _met(view)):
        return False
    alike = (one for one in view.siblings if not one.settling and one.bodyless is view.bodyless)
    controls = [one for one in alike if _telling(one) and not _met(one)]
    return len(controls) >= CONTROLS and all(_right(one) for one in controls) and _differ(controls)


def _differ(controls: list[ExchangeView]) -> bool:
    return len({tuple(sorted(one.due.allowed)) for one in controls}) > 1


def _met(view: ExchangeView) -> tuple[ExchangeView, ...]:
    """The other requests that it could be taken for: at the same time, or with the same id."""
    own = view.request_header("x-request-id")
    same_id = [
        one
        for one in view.siblings
        if one is not view and own is not None and own == one.request_header("x-request-id")
    ]
    return (*view.overlapping, *same_id)


def _left_behind(view: ExchangeView) -> bool:
    wrong = [one for one in view.siblings if _telling(one) and not _right(one)]
    following = [(one, before) for one in wrong if (before := _predecessor(one)) is not None]
    if not all(_due(before, one) for one, before in following):
        return False
    return len([one for one, _ in following if not any(_due(other, one) for other in _met(one))]) >= CONTROLS


def _predecessor(view: ExchangeView) -> ExchangeView | None:
    connection = view.conversation.connection
    if connection is None:
        return None
    before = view.before()
    return next((one for one in before if one.conversation.connection == connection and one.hint.set), None)


@judge_of_episode("ENV-21")
def streams(episode_view: EpisodeView) -> Iterator[Finding]:
    """Streams that were open at the same time, each with its body or subset, got what they were due."""
    for view in episode_view.exchanges:
        if view.answer is AnswerKind.ENDPOINT and _right(view) and view.due.known and view.overlapping:
            yield passed("ENV-21")
            return


@judge_of_exchange("ENV-21", hygiene=True)
def ids(view: ExchangeView) -> Iterator[Finding]:
    """No answer holds the id of another request, as far as those are known (`Context.strangers`)."""
    for stranger in view.context.strangers:
        at = next((one.seq for one in view.conversation.entries if stranger.encode() in _said(one.event)), None)
        if at is not None:
            yield view.fail(
                "ENV-21",
                "nothing of another stream in the answers",
                f"an answer holds {stranger}, the id of another request",
                at=at,
                hint="Look for state that streams share.",
                nature=Nature.CROSS_TALK,
            )


def _said(event: Event) -> bytes:
    """What the EPP says in an event."""
    match event:
        case Message(author=Author.EPP, raw=raw) | Malformed(author=Author.EPP, raw=raw):
            return raw
        case StreamEnded(author=Author.EPP, message=message):
            return message.encode()
        case _:
            return b""
