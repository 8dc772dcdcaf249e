"""What a judge says before it is weighed: a finding, and of what nature the deviation is.

Weighing (in `conformance.judges`) knows the catalogue: what a violation counts for in a version, and what remains of it
when the stimulus itself was off-contract.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum

from conformance.verdict import Finding, Verdict

PASS, FAIL = Verdict.PASS, Verdict.FAIL
NEGATIVE = (Verdict.FAIL, Verdict.WARN, Verdict.INCONCLUSIVE, Verdict.ERROR)
"""What says that something is wrong, or could not be told. (Constants: an enum's members take long to look up.)"""

LONGEST = 4000
"""Characters of what came that a finding repeats: a target may send megabytes, and every report repeats findings."""


class Nature(StrEnum):
    """Of what kind a deviation is. All but CONDUCT are judged even where the suite itself broke the contract; crash
    and hang fail under any effect of the requirement."""

    CONDUCT = "conduct"
    MEMBERSHIP = "membership"
    CROSS_TALK = "cross-talk"
    HANG = "hang"
    CRASH = "crash"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling(Finding):
    """A finding before it is weighed. `exchange` and `seq` are None where it is not about one exchange or entry."""

    nature: Nature = Nature.CONDUCT

    @property
    def negative(self) -> bool:
        """Whether it says that something is wrong, or could not be told."""
        return self.verdict is not PASS and self.verdict in NEGATIVE

    def weighed(self, verdict: Verdict) -> Finding:
        """The finding, with the verdict that it comes to. What came is cut after `LONGEST` characters."""
        parts = {name: getattr(self, name) for name in _OF_FINDING}
        return Finding(**parts | {"verdict": verdict, "actual": _cut(self.actual)})


_OF_FINDING = tuple(one.name for one in fields(Finding))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def violation(
    requirement: str,
    expected: Sequence[str] | str,
    actual: str,
    *,
    exchange: str | None,
    seq: int | None,
    hint: str = "",
    nature: Nature = Nature.CONDUCT,
    verdict: Verdict = Verdict.FAIL,
) -> Ruling:
    """Something is wrong, at entry `seq` of the log."""
    return Ruling(
        requirement=requirement,
        verdict=verdict,
        expected=(expected,) if isinstance(expected, str) else tuple(expected),
        actual=actual,
        hint=hint,
        exchange=exchange,
        seq=seq,
        nature=nature,
    )


@functools.cache
def passed(requirement: str) -> Ruling:
    """The requirement applied, and was seen to be kept."""
    return Ruling(requirement=requirement, verdict=PASS)


@functools.cache
def not_applicable(requirement: str, why: str) -> Ruling:
    """The condition of the requirement did not arise."""
    return Ruling(requirement=requirement, verdict=Verdict.NOT_APPLICABLE, actual=why)


def recorded(requirement: str, what: str, *, exchange: str | None = None, seq: int | None = None) -> Ruling:
    """Something that is recorded and counts for nothing."""
    return Ruling(requirement=requirement, verdict=Verdict.NOT_APPLICABLE, actual=what, exchange=exchange, seq=seq)
