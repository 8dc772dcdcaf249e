"""One stream is one request: picks that belong to another stream (ENV-21) or to an earlier request (EPP-DEST-10).

A single pick outside the subset can't tell these from a subset that is ignored. So they are only concluded from
controls in the same episode:

- ENV-21: several requests that met no other (alone on the wire, with an id of their own) kept to their subsets, and
  this one, which did meet others, got what one of them was due;
- EPP-DEST-10: several wrong picks, each exactly what the request before it on the same connection was due.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from conformance.judges.case import Answer, Case, Scene
from conformance.judges.registry import judge_of_scene
from conformance.judges.ruling import Nature, Ruling, held

CONTROLS = 3
"""So many right picks, or wrong ones of a pattern, are no coincidence."""

_MEMBERSHIP = ("EPP-SUB-", "EPP-DEST-06")


def explained(case: Case, ruling: Ruling) -> Ruling:
    """`ruling` about a wrong pick, or the same on ENV-21 or EPP-DEST-10 if the controls say so."""
    if ruling.nature is not Nature.MEMBERSHIP or not ruling.requirement.startswith(_MEMBERSHIP):
        return ruling
    if case.scene.applies("EPP-DEST-10") and _left_behind(case):
        actual = f"{ruling.actual}; the request before it on this connection was due it"
        return dataclasses.replace(ruling, requirement="EPP-DEST-10", actual=actual)
    if _mixed_up(case):
        actual = f"{ruling.actual}; another request at the same time was due it"
        hint = "Requests that were alone kept to their subsets; look for state that streams share."
        return dataclasses.replace(ruling, requirement="ENV-21", actual=actual, hint=hint, nature=Nature.CROSS_TALK)
    return ruling


def _telling(case: Case) -> bool:
    """Whether a right pick of it says something: a subset that leaves a part of the pool."""
    return case.answer is Answer.ENDPOINT and case.hint.set and bool(case.demand.allowed) and bool(case.picks)


def _right(case: Case) -> bool:
    return all(case.demand.allows(pick) for pick in case.picks)


def _mixed_up(case: Case) -> bool:
    met = _met(case)
    due = any(one.hint.set and all(one.demand.allows(pick) for pick in case.picks) for one in met)
    if not due:
        return False
    controls = [one for one in case.scene.cases if _telling(one) and not _met(one)]
    return len(controls) >= CONTROLS and all(_right(one) for one in controls) and _differ(controls)


def _differ(controls: list[Case]) -> bool:
    return len({tuple(sorted(one.demand.allowed)) for one in controls}) > 1


def _met(case: Case) -> tuple[Case, ...]:
    """The other requests that it could be taken for: at the same time, or with the same id."""
    own = case.request_header("x-request-id")
    same_id = [
        one
        for one in case.scene.cases
        if one is not case and own is not None and own == one.request_header("x-request-id")
    ]
    return (*case.scene.overlapping(case), *same_id)


def _left_behind(case: Case) -> bool:
    wrong = [one for one in case.scene.cases if _telling(one) and not _right(one)]
    following = [(one, before) for one in wrong if (before := _predecessor(one)) is not None]
    matching = [one for one, before in following if all(before.demand.allows(pick) for pick in one.picks)]
    return len(matching) >= CONTROLS and len(matching) == len(following)


def _predecessor(case: Case) -> Case | None:
    connection = case.conversation.connection
    if connection is None:
        return None
    before = case.scene.before(case)
    return next((one for one in before if one.conversation.connection == connection and one.hint.set), None)


@judge_of_scene("ENV-21")
def streams(scene: Scene) -> Iterator[Ruling]:
    """Streams that were open at the same time, each with a body or a subset of its own, got what they were due."""
    for case in scene.cases:
        if case.answer is Answer.ENDPOINT and _right(case) and case.demand.known and scene.overlapping(case):
            yield held("ENV-21")
            return
