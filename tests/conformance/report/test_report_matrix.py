"""Reports side by side, run again, published with their evidence, and in upstream's form."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml
from browser import SCHEMES, barriers
from programs import needs_chromium
from typer.testing import CliRunner

from conformance.cli.app import app
from conformance.report.document.canonical import digest
from conformance.report.document.model import read_report
from conformance.report.render.matrix import html, markdown, matrix
from conformance.report.render.pull_request import write_pull_request
from conformance.report.render.submission import write_submission
from conformance.report.render.upstream import conformance_report
from conformance.report.verify.reproduction import compare
from conformance.report.verify.verification import verify

pytestmark = pytest.mark.program


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def changed(folder, target, change):
    """A copy of a report, changed and sealed."""
    document = json.loads((folder / "report.json").read_text())
    change(document)
    document["digest"] = digest(document)
    target.mkdir(parents=True, exist_ok=True)
    (target / "report.json").write_text(json.dumps(document))
    return target


def test_the_matrix_has_both_roles_apart_and_leads_to_each_report(reports, tmp_path):
    for name in ("epp", "gateway"):
        shutil.copytree(reports(name), tmp_path / name)
    page, text = tmp_path / "m.html", tmp_path / "m.md"
    found = run("report", "matrix", tmp_path, "--html", page, "--markdown", text)
    assert found.exit_code == 0, found.output
    for shown in (page.read_text(), text.read_text()):
        assert shown.index("Endpoint pickers") < shown.index("Gateways")
        assert "epp/report.html" in shown
        assert "gateway/report.html" in shown
    assert "<script" not in page.read_text()
    assert "http://" not in page.read_text().replace("http://www.w3.org", "")


@needs_chromium
@pytest.mark.parametrize("flags", SCHEMES.values(), ids=SCHEMES)
def test_the_matrix_breaks_no_rule_of_accessibility(reports, tmp_path, flags):
    for name in ("epp", "gateway"):
        shutil.copytree(reports(name), tmp_path / name)
    page = tmp_path / "m.html"
    assert run("report", "matrix", tmp_path, "--html", page, "--markdown", tmp_path / "m.md").exit_code == 0
    assert page.read_text().count('class="scroll" tabindex="0"') == page.read_text().count('class="scroll"')
    assert barriers(page.read_text(), tmp_path, "--window-size=400,800", *flags) == []


def test_reports_of_the_same_thing_stand_apart_in_the_matrix(reports):
    first = read_report(reports("epp") / "report.json")
    second = read_report(reports("bad-epp") / "report.json")
    (side,) = matrix([(first, "a/report.json"), (second, "b/report.json")])
    assert len(side.tested) == 2
    assert {one.result("1.0.0").result.value for one in side.tested} == {"conformant", "non-conformant"}


def test_nothing_of_a_forged_report_gets_out_of_its_cell(reports, tmp_path):
    def name(document):
        document["implementation"].update(project="a | b\n# c <b>\x1b[2J", version="1")

    report = read_report(changed(reports("epp"), tmp_path, name) / "report.json")
    sides = matrix([(report, "javascript:alert(1)")])
    assert "\x1b" not in markdown(sides) + html(sides)
    assert "<b>" not in markdown(sides) + html(sides)
    assert "javascript:" not in markdown(sides) + html(sides)
    assert not any(line.startswith("# c") for line in markdown(sides).splitlines())


def test_two_roles_have_nothing_to_compare(reports):
    from conformance.errors import UsageError
    from conformance.report.render.diff import diff

    one, other = (read_report(reports(name) / "report.json") for name in ("epp", "gateway"))
    with pytest.raises(UsageError, match="of role epp, the other of role data-plane") as raised:
        diff(one, other)
    assert raised.value.exit_code == 2


def test_a_second_run_is_compared_verdict_by_verdict(reports):
    good, bad = (read_report(reports(name) / "report.json") for name in ("epp", "bad-epp"))
    assert compare(good, good).exit_code == 0
    found = compare(good, bad)
    assert found.exit_code == 1
    assert {one.id for one in found.different} >= {"destination.chat"}
    part = good.model_copy(update={"results": good.results[1:]})
    assert [one.id for one in compare(good, part).not_reached] == [good.results[0].id]
    assert compare(good, part).exit_code == 4


def test_a_report_does_not_choose_the_command(reports, tmp_path):
    def command(document):
        document["plan"]["command"] = "epp-conformance run --epp 'cmd:touch stolen'"

    folder = changed(reports("epp"), tmp_path, command)
    found = run("report", "reproduce", folder)
    assert found.exit_code != 0
    assert "does not say by a shipped profile" in f"{found.exception}{found.output}"


OWNER = {"organization": "Example", "project": "e", "url": "https://example.com", "version": "v1", "contact": ["a@b"]}


@pytest.mark.parametrize("name", ["epp", "bad-gateway"])
def test_a_published_report_is_verified_by_its_evidence(reports, instances, tmp_path, name):
    folder = changed(reports(name), tmp_path / name, lambda document: document["implementation"].update(OWNER))
    for mode in ("default", "other-way"):
        (written,) = write_submission(
            read_report(folder / "report.json"),
            tmp_path / "reports",
            mode=mode,
            evidence=reports(name) / "evidence.ndjson.gz",
        )
        verification = verify(written.report, instances=instances)
        assert [step for step in verification.steps if step.answer != "pass"] == []
    text = written.readme.read_text()
    assert "| Extension Version Tested | Profile Tested | Implementation Version | Mode | Report |" in text
    assert "## Reproduce" in text
    assert text.count("-report.yaml)") == 2
    assert "other-way" in read_report(written.report).name


def test_the_upstream_form_has_its_keys_and_the_failures(reports):
    report = read_report(reports("bad-epp") / "report.json")
    document = conformance_report(report)
    assert yaml.safe_load(run("report", "convert", reports("bad-epp"), "--to", "upstream").output) == document
    assert (document["kind"], document["GatewayAPIInferenceExtensionVersion"]) == ("ConformanceReport", "v1.0.0")
    (protocol, ext_proc) = document["profiles"]
    assert (protocol["core"]["result"], ext_proc["core"]["result"]) == ("failure", "success")
    assert "destination.chat" in protocol["core"]["failedTests"]


def test_the_pull_request_follows_the_upstream_rules(reports, tmp_path):
    report = read_report(reports("epp") / "report.json")
    folders = [
        write_submission(report, tmp_path / "reports", mode=mode, evidence=reports("epp") / "evidence.ndjson.gz")[0]
        for mode in ("default", "other-way")
    ]
    said, *files = write_pull_request([one.report.parent for one in folders[:1]], tmp_path / "pr")
    inside = {str(path.relative_to(tmp_path / "pr" / "conformance" / "reports")) for path in files}
    name, version = folders[0].report.parent.name, report.implementation.version
    folder = f"v1.0.0/epp/{name}"
    assert inside == {f"{folder}/README.md", *(f"{folder}/{path.report.name}" for path in folders)}
    for path in files:
        if path.suffix == ".yaml":
            document = yaml.safe_load(path.read_text())
            (profile,) = document["profiles"]
            assert (profile["name"], profile["core"]["result"]) == ("EPP", "success")
            assert path.name == f"{version}-{document['mode']}-epp-report.yaml"
            assert document["GatewayAPIInferenceExtensionVersion"] == "v1.0.0"
    readme = next(path for path in files if path.name == "README.md").read_text()
    assert "| Extension Version Tested | Profile Tested | Implementation Version | Mode | Report |" in readme
    assert [f"](./{one.report.name})" in readme for one in folders] == [True, True]
    assert "## Reproduce" in readme
    assert report.implementation.project in said.read_text()


def test_there_is_no_pull_request_without_a_conformant_report(reports, tmp_path):
    from conformance.errors import UsageError

    report = read_report(reports("bad-epp") / "report.json")
    (written,) = write_submission(report, tmp_path, evidence=reports("bad-epp") / "evidence.ndjson.gz")
    with pytest.raises(UsageError, match=r"nothing to submit to upstream: 1\.0\.0 .*: non-conformant"):
        write_pull_request([written.report.parent], tmp_path / "pr")
    assert not (tmp_path / "pr").exists()
