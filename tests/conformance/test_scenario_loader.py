"""Scenario files of any shape: they load, or every problem has its place; nothing else is raised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import load
from conformance.strict_yaml import FileError, Problem

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["a", "{a}", "{zz}", "EPP-SUB-01", ""])
)
names = st.sampled_from(
    ["id", "title", "requirements", "versions", "aliases", "matrix", "steps", "pool", "pods", "name"]
)
actions = st.sampled_from(["exchange", "pool", "request", "pods", "expect", "within", "add", "subset", "gauges"])
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names | actions, inner, max_size=4)),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(values | st.dictionaries(names, values), max_size=3), st.sampled_from(["epp", "data-plane", 7, None]))
def test_any_file(tmp_path: Path, scenarios: list, role: object) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps({"section": "mine", "role": role, "scenarios": scenarios}))
    problems: tuple[Problem, ...] = ()
    try:
        load(Catalogue.load(), [tmp_path])
    except FileError as error:
        problems = error.problems
    assert all(problem.line and problem.message for problem in problems)


def problems_of(tmp_path: Path, *lines: str) -> list[tuple[int, int, str]]:
    """Line, column and message of all that is wrong with a scenario with these lines; the first is line 8."""
    head = ["section: mine", "scenarios:", "  - id: mine.one", "    title: t", "    requirements: [EPP-SUB-01]"]
    text = "\n".join([*head, "    versions: [1.0.0]", "    smoke: false", *(f"    {line}" for line in lines)])
    (tmp_path / "mine.yaml").write_text(text)
    try:
        load(Catalogue.load(), [tmp_path / "mine.yaml"])
    except FileError as error:
        return [(one.line, one.column, one.message) for one in error.problems]
    return []


STEP = "steps: [{exchange: {model: '{x}'}}]"


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("{x: [m, n]}", None),
        ("{}", "a matrix has at least one variable"),
        ("{x: [m], y: [1]}", "nothing uses the variable y"),
        ("{x: [m], a: [b]}", "the variable a has the name of a pod"),
        ("{x: [m, n, m]}", "a value of x is there twice"),
        ("{x: []}", "the variable x has no values"),
        ("{X: [m]}", "'X' is no name of a variable"),
    ],
)
def test_the_variables_of_a_matrix(tmp_path: Path, matrix: str, message: str | None) -> None:
    found = problems_of(tmp_path, f"matrix: {matrix}", STEP)
    assert [text for _, _, text in found] == ([message] if message else [])
    assert all(line == 8 for line, _, _ in found)


def test_a_variable_may_stand_for_a_key(tmp_path: Path) -> None:
    assert problems_of(tmp_path, "matrix: {x: [a, b]}", "steps: [{gauges: {'{x}': {queue: 3}}}]") == []


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("[x-ok, 'any thing']", None),
        ("[':path', /]", "is no header, but a part of the request"),
        ("['x y', v]", "is no header's name"),
        ("['', v]", "is no header's name"),
        (r'[x, "a\r\nb"]', "no line breaks"),
        ("[x, {base64: Wm/r}]", None),
        ("[x, {base64: Wm}]", "this is no base64"),
        ("[x, {base64: 'Wm/r?'}]", "this is no base64"),
        ("[x, {base64: Cg==}]", "no line breaks"),
    ],
)
def test_headers_that_are_none(tmp_path: Path, header: str, message: str | None) -> None:
    found = problems_of(tmp_path, f"steps: [{{exchange: {{headers: [{header}]}}}}]")
    assert len(found) == bool(message)
    assert all(message in text and line == 8 and column > 30 for line, column, text in found)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["matrix: {" + ", ".join(f"v{n}: {list(range(60))}" for n in range(6)) + "}", STEP.replace("{x}", "{v0}")],
            "the matrix has 46656000000 combinations, and at most 500 are taken",
        ),
        (["steps: [" + "{exchange: {}}," * 201 + "]"], "expected at most 200 items, got 201"),
        (["steps: [{exchange: {body: {size: 99999999999}}}]"], "the value should be less than or equal to 67108864"),
    ],
)
def test_limits_are_named_when_exceeded(tmp_path: Path, lines: list[str], message: str) -> None:
    assert message in [text for _, _, text in problems_of(tmp_path, *lines)]


def test_scenarios_in_folders_of_a_folder_are_found_and_a_folder_without_any_is_refused(tmp_path: Path) -> None:
    """They are what a vendor wants to be tested: not to run them would say nothing is wrong."""
    text = (
        "section: mine\nscenarios:\n  - {id: mine.%s, title: t, requirements: [EPP-SUB-01], steps: [{exchange: {}}]}\n"
    )
    (tmp_path / "readme.txt").write_text("nothing")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "not.yaml").write_text("no: scenario")
    with pytest.raises(FileError, match="there is no scenario file in this folder"):
        load(Catalogue.load(), [tmp_path])
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "one.yaml").write_text(text % "one")
    (tmp_path / "two.yml").write_text(text % "two")
    found = {one.id for one in load(Catalogue.load(), [tmp_path])}
    assert {"mine.one", "mine.two"} <= found


def test_a_pods_name_is_refused_as_its_endpoint_in_hints_and_nowhere_else(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "steps: [{exchange: {subset: [a], subsets: [['{a}'], [b]]}}]")
    assert [text for _, _, text in found] == ["a is no endpoint", "b is no endpoint"]
    elsewhere = "{body: {json: {subset: [a]}}, metadata: {mine: {subset: [a]}}, hint: [a]}"
    assert problems_of(tmp_path, f"steps: [{{exchange: {elsewhere}}}]") == []


def test_a_model_beside_models_that_are_taken_in_turn_is_refused(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "steps: [{exchange: {model: one, models: [one, two], repeat: 2}}]")
    assert [text for _, _, text in found] == ["`model` has no effect beside `models`"]


def test_only_a_scripted_reply_ends_with_its_last_piece(tmp_path: Path) -> None:
    found = problems_of(tmp_path, "steps: [{exchange: {reply: {coalesced: true}}}]")
    assert [text for _, _, text in found] == ["`coalesced` is for replies of `source: scripted`"]
    assert problems_of(tmp_path, "steps: [{exchange: {reply: {coalesced: true, source: scripted}}}]") == []
