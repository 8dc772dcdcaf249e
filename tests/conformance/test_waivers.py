"""Waivers: what they match, what is wrong with them, and that they never touch a verdict."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import pytest

from conformance.outcome import RunOutcome, ScenarioResult, version_outcome
from conformance.report.document.waivers import KnownFailure, WaiverFile, apply, exit_code_after, load_waivers, suggest
from conformance.requirements.catalogue import Catalogue
from conformance.strict_yaml import FileError, dump, load
from conformance.verdict import Finding, Result, Verdict

TODAY = dt.date(2026, 1, 15)
CATALOGUE = Catalogue.load()
IDS = ("subset.nobody", "subset.empty", "subset.bodyless[only=a,method=GET]", "subset.bodyless")


def result(name: str, requirement: str, verdict: Verdict) -> ScenarioResult:
    finding = Finding(requirement=requirement, verdict=verdict, actual="what came back")
    return ScenarioResult(
        version="1.0.0",
        id=name,
        scenario=name.partition("[")[0],
        title=name,
        section="subset",
        requirements=(requirement,),
        mode="full-duplex",
        verdict=verdict,
        findings=(finding,),
    )


def outcome(*results: ScenarioResult, complete: bool = True) -> RunOutcome:
    version = version_outcome(CATALOGUE, "1.0.0", results, complete=complete)
    return RunOutcome(versions=(version,), seed=1, started_at="", finished_at="", duration=0.0)


def waiver(pattern: str, expires: dt.date = dt.date(2026, 2, 1)) -> KnownFailure:
    return KnownFailure(pattern=pattern, reason="known", link="https://example.org/1", owner="me", expires=expires)


FAILING = (
    result("subset.nobody", "EPP-SUB-02", Verdict.FAIL),
    result("subset.bodyless[only=a,method=GET]", "EPP-SUB-08", Verdict.FAIL),
    result("subset.empty", "EPP-SUB-03", Verdict.PASS),
)


@pytest.mark.parametrize(
    ("patterns", "code"),
    [
        ((), 1),
        (("subset.nobody",), 1),
        (("subset.nobody", "subset.bodyless*"), 0),
        (("subset.nobody", "subset.bodyless"), 0),
        (("EPP-SUB-02", "EPP-SUB-08"), 0),
        (("EPP-SUB-0*",), 0),
    ],
)
def test_only_fully_waived_failures_do_not_fail_the_run(patterns: tuple[str, ...], code: int) -> None:
    run = outcome(*FAILING)
    applied = apply([waiver(pattern) for pattern in patterns], run, TODAY)
    assert [one.problem for one in applied] == [""] * len(patterns)
    assert exit_code_after(run, applied) == code
    assert run.versions[0].result is Result.NON_CONFORMANT  # a waiver never makes a version conformant


def test_a_waived_requirement_waives_nothing_else_in_the_same_scenario() -> None:
    other = Finding(requirement="EPP-DEST-05", verdict=Verdict.FAIL, actual="two values")
    run = outcome(dataclasses.replace(FAILING[0], findings=(*FAILING[0].findings, other)))
    assert exit_code_after(run, apply([waiver("EPP-DEST-05")], run, TODAY)) == 1
    assert exit_code_after(run, apply([waiver("EPP-DEST-05"), waiver("EPP-SUB-02")], run, TODAY)) == 0


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.INCONCLUSIVE, 4), (Verdict.ERROR, 3)])
def test_inconclusive_results_are_not_waived(verdict: Verdict, code: int) -> None:
    run = outcome(*FAILING, result("errors.shed", "EPP-ERR-02", verdict))
    assert exit_code_after(run, apply([waiver("EPP-SUB-0*")], run, TODAY)) == code


def test_an_inconclusive_requirement_is_not_waived_by_another_waiver() -> None:
    again = result("subset.subsumed", "EPP-SUB-02", Verdict.INCONCLUSIVE)
    run = outcome(FAILING[0], again)
    assert exit_code_after(run, apply([waiver("subset.nobody")], run, TODAY)) == 4
    silent = dataclasses.replace(again, findings=())
    run = outcome(FAILING[0], silent)
    assert exit_code_after(run, apply([waiver("EPP-SUB-02")], run, TODAY)) == 4
    skipped = dataclasses.replace(silent, verdict=Verdict.SKIPPED)
    run = outcome(FAILING[0], skipped)
    assert exit_code_after(run, apply([waiver("EPP-SUB-02")], run, TODAY)) == 0


def test_deselected_scenarios_do_not_break_a_waiver() -> None:
    run = outcome(FAILING[2], complete=False)
    applied = apply([waiver("errors.shed")], run, TODAY)
    assert not applied[0].problem
    assert exit_code_after(run, applied) == 4
    assert exit_code_after(run, apply([waiver("subset.empty")], run, TODAY)) == 1


def test_inconclusive_results_do_not_break_a_waiver() -> None:
    run = outcome(*(result(one.id, one.requirements[0], Verdict.INCONCLUSIVE) for one in FAILING))
    applied = apply([waiver("subset.nobody"), waiver("EPP-SUB-08")], run, TODAY)
    assert [one.problem for one in applied] == ["", ""]
    assert exit_code_after(run, applied) == 4


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (waiver("subset.empty"), "does not fail any more"),
        (waiver("EPP-SUB-03"), "does not fail any more"),
        (waiver("errors.shed"), "matches nothing"),
        (waiver("subset.nobody", dt.date(2026, 1, 14)), "expired on 2026-01-14"),
    ],
)
def test_a_waiver_that_rots_fails_the_run(one: KnownFailure, expected: str) -> None:
    run = outcome(*FAILING)
    applied = apply([waiver("EPP-SUB-02"), waiver("EPP-SUB-08"), one], run, TODAY)
    assert expected in applied[-1].problem
    assert exit_code_after(run, applied) == 1


def test_suggested_waivers_can_be_read_and_waive_the_run(tmp_path: Path) -> None:
    run = outcome(*FAILING)
    file = suggest(FAILING, owner="me", link="https://example.org/1", expires=TODAY)
    path = tmp_path / "waivers.yaml"
    path.write_text(dump(file.model_dump(mode="json", by_alias=True)))
    assert load(path, WaiverFile) == file
    assert exit_code_after(run, apply(load_waivers(path, CATALOGUE, IDS), run, TODAY)) == 0


def test_violations_in_passing_scenarios_are_suggested() -> None:
    broken = Finding(requirement="EPP-DEST-05", verdict=Verdict.FAIL, actual="two values")
    passing = dataclasses.replace(FAILING[2], findings=(*FAILING[2].findings, broken))
    assert passing.verdict is Verdict.PASS
    (suggested,) = suggest([passing], owner="me", link="https://example.org/1", expires=TODAY).waivers
    assert (suggested.pattern, suggested.reason) == ("EPP-DEST-05", "two values")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pattern: subset.nobdy", "subset.nobody"),
        ("patern: subset.nobody", "pattern"),
        ("pattern: subset.nobody\n    expires: soon", "expires"),
    ],
)
def test_a_wrong_file_says_where(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "waivers.yaml"
    rest = "" if "expires" in text else "\n    expires: 2026-02-01"
    path.write_text(f"waivers:\n  - {text}\n    reason: r\n    link: l\n    owner: o{rest}\n")
    with pytest.raises(FileError) as raised:
        load_waivers(path, CATALOGUE, IDS)
    assert f"{path}:2:" in str(raised.value) or f"{path}:3:" in str(raised.value)
    assert expected in str(raised.value)


def test_a_pattern_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "waivers.yaml"
    path.write_text(dump({"waivers": [waiver("subset.nobody").model_dump(mode="json")] * 2}))
    with pytest.raises(FileError, match="twice"):
        load_waivers(path, CATALOGUE, IDS)
