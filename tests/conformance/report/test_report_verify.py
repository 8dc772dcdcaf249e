"""Verification of what is no forgery: no evidence, evidence packed otherwise, YAML, other suites, no report."""

from __future__ import annotations

import functools
import gzip
import json
import lzma
import shlex
from types import SimpleNamespace

import pytest
from forging import real_reports
from hypothesis import given
from hypothesis import strategies as st

from conformance.judges import judge
from conformance.outcome import RunOutcome, version_outcome
from conformance.report.document.build import build
from conformance.report.document.canonical import digest
from conformance.report.document.model import read_report
from conformance.report.render.submission import problems, to_yaml
from conformance.report.verify.expected import COMMAND
from conformance.report.verify.verification import STEPS, _notes, verify
from conformance.scenario.loader import load
from conformance.selftest.deviation import deviations
from conformance.selftest.gateway import gateway_profile
from conformance.verdict import Finding, Verdict


def unknown(verification) -> set[str]:
    return {step.name for step in verification.steps if step.answer == "unknown"}


@pytest.mark.program
def test_without_evidence_the_rest_is_checked_and_the_answer_is_unknown(reports, instances):
    verification = verify(reports("epp") / "report.json", None, instances=instances)
    assert (verification.answer, unknown(verification)) == ("unknown", {"evidence", "judgement"})


@pytest.mark.program
def test_wrong_sums_are_reported_in_the_terms_of_the_report(reports, instances, tmp_path):
    report = json.loads((reports("epp") / "report.json").read_text())
    report["versions"][0]["kinds"]["protocol"] = "incomplete"
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    (told, *_) = verify(path, None, instances=instances).step("roll-ups").details
    assert "kinds is {'protocol': 'incomplete', 'ext_proc': " in told
    assert "Result." not in told


@pytest.mark.program
@pytest.mark.parametrize("pack", [functools.partial(gzip.compress, compresslevel=1), lzma.compress])
def test_evidence_packed_otherwise_is_the_same_evidence(reports, instances, tmp_path, pack):
    packed = tmp_path / "evidence.ndjson.gz"
    packed.write_bytes(pack(gzip.decompress((reports("epp") / "evidence.ndjson.gz").read_bytes())))
    assert verify(reports("epp") / "report.json", packed, instances=instances).answer == "pass"


@pytest.mark.program
def test_the_same_report_as_yaml_is_verified_too(reports, instances, tmp_path):
    folder = reports("gateway")
    path = tmp_path / "report.yaml"
    path.write_text(to_yaml(read_report(folder / "report.json")))
    assert verify(path, folder / "evidence.ndjson.gz", instances=instances).answer == "pass"


@pytest.mark.program
def test_an_epp_that_a_scenario_leaves_down_comes_back_at_its_end(catalogue, tmp_path):
    split = next(one for one in deviations("variants", "data-plane") if one.name == "split")
    instances = [one for one in load(catalogue) if one.id == "gateway.splits-without-an-epp"]
    real_reports.make(gateway_profile(split), tmp_path, instances)
    assert [step for step in verify(tmp_path / "report.json", instances=instances).steps if step.answer != "pass"] == []


@pytest.mark.program
@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.0.7", "pip install epp-conformance==0.0.7"),
        ("0.0.7 evil; sh", "pip install 'epp-conformance==0.0.7 evil; sh'"),
        (None, "the very build"),
    ],
)
def test_another_catalogue_is_not_called_tampering(reports, instances, tmp_path, version, words):
    path = of_another_catalogue(reports("bad-epp"), tmp_path, version)
    verification = verify(path, reports("bad-epp") / "evidence.ndjson.gz", instances=instances)
    assert (verification.answer, [step for step in verification.steps if step.answer == "fail"]) == ("unknown", [])
    assert words in verification.step("catalogue").text


def of_another_catalogue(folder, output, version=None):
    """The report as an older suite would have made it."""
    document = json.loads((folder / "report.json").read_text())
    document["catalogue"].update(version="0.9.0", digest="sha256:" + "1" * 64)
    document["suite"]["version"] = version or document["suite"]["version"]
    document["digest"] = digest(document)
    path = output / "report.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.program
