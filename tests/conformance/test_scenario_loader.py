"""Scenario files of any shape: they load, or every problem has its place; nothing else is raised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import built_in, load
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


@pytest.fixture(scope="module", autouse=True)
def _without_our_own_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Our own scenarios take half a second to read; any file shows the same here."""
    assert built_in().is_dir()
    with pytest.MonkeyPatch.context() as patch:
        empty = tmp_path_factory.mktemp("scenarios")
        patch.setattr("conformance.scenario.loader.built_in", lambda: empty)
        yield


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(values | st.dictionaries(names, values), max_size=3), st.sampled_from(["epp", "data-plane", 7, None]))
def test_any_file(tmp_path: Path, scenarios: list, role: object) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps({"section": "mine", "role": role, "scenarios": scenarios}))
    problems: tuple[Problem, ...] = ()
    try:
        load(Catalogue.load(), [tmp_path])
    except FileError as error:
        problems = error.problems
    assert all(problem.line and problem.message for problem in problems)
