"""Label and field selectors, as `kubectl -l` and `--field-selector` write them, parsed into predicates.

Label grammar: requirements joined by commas; each is `key`, `!key`, `key = v`, `key == v`, `key != v`, `key in (a,b)`,
`key notin (a,b)`, `key > 1`, `key < 1`. An absent key satisfies `!=` and `notin`. The empty selector matches all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FieldSelector", "LabelRequirement", "LabelSelector", "ObjectSelection", "SelectorError"]


class SelectorError(ValueError):
    """A selector can't be parsed; the message says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRequirement:
    """One condition on labels: `operator` is exists, absent, in, notin, gt or lt (equality is `in` with one value)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case "in":
                return value in self.values
            case "notin":
                return value not in self.values
        if value is None or not _INTEGER.fullmatch(value):
            return False
        bound = int(self.values[0])
        return int(value) > bound if self.operator == "gt" else int(value) < bound


_TOKEN = re.compile(r"\s*(?:(?P<symbol>==|!=|[=!<>(),])|(?P<word>[^\s=!<>(),]+))")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_INTEGER = re.compile(r"-?[0-9]+")


class _Tokens:
    """The tokens of a selector text, with a place to say where it broke."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[tuple[str, int]] = []
        position = 0
        stripped = text.rstrip()
        while position < len(stripped):
            match = _TOKEN.match(stripped, position)
            assert match is not None  # every character is a space, a symbol or part of a word
            kind = match.lastgroup or "word"
            self._found.append((match[kind], match.start(kind)))
            position = match.end()
        self._next = 0

    def peek(self) -> str | None:
        return self._found[self._next][0] if self._next < len(self._found) else None

    def take(self) -> str | None:
        token = self.peek()
        self._next += token is not None
        return token

    def error(self, wanted: str) -> SelectorError:
        found, place = self._found[self._next] if self._next < len(self._found) else ("the end", len(self._text))
        return SelectorError(
            f"unable to parse selector {self._text!r}: at character {place}, found {found!r}, wanted {wanted}"
        )

    def word(self, pattern: re.Pattern[str], wanted: str) -> str:
        token = self.peek()
        if token is None or not pattern.fullmatch(token):
            raise self.error(wanted)
        self._next += 1
        return token

    def expect(self, symbol: str) -> None:
        if self.peek() != symbol:
            raise self.error(repr(symbol))
        self._next += 1


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A conjunction of requirements on labels."""

    requirements: tuple[LabelRequirement, ...] = ()

    @classmethod
    def parse(cls, text: str) -> LabelSelector:
        """Parse the text of a `labelSelector` parameter. Raises SelectorError."""
        tokens = _Tokens(text)
        if tokens.peek() is None:
            return cls()
        requirements = [_requirement(tokens)]
        while tokens.peek() is not None:
            tokens.expect(",")
            requirements.append(_requirement(tokens))
        return cls(tuple(requirements))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether all requirements hold for `labels`."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def _requirement(tokens: _Tokens) -> LabelRequirement:
    if tokens.peek() == "!":
        tokens.take()
        return LabelRequirement(key=tokens.word(_KEY, "a label key"), operator="absent")
    key = tokens.word(_KEY, "a label key or '!'")
    match tokens.peek():
        case None | ",":
            return LabelRequirement(key=key, operator="exists")
        case "=" | "==":
            tokens.take()
            return LabelRequirement(key=key, operator="in", values=(_value(tokens),))
        case "!=":
            tokens.take()
            return LabelRequirement(key=key, operator="notin", values=(_value(tokens),))
        case "in" | "notin" as operator:
            tokens.take()
            return LabelRequirement(key=key, operator=operator, values=_values(tokens))
        case ">" | "<" as symbol:
            tokens.take()
            bound = tokens.word(_INTEGER, "an integer")
            return LabelRequirement(key=key, operator="gt" if symbol == ">" else "lt", values=(bound,))
    raise tokens.error("an operator (=, ==, !=, in, notin, >, <) or ','")


def _value(tokens: _Tokens) -> str:
    if tokens.peek() in (None, ",", ")"):
        return ""  # `key=` asks for the empty value
    return tokens.word(_VALUE, "a label value")


def _values(tokens: _Tokens) -> tuple[str, ...]:
    tokens.expect("(")
    values = [_value(tokens)]
    while tokens.peek() == ",":
        tokens.take()
        values.append(_value(tokens))
    tokens.expect(")")
    return tuple(values)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of `path = value` and `path != value` on an object's fields."""

    conditions: tuple[tuple[str, bool, str], ...] = ()

    @classmethod
    def parse(cls, text: str, *, selectable: tuple[str, ...] = ()) -> FieldSelector:
        """Parse a `fieldSelector` parameter. Raises SelectorError, also for a field that is not selectable."""
        allowed = ("metadata.name", "metadata.namespace", *selectable)
        conditions = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            match = re.fullmatch(r"([^=!]+?)\s*(==|!=|=)\s*(.*)", part)
            if match is None:
                raise SelectorError(f"invalid field selector {text!r}: {part!r} is not field=value or field!=value")
            path, operator, value = match.groups()
            if path not in allowed:
                raise SelectorError(f"field label not supported: {path} (supported: {', '.join(allowed)})")
            conditions.append((path, operator != "!=", value))
        return cls(tuple(conditions))

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether all conditions hold for the object."""
        return all((_field(obj, path) == value) is equal for path, equal, value in self.conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSelection:
    """Which objects of a kind a list or watch is about."""

    namespace: str | None = None
    labels: LabelSelector = LabelSelector()
    fields: FieldSelector = FieldSelector()

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the object is in the namespace and meets both selectors."""
        metadata = obj["metadata"]
        return (
            (self.namespace is None or metadata.get("namespace") == self.namespace)
            and self.labels.matches(metadata.get("labels") or {})
            and self.fields.matches(obj)
        )


def _field(obj: Any, path: str) -> str:
    for name in path.split("."):
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return "" if obj is None else str(obj)
