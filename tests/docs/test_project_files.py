"""Files that the repository's host and contributors' tools read: well-formed, and about things that exist."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FORMS = [path for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").iterdir()) if path.stem != "config"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_has_what_github_needs(path):
    form = yaml.safe_load(path.read_text())
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert names == list(dict.fromkeys(names))
    assert [field["id"] for field in fields if not field["attributes"]["label"]] == []


def test_the_hosted_workflow_runs_what_ci_runs():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yaml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert ".ci/run" in [step.get("run") for step in steps]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o100


def test_hooks_run_the_tools_of_the_virtual_environment():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    locked = {re.split(r"[^\w-]", need)[0] for need in groups["lint"] if isinstance(need, str)}
    provided = {".venv/bin/lint-imports": "import-linter", ".venv/bin/mypy": "mypy", ".venv/bin/ruff": "ruff"}
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    programs = {shlex.split(hook["entry"])[0] for hook in hooks}
    assert programs == set(provided)
    assert set(provided.values()) <= locked


def test_the_changelog_names_the_version_of_the_project():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert re.search(rf"\b{re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text())