@pytest.mark.parametrize("name", ["epp", "bad-epp", "gateway"])
def test_a_report_of_another_catalogue_is_judged_again(reports, instances, tmp_path, name):
    path = of_another_catalogue(reports(name), tmp_path, "0.0.7")
    evidence = reports(name) / "evidence.ndjson.gz"
    same = verify(path, evidence, instances=instances)
    assert [same.step(step).answer for step in ("evidence", "judgement")] == ["pass", "pass"]
    assert same.step("judgement").text.endswith(": the same verdicts")

    changed = verify(path, evidence, instances=instances, judge=stricter).step("judgement")
    assert (changed.answer, "1 difference" in changed.text) == ("unknown", True)
    assert [" 1.0.0 RULE-1: stated none, judged again fail (" in f" {text}" for text in changed.details] == [True]


def stricter(*arguments):
    return (*judge(*arguments), Finding(requirement="RULE-1", verdict=Verdict.FAIL))


@pytest.mark.program
def test_changed_evidence_of_another_catalogue_fails(reports, instances, tmp_path):
    path = of_another_catalogue(reports("epp"), tmp_path)
    verification = verify(path, reports("bad-epp") / "evidence.ndjson.gz", instances=instances)
    assert [step.name for step in verification.steps if step.answer == "fail"] == ["evidence"]


@pytest.mark.parametrize(
    "text", ["{}", "no report", '{"apiVersion": "conformance.epp/v1alpha2"}', "\x1b[2J", "[" * 9999]
)
def test_other_documents_fail_the_first_step(tmp_path, text):
    path = tmp_path / "report.json"
    path.write_text(text)
    verification = verify(path, None)
    assert tuple(step.name for step in verification.steps) == STEPS
    assert [step.name for step in verification.steps if step.answer == "fail"] == ["schema"]


def with_a_source(folder, path, file):
    """A report with a file of scenarios of the vendor's own, none of which was run."""
    scenario = {"id": "generated.ours", "title": "t", "requirements": ["EPP-DEST-01"], "steps": [{"exchange": {}}]}
    document = json.loads((folder / "report.json").read_text())
    document["plan"]["sources"] = [{"file": file, "text": json.dumps({"section": "own", "scenarios": [scenario]})}]
    document["digest"] = digest(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.program
@pytest.mark.parametrize("file", ["own.yaml", "generated.yaml", "generated-1.0.0.yaml"])
def test_scenarios_of_ones_own_are_told_whatever_they_are_called(reports, instances, tmp_path, file):
    path = with_a_source(reports("epp"), tmp_path / "report.json", file)
    assert any("generated.ours" in note for note in verify(path, None, instances=instances).notes)
    assert any(f"not of the certified set ({file})" in text for text in problems(read_report(path)))


@given(words=st.lists(st.text()))
def test_every_command_that_the_suite_writes_is_taken_for_one_of_its_own(words):
    assert COMMAND.fullmatch(shlex.join(["epp-conformance", "run", *words]))


@pytest.mark.parametrize("rest", [" a;b", " $(a)", " `a`", " a & b", " 'a", " a#b", "\na", "\\\n"])
def test_a_command_that_does_more_is_none_of_the_suites(rest):
    assert COMMAND.fullmatch(f"epp-conformance run{rest}") is None


@pytest.mark.parametrize(("claims", "said"), [((True, False), True), ((False, False), False), ((True, True), False)])
def test_a_version_has_no_part_in_the_result_only_beside_one_that_is_claimed(run, catalogue, profile, claims, said):
    versions = [
        version_outcome(catalogue, name, [], claimed=one) for name, one in zip(("0.4.0", "1.0.0"), claims, strict=True)
    ]
    outcome = RunOutcome(versions=tuple(versions), seed=1, started_at="a", finished_at="b", duration=1.0)
    report = build(outcome, catalogue=catalogue, profile=profile, evidence=run.evidence)
    assert any("no part in the result" in note for note in _notes(report, SimpleNamespace(own=()))) is said
