"""Verdicts, findings, and how they are rolled up: the one place that counts.

A judge gives findings; a scenario's verdict comes from the findings on the requirements it names; a requirement's
verdict comes from every finding on it; results of the two kinds come from the requirements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, get_args

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


def worst(verdicts: Iterable[Verdict], default: Verdict = Verdict.UNTESTED) -> Verdict:
    """The verdict that decides among several; `default` if there is none."""
    return min(set(verdicts), key=PRECEDENCE.index, default=default)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What a judge has to say about one requirement in one episode.

    `expected` lists every acceptable outcome; `actual` is what happened. `exchange` and `seq` point into the episode:
    `seq` is the entry at fault. `hint` is a likely cause or a next step.
    """

    requirement: str
    verdict: Verdict
    expected: tuple[str, ...] = ()
    actual: str = ""
    exchange: str | None = None
    seq: int | None = None
    hint: str = ""


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
