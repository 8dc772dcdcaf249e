"""The reports of tests/data/reports, one per role, made by `make test-reports`: a later suite still reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conformance.evidence.packing import unpacked
from conformance.report.document.model import parse_report
from conformance.report.verify.verification import verify

FOLDERS = [path.parent for path in sorted((Path(__file__).parents[2] / "data" / "reports").glob("*/report.json"))]


def test_there_is_one_report_per_role():
    reports = [parse_report(json.loads((one / "report.json").read_text()), one.name) for one in FOLDERS]
    assert [one.implementation.role for one in reports] == ["data-plane", "epp", "model-server"]
    assert all(one.results for one in reports)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_stored_report_is_verified_or_judged_again(folder):
    """By the catalogue that made it, every step passes. Under another one the verdicts are compared."""
    verification = verify(folder / "report.json")
    answers = {step.name: step.answer for step in verification.steps}
    if answers["catalogue"] == "pass":
        assert set(answers.values()) == {"pass"}, (verification, "after a change of the judges: make test-reports")
    else:
        assert (answers["schema"], answers["digest"], answers["evidence"]) == ("pass", "pass", "pass"), verification
        judgement = verification.step("judgement")
        assert judgement.answer == "pass" or judgement.details
        assert "judged again by catalogue" in judgement.text


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_stored_report_names_no_machine(folder):
    text = (folder / "report.json").read_text()
    with unpacked(folder / json.loads(text)["evidence"]["file"]) as file:
        text += file.read().decode()
    assert not re.search(r"/(?:work|tmp|home|root|usr)\b", text)
    assert "localhost" not in text
