"""`list` and `explain`: what the suite asks and sends, for people and for programs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import built_in, load

ROOT = Path(__file__).parents[2]


def test_every_scenario_is_listed_once(cli) -> None:
    ran = cli("list", "--format", "ids")
    ids = ran.out.split()
    assert ran.code == 0
    found = load(Catalogue.load())
    assert sorted(ids) == sorted({one.group for one in found})
    epps = [name for name in ids if name in {one.group for one in found if one.role == "epp"}]
    assert ids[: len(epps)] == epps  # what is tested by default comes first


def test_json_has_what_a_program_needs(cli) -> None:
    rows = json.loads(cli("list", "--format", "json", "--section", "endpoint-subset").out)
    first = rows[0]
    assert first["id"] == "subset.pick-stays-inside"
    assert len(first["instances"]) == 3
    assert first["versions"] == ["0.3.0", "0.4.0", "1.0.0", "next"]
    assert {row["section"] for row in rows} == {"endpoint-subset"}


def test_the_table_keeps_long_names_whole(cli) -> None:
    out = cli("list").out
    assert "subset.pick-stays-inside " in out
    assert out.rstrip().splitlines()[-1].startswith(f"{len(cli('list', '--format', 'ids').out.split())} scenarios")


def test_a_version_narrows_the_list(cli) -> None:
    old = cli("list", "--format", "ids", "--protocol-version", "0.2.0").out
    assert "subset.pick-stays-inside" not in old
    assert "subset.pick-stays-inside" in cli("list", "--format", "ids", "--protocol-version", "next").out


def test_requirements_of_all_roles_are_listed(cli) -> None:
    rows = json.loads(cli("list", "--requirements", "--format", "json").out)
    assert [row["id"] for row in rows] == list(Catalogue.load().requirements)
    assert all(row["note"] for row in rows if row["tested"] in ("can't be", "not yet"))


def test_requirements_of_one_level(cli) -> None:
    rows = json.loads(cli("list", "--requirements", "--level", "should", "--format", "json").out)
    assert rows
    assert {row["level"] for row in rows} == {"SHOULD"}


def test_coverage_adds_up(cli) -> None:
    rows = json.loads(cli("list", "--coverage", "--format", "json").out)
    assert {row["document"] for row in rows} == set(Catalogue.load().documents)
    for row in rows:
        assert row["tested"] + row["pending"] + row["untestable"] == row["normative"]
    headline = next(row for row in rows if row["document"] == "1.0.0")
    assert headline["tested"] > headline["pending"]


def test_the_published_schema_accepts_the_suites_own_files(cli) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(cli("list", "--schema").out))
    for name in ("subset.yaml", "errors.yaml"):
        data = yaml.safe_load((built_in() / name).read_text())
        # a variable of the matrix may stand for a value of any type, before it is bound
        data["scenarios"] = [one for one in data["scenarios"] if "matrix" not in one]
        assert data["scenarios"]
        validator.validate(data)


def test_explain_a_requirement(cli) -> None:
    out = cli("explain", "EPP-SUB-02").out
    for part in (
        "MUST",
        "Endpoint Subset",
        "Statement",
        "Observed",
        "Reading",
        "Common causes",
        "1.0.0 fail",
        "subset.nobody",
    ):
        assert part in out


@pytest.mark.program
@pytest.mark.smoke
@pytest.mark.parametrize("name", ["EPP-SUB-02", "ENV-08", "DP-DEST-01"])
def test_explain_names_the_places_of_a_requirement(cli, name: str) -> None:
    """Each is a line of a file of the tree that has to do with it."""
    text = cli("explain", name, "--source").out
    found = re.findall(r"\S+\.(?:py|yaml):\d+", text)
    lines = {place: _line(place) for place in found}
    for folder in ("conformance/requirements/", "conformance/judges/", "scenarios/", "reference_"):
        assert any(place.startswith(folder) for place in found), folder
    written = next(line for place, line in lines.items() if "/requirements/" in place)
    assert written.strip() == f"- id: {name}"
    for place, line in lines.items():
        label = text.split(place)[0].split()[-1]
        if place.startswith("reference_"):
            assert f'"{label}"' in line
        if place.startswith("scenarios/"):
            assert f"id: {label}" in line


def _line(place: str) -> str:
    path, _, number = place.rpartition(":")
    return (ROOT / path).read_text().splitlines()[int(number) - 1]


def test_explain_takes_the_name_of_an_invariant(cli) -> None:
    assert cli("explain", "invariant::EPP-SUB-01").out.startswith("EPP-SUB-01 ")


@pytest.mark.parametrize(
    "name", ["subset.pick-stays-inside", "subset.pick-stays-inside[only=b]", "subset.nobody@buffered"]
)
def test_explain_a_scenario(cli, name: str) -> None:
    out = cli("explain", name).out
    for part in ("EPP-SUB-0", "steps:", "exchange:", "expect:", "Run it:"):
        assert part in out


def test_everything_can_be_explained(cli) -> None:
    from conformance.cli.explain import requirement_text, scenario_text

    catalogue = Catalogue.load()
    instances = load(catalogue)
    assert all(requirement_text(one, instances) for one in catalogue)
    groups = {one.group: one for one in instances}
    assert all(scenario_text([one], catalogue) for one in groups.values())


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("EPP-SUB-2", "EPP-SUB-02"), ("epp-sub-02", "EPP-SUB-02"), ("subset.nobdy", "subset.nobody")],
)
def test_explain_offers_the_nearest_name(cli, name: str, nearest: str) -> None:
    ran = cli("explain", name)
    assert ran.code == 2
    assert f"did you mean '{nearest}'?" in ran.err


def test_the_users_own_scenarios_are_listed(cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "section: mine\nscenarios:\n"
        "  - {id: mine.one, title: Mine, requirements: [EPP-SUB-01], steps: [{exchange: {}}]}\n"
    )
    assert cli("list", "--scenarios", tmp_path, "--section", "mine", "--format", "ids").out.split() == ["mine.one"]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("[{exchang: {}}]", "unknown key 'exchang'"),
        ("[]", "expected at least 1 item, got 0"),
    ],
)
def test_a_mistake_in_a_step_is_the_only_thing_said(cli, tmp_path: Path, steps: str, expected: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "section: mine\nscenarios:\n  - id: mine.one\n    title: One\n    requirements: [EPP-DEST-01]\n"
        f"    steps: {steps}\n"
    )
    ran = cli("run", "--scenarios", path, "-k", "mine.one", "-o", tmp_path / "r")
    assert ran.code == 2
    assert expected in ran.err
    assert "Tuple" not in ran.err
    assert "at least" not in ran.err.replace(expected, "")
