"""Import hooks for the process of the program: one that mutates a module, and one that records what is reached."""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from conformance.mutation.helpers import NAMES

PROBE = "_reached"

SourceChange = Callable[[bytes, str], bytes | ast.Module]
"""From a module's source and name to what is compiled instead."""


class SourceChangedError(Exception):
    """The module is not the one from which the mutant was made."""


def install(specification: Mapping[str, Any]) -> None:
    """Mutate, or probe, what is imported from now on.

    `{"mutate": MODULE, "start": …, "end": …, "text": …, "sha256": …}` is what `Mutant.specification` gives.
    `{"probe": PACKAGE, "file": PATH}` appends `MODULE:LINE` to the file for each statement of a function in the package
    when it is first run.
    """
    if "probe" in specification:
        package = str(specification["probe"])
        finder = _Finder(lambda name: name.split(".")[0] == package, _probed)
        names: Mapping[str, Any] = {PROBE: _recorder(Path(specification["file"]))}
    else:
        module = str(specification["mutate"])
        finder = _Finder(lambda name: name == module, lambda source, _: mutated(source, specification))
        names = NAMES
    vars(builtins).update(names)  # where `runpy` runs a module as the main one, its globals are made elsewhere
    sys.meta_path.insert(0, finder)


def mutated(source: bytes, specification: Mapping[str, Any]) -> bytes:
    """The source with the edit of the specification. Raises `SourceChangedError`."""
    if hashlib.sha256(source).hexdigest() != specification["sha256"]:
        raise SourceChangedError(f"{specification['mutate']} is not the source that the mutant was made of")
    start, end = int(specification["start"]), int(specification["end"])
    return source[:start] + str(specification["text"]).encode() + source[end:]


class _Finder:
    """Finds what the usual path finds, and has it loaded from changed source."""

    def __init__(self, wanted: Callable[[str], bool], change: SourceChange) -> None:
        self._wanted = wanted
        self._change = change

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if not self._wanted(name):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        spec.loader = _Loader(name, spec.origin, self._change)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, change: SourceChange) -> None:
        super().__init__(name, path)
        self._change = change

    def get_code(self, fullname: str) -> CodeType:
        """The changed code; nothing is cached."""
        made = self._change(Path(self.path).read_bytes(), fullname)
        code: CodeType = compile(made, self.path, "exec", dont_inherit=True)
        return code


def _probed(source: bytes, name: str) -> ast.Module:
    """The module, each statement of its functions preceded by a call that says so."""
    tree = ast.parse(source)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        for node in ast.walk(function):
            for member in ("body", "orelse", "finalbody"):
                block = getattr(node, member, None)
                if isinstance(block, list) and not isinstance(node, ast.ClassDef):
                    setattr(node, member, [part for one in block for part in _announced(one, name)])
    return ast.fix_missing_locations(tree)


def _announced(statement: ast.stmt, name: str) -> tuple[ast.stmt, ...]:
    if getattr(statement, "announced", False):  # the function around has been through here
        return (statement,)
    call = ast.Call(ast.Name(PROBE, ast.Load()), [ast.Constant(value=name), ast.Constant(value=statement.lineno)], [])
    probe = ast.copy_location(ast.Expr(call), statement)
    for one in (probe, statement):
        one.announced = True  # type: ignore[attr-defined]
    return probe, statement


def _recorder(path: Path) -> Callable[[str, int], None]:
    """Appends what is new at once: the process may be killed, and several may write."""
    known: set[tuple[str, int]] = set()
    file = path.open("a", encoding="utf-8")

    def reached(name: str, line: int) -> None:
        if (name, line) not in known:
            known.add((name, line))
            file.write(f"{name}:{line}\n")
            file.flush()

    return reached
