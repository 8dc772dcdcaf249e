"""Verification: what is whole passes, and every kind of tampering is found by the step that is meant to find it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from conformance.report.document.canonical import digest
from conformance.report.render.submission import to_yaml
from conformance.report.render.text import verification_text
from conformance.report.verify.verification import Verification, verify
from conformance.verdict import Finding, Verdict

STEPS = ["schema", "digest", "catalogue", "evidence", "requirements", "roll-ups", "judgement"]


@pytest.fixture
def check(run, catalogue, judge) -> Callable[..., Verification]:
    """Finish the run, let a function change the document (and seal it again, unless told not to), verify."""

    def checked(change: Callable[[dict[str, Any]], object] = lambda _: None, *, sealed: bool = True) -> Verification:
        run.report()
        document = json.loads(run.path.read_text())
        change(document)
        if sealed:
            document["digest"] = digest(document)
        run.path.write_text(json.dumps(document))
        return verify(run.path, run.evidence_path, catalogue=catalogue, judge=judge)

    return checked


def failed(verification: Verification) -> list[str]:
    return [step.name for step in verification.steps if step.answer == "fail"]


def result(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in document["results"] if row["id"] == name)
    return found


def requirement(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row for row in document["requirements"] if row["id"] == name)
    return found


def test_a_whole_report_passes_every_step(check):
    verification = check()
    assert [(step.name, step.answer) for step in verification.steps] == [(name, "pass") for name in STEPS]
    assert verification.answer == "pass"
    text = verification_text(verification).plain
    assert "7 episodes judged again" in text
    assert "needs a signature, or a rerun" in text


def test_a_change_without_a_new_digest_is_found(check):
    verification = check(lambda document: document.update(duration=1.0), sealed=False)
    assert failed(verification) == ["digest"]
    assert verification.answer == "fail"


def test_one_verdict_turned_is_found(check):
    def turn(document: dict[str, Any]) -> None:
        result(document, "subset.escapes")["verdict"] = "pass"

    verification = check(turn)
    assert "roll-ups" in failed(verification)
    assert any(
        "subset.escapes: verdict pass, its findings give fail" in d for d in verification.step("roll-ups").details
    )


def test_a_failure_called_skipped_is_found(check):
    def turn(document: dict[str, Any]) -> None:
        result(document, "subset.escapes").update(verdict="skipped", reason="not today")

    assert "roll-ups" in failed(check(turn))


def test_a_report_made_right_in_itself_but_not_by_its_evidence_is_found(run, catalogue, judge):
    """The thorough forger: findings removed, everything summed up anew, sealed. Only judging again shows it."""
    honest = list(run.results)
    run.results[:] = [
        type(one)(
            **{
                **{name: getattr(one, name) for name in one.__dataclass_fields__},
                "verdict": Verdict.PASS if one.verdict is Verdict.FAIL else one.verdict,
                "findings": tuple(
                    Finding(requirement=f.requirement, verdict=Verdict.PASS) if f.verdict is Verdict.FAIL else f
                    for f in one.findings
                ),
            }
        )
        for one in honest
    ]
    run.report()
    verification = verify(run.path, run.evidence_path, catalogue=catalogue, judge=judge)
    assert failed(verification) == ["judgement"]
    assert any("subset.escapes" in detail for detail in verification.step("judgement").details)


def test_a_requirement_removed_or_doubled_is_found(check):
    def remove(document: dict[str, Any]) -> None:
        document["requirements"] = [row for row in document["requirements"] if row["id"] != "EPP-DEST-05"]

    verification = check(remove)
    assert failed(verification) == ["requirements"]
    assert verification.step("requirements").details == ("1.0.0: EPP-DEST-05 is missing",)


def test_a_requirement_doubled_is_found(check):
    verification = check(lambda document: document["requirements"].append(document["requirements"][0]))
    assert "requirements" in failed(verification)


@pytest.mark.parametrize(
    ("name", "value"), [("level", "MAY"), ("statement", "Anything goes."), ("effect", "info"), ("verdict", "pass")]
)
def test_a_requirement_reworded_is_found(check, name, value):
    verification = check(lambda document: requirement(document, "EPP-SUB-01").update({name: value}))
    assert failed(verification) == ["roll-ups"]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(result="conformant"),
        lambda document: document["versions"][0].update(result="conformant"),
        lambda document: document["versions"][0].update(blockers=[]),
        lambda document: document["versions"][0]["kinds"].update(protocol="conformant"),
        lambda document: document["versions"][0]["scenarioVerdicts"].update(fail=0),
        lambda document: document["results"].append(document["results"][0]),
        lambda document: document["results"].pop(0),
        lambda document: document.update(complete=False),
        lambda document: document.update(stopped="", versions=[], complete=True),
    ],
)
def test_sums_that_do_not_add_up_are_found(check, change):
    assert "roll-ups" in failed(check(change))


def test_another_wording_of_what_happened_is_found(check):
    def soften(document: dict[str, Any]) -> None:
        row = result(document, "subset.escapes")
        row["actual"] = row["findings"][0]["actual"] = "a good endpoint"

    assert failed(check(soften)) == ["judgement"]


def test_other_claims_than_the_judges_had_are_found(check):
    assert failed(check(lambda document: document["claims"].update(sheds=True))) == ["judgement"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_one_byte_of_evidence_is_found(check, run, catalogue, judge, at):
    check()
    lines = gzip.decompress(run.evidence_path.read_bytes()).split(b"\n")
    lines[at] = lines[at].replace(b"llama-3", b"llama-4").replace(b'"t":', b'"t":1', 1)
    run.evidence_path.write_bytes(gzip.compress(b"\n".join(lines)))
    verification = verify(run.path, run.evidence_path, catalogue=catalogue, judge=judge)
    assert failed(verification) == ["evidence"]
    details = verification.step("evidence").details
    assert any("its episode is not in the evidence" in detail for detail in details)


def test_evidence_packed_anew_is_the_same_evidence(check, run, catalogue, judge):
    check()
    run.evidence_path.write_bytes(gzip.compress(gzip.decompress(run.evidence_path.read_bytes()), 1))
    assert verify(run.path, run.evidence_path, catalogue=catalogue, judge=judge).answer == "pass"


def test_evidence_of_another_scenario_is_found(check):
    def swap(document: dict[str, Any]) -> None:
        bad, good = result(document, "subset.escapes"), result(document, "subset.stays-inside[0]")
        for name in ("verdict", "findings", "passed", "notApplicable", "evidence", "expected", "actual", "exchange"):
            bad[name] = good[name]

    assert "judgement" in failed(check(swap))


def test_a_verdict_without_evidence_is_found(check):
    verification = check(lambda document: result(document, "subset.empty").update(evidence=None))
    assert "evidence" in failed(verification)


def test_a_scenario_that_was_not_begun_needs_no_evidence_but_a_reason(made, catalogue, judge):
    made.skipped("a.b", ("EPP-SUB-01",), "the target has no claim", Verdict.NOT_APPLICABLE)
    made.report()
    assert verify(made.path, made.evidence_path, catalogue=catalogue, judge=judge).step("roll-ups").answer == "pass"
    document = json.loads(made.path.read_text())
    document["results"][0]["reason"] = ""
    made.path.write_text(json.dumps(document))
    verification = verify(made.path, made.evidence_path, catalogue=catalogue, judge=judge)
    assert verification.step("roll-ups").answer == "fail"


def test_evidence_that_is_cut_short_or_missing_is_named(check, run, catalogue, judge):
    check()
    whole = run.evidence_path.read_bytes()
    run.evidence_path.write_bytes(whole[: len(whole) // 2])
    assert "evidence" in failed(verify(run.path, run.evidence_path, catalogue=catalogue, judge=judge))
    run.evidence_path.write_bytes(b"not gzip")
    assert "evidence" in failed(verify(run.path, run.evidence_path, catalogue=catalogue, judge=judge))
    run.evidence_path.unlink()
    verification = verify(run.path, run.evidence_path, catalogue=catalogue, judge=judge)
    assert "No such file" in verification.step("evidence").details[0]


def test_without_evidence_the_rest_is_checked_and_the_answer_is_unknown(check, run, catalogue, judge):
    check()
    verification = verify(run.path, None, catalogue=catalogue, judge=judge)
    assert verification.answer == "unknown"
    assert {step.name for step in verification.steps if step.answer == "unknown"} == {"evidence", "judgement"}


def test_another_catalogue_is_not_called_tampering(check):
    def older(document: dict[str, Any]) -> None:
        document["catalogue"] = {"version": "0.9.0", "digest": "sha256:" + "1" * 64}
        document["suite"]["version"] = "0.0.7"

    verification = check(older)
    assert verification.answer == "unknown"
    assert failed(verification) == []
    assert "pip install epp-conformance==0.0.7" in verification.step("catalogue").text


def test_another_suite_that_judged_otherwise_is_not_called_tampering(check):
    def older(document: dict[str, Any]) -> None:
        document["suite"]["version"] = "0.0.7"
        row = result(document, "subset.escapes")
        row["actual"] = row["findings"][0]["actual"] = "in other words"

    verification = check(older)
    assert verification.step("judgement").answer == "unknown"
    assert "pip install epp-conformance==0.0.7" in verification.step("judgement").text


def test_wrong_documents_under_a_known_catalogue_are_found(check):
    verification = check(lambda document: document["specification"].update(digest="sha256:" + "2" * 64))
    assert failed(verification) == ["catalogue"]


@pytest.mark.parametrize("text", ["{}", "no report", '{"apiVersion": "conformance.epp/v1alpha1"}'])
def test_what_is_no_report_fails_the_first_step(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    verification = verify(path, None)
    assert [step.name for step in verification.steps] == STEPS
    assert failed(verification) == ["schema"]


def test_an_unknown_field_fails_the_schema(check):
    assert failed(check(lambda document: document.update(comment="trust me"))) == ["schema"]


def test_a_build_of_the_same_version_with_another_catalogue_is_not_called_tampering(check):
    verification = check(lambda document: document["catalogue"].update(digest="sha256:" + "1" * 64))
    assert (verification.answer, failed(verification)) == ("unknown", [])
    assert "the very build" in verification.step("catalogue").text


def test_a_judge_that_raises_is_an_answer_and_no_crash(check, run, catalogue):
    def broken(*_: object) -> tuple[Finding, ...]:
        raise ZeroDivisionError("our own defect")

    check()
    verification = verify(run.path, run.evidence_path, catalogue=catalogue, judge=broken)
    assert failed(verification) == ["judgement"]
    assert "can't be judged: ZeroDivisionError" in verification.step("judgement").details[0]


def test_the_suites_own_judges_judge_again(made, say):
    from conformance.judges import judge

    made.judge = judge
    made.scenario("subset.stays", ("EPP-SUB-01",), say("x1", "127.1.0.1:8000", subset=("127.1.0.1:8000",)))
    made.scenario("subset.escapes", ("EPP-SUB-01",), say("x1", "127.1.0.3:8000", subset=("127.1.0.1:8000",)))
    report = made.report()
    assert [row.verdict for row in report.results] == [Verdict.PASS, Verdict.FAIL]
    verification = verify(made.path, made.evidence_path)
    assert (verification.answer, verification.step("judgement").answer) == ("pass", "pass")


def test_the_same_report_as_yaml_is_verified_too(run, catalogue, judge):
    report = run.report()
    path = run.path.with_suffix(".yaml")
    path.write_text(to_yaml(report))
    assert verify(path, run.evidence_path, catalogue=catalogue, judge=judge).answer == "pass"
