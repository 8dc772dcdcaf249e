"""Mutants: each compiles, differs in one place, and is known by a key that changes elsewhere leave alone."""

from __future__ import annotations

import ast
import difflib
import functools
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.mutation.edits import edits
from conformance.mutation.mutant import Mutant, mutants_of

ROOT = Path(__file__).parents[3]
SOURCES = sorted(
    path
    for path in (*(ROOT / "reference_epp").rglob("*.py"), *(ROOT / "fake_kubernetes").rglob("*.py"), Path(ast.__file__))
    if path.stat().st_size
)
PATHS = {"": ("True", "len([]) > 1")}


@functools.cache
def found(path: Path) -> list[Mutant]:
    return mutants_of("m", path, PATHS)


@st.composite
def mutants(draw) -> Mutant:
    """A mutant of one of many modules, ours and Python's."""
    path = draw(st.sampled_from([path for path in SOURCES if found(path)]))
    return draw(st.sampled_from(found(path)))


@given(mutants())
def test_a_mutant_compiles_to_another_program(mutant) -> None:
    source = mutant.path.read_bytes()
    changed = mutant.edit.apply(source)
    compile(changed, "mutant", "exec", dont_inherit=True)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))


@given(mutants())
def test_a_mutant_differs_in_one_place(mutant) -> None:
    source = mutant.path.read_bytes()
    changed = mutant.edit.apply(source)
    assert changed[: mutant.edit.start] == source[: mutant.edit.start]
    assert changed.endswith(source[mutant.edit.end :])
    assert len([line for line in mutant.diff().splitlines() if line.startswith("@@")]) == 1


@given(mutants(), st.integers(1, 5))
def test_a_key_outlives_changes_elsewhere(mutant, lines) -> None:
    source = mutant.path.read_bytes()
    more = b"".join(b"added_%d = %d\n" % (number, number) for number in range(lines))
    future = source.find(b"from __future__ import annotations\n")
    at = source.find(b"\n", future) + 1 if future >= 0 else 0
    other = source[:at] + more + source[at:]
    keys = {(one.operator, one.function, other[one.start : one.end], one.text) for one in edits(other, PATHS)}
    edit = mutant.edit
    assert (edit.operator, edit.function, source[edit.start : edit.end], edit.text) in keys


def test_a_key_and_a_name_are_of_one_mutant_each(tmp_path) -> None:
    for path in SOURCES:
        assert len({one.key for one in found(path)}) == len({one.name for one in found(path)}) == len(found(path))


def made(text: str, operator: str, paths=None) -> list[str]:
    """What an operator makes of a program, each as the lines that changed."""
    source = textwrap.dedent(text).strip() + "\n"
    changed = [
        one.apply(source.encode()).decode() for one in edits(source.encode(), paths or {}) if one.operator == operator
    ]
    return [
        " / ".join(line[2:].strip() for line in difflib.ndiff(source.splitlines(), one.splitlines()) if line[0] == "+")
        for one in changed
    ]


@pytest.mark.parametrize(
    ("operator", "program", "expected"),
    [
        ("always", "if a: b()", ["if True: b()"]),
        ("never", "while a: b()", ["while False: b()"]),
        ("negate", "x = [b for b in c if b]", ["x = [b for b in c if (not b)]"]),
        ("compare", "x = a < b", ["x = (a <= b)", "x = (a >= b)"]),
        ("logic", "x = a and not b", ["x = a", "x = (a or not b)", "x = (not b)", "x = a and b"]),
        ("constant", "x = 2, 'ab', 'text for people', b'c', True", None),
        ("arithmetic", "x += 1", ["x -= 1", "x = 1"]),
        ("argument", "f(1, a=2, b=3)", ["f(1, a=2)", "f(1, b=3)"]),
        ("element", "x = [a]", ["x = [a, a]", "x = []"]),
        ("field", "x.raw_value = 1", ["x.value = 1"]),
        ("delete", "x.y = 1", ["pass"]),
        ("timing", "POLL_SECONDS = 0.5", ["POLL_SECONDS = (0.5 * 100)"]),
        ("no-result", "def f() -> int | None: return g()", ["def f() -> int | None: return None"]),
        ("unhandled", "try: f()\nexcept ValueError: pass", ["except (): pass"]),
        ("stale", "def f(): return g()", ["def f(): return _stale(g())"]),
    ],
)
def test_operators_make_these_mutants(operator, program, expected) -> None:
    if expected is None:
        assert set(made(program, operator)) == {
            "x = 3, 'ab', 'text for people', b'c', True",
            "x = 1, 'ab', 'text for people', b'c', True",
            "x = 2, 'abx', 'text for people', b'c', True",
            "x = 2, 'ab', 'text for people', b'cx', True",
            "x = 2, 'ab', 'text for people', b'c', False",
        }
    else:
        assert sorted(made(program, operator)) == sorted(expected)


def test_instances_can_share_state() -> None:
    program = """
    class A:
        def __init__(self):
            self.found = {}
            self.other = 1
    """
    assert made(program, "shared") == ["self.found = _shared({})"]


def test_a_condition_and_a_statement_on_one_path_only() -> None:
    program = """
    def f(a, b):
        if a:
            a.x = 1
    """
    assert made(program, "one-path", {"f": ("b > 1",)}) == [
        "if (not a if b > 1 else a):",
        "if not (b > 1): a.x = 1",
    ]
    assert made(program, "one-path", {"g": ("b > 1",)}) == []


@pytest.mark.parametrize(
    "program",
    [
        '"""Documentation."""',
        "import a",
        "x: int",
        "def f(a: Literal['b']) -> int: ...",
        "LOG.info('picked', extra={'a': 1})",
        "assert a == 1",
        "if TYPE_CHECKING:\n    x = 1",
        "x = f'{a + 1} and {b}'",
    ],
)
def test_code_without_behaviour_has_no_mutants(program) -> None:
    assert edits(program.encode(), {}) == []
