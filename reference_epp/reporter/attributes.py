"""Compute what is reported from a response's usage, by expressions of the Common Expression Language (CEL)."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from reference_epp.names import METADATA_NAMESPACE

if TYPE_CHECKING:
    from cel import cel

LOG = logging.getLogger(__name__)

EXACT = 2**53 - 1
"""Above it a `number_value`, which is a double, does not hold every whole number."""

LONGEST = 4096
"""Characters of an expression. The parser recurses; much longer ones would exhaust the process's stack."""

_BINDS = re.compile(r"\.(?:all|exists|exists_one|existsOne|map|filter)\(\s*([A-Za-z_]\w*)\s*,")
_PLACE = re.compile(r"<input>:(\d+):(\d+): *([^\n]*)")
_TYPES = frozenset({"bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"})
_FUNCTIONS = frozenset(
    (
        *("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"),
        *("contains", "endsWith", "matches", "size", "startsWith"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds"),
        *("getMinutes", "getMonth", "getSeconds"),
    )
)
"""CEL's standard functions; operators and macros are no functions to the library."""


class Program(Protocol):
    """A compiled expression."""

    def execute(self, context: dict[str, Any]) -> Any:
        """Its value, or any exception."""


class ExpressionError(ValueError):
    """An expression that can't be compiled; `line` and `column` count from 1 within its text."""

    def __init__(self, problem: str, line: int = 1, column: int = 1) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One number to report: under `name` in `namespace`, the value of `expression` if `condition` is true."""

    name: str
    expression: Program
    condition: Program | None = None
    namespace: str = METADATA_NAMESPACE


def compile_expression(text: str) -> Program:
    """Compile CEL. Raises `ExpressionError` for syntax errors and for variables and functions that there are not.

    Result types are not looked at: what an expression gives shows only when it is evaluated. A name that a macro binds
    anywhere in the expression is taken for bound everywhere in it.
    """
    compiler = _cel()
    if len(text) > LONGEST:
        raise ExpressionError(f"the expression has {len(text)} characters, the limit is {LONGEST}")
    try:
        program: cel.Program = compiler.compile(text)
    except Exception as problem:  # noqa: BLE001  # `ValueError`, or what the library's parser stumbles over
        place = _PLACE.search(str(problem))
        if place is None:
            raise ExpressionError(str(problem).partition("\n")[0]) from None
        raise ExpressionError(place[3], int(place[1]), int(place[2])) from None
    bound = set(_BINDS.findall(text))
    for variable in program.variables():
        if variable != "usage" and variable not in bound | _TYPES:
            raise ExpressionError(f"there is no variable {variable!r}, only 'usage'", *_find(text, variable))
    for function in program.functions():
        if function.isidentifier() and not function.startswith("_") and function not in _FUNCTIONS:
            raise ExpressionError(f"CEL has no function {function!r}", *_find(text, function))
    return program


def _cel() -> ModuleType:
    """The compiled module of the library `common-expression-language`, without its package around it.

    That one imports a command line with a terminal's prompt, most of the time that this program took to start; besides,
    `xds-protos` installs an empty `cel/__init__.py` over it.
    """
    name = "cel.cel"
    if name not in sys.modules:
        package = importlib.util.find_spec("cel")
        spec = package and importlib.machinery.PathFinder.find_spec(name, package.submodule_search_locations)
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module  # one that failed is not taken for loaded
    return sys.modules[name]


def _find(text: str, word: str) -> tuple[int, int]:
    """Line and column of the first `word` in `text`, both from 1."""
    found = re.search(rf"(?<![\w.]){re.escape(word)}\b", text) or re.search(re.escape(word), text)
    before = text[: found.start()] if found else ""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class Reporter:
    """Computes the values of all configured attributes."""

    def __init__(self, attributes: Sequence[Attribute] = ()) -> None:
        self.attributes = attributes

    def report(self, usage: Mapping[str, Any] | None) -> Iterator[tuple[str, str, int]]:
        """Namespace, name and value of each attribute that is to be reported for a response with this usage.

        `usage` has what JSON has, all numbers as floats; None is a response without usage, which reports nothing.
        """
        if usage is None:
            return
        for attribute in self.attributes:
            if self.wanted(attribute, usage) and (value := self.value(attribute, usage)) is not None:
                yield attribute.namespace, attribute.name, value

    def wanted(self, attribute: Attribute, usage: Mapping[str, Any]) -> bool:
        """True if there is no condition, or it is true: not if it is false, no boolean, or fails."""
        return attribute.condition is None or self.evaluate(attribute, attribute.condition, usage) is True

    def value(self, attribute: Attribute, usage: Mapping[str, Any]) -> int | None:
        """The expression's number, truncated toward zero; None if it fails or gives anything but an exact number."""
        return self.whole(self.evaluate(attribute, attribute.expression, usage))

    def whole(self, value: Any) -> int | None:
        """`value` as a whole number, or None if it is no number that a double holds exactly."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return None
        return int(value) if abs(value) <= EXACT else None

    def evaluate(self, attribute: Attribute, program: Program, usage: Mapping[str, Any]) -> Any:
        """What `program` gives; None if it fails, which is no reason to fail the response."""
        try:
            return program.execute({"usage": usage})
        except Exception as problem:  # noqa: BLE001  # which ones there are depends on expression and usage
            LOG.debug("attribute not reported", extra={"attribute": attribute.name, "problem": str(problem)})
            return None
