"""How judges make findings. `conformance.judges` weighs them: it knows what a violation counts for in a version, and
what remains of it when the stimulus itself was off-contract.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from conformance.verdict import Finding, Nature, Verdict

PASS, FAIL = Verdict.PASS, Verdict.FAIL
"""Constants: an enum's members take long to look up."""


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
) -> Finding:
    """Something is wrong, at entry `seq` of the log."""
    return Finding(
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
def passed(requirement: str) -> Finding:
    """The requirement applied, and was seen to be kept."""
    return Finding(requirement=requirement, verdict=PASS)


@functools.cache
def not_applicable(requirement: str, why: str) -> Finding:
    """The condition of the requirement did not arise."""
    return Finding(requirement=requirement, verdict=Verdict.NOT_APPLICABLE, actual=why)


def recorded(requirement: str, what: str, *, exchange: str | None = None, seq: int | None = None) -> Finding:
    """Something that is recorded and counts for nothing."""
    return Finding(requirement=requirement, verdict=Verdict.NOT_APPLICABLE, actual=what, exchange=exchange, seq=seq)
