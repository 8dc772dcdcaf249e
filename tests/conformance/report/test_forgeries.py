"""Each forgery of the table is caught by its step of `verify`, or `verify` says that it can't be."""

from __future__ import annotations

import json

import pytest
from forging import excuses, server_forgeries
from forging.forger import Forger
from forging.forgeries import BAD_EPP, EPP, FORGERIES, Forgery
from forging.real_reports import SET_UPS, instances_of
from forging.remembered import verified

from conformance.report.document.canonical import digest
from conformance.report.document.model import read_report
from conformance.report.render.text import verification_text

pytestmark = pytest.mark.program

assert excuses
assert server_forgeries, "importing the modules adds their rows"


@pytest.mark.parametrize("name", SET_UPS)
def test_an_honest_report_is_verified(reports, catalogue, tmp_path, name: str) -> None:
    """So is the report that the forger writes without any change."""
    verification = verified(reports(name), instances_of(name))
    assert [(step.name, step.text, step.details) for step in verification.steps if step.answer != "pass"] == []
    text = verification_text(verification).plain
    assert "can't prove where the evidence comes from" in text
    assert "The vendor's word, not derived" in text
    for word in ("implementation", "mode", "observed", "subject", "platform", "topology", "claims", "seed", "dates"):
        assert word in verification.notes[-1]
    Forger(reports(name)).write(tmp_path / "forged", catalogue)
    assert verified(tmp_path / "forged", instances_of(name)).answer == "pass"


def test_a_wrong_model_server_does_not_conform(reports) -> None:
    results = [read_report(reports(name) / "report.json").result for name in ("right-server", "wrong-server")]
    assert (results[0], results[1] == "conformant") == ("conformant", False)


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda one: one.name)
def test_a_forgery_is_caught(reports, catalogue, tmp_path, forgery: Forgery) -> None:
    forger, folder, instances = Forger(reports(forgery.of)), tmp_path / "forged", instances_of(forgery.of)
    forgery.change(forger)
    forger.write(folder, catalogue, sums=forgery.sums, seal=forgery.seal)
    if forgery.again:
        forger.drop_unused_blocks()
        forger.write(folder, catalogue)
        forger.judge_again(folder, catalogue, instances)
        forger.write(folder, catalogue)
    verification = verified(folder, instances)
    failed = {step.name for step in verification.steps if step.answer == "fail"}
    if forgery.again:
        assert {step.name for step in verification.steps if step.answer != "pass"} == {forgery.step}
    elif forgery.step is None:
        assert failed == set()
        assert verification.notes
    elif forgery.unknown:
        assert (verification.step(forgery.step).answer, verification.answer) == ("unknown", "unknown"), failed
    else:
        assert forgery.step in failed


def test_a_readme_beside_the_report_is_called_unchecked(reports, catalogue, tmp_path) -> None:
    forger = Forger(reports(BAD_EPP))
    forger.texts["README.md"] = "# Conformant, as everybody can see\n"
    forger.write(tmp_path / "forged", catalogue)
    step = verified(tmp_path / "forged", instances_of(BAD_EPP)).step("files")
    assert step.answer == "pass"
    assert "README.md is not compared" in step.text


def test_a_result_with_the_episode_of_another_is_caught(reports, catalogue, tmp_path) -> None:
    path = Forger(reports(EPP)).write(tmp_path / "forged", catalogue)
    document = json.loads(path.read_text())
    first, second = [row["evidence"] for row in document["results"] if row["evidence"]][:2]
    first["episode"], second["episode"] = second["episode"], first["episode"]
    document["digest"] = digest(document)
    path.write_text(json.dumps(document))
    step = verified(tmp_path / "forged", instances_of(EPP)).step("evidence")
    assert step.answer == "fail"
    assert len([text for text in step.details if "names the episode" in text]) == 2
