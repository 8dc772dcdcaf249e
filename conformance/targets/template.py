"""The template of an endpoints file: Jinja2 in its sandbox, with bounds on time and size.

A profile may come with a project that its user does not know. Its template gets `endpoints` and `pods`, may
loop over them, and reaches nothing else: no attribute that begins with `_`, no function but `range`, no filter that
makes much out of little. A trace of the rendering ends it when it takes too long or holds too long a text.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from jinja2 import StrictUndefined, TemplateError
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from conformance.errors import UsageError

SECONDS, CHARACTERS, LONGEST, ROUNDS = 1.0, 1_048_576, 65_536, 1000
"""Bounds of one rendering: its time (of the processor, for a machine may stand still), what comes of it, any text in
between (and the template), and `range`."""

FILTERS = (
    *("batch", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby", "int", "items", "join"),
    *("last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse", "round"),
    *("safe", "select", "selectattr", "slice", "sort", "string", "sum", "title", "tojson", "trim", "unique", "upper"),
)
METHODS = (
    *("endswith", "lower", "partition", "removeprefix", "removesuffix", "rpartition", "rsplit", "split", "startswith"),
    *("strip", "upper", "items", "keys", "values", "get", "index", "count"),
)


class _Environment(ImmutableSandboxedEnvironment):
    """Without what could take long in one step: powers, repeated texts, padding."""

    intercepted_binops = frozenset(["*", "**", "%"])

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may have an attribute; of methods, those of texts and tables that make nothing long."""
        return super().is_safe_attribute(obj, attr, value) and (not callable(value) or attr in METHODS)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator to numbers."""
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" or not numbers:
            raise SecurityError(f"the operator {operator} is not allowed here")
        return super().call_binop(context, operator, left, right)


class FileTemplate:
    """A template that can be rendered with the endpoints and the pods of a pool. Raises `UsageError` if it is wrong."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            raise _wrong(f"it has more than {LONGEST} characters")
        environment = _Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
        environment.filters = {name: environment.filters[name] for name in FILTERS}
        environment.globals = {"range": _range}
        try:
            self._template = environment.from_string(text)
        except (TemplateError, RecursionError) as problem:
            raise _wrong(str(problem)) from problem

    def render(self, *, endpoints: Sequence[str], pods: Sequence[Any]) -> str:
        """The content of the file. Raises `UsageError` if the template fails, or goes beyond a bound."""
        before = sys.gettrace()
        sys.settrace(_bounded(time.thread_time() + SECONDS))
        try:
            pieces, length = [], 0
            for piece in self._template.generate(endpoints=endpoints, pods=pods):
                pieces.append(piece)
                if (length := length + len(piece)) > CHARACTERS:
                    raise SecurityError(f"more than {CHARACTERS} characters come of it")
            return "".join(pieces)
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as problem:
            raise _wrong(str(problem)) from problem
        finally:
            sys.settrace(before)


def _wrong(what: str) -> UsageError:
    hint = "a Jinja2 template with `endpoints` and `pods`, in Jinja2's sandbox: loops, conditions and simple filters"
    return UsageError(f"discovery.file.template: {what}", hint=hint)


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > ROUNDS:
        raise SecurityError(f"range has at most {ROUNDS} numbers here")
    return found


def _bounded(deadline: float) -> Callable[[FrameType, str, Any], Any]:
    """A trace that ends what is traced when its thread has had that much time, or a frame holds too long a text."""
    thread = threading.get_ident()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if threading.get_ident() == thread and event in ("call", "line"):
            if time.thread_time() > deadline:
                raise SecurityError(f"it was still being rendered after {SECONDS:g} s")
            if any(isinstance(value, str) and len(value) > LONGEST for value in frame.f_locals.values()):
                raise SecurityError(f"it makes a text of more than {LONGEST} characters")
        return trace

    return trace
