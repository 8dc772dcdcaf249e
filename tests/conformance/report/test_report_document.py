"""The document: its schema, its shape, its digest, and what it keeps of a run."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.outcome import RunOutcome, ScenarioResult, scenario_verdict, version_outcome
from conformance.report.document.build import build, overall, subject_of
from conformance.report.document.canonical import ReportError, canonical, digest, read_document
from conformance.report.document.failures import concerns
from conformance.report.document.model import read_report, report_schema
from conformance.strict_yaml import load
from conformance.targets.profile import Profile
from conformance.verdict import Finding, Result, Verdict, worst


def test_the_document_keeps_to_its_published_schema(run):
    report = run.report()
    schema = report_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(run.path.read_text())
    jsonschema.Draft202012Validator(schema).validate(document)
    assert read_report(run.path) == report
    del document["requirements"][0]["statement"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(document)


def test_it_has_the_blocks_that_readers_look_for(run):
    document = run.report().document()
    assert document["apiVersion"] == "conformance.epp/v1alpha2"
    assert document["kind"] == "EPPConformanceReport"
    assert set(document) >= {
        "suite", "catalogue", "specification", "implementation", "subject", "environment", "claims", "complete",
        "results", "requirements", "versions", "waivers", "anomalies", "figures", "redactions", "digest",
    }  # fmt: skip
    assert document["specification"]["version"] == "1.0.0"
    assert document["subject"] == {
        "kind": "command",
        "name": "sample-picker",
        "digest": None,
        "flags": ["--grpc-port", "{port}", "--endpoints", "{endpointsFile}"],
        "env": ["LOG_LEVEL"],
        "address": "127.0.0.1:{port}",
    }
    assert document["figures"] == {"answer p99 (ms)": 3.25, "streams": 120}
    assert document["evidence"]["episodes"] == 7


def test_every_requirement_of_the_version_is_there_once(run, catalogue):
    report = run.report()
    assert [row.id for row in report.requirements] == [one.id for one in catalogue.for_version("1.0.0")]


def test_results_name_their_finding_evidence_and_command(run):
    report = run.report()
    row = next(row for row in report.results if row.id == "subset.escapes")
    found = row.decisive
    assert found is not None
    assert (row.verdict, found.requirement, found.actual) == (Verdict.FAIL, "EPP-SUB-01", "127.1.0.3:8000")
    assert found.exchange == "x2"
    assert row.evidence is not None
    assert report.reproduce(row).endswith("--protocol-version 1.0.0 --seed 42 --scenario 'subset.escapes'")


def test_a_requirement_fails_on_findings_of_scenarios_that_are_not_about_it(run):
    report = run.report()
    failed = {one.requirement.id: one for one in concerns(report)}
    assert list(failed) == ["EPP-DEST-05", "EPP-SUB-01", "ENV-22"]
    assert [one.result.id for one in failed["EPP-DEST-05"].occurrences] == ["destination.set"]
    assert next(row for row in report.results if row.id == "destination.set").verdict is Verdict.PASS
    headline = report.headline()
    assert headline is not None
    assert headline.blockers == ("EPP-DEST-05", "EPP-SUB-01", "EPP-ERR-03", "ENV-22")


def test_a_run_without_any_version_still_has_a_report(made, catalogue, profile):
    made.evidence.close()
    outcome = RunOutcome(versions=(), seed=1, started_at="a", finished_at="b", duration=0.1, interrupted=True)
    report = build(outcome, catalogue=catalogue, profile=profile, evidence=made.evidence)
    assert (report.result, report.complete, report.stopped) == (Result.INCOMPLETE, False, "interrupted")
    assert report.specification.version == "1.0.0"
    assert report.headline() is None


def test_several_versions_stand_side_by_side(run, catalogue, profile):
    outcome = run.finish()
    other = version_outcome(catalogue, "0.4.0", [r for r in run.results if "escapes" not in r.id], claimed=False)
    both = RunOutcome(
        versions=(other, *outcome.versions), seed=1, started_at="a", finished_at="b", duration=1.0
    )  # fmt: skip
    report = build(both, catalogue=catalogue, profile=profile, evidence=run.evidence)
    assert [row.version for row in report.versions] == ["0.4.0", "1.0.0"]
    assert report.specification.version == "1.0.0"
    assert len(report.requirements) == sum(len(catalogue.for_version(v)) for v in ("0.4.0", "1.0.0"))
    assert overall(report.versions) is Result.NON_CONFORMANT


def test_lone_surrogates_are_written_as_escapes(made):
    finding = Finding(requirement="EPP-SUB-01", verdict=Verdict.FAIL, actual="\udc80", expected=("x\udfff",))
    made.results.append(
        ScenarioResult(
            version="1.0.0",
            id="a",
            scenario="a",
            title="t",
            section="s",
            requirements=("EPP-SUB-01",),
            mode="m",
            verdict=Verdict.FAIL,
            findings=(finding,),
            reason="\ud800",
        )
    )
    made.report()
    (row,) = read_report(made.path).results
    (found,) = row.findings
    assert (found.actual, found.expected, row.reason) == ("\\udc80", ("x\\udfff",), "\\ud800")


@pytest.mark.parametrize(
    ("start", "kind", "digest"),
    [
        ("{image: 'registry.example/epp@sha256:" + "a" * 64 + "'}", "image", "sha256:" + "a" * 64),
        ("{image: 'registry.example/epp:1'}", "image", None),
        ("{}", "address", None),
    ],
)
def test_the_subject_says_how_the_target_was_run(start, kind, digest):
    profile = load(f"start: {start}\naddress: 127.0.0.1:9002\ndiscovery: {{file: {{}}}}\n", Profile)
    assert (subject_of(profile).kind, subject_of(profile).digest) == (kind, digest)


def test_a_program_is_known_by_the_digest_of_its_file(tmp_path):
    program = tmp_path / "epp"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    profile = load(f"start: {{command: ['./epp'], workdir: {tmp_path}}}\ndiscovery: {{file: {{}}}}\n", Profile)
    found = subject_of(profile).digest
    assert found is not None
    assert found.startswith("sha256:")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(document=st.dictionaries(st.text(), json_values, max_size=6))
def test_the_digest_does_not_depend_on_how_the_file_is_written(document):
    again = json.loads(json.dumps(dict(reversed(list(document.items()))), indent=3))
    assert canonical(again) == canonical(document)
    assert digest({**document, "digest": "x"}) == digest(document)


@given(
    verdicts=st.lists(
        st.tuples(st.sampled_from(["EPP-SUB-01", "ENV-01", "EPP-DEST-01"]), st.sampled_from(Verdict)), max_size=8
    ),
    requirements=st.lists(st.sampled_from(["EPP-SUB-01", "ENV-01"]), min_size=1, unique=True).map(tuple),
    exchange=st.none() | st.just("x1"),
)
def test_a_result_keeps_all_that_roll_ups_read(verdicts, requirements, exchange):
    findings = tuple(Finding(requirement=name, verdict=verdict, exchange=exchange) for name, verdict in verdicts)
    result = ScenarioResult(
        version="1.0.0", id="a", scenario="a", title="t", section="s", requirements=requirements, mode="m",
        verdict=scenario_verdict(findings, requirements), findings=findings,
    )  # fmt: skip
    for name in ("EPP-SUB-01", "ENV-01", "EPP-DEST-01"):
        before = [verdict for found, verdict in verdicts if found == name]
        after = [verdict for found, verdict in result.said if found == name]
        assert (worst(before), bool(before)) == (worst(after), bool(after))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("r.json", '{"a": 1, "a": 2}', "key 'a' is there twice"),
        ("r.json", '{"a": NaN}', "NaN is no JSON"),
        ("r.json", "[]", "the file holds no object"),
        ("r.json", "{", "not a report"),
        ("r.json", "[" * 100_000, "not a report"),
        ("r.json", "\udc80", "not a report"),
        ("r.yaml", "a: 1\na: 2\n", "a key is there twice"),
        ("r.yaml", "a: &x 1\nb: *x\n", "no YAML aliases"),
        ("r.yaml", "? [a]\n: 1\n", "not a report"),
        ("r.yaml", "a: !!python/object:os.system {}\n", "not a report"),
        ("r.yaml", "a: [", "not a report"),
        ("r.yaml", "a: " + "[" * 200_000 + "]" * 200_000, "nested deeper than"),
        ("r.yaml", "{a: " * 100_000 + "1" + "}" * 100_000, "nested deeper than"),
    ],
)
def test_other_documents_are_refused_with_a_reason(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ReportError, match=message):
        read_document(path)
