"""Covering arrays, and how much luck passes: properties of every matrix, and of the scenarios that ship."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.requirements.catalogue import Catalogue
from conformance.requirements.schema import VERSIONS
from conformance.run.data_plane.replies import model_server_reply
from conformance.scenario.chance import MEMBER_RULE, SUBSET_RULES, by_scenario, chance, constants, draws
from conformance.scenario.loader import Instance, load, rows
from conformance.strict_yaml import FileError

LUCK = 1e-6
"""The chance with which an endpoint picker without a rule may pass the scenarios of that rule."""

matrices = st.dictionaries(
    st.sampled_from("abcde"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True), min_size=1
)


def values_of(row: dict[str, int]) -> set[tuple[str, int]]:
    return set(row.items())


def pairs_of(row: dict[str, int]) -> set[frozenset[tuple[str, int]]]:
    return {frozenset(pair) for pair in itertools.combinations(row.items(), 2)}


@given(matrices, st.data(), st.sampled_from([1, 2]))
def test_all_values_that_meet_in_a_row_that_is_left_are_covered(matrix, data, strength) -> None:
    somewhere = {name: st.lists(st.sampled_from(values), min_size=1) for name, values in matrix.items()}
    without = data.draw(st.lists(st.fixed_dictionaries({}, optional=somewhere).filter(bool), max_size=3))
    everything = [dict(zip(matrix, row, strict=True)) for row in itertools.product(*matrix.values())]
    possible = [
        row
        for row in everything
        if not any(all(row[name] in values for name, values in one.items()) for one in without)
    ]
    assert rows(matrix, without) == possible
    found = rows(matrix, without, {1: "each", 2: "pairs"}[strength])
    assert all(row in possible for row in found)
    of = pairs_of if strength == 2 and len(matrix) > 1 else values_of
    assert set().union(*map(of, found)) == set().union(*map(of, possible))
    if len(matrix) == 1:
        assert found == possible


def write(path: Path, text: str) -> Path:
    path.write_text(
        "section: mine\nscenarios:\n  - id: mine.kinds\n    title: t\n    requirements: [EPP-DEST-01]\n"
        '    steps: [{exchange: {method: "{method}", http: "{http}"}}]\n' + text,
        encoding="utf-8",
    )
    return path


def mine(path: Path) -> list[Instance]:
    return [one for one in load(Catalogue.load(), [path]) if one.group == "mine.kinds"]


def test_combinations_are_left_out(tmp_path: Path) -> None:
    text = "    matrix: {method: [GET, POST], http: [1, 2]}\n    without: [{method: [GET], http: [2]}]\n"
    found = mine(write(tmp_path / "mine.yaml", text))
    assert [one.id for one in found] == [
        "mine.kinds[method=GET,http=1]",
        "mine.kinds[method=POST,http=1]",
        "mine.kinds[method=POST,http=2]",
    ]


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("[{methods: [GET]}]", "the matrix has no variable methods (did you mean 'method'?)"),
        ("[{method: [PUT]}]", "the variable method has no value PUT"),
        ("[{method: [GET, POST]}]", "it leaves no combination of the matrix"),
        ("[{method: GET}]", "mine.yaml:8:"),
    ],
)
def test_wrong_combinations_are_refused_with_their_place(tmp_path: Path, without: str, said: str) -> None:
    path = write(tmp_path / "mine.yaml", f"    matrix: {{method: [GET, POST], http: [1, 2]}}\n    without: {without}\n")
    with pytest.raises(FileError) as caught:
        load(Catalogue.load(), [path])
    assert said in str(caught.value)
    assert "mine.yaml:8:" in str(caught.value)


# -- the scenarios that ship -------------------------------------------------------------------------------------------


def shipped(version: str) -> list[Instance]:
    catalogue = Catalogue.load()
    return [
        one
        for one in load(catalogue)
        if one.role == "epp"
        and one.scenario.stimulus == "contract"
        and version in (one.scenario.versions or VERSIONS)
        and any(version in catalogue.get(name).effects for name in one.scenario.requirements)
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_luck_passes_no_scenario(version: str) -> None:
    """Each scenario alone: a rule may be broken on the path only that this one takes."""
    found = by_scenario(shipped(version))
    assert found
    assert [one for one in found if one.chance > LUCK] == []


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_no_endpoint_is_right_for_all_scenarios_of_a_subset_rule(version: str) -> None:
    catalogue = Catalogue.load()
    for requirement in SUBSET_RULES:
        if version in catalogue.get(requirement).effects:
            every = [one for one in shipped(version) if requirement in one.scenario.requirements]
            assert chance(requirement, every) <= LUCK, requirement
            assert not constants(requirement, every), requirement


def test_membership_is_drawn_where_pods_may_not_be_picked() -> None:
    found = next(one for one in shipped("1.0.0") if one.id == "destination.not-ready")
    draw = draws(MEMBER_RULE, found.scenario)[0]
    assert {one.partition(".")[0] for one in draw.considered} == {"a", "b", "starting"}
    assert {one.partition(".")[0] for one in draw.allowed} == {"a", "b"}


def test_some_cut_is_inside_a_character() -> None:
    """What the titles promise: a piece begins with a continuation byte, for JSON and for events."""
    split = [one for one in shipped("1.0.0") if one.group in ("streaming.split-events", "streaming.split-characters")]
    kinds = set()
    for one in split:
        reply = next(step.exchange.reply for step in one.scenario.steps if step.exchange is not None)
        script = model_server_reply(reply)
        pieces = script.chunks if script is not None and script.chunks else ()
        if any(piece[0] & 0xC0 == 0x80 for piece in pieces):
            kinds.add(reply.kind)
    assert kinds == {"json", "sse"}
