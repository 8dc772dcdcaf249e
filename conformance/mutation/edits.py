"""Walks the syntax tree of a module and collects the edits that the operators make: one place of its source each."""

from __future__ import annotations

import ast
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.mutation import operators
from conformance.mutation.operators import Replacement

LOGS = frozenset({"LOG", "LOGGER", "log", "logger", "logging"})
"""What logs are written to. What is logged is no behaviour that is tested."""

_ATOMS = (ast.Attribute, ast.Call, ast.Constant, ast.List, ast.Name, ast.Set, ast.Subscript, ast.Tuple)
_IN_FULL: dict[str, Any] = {"show_empty": True} if sys.version_info >= (3, 13) else {}
"""Has `ast.dump` write a tree as every Python wrote it before 3.13."""
_TYPES = frozenset({"Literal", "TypeVar"})
_IMPORTED_FOR_TYPES = "TYPE_CHECKING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """The bytes `start` to `end` of a source become `text`."""

    operator: str
    function: str
    statement: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """The source with this edit."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def edits(source: bytes, paths: Mapping[str, Sequence[str]]) -> list[Edit]:
    """Every edit, in the source's order. Each gives another program that compiles.

    `paths` has, by the beginning of a function's qualified name, expressions that are true on some paths through it
    and not on others: there, mutations on one path only are made, too.
    """
    tree = ast.parse(source)
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))
    collected = _Collector(source, offsets, paths)
    collected.visit(tree)
    found = {(one.start, one.end, one.text, one.operator): one for one in collected.found}
    return sorted(found.values(), key=lambda one: (one.start, one.end, one.operator, one.text))


class _Collector(ast.NodeVisitor):
    def __init__(self, source: bytes, offsets: list[int], paths: Mapping[str, Sequence[str]]) -> None:
        self.found: list[Edit] = []
        self._source = source
        self._offsets = offsets
        self._paths = paths
        self._names: list[str] = []
        self._functions = 0
        self._statement = 0
        self._returns_none = False

    def visit(self, node: ast.AST) -> None:
        """Collect the edits of a node, and of what is inside of it."""
        if _is_left_out(node):
            return
        if isinstance(node, ast.stmt) and self._functions:
            self._statement = node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._definition(node)
            return
        for made in operators.EXPRESSION if isinstance(node, ast.expr | ast.keyword) else ():
            self._add(made(node))
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.comprehension | ast.match_case | ast.IfExp):
            for made in operators.STATEMENT:
                self._add(made(node))
            if isinstance(node, ast.Return) and self._returns_none:
                self._add(operators.no_result(node))
            if self._functions and self._names[-1] != "__init__":
                self._add(change for path in self._here(node) for change in operators.one_path(node, path))
        if isinstance(node, ast.AnnAssign):  # its annotation is no behaviour
            if node.value is not None:
                self.visit(node.value)
            return
        self.generic_visit(node)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._names.append(node.name)
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                self.visit(child)
        else:
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
            outer = self._statement, self._returns_none
            self._functions += 1
            self._returns_none = node.returns is not None and "| None" in ast.unparse(node.returns)
            for child in node.body:
                self.visit(child)
            if node.name == "__init__":
                self._add(change for child in node.body for change in operators.shared(child))
            self._functions -= 1
            self._statement, self._returns_none = outer
        self._names.pop()

    def _here(self, node: ast.AST) -> Iterator[str]:
        """An expression that is true on some paths through the function around: which one, depends on the node."""
        function = ".".join(self._names)
        for name, expressions in self._paths.items():
            if function.startswith(name):
                yield expressions[zlib.crc32(ast.dump(node, **_IN_FULL).encode()) % len(expressions)]

    def _add(self, changes: Iterable[Replacement]) -> None:
        for change in changes:
            if isinstance(change.made, ast.expr) and ast.dump(change.made) == ast.dump(change.node):
                continue
            start, end = self._span(change.node)
            try:
                text = _text(change.made)
            except ValueError:  # some strings with parts can't be written in one line
                continue
            function = ".".join(self._names)
            self.found.append(
                Edit(
                    operator=change.operator,
                    function=function,
                    statement=self._statement,
                    start=start,
                    end=end,
                    text=text,
                )
            )

    def _span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node is in the source, in bytes."""
        first: int = self._offsets[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        last: int = self._offsets[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        return first, last


def _text(made: ast.expr | str) -> str:
    """Source text that means the same wherever the expression stands."""
    if isinstance(made, str):
        return made
    text = ast.unparse(made)
    return text if isinstance(made, _ATOMS) else f"({text})"


def _is_left_out(node: ast.AST) -> bool:
    """What is no behaviour (documentation, types, logs, assertions), and strings with parts, which are for people."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.JoinedStr() | ast.Assert():
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGS
        case ast.If(test=ast.Name(id=name)):
            return name == _IMPORTED_FOR_TYPES
        case ast.If(test=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            return name in LOGS
        case ast.Subscript(value=ast.Name(id=name)) | ast.Call(func=ast.Name(id=name)):
            return name in _TYPES
        case ast.Assign(targets=[ast.Name(id="__all__" | "__slots__" | "LOG")]):
            return True
        case _:
            return False
