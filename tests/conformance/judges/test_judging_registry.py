"""Every testable requirement has a judge, and its place in the source is known."""

from __future__ import annotations

from pathlib import Path

import pytest

import conformance
from conformance.judges import JUDGES, places


def test_every_judge_speaks_about_known_requirements(catalogue):
    for judge in JUDGES.values():
        for requirement in judge.requirements:
            assert requirement in catalogue, f"{judge.name} speaks about {requirement}"


@pytest.mark.parametrize("role", ["epp", "data-plane"])
def test_every_testable_requirement_has_a_judge_of_its_role(catalogue, role):
    spoken_of = {name for judge in JUDGES.values() if judge.role == role for name in judge.requirements}
    assert {one.id for one in catalogue if one.role == role and one.testable} <= spoken_of
    assert all(catalogue.get(name).role == role for name in spoken_of)


def test_every_judged_requirement_has_a_place_in_the_source():
    root = Path(conformance.__file__).parents[1]
    judged = {requirement for one in JUDGES.values() for requirement in one.requirements}
    for requirement in judged:
        found = places(requirement)
        assert found, requirement
        for place in found:
            path, _, line = place.rpartition(":")
            assert (root / path).read_text().splitlines()[int(line) - 1].strip(), place


def test_requirements_of_attribution_have_the_places_of_their_rules():
    assert any(place.startswith("conformance/judges/epp/subset.py:") for place in places("EPP-SUB-06"))
    assert any(place.startswith("conformance/reading/ordering.py:") for place in places("ENV-03"))
    assert places("EPP-NONE-01") == ()
