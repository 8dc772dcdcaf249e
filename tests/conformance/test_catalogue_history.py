"""A version of the catalogue means something: nothing changes without a new version that says what changed."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.digest import scenarios_digest
from conformance.scenario.history import RequirementChange, fingerprints, history, last_cut, problems, release_of
from conformance.scenario.loader import load


@pytest.fixture(scope="module")
def catalogue():
    return Catalogue.load()


@pytest.fixture(scope="module")
def cut(catalogue):
    """As if this very version had been cut."""
    instances = load(catalogue)
    return {
        "version": catalogue.version,
        "catalogue": catalogue.digest,
        "scenarios": scenarios_digest(instances),
        "requirements": fingerprints(catalogue, instances),
    }


def test_every_change_since_the_last_cut_is_in_the_history(catalogue):
    hint = "see conformance/scenario/history.py"
    assert list(problems(catalogue, load(catalogue), history(), last_cut())) == [], hint


def test_nothing_is_missing_of_a_version_that_was_just_cut(catalogue, cut):
    assert list(problems(catalogue, load(catalogue), history(), cut)) == []


def test_a_requirement_that_only_moved_in_its_file_did_not_change(catalogue):
    moved = [dataclasses.replace(one, place="elsewhere.yaml:1") for one in catalogue]
    assert fingerprints(moved, []) == fingerprints(catalogue, [])


def test_another_scenario_needs_a_new_version_and_a_word_on_its_requirements(catalogue, cut):
    first, *rest = load(catalogue)
    scenario = first.scenario.model_copy(update={"stimulus": "off-contract", "title": "Another"})
    changed = (dataclasses.replace(first, scenario=scenario), *rest)
    found = "\n".join(problems(catalogue, changed, history(), cut))
    assert f"it is still {catalogue.version}" in found
    for name in first.scenario.requirements:
        assert f"{name} changed" in found


def test_a_new_version_explains_each_changed_requirement(catalogue, cut):
    name = next(iter(catalogue)).id
    older = {**cut, "version": "0.0.1", "requirements": {**cut["requirements"], name: "0" * 16}}
    versions = history()
    assert any(name in one for one in problems(catalogue, load(catalogue), versions, older))
    told = RequirementChange(requirement=name, kind="tightened", what="it counts now")
    said = [
        one.model_copy(update={"changes": (told,)}) if one.version == catalogue.version else one for one in versions
    ]
    assert list(problems(catalogue, load(catalogue), said, older)) == []
    strange = [
        one.model_copy(update={"changes": (told, told.model_copy(update={"requirement": "EPP-DEST-05"}))})
        if one.version == catalogue.version
        else one
        for one in versions
    ]
    assert any("did not change" in one for one in problems(catalogue, load(catalogue), strange, older))


def test_a_removed_requirement_is_said_to_be_removed(catalogue, cut):
    older = {**cut, "version": "0.0.1", "requirements": {**cut["requirements"], "EPP-OLD-01": "0" * 16}}
    assert any("EPP-OLD-01 is removed" in one for one in problems(catalogue, load(catalogue), history(), older))


def test_the_release_that_has_a_catalogue_is_found_by_its_digests():
    last = last_cut()
    assert release_of(last["version"], last["catalogue"], last["scenarios"]) == history()[-1].suite
    assert release_of(last["version"], "0" * 64, last["scenarios"]) is None
