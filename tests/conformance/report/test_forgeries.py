"""Every forgery of the table is caught by the step that is meant to catch it, or `verify` says that it can't be."""

from __future__ import annotations

import json

import pytest
from forging.excuses import EXCUSES
from forging.forger import Forger
from forging.forgeries import BAD_EPP, BAD_GATEWAY, EPP, FORGERIES, GATEWAY, Forgery

from conformance.report.document.canonical import digest
from conformance.report.render.text import verification_text

REPORTS = (EPP, BAD_EPP, GATEWAY, BAD_GATEWAY)


@pytest.mark.parametrize("name", REPORTS)
def test_an_honest_report_is_verified(reports, check, name):
    verification = check(reports(name))
    assert [(step.name, step.text, step.details) for step in verification.steps if step.answer != "pass"] == []
    text = verification_text(verification).plain
    assert "can't prove where the evidence comes from" in text
    assert "The vendor's word, not derived" in text
    for word in ("implementation", "mode", "observed", "subject", "platform", "topology", "claims", "seed", "dates"):
        assert word in verification.notes[-1]


@pytest.mark.parametrize("name", REPORTS)
def test_the_forger_changes_nothing_that_it_is_not_asked_to(reports, check, catalogue, tmp_path, name):
    Forger(reports(name)).write(tmp_path / "forged", catalogue)
    assert check(tmp_path / "forged").answer == "pass"


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda one: one.name)
def test_a_forgery_is_caught(reports, check, catalogue, tmp_path, forgery: Forgery):
    forger = Forger(reports(forgery.of))
    forgery.change(forger)
    forger.write(tmp_path / "forged", catalogue, sums=forgery.sums, seal=forgery.seal)
    verification = check(tmp_path / "forged")
    failed = {step.name for step in verification.steps if step.answer == "fail"}
    if forgery.step is None:
        assert failed == set()
        assert verification.notes
    elif forgery.unknown:
        assert (verification.step(forgery.step).answer, verification.answer) == ("unknown", "unknown"), failed
    else:
        assert forgery.step in failed


@pytest.mark.parametrize(("excuse", "of"), EXCUSES.items(), ids=lambda one: getattr(one, "__name__", one))
def test_an_excuse_that_the_scenario_does_not_give_is_caught(
    reports, check, catalogue, instances, tmp_path, excuse, of
):
    forger, folder = Forger(reports(of)), tmp_path / "forged"
    excuse(forger)
    forger.write(folder, catalogue)
    forger.judge_again(folder, catalogue, instances)
    forger.write(folder, catalogue)
    verification = check(folder)
    assert [step.name for step in verification.steps if step.answer != "pass"] == ["judgement"]


def test_a_readme_beside_the_report_is_said_to_be_unchecked(reports, check, catalogue, tmp_path):
    forger = Forger(reports(BAD_EPP))
    forger.texts["README.md"] = "# Conformant, as everybody can see\n"
    forger.write(tmp_path / "forged", catalogue)
    step = check(tmp_path / "forged").step("files")
    assert step.answer == "pass"
    assert "README.md is not compared" in step.text


def test_a_result_that_names_the_episode_of_another_is_caught(reports, check, catalogue, tmp_path):
    path = Forger(reports(EPP)).write(tmp_path / "forged", catalogue)
    document = json.loads(path.read_text())
    first, second = [row["evidence"] for row in document["results"] if row["evidence"]][:2]
    first["episode"], second["episode"] = second["episode"], first["episode"]
    document["digest"] = digest(document)
    path.write_text(json.dumps(document))
    step = check(tmp_path / "forged").step("evidence")
    assert step.answer == "fail"
    assert len([text for text in step.details if "names the episode" in text]) == 2
