"""How verdicts and results are shown: always a symbol and a word, so that colour carries no meaning alone."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.roles import ROLES
from conformance.verdict import Result, Verdict

SYMBOL: Mapping[Verdict | Result, str] = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✗",
    Verdict.WARN: "!",
    Verdict.NOT_APPLICABLE: "–",
    Verdict.SKIPPED: "○",
    Verdict.ATTESTED: "§",
    Verdict.INCONCLUSIVE: "?",
    Verdict.ERROR: "‼",
    Verdict.UNTESTED: "·",
    Result.CONFORMANT: "✓",
    Result.NON_CONFORMANT: "✗",
    Result.INCOMPLETE: "?",
}

WORD: Mapping[Verdict | Result, str] = {
    **{one: one.value for one in (*Verdict, *Result)},
    Verdict.NOT_APPLICABLE: "not applicable",
}

MEANING: Mapping[Verdict, str] = {
    Verdict.PASS: "observed, and as required",
    Verdict.FAIL: "observed, and not as required",
    Verdict.WARN: "a recommendation, or a rule that is only derived, was not followed; no effect on the result",
    Verdict.NOT_APPLICABLE: "the condition of the rule did not arise; neutral",
    Verdict.SKIPPED: "the rule could not be reached with this target; leaves the result incomplete",
    Verdict.ATTESTED: "cannot be tested from outside; the vendor's word",
    Verdict.INCONCLUSIVE: "a precondition was not met in time; leaves the result incomplete",
    Verdict.ERROR: "the suite's own trouble, not the target's; leaves the result incomplete",
    Verdict.UNTESTED: "no scenario yet",
}

STYLE: Mapping[Verdict | Result, str] = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.WARN: "yellow",
    Verdict.NOT_APPLICABLE: "dim",
    Verdict.SKIPPED: "dim",
    Verdict.ATTESTED: "dim",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.ERROR: "bold magenta",
    Verdict.UNTESTED: "dim",
    Result.CONFORMANT: "bold green",
    Result.NON_CONFORMANT: "bold red",
    Result.INCOMPLETE: "bold yellow",
}
"""Styles of rich."""


SUBJECT: Mapping[str, str] = {name: role.subject for name, role in ROLES.items()}
"""What is tested, by role."""


def protocol(role: str, version: str = "") -> str:
    """What a report is about: `Endpoint Picker Protocol 1.0.0`, and the side of it where that is not the EPP's."""
    name = f"Endpoint Picker Protocol {version}".rstrip()
    return name if role == "epp" else f"{name}, {role.replace('-', ' ')}"


def mark(one: Verdict | Result) -> str:
    """Symbol and word: `✗ fail`."""
    return f"{SYMBOL[one]} {WORD[one]}"
