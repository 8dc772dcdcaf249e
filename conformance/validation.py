"""What pydantic finds wrong with data, in our words: the place, what was expected, the nearest valid name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic

from conformance.errors import did_you_mean, nearest

Loc = tuple[str | int, ...]
"""A place in a document: keys and list indexes from the root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One thing wrong at `loc`; `on_key` if it is the key there that is wrong, not its value."""

    loc: Loc
    message: str
    hint: str = ""
    on_key: bool = False


_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "nothing",
}


def explain(data: Any, model: type[pydantic.BaseModel], error: pydantic.ValidationError) -> list[Complaint]:
    """The complaints of `error`, raised while `data` was validated as `model`; one for each place.

    Branches of a union that all fail at one place become one complaint.
    """
    schema = _Schema(model)
    by_place: dict[tuple[Loc, bool], Complaint] = {}
    for item in error.errors(include_url=False):
        if item["type"] == "too_short" and len(item["input"]) >= item["ctx"]["min_length"]:
            continue  # pydantic counts the valid items only; what is wrong with the others is said of them
        new = _complaint(data, schema, item)
        old = by_place.setdefault((new.loc, new.on_key), new)
        if new.message not in old.message:
            message = f"{old.message}; or {new.message}"
            new = Complaint(loc=new.loc, message=message, hint=old.hint or new.hint, on_key=new.on_key)
            by_place[new.loc, new.on_key] = new
    return list(by_place.values())


def _complaint(data: Any, schema: _Schema, item: Any) -> Complaint:
    kind, given, raw = item["type"], item["input"], item["loc"]
    on_key = bool(raw) and raw[-1] == "[key]"
    loc: Loc = raw[:-1] if on_key else raw
    parent, place = _real(data, loc[:-1]), _real(data, loc)
    match kind:
        case "missing":
            return Complaint(loc=(*parent, loc[-1]), message=f"required key {loc[-1]!r} is missing")
        case "extra_forbidden" | "unexpected_keyword_argument":  # of models, and of dataclasses
            key = str(loc[-1])
            hint = did_you_mean(key, schema.keys(loc[:-1], data))
            return Complaint(loc=(*parent, key), message=f"unknown key {key!r}", hint=hint, on_key=True)
        case "enum" | "literal_error":
            choices = schema.key_choices(loc[:-1], data) if on_key else schema.choices(loc, data)
            return _not_allowed(place, given, choices, on_key=on_key)
        case "union_tag_invalid":
            tags = re.findall(r"'([^']*)'", item["ctx"]["expected_tags"])
            return _not_allowed((*place, item["ctx"]["discriminator"].strip("'")), item["ctx"]["tag"], tags)
        case "union_tag_not_found":
            return Complaint(loc=place, message=f"required key {item['ctx']['discriminator']} is missing")
        case "too_short" | "too_long":
            least = kind == "too_short"
            wanted = item["ctx"]["min_length" if least else "max_length"]
            text = f"at {'least' if least else 'most'} {wanted} item{'s' * (wanted != 1)}"
            return Complaint(loc=place, message=f"expected {text}, got {len(given)}", on_key=on_key)
    if kind in _EXPECTED:
        if given is None and not place and data is None:
            return Complaint(loc=place, message="the file is empty")
        hint = f'in quotes it is text: "{given}"' if kind == "string_type" and isinstance(given, (int, float)) else ""
        return Complaint(
            loc=place, message=f"expected {_EXPECTED[kind]}, got {_shown(given)}", hint=hint, on_key=on_key
        )
    message = str(item["msg"]).removeprefix("Value error, ").replace("Input should", "the value should")
    return Complaint(loc=place, message=message, on_key=on_key)


def _not_allowed(loc: Loc, given: Any, choices: Sequence[str], *, on_key: bool = False) -> Complaint:
    best = nearest(given, choices) if isinstance(given, str) else None
    listed = f"one of: {', '.join(choices)}" if choices else ""
    hint = f"did you mean {best!r}? {listed}" if best else listed
    return Complaint(
        loc=loc, message=f"{_shown(given)} is not one of the values allowed here", hint=hint, on_key=on_key
    )


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a mapping"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _real(data: Any, loc: Loc) -> Loc:
    """`loc` without the labels that pydantic puts in for branches of a union."""
    return tuple(part for part, is_place in _walk(data, loc) if is_place)


def _walk(data: Any, loc: Loc) -> Iterator[tuple[str | int, bool]]:
    """Each part of `loc`, and whether it is a place in the data (else it labels a branch of a union)."""
    for part in loc:
        is_place = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if is_place:
            data = data[part]
        yield part, is_place


class _Schema:
    """The JSON Schema of a model, made when the first problem asks for it: which keys and values are valid where."""

    def __init__(self, model: type[pydantic.BaseModel]) -> None:
        self.root: dict[str, Any] = model.model_json_schema(by_alias=True)

    def keys(self, loc: Loc, data: Any) -> list[str]:
        return sorted({key for schema in self.at(loc, data) for key in schema.get("properties", ())})

    def choices(self, loc: Loc, data: Any) -> list[str]:
        found = [value for schema in self.at(loc, data) for value in _enumerated(schema)]
        return [str(value) for value in dict.fromkeys(found) if value is not None]

    def key_choices(self, loc: Loc, data: Any) -> list[str]:
        names = [schema["propertyNames"] for schema in self.at(loc, data) if "propertyNames" in schema]
        return [str(value) for schema in self.expand(names, None) for value in _enumerated(schema)]

    def at(self, loc: Loc, data: Any) -> list[dict[str, Any]]:
        """The schemas that may apply at `loc`."""
        schemas = [self.root]
        for part, is_place in _walk(data, loc):
            if not is_place:
                schemas = list(self.expand(schemas, str(part)))
                continue
            schemas = [child for schema in self.expand(schemas, None) if (child := _child(schema, part))]
        return list(self.expand(schemas, None))

    def expand(self, schemas: Iterable[dict[str, Any]], label: str | None) -> Iterator[dict[str, Any]]:
        """The schemas with references and unions resolved; `label` chooses the branch of a tagged union."""
        for schema in schemas:
            if "$ref" in schema:
                target = self.root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
                yield from self.expand([target], label)
                continue
            tagged = schema.get("discriminator", {}).get("mapping", {})
            if label in tagged:
                yield from self.expand([{"$ref": tagged[label]}], None)
                continue
            branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]
            if branches:
                yield from self.expand(branches, label)
            else:
                yield schema


def _child(schema: dict[str, Any], part: str | int) -> dict[str, Any] | None:
    if isinstance(part, int):
        prefix = schema.get("prefixItems", ())
        found = prefix[part] if part < len(prefix) else schema.get("items")
    else:
        found = schema.get("properties", {}).get(part, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def _enumerated(schema: dict[str, Any]) -> list[Any]:
    return list(schema.get("enum", ())) or ([schema["const"]] if "const" in schema else [])
