"""The worked example of CONTRIBUTING.md: applied to a copy of the tree, its commands do what the page says."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
APPENDED = re.findall(r"^```\w+ append=(\S+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^```sh example\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[0].splitlines()
REQUIREMENT = re.search(r"^  - id: (\S+)$", PAGE, re.MULTILINE)[1]
FAULT = re.search(r'^(?:fault|warned)\(\n    "(.*?)"', PAGE, re.MULTILINE)[1]
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
    "packages"
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what the wheel is made of, with the example applied."""
    copy = tmp_path_factory.mktemp("tree")
    for name in (*PACKAGES, "scenarios"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in APPENDED:
        with (copy / name).open("a") as file:
            file.write(f"\n\n{text}" if name.endswith(".py") else text)
    return copy


def run(tree, line):
    """One command of the page, in the copy."""
    program, *arguments = shlex.split(line)
    assert program == "epp-conformance"
    done = subprocess.run(
        [sys.executable, "-m", "conformance", *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def command(name):
    return next(line for line in COMMANDS if line.split()[1] == name)


def test_the_example_takes_at_most_four_files():
    files = [name for name, _ in APPENDED]
    assert len(files) == len(set(files)) <= 4
    assert [name for name in files if not (ROOT / name).is_file()] == []


def test_the_example_is_not_there_already():
    assert [name for name, _ in APPENDED if REQUIREMENT in (ROOT / name).read_text()] == []


@pytest.mark.program
def test_the_requirement_is_explained(tree):
    assert REQUIREMENT in run(tree, command("explain"))


@pytest.mark.program
def test_the_scenario_runs_and_the_reference_epp_keeps_the_rule(tree):
    run(tree, command("run"))
    report = json.loads((tree / "conformance-report" / "report.json").read_text())
    assert report["results"]
    assert [
        row["id"] for row in report["results"] if row["verdict"] != "pass" or REQUIREMENT not in row["passed"]
    ] == []


@pytest.mark.program
def test_the_fault_is_found_and_nothing_else_is_accused(tree):
    line = next(line for line in run(tree, command("selftest")).splitlines() if FAULT in line)
    assert line.split()[:3] == ["exact", FAULT, REQUIREMENT]


@pytest.mark.program
def test_the_code_of_the_example_passes_the_linters(tree):
    files = [name for name, _ in APPENDED if name.endswith(".py")]
    shutil.copy(ROOT / "pyproject.toml", tree)
    for arguments in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, *files], cwd=tree, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_map_shows_folders_that_exist_and_every_package():
    drawn = re.search(r"^## The tree\n\n```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]
    inner = set(re.findall(r"^  (\w+)/", drawn, re.MULTILINE))
    outer = set(re.findall(r"^(\w+)/", drawn, re.MULTILINE))
    folders = {path.name for path in (ROOT / "conformance").iterdir() if (path / "__init__.py").is_file()}
    assert inner == folders
    assert set(PACKAGES) <= outer
    assert [name for name in outer if not (ROOT / name).is_dir()] == []
