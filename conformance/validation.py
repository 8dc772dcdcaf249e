"""What pydantic finds wrong with data, in plain words: the place, what was expected, the nearest valid name."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pydantic

from conformance.errors import did_you_mean, nearest

Loc = tuple[str | int, ...]
"""A place in a document: keys and list indexes from the root."""

MOST = 100
"""Errors that are explained; more tell a reader nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One thing wrong at `loc`; `on_key` if it is the key there that is wrong, not its value."""

    loc: Loc
    message: str
    hint: str = ""
    on_key: bool = False
    other_kind: bool = False
    """Whether it is about a list or mapping where something else belongs."""


_EXPECTED = {
    "a list": ("list_type", "tuple_type", "set_type", "frozen_set_type"),
    "a mapping": ("dict_type", "model_type", "model_attributes_type", "dataclass_type"),
    "a whole number": ("int_type", "int_from_float"),
    "a number": ("float_type",),
    "text": ("string_type",),
    "true or false": ("bool_type",),
    "nothing": ("none_required",),
}
_WORDS = {kind: words for words, kinds in _EXPECTED.items() for kind in kinds}


def explain(data: Any, model: type[pydantic.BaseModel], error: pydantic.ValidationError) -> list[Complaint]:
    """The complaints of `error`, raised while `data` was validated as `model`; one for each place.

    Branches of a union that all fail at one place become one complaint. Where one of them takes the value and another
    does not take its kind, only what is wrong inside of it is said.
    """
    by_place: dict[tuple[Loc, bool], Complaint] = {}
    inside: set[Loc] = set()
    for item in islice(error.errors(include_url=False), MOST):
        if item["type"] == "too_short" and len(item["input"]) >= item["ctx"]["min_length"]:
            continue  # pydantic counts the valid items only; what is wrong with the others is said of them
        new = _complaint(data, model, item)
        inside.update(new.loc[:depth] for depth in range(len(new.loc)))
        old = by_place.setdefault((new.loc, new.on_key), new)
        if new.message not in old.message:
            both = replace(new, message=f"{old.message}; or {new.message}", hint=old.hint or new.hint)
            by_place[new.loc, new.on_key] = both
    return [one for one in by_place.values() if not (one.other_kind and one.loc in inside)]


def _complaint(data: Any, model: type[pydantic.BaseModel], item: Any) -> Complaint:
    kind, given, context = item["type"], item["input"], item.get("ctx", {})
    on_key = item["loc"][-1:] == ("[key]",)
    loc: Loc = item["loc"][:-1] if on_key else item["loc"]
    place, hint = _place(data, loc), ""
    message = str(item["msg"]).removeprefix("Value error, ").replace("Input should", "the value should")
    if kind == "missing":
        place, message = (*_place(data, loc[:-1]), loc[-1]), f"required key {loc[-1]!r} is missing"
    elif kind in ("extra_forbidden", "unexpected_keyword_argument"):  # of models, and of dataclasses
        message, on_key = f"unknown key {str(loc[-1])!r}", True
        hint = did_you_mean(str(loc[-1]), _keys(model, loc[:-1], data))
    elif kind in ("enum", "literal_error"):
        message, hint = _not_allowed(given, context["expected"])
    elif kind == "union_tag_invalid":
        place = (*place, context["discriminator"].strip("'"))
        message, hint = _not_allowed(context["tag"], context["expected_tags"])
    elif kind == "union_tag_not_found":
        message = f"required key {context['discriminator']} is missing"
    elif kind in ("too_short", "too_long"):
        least = kind == "too_short"
        wanted = context["min_length" if least else "max_length"]
        items = f"{wanted} item{'s' * (wanted != 1)}"
        message = f"expected at {'least' if least else 'most'} {items}, got {len(given)}"
    elif given is None and not place and data is None:
        message = "the file is empty"
    elif _is_nan(given) and kind not in _WORDS:  # of a bound: it is beyond each
        message = f"expected a number, got {_shown(given)}"
    elif kind in _WORDS:
        message = f"expected {_WORDS[kind]}, got {_shown(given)}"
        if kind == "string_type" and isinstance(given, int | float):
            hint = f'in quotes it is text: "{_shown(given)}"'
    other_kind = isinstance(given, list | dict) and kind in (*_WORDS, "enum", "literal_error")
    return Complaint(loc=place, message=message, hint=hint, on_key=on_key, other_kind=other_kind)


def _not_allowed(given: Any, expected: str) -> tuple[str, str]:
    """Message and hint for a value that is none of those that pydantic lists in quotes."""
    choices = re.findall(r"'([^']*)'", expected)
    listed = f"one of: {', '.join(choices)}"
    best = nearest(given, choices) if isinstance(given, str) else None
    hint = f"did you mean {best!r}? {listed}" if best else listed
    return f"{_shown(given)} is not one of the values allowed here", hint


def _shown(value: Any) -> str:
    if value is None or isinstance(value, list | dict):
        return "nothing" if value is None else "a list" if isinstance(value, list) else "a mapping"
    text = ".nan" if _is_nan(value) else str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


# -- places ------------------------------------------------------------------------------------------------------------


def _place(data: Any, loc: Loc) -> Loc:
    """`loc` without the labels that pydantic puts in for branches of a union."""
    return tuple(part for part, is_place in _walk(data, loc) if is_place)


def _walk(data: Any, loc: Loc) -> Iterator[tuple[str | int, bool]]:
    """Each part of `loc`, and whether it is a place in the data (else it labels a branch of a union)."""
    for part in loc:
        is_key = isinstance(data, dict) and part in data
        is_place = is_key or (isinstance(data, list) and isinstance(part, int) and part < len(data))
        if is_place:
            data = data[part]
        yield part, is_place


def _keys(model: type[pydantic.BaseModel], loc: Loc, data: Any) -> Sequence[str]:
    """The keys that are valid at `loc`, from the JSON Schema of the model."""
    root = _schema(model)
    found = [root]
    for part, is_place in _walk(data, loc):
        found = [one for schema in found for one in _branches(root, schema, None if is_place else str(part))]
        if is_place:
            found = [child for schema in found if (child := _child(schema, part))]
    found = [one for schema in found for one in _branches(root, schema, None)]
    return sorted({key for schema in found for key in schema.get("properties", ())})


@functools.cache
def _schema(model: type[pydantic.BaseModel]) -> dict[str, Any]:
    return model.model_json_schema(by_alias=True)


def _branches(root: dict[str, Any], schema: dict[str, Any], label: str | None) -> Iterator[dict[str, Any]]:
    """A schema with its reference and unions resolved; `label` chooses the branch of a tagged union."""
    tagged = schema.get("discriminator", {}).get("mapping", {})
    reference = tagged.get(label) or schema.get("$ref")
    if reference:
        target = root.get("$defs", {}).get(reference.rpartition("/")[2], {})
        yield from _branches(root, target, None if label in tagged else label)
    elif inner := [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]:
        for one in inner:
            yield from _branches(root, one, label)
    else:
        yield schema


def _child(schema: dict[str, Any], part: str | int) -> dict[str, Any] | None:
    if isinstance(part, int):
        prefix = schema.get("prefixItems", ())
        found = prefix[part] if part < len(prefix) else schema.get("items")
    else:
        found = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else None
