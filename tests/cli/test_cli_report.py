"""`report`: show, verify, diff, convert, schema; and `certify` of a partial report."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import jsonschema
import pytest
import yaml

from conformance.printable import printable
from conformance.report.document.canonical import digest
from conformance.report.document.model import read_report

pytestmark = pytest.mark.program


@pytest.mark.smoke
def test_the_folder_has_everything(a_report: Path) -> None:
    names = {path.name for path in a_report.iterdir()}
    assert names == {"report.json", "evidence.ndjson.gz", "report.html", "junit.xml", "summary.md"}


def test_the_default_target_is_named_and_counts_have_the_singular(cli, tmp_path: Path) -> None:
    ran = cli("run", "-k", "subset.wrong-port", "-o", tmp_path)
    assert "target reference (the suite's own EPP; --epp or --profile names yours)" in ran.err
    (tmp_path / "file").touch()
    ran = cli("certify", "-o", tmp_path / "file" / "report")
    assert (ran.code, "certifying reference (the suite's own EPP;" in ran.err) == (2, True)
    verified = cli("report", "verify", tmp_path)
    assert verified.code == 0
    assert "1 result, each of the plan" in verified.out
    assert not re.search(r"\b1 (results|episodes)\b", verified.out)


@pytest.mark.smoke
def test_show_puts_the_failure_first_and_the_summary_last(cli, a_report: Path) -> None:
    ran = cli("report", "show", a_report)
    assert ran.code == 0
    blocks = ran.out.split("\n\n")
    failure, summary = blocks[0], blocks[-1]
    order = ["EPP-DEST-05", "requires", "expected", "actual", "conversation", "hint", "reproduce"]
    places = [failure.index(part) for part in order]
    assert places == sorted(places)
    assert "▶" in failure
    assert len(summary.strip().splitlines()) <= 12
    assert "non-conformant" in summary
    assert "report.json" in summary.splitlines()[-1] or "report.json" in summary


@pytest.mark.smoke
def test_one_scenario_is_shown_whether_it_failed_or_passed(cli, a_report: Path, tmp_path: Path) -> None:
    report = read_report(a_report / "report.json")
    failed = next(row for row in report.results if row.verdict == "fail")
    passed = next(row for row in report.results if row.verdict == "pass" and not row.findings)
    ran = cli("report", "show", a_report, "--scenario", failed.id)
    assert (ran.code, ran.out.count("✗ "), f"fail  {failed.id}" in ran.out, "▶" in ran.out) == (0, 1, True, True)
    ran = cli("report", "show", a_report, "--scenario", passed.id, "--whole")
    assert (ran.code, ran.out.startswith(f"✓ {passed.id} pass"), "protocol_config" in ran.out) == (0, True, True)
    ran = cli("report", "show", a_report, "--scenario", "no.such")
    assert (ran.code, "no scenario 'no.such'" in ran.err) == (2, True)
    shutil.copy(a_report / "report.json", tmp_path)
    assert "evidence.ndjson.gz" in cli("report", "show", tmp_path, "--scenario", passed.id).err


@pytest.mark.smoke
def test_reproducing_names_the_target(cli, a_report: Path) -> None:
    out = cli("report", "show", a_report / "report.json").out
    command = next(line for line in out.splitlines() if line.startswith("reproduce"))
    for part in ("--epp", "metadata-differs", "--scenario", "--seed", "--protocol-version 1.0.0"):
        assert part in command


def test_the_reproduce_command_does_not_overwrite_the_report(cli, a_report: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(a_report, "conformance-report")
    out = cli("report", "show").out
    command = next(line.removeprefix("reproduce") for line in out.splitlines() if line.startswith("reproduce"))
    ran = cli(*shlex.split(command)[1:])
    assert ran.code == 1
    assert "EPP-DEST-05" in ran.out
    assert len(json.loads(Path("conformance-reproduced/report.json").read_text())["results"]) == 1
    assert Path("conformance-report/report.json").read_bytes() == (a_report / "report.json").read_bytes()


def test_evidence_judged_again_is_counted_by_scenario_runs(cli, a_report: Path) -> None:
    """Each line of it has all exchanges of one."""
    runs = sum(row.evidence is not None for row in read_report(a_report / "report.json").results)
    ran = cli("judge", a_report)
    assert ran.code == 1
    assert f"\n{runs} scenario runs judged, " in ran.out
    assert "exchanges judged" not in ran.out


@pytest.mark.smoke
def test_verify_says_yes(cli, a_report: Path) -> None:
    ran = cli("report", "verify", a_report)
    assert ran.code == 0, ran.out
    assert "This proves that the report is complete and follows from its evidence." in ran.out


@pytest.mark.parametrize("spoiled", ["changed", "unreadable", "no evidence"])
def test_verify_claims_no_proof_unless_every_step_passed(cli, a_report: Path, tmp_path: Path, spoiled: str) -> None:
    shutil.copytree(a_report, folder := tmp_path / "r")
    path = folder / "report.json"
    match spoiled:
        case "changed":
            path.write_text(path.read_text().replace('"seed": ', '"seed": 1'))
        case "unreadable":
            path.write_text("{")
        case _:
            (folder / "evidence.ndjson.gz").unlink()
    ran = cli("report", "verify", folder)
    assert ran.code != 0, ran.out
    assert "This proves that" not in ran.out


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a\0b", "x" * 300, "elsewhere.gz"])
def test_missing_evidence_is_named_with_its_digest_and_the_release(
    cli, a_report: Path, tmp_path: Path, name: str
) -> None:
    document = json.loads((a_report / "report.json").read_text())
    document["evidence"]["file"] = name
    (tmp_path / "report.json").write_text(json.dumps({**document, "digest": digest(document)}))
    ran = cli("report", "verify", tmp_path)
    assert (ran.code, ran.err) == (2, "")
    told = " ".join(ran.out.split())
    for part in (
        f"missing: {printable(name)[:70]}",
        document["evidence"]["sha256"],
        "`report verify REPORT EVIDENCE`",
        f"/releases/tag/v{document['suite']['version']}",
    ):
        assert part in told
    assert "verified" not in told
    assert cli("report", "show", tmp_path).code == 0


def test_evidence_in_place_of_a_report_is_told(cli, a_report: Path) -> None:
    ran = cli("report", "show", a_report / "evidence.ndjson.gz")
    assert ran.code == 2
    assert "evidence.ndjson.gz: not a report: it is no text in UTF-8\n" in ran.err


def test_a_misspelt_evidence_file_does_not_accuse_the_report(cli, a_report: Path, tmp_path: Path) -> None:
    ran = cli("report", "verify", a_report, tmp_path / "evidense.gz")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: there is no evidence at {tmp_path / 'evidense.gz'}\n")


@pytest.mark.smoke
def test_verify_finds_a_changed_verdict(cli, a_report: Path, tmp_path: Path) -> None:
    shutil.copytree(a_report, tmp_path / "r")
    path = tmp_path / "r" / "report.json"
    path.write_text(path.read_text().replace('"non-conformant"', '"conformant"', 1))
    assert cli("report", "verify", tmp_path / "r").code == 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"apiVersion": "other/v1"}'])
def test_files_that_are_no_report_are_refused(cli, tmp_path: Path, text: str) -> None:
    path = tmp_path / "report.json"
    path.write_text(text)
    for command in ("show", "convert"):
        ran = cli("report", command, path)
        assert ran.code == 2
        assert "report.json" in ran.err
    assert cli("report", "verify", path).code == 1


@pytest.mark.parametrize("inside", ["1.0.0-epp-report.yaml", "first/report.json"])
def test_the_folder_of_several_reports_names_one(cli, tmp_path: Path, inside: str) -> None:
    (tmp_path / inside).parent.mkdir(exist_ok=True)
    (tmp_path / inside).touch()
    ran = cli("report", "verify", tmp_path)
    assert ran.code == 2
    assert f"hint: name one of its reports, such as {tmp_path / inside}" in ran.err


@pytest.mark.smoke
def test_diff(cli, a_report: Path, tmp_path: Path) -> None:
    same = cli("report", "diff", a_report, a_report)
    assert same.code == 0
    right = tmp_path / "right"
    assert (
        cli(
            "run", "-k", "destination.list", "-k", "subset.nobody", "-o", right, "-q", "--body-mode", "full-duplex"
        ).code
        == 4
    )
    worse = cli("report", "diff", right, a_report)
    assert worse.code == 1
    assert "EPP-DEST-05" in worse.out
    better = cli("report", "diff", a_report, right)
    assert better.code == 0
    assert "EPP-DEST-05" in better.out


@pytest.mark.smoke
@pytest.mark.parametrize("form", ["html", "junit", "markdown", "yaml", "badge", "shields"])
def test_convert(cli, a_report: Path, tmp_path: Path, form: str) -> None:
    target = tmp_path / "converted"
    assert cli("report", "convert", a_report, "--to", form, "-o", target).code == 0
    text = target.read_text()
    match form:
        case "html":
            assert text == (a_report / "report.html").read_text()
        case "junit":
            assert ET.fromstring(text).get("failures") not in (None, "0")
        case "markdown":
            assert "EPP-DEST-05" in text
        case "yaml":
            assert yaml.safe_load(text) == json.loads((a_report / "report.json").read_text())
        case "badge":
            assert ET.fromstring(text).tag.endswith("svg")
        case "shields":
            assert json.loads(text)["message"] == "non-conformant"


def test_other_documents_and_missing_versions_are_named(cli, a_report: Path, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"name": "x"}')
    assert "a document without apiVersion and kind is not conformance.epp/" in cli("report", "show", tmp_path).err
    ran = cli("report", "convert", a_report, "--to", "badge", "--protocol-version", "9")
    assert (ran.code, "there is no result for version '9'\n  hint: known: 1.0.0" in ran.err) == (2, True)


def test_folders_of_output_files_are_made(cli, a_report: Path, tmp_path: Path) -> None:
    """As the report of a run does; and what is in the way of it is said, with the flag that leads elsewhere."""
    for flag, command in {
        "--output": ("convert", a_report, "--to", "badge"),
        "--html": ("matrix", a_report, "--markdown", tmp_path / "page.md"),
        "--markdown": ("matrix", a_report, "--html", tmp_path / "page.html"),
    }.items():
        path = tmp_path / "grüße und mehr" / flag / "made"
        assert cli("report", *command, flag, path).code == 0
        assert path.stat().st_size
        ran = cli("report", *command, flag, path / "below")
        assert ran.code == 2
        assert f"{path / 'below'} can't be written: {path} is a file\n  hint: give another with {flag}" in ran.err


@pytest.mark.smoke
def test_the_schema_accepts_the_report(cli, a_report: Path) -> None:
    schema = json.loads(cli("report", "schema").out)
    jsonschema.Draft202012Validator(schema).validate(json.loads((a_report / "report.json").read_text()))


def test_a_filtered_report_is_not_certified(cli, a_report: Path, tmp_path: Path) -> None:
    ran = cli("certify", "--from", a_report, "--submission", tmp_path / "reports")
    assert ran.code == 2
    assert "without selection" in ran.err
    assert not (tmp_path / "reports").exists()


def test_a_report_that_was_changed_gets_no_face(cli, a_report: Path, tmp_path: Path) -> None:
    shutil.copytree(a_report, folder := tmp_path / "r")
    path = folder / "report.json"
    path.write_text(path.read_text().replace('"non-conformant"', '"conformant"'))
    pages = ("--html", tmp_path / "m.html", "--markdown", tmp_path / "m.md")
    for words in (("show", folder), ("convert", folder, "--to", "badge"), ("matrix", folder, *pages)):
        ran = cli("report", *words)
        assert (ran.code, ran.out) == (2, "")
        assert "was changed after it was made" in ran.err


def test_waivers_are_suggested_for_a_folder_as_for_its_report(cli, a_report: Path) -> None:
    flags = ("--owner", "me", "--link", "https://example.org/1")
    of_folder = cli("waivers", "suggest", a_report, *flags)
    assert of_folder.code == 0, of_folder.err
    assert "destination.list" in of_folder.out
    assert of_folder == cli("waivers", "suggest", a_report / "report.json", *flags)


@pytest.mark.parametrize("name", ["report.html", "summary.md", "junit.xml"])
@pytest.mark.parametrize("kind", ["FIFO", "folder", "dangling link"])
def test_a_file_of_another_kind_is_not_left_out_of_the_verification(
    cli, a_report: Path, tmp_path: Path, name: str, kind: str
) -> None:
    shutil.copytree(a_report, copy := tmp_path / "copy")
    (copy / name).unlink()
    match kind:
        case "FIFO":
            os.mkfifo(copy / name)
        case "folder":
            (copy / name).mkdir()
        case _:
            (copy / name).symlink_to("nothing")
    ran = cli("report", "verify", copy)
    assert ran.code == 1
    assert name in ran.out
    assert "as the report gives" not in ran.out
