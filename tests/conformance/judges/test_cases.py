"""Each conversation in `cases/` gives the findings that stand beside it, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted.cases import Case, CaseError, load

CASES = [case for path in sorted((Path(__file__).parent / "cases").glob("*.yaml")) for case in load(path)]


@pytest.mark.parametrize("case", CASES, ids=[f"{case.place}-{case.title}" for case in CASES])
def test_findings(case: Case) -> None:
    case.check()


RIGHT = """
let: {A: "10.0.0.1:8000"}
pool: {a: $A}
cases:
- case: A case
  answers: [headers: $A, echo]
  finds: {EPP-DEST-01: pass}
"""


def check(file: Path) -> None:
    (case,) = load(file)
    case.check()


def test_a_case_that_holds(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(RIGHT)
    check(file)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("headers: $A", "headers", "EPP-DEST-01: pass expected, ['fail'] found"),
        ("EPP-DEST-01: pass", "EPP-DEST-01: fail", "EPP-DEST-01: fail expected, [] found"),
        ("EPP-DEST-01: pass", "EPP-DEST-01: absent", "absent expected, ['pass'] found"),
        ("EPP-DEST-01: pass", "EPP-DEST-01: [pass]", "expected, [] found"),
        ("EPP-DEST-01: pass", "EPP-DEST-01: {verdict: pass, hint: x}", "hint is '', expected 'x'"),
        ("EPP-DEST-01: pass", "EPP-DEST-77: absent", "EPP-DEST-77"),
        ("headers: $A", "headers: $B", "'B'"),
        ("headers: $A", "header: $A", "no answer is called header"),
        ("  answers:", "  answer:", "unknown: answer"),
        ("  finds:", "  steps: [exchange]\n  finds:", "either `answers` or `steps`"),
        ("answers: [headers: $A, echo]", "steps: [request]", "the first step of an exchange is `exchange`"),
        ("answers: [headers: $A, echo]", "steps: [exchange, requests]", "no step is called requests"),
        ("answers: [headers: $A, echo]", "steps: [exchange, request: {bodies: x}]", "request has no bodies"),
    ],
)
def test_a_case_that_does_not_hold_is_reported_with_its_line(tmp_path: Path, old: str, new: str, error: str) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(RIGHT.replace(old, new))
    with pytest.raises((AssertionError, CaseError)) as raised:
        check(file)
    assert str(raised.value).startswith("file.yaml:5: ")
    assert error in str(raised.value)
