"""Verdicts, findings, and how they are rolled up: the one place that counts.

A judge gives findings; a scenario's verdict comes from the findings on the requirements it names; a requirement's
verdict comes from every finding on it; results of the two kinds come from the requirements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, get_args

from conformance.described import Described

Kind = Literal["protocol", "ext_proc"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Verdict(StrEnum):
    """The answer for a requirement or a scenario."""

    PASS = "pass"
    FAIL = "fail"
    WARN = "warn"
    NOT_APPLICABLE = "notApplicable"
    SKIPPED = "skipped"
    ATTESTED = "attested"
    INCONCLUSIVE = "inconclusive"
    ERROR = "error"
    UNTESTED = "untested"


PRECEDENCE = (
    Verdict.FAIL,
    Verdict.ERROR,
    Verdict.INCONCLUSIVE,
    Verdict.WARN,
    Verdict.PASS,
    Verdict.SKIPPED,
    Verdict.ATTESTED,
    Verdict.NOT_APPLICABLE,
    Verdict.UNTESTED,
)
"""Worst first. `skipped` stands below `pass`: a rule that one scenario reached was reached."""

ACCUSING = (Verdict.FAIL, Verdict.WARN)
"""Something is held against the target."""

UNJUDGED = (Verdict.ERROR, Verdict.INCONCLUSIVE)
"""It was tried, and could not be judged."""

UNSETTLED = (*UNJUDGED, Verdict.SKIPPED)
"""Nothing was found out."""

NEGATIVE = (*ACCUSING, *UNJUDGED)
"""Something is wrong, or could not be told."""


def worst(verdicts: Iterable[Verdict], default: Verdict = Verdict.UNTESTED) -> Verdict:
    """The verdict that decides among several; `default` if there is none."""
    return min(set(verdicts), key=PRECEDENCE.index, default=default)


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
class Finding(Described):
    """What a judge has to say about one requirement in one episode."""

    requirement: str
    """The requirement."""
    verdict: Verdict
    """What was found."""
    expected: tuple[str, ...] = ()
    """Every acceptable outcome."""
    actual: str = ""
    """What came instead."""
    exchange: str | None = None
    """The exchange in the evidence; null if the finding is not about one."""
    seq: int | None = None
    """The entry of the evidence that is at fault."""
    hint: str = ""
    """A likely cause, or a next step."""
    nature: Nature = Nature.CONDUCT
    """Of what kind the deviation is."""

    @property
    def negative(self) -> bool:
        """Whether it says that something is wrong, or could not be told."""
        return self.verdict is not _PASS and self.verdict in NEGATIVE

    def weighed(self, verdict: Verdict) -> Finding:
        """The finding with the verdict that it comes to. What came is cut after `LONGEST` characters."""
        if verdict is self.verdict and len(self.actual) <= LONGEST:
            return self
        return replace(self, verdict=verdict, actual=_cut(self.actual))


_PASS = Verdict.PASS


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


class Result(StrEnum):
    """The outcome for one kind of requirements, or for a version as a whole."""

    CONFORMANT = "conformant"
    NON_CONFORMANT = "non-conformant"
    INCOMPLETE = "incomplete"


def result(must: Iterable[Verdict]) -> Result:
    """The result over the verdicts of all counted requirements of a kind.

    `fail` decides; then `error`, `inconclusive` and `skipped` leave it incomplete; all else is neutral or good.
    """
    seen = set(must)
    if Verdict.FAIL in seen:
        return Result.NON_CONFORMANT
    if seen & {Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.SKIPPED, Verdict.UNTESTED}:
        return Result.INCOMPLETE
    return Result.CONFORMANT
