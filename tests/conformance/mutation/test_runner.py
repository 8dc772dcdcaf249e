"""A program that is run with one mutation, or probed: in its own process, its source untouched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.mutation.mutant import Mutant, mutants_of

pytestmark = pytest.mark.program

PROGRAM = '''"""A program."""

import sys


def twice(number: int) -> int:
    if number > 1_000:
        return 0
    return number * 2


class Counter:
    def __init__(self):
        self.seen = []

    def add(self, item):
        self.seen.append(item)
        return len(self.seen)


if __name__ == "__main__":
    print(twice(int(sys.argv[1])), Counter().add(1), Counter().add(2))
'''


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A package whose `__main__` uses another module of it."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "parts.py").write_text(PROGRAM)
    (folder / "__main__.py").write_text(
        "import sys\nfrom program.parts import Counter, twice\n\n\ndef main():\n"
        "    print(twice(int(sys.argv[1])), Counter().add(1), Counter().add(2))\n\n\nmain()\n"
    )
    return folder


def run(program: Path, specification: object, *arguments: str) -> subprocess.CompletedProcess[str]:
    given = specification if isinstance(specification, str) else json.dumps(specification)
    command = [sys.executable, "-m", "conformance.mutation", given, "program", *arguments]
    root = Path(__file__).parents[3]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": f"{program.parent}:{root}"},
    )


def one(program: Path, operator: str, function: str, text: str = "") -> Mutant:
    mutants = mutants_of("program.parts", program / "parts.py")
    return next(m for m in mutants if (m.operator, m.function) == (operator, function) and text in m.after)


def test_a_program_runs_with_one_mutation_and_its_source_stays(program) -> None:
    before = (program / "parts.py").read_bytes()
    mutant = one(program, "arithmetic", "twice")
    ran = run(program, mutant.specification(), "21")
    assert (ran.stdout, ran.returncode) == ("10 1 1\n", 0), ran.stderr
    assert (program / "parts.py").read_bytes() == before


def test_state_that_is_shared_outlives_its_owner(program) -> None:
    ran = run(program, one(program, "shared", "Counter.__init__").specification(), "21")
    assert ran.stdout == "42 1 2\n", ran.stderr


def test_a_program_whose_source_has_changed_is_not_mutated_somewhere_else(program) -> None:
    specification = one(program, "arithmetic", "twice").specification()
    (program / "parts.py").write_text("# another first line\n" + PROGRAM)
    ran = run(program, specification, "21")
    assert ran.returncode != 0
    assert "program.parts is not the source that the mutant was made of" in ran.stderr


def test_a_probe_records_the_statements_of_functions_that_are_run(program, tmp_path) -> None:
    record = tmp_path / "record"
    ran = run(program, {"probe": "program", "file": str(record)}, "21")
    assert ran.stdout == "42 1 1\n", ran.stderr
    places = [place.rpartition(":") for place in record.read_text().split()]
    assert {module for module, _, _ in places} == {"program.parts", "program.__main__"}
    lines = PROGRAM.splitlines()
    assert {lines[int(line) - 1].strip() for module, _, line in places if module == "program.parts"} == {
        "if number > 1_000:",
        "return number * 2",
        "self.seen = []",
        "self.seen.append(item)",
        "return len(self.seen)",
    }


@pytest.mark.parametrize("wrong", ["no JSON", ""])
def test_a_wrong_specification_is_refused(program, wrong) -> None:
    ran = run(program, wrong, "21")
    assert ran.returncode == 1
    assert "is not JSON" in ran.stderr
