"""Keys of a step that are not read, by its role or beside others: what they ask for is not done, and the scenario
passes without."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.strict_yaml import Document, Problem

_UNREAD: Mapping[str, Mapping[tuple[str, ...], tuple[str, ...]]] = {
    "request": {
        ("request",): ("coalesced",),
        ("request", "reply"): ("source", "early", "coalesced", "lockStep"),
        ("expect",): ("answer", "within", "absent", "health", "report", "starts"),
    },
    "exchange": {("expect",): ("servedBy", "health", "starts")},
}
"""By the action of a step: the keys of its parts that have no effect there."""

_BESIDE: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "body": {
        "text": ("base64", "json", "size", "fields", "written"),
        "base64": ("json", "size", "fields", "written"),
        "json": ("size", "fields"),
    },
    "reply": {
        "text": ("base64", "size", "json", "events", "filler"),
        "base64": ("size", "json", "filler"),
        "size": ("json", "filler"),
        "json": ("filler",),
    },
}
"""By what a body is made of, the first of these that is given: the keys that have no effect beside it."""


def unread(scenario: Document) -> Iterator[Problem]:
    """What is wrong with the steps of a scenario that the schema has accepted."""
    for number, step in enumerate(scenario.data["steps"]):
        for action, parts in _UNREAD.items():
            for path, keys in parts.items() if action in step else ():
                given = _at(step, path)
                for key in keys:
                    if key in given:
                        message = f"{key!r} has no effect in `{'.'.join(path)}` of a step `{action}`"
                        yield scenario.problem(("steps", number, *path, key), message, "leave it out", key=True)
        for action, part in itertools.product(("exchange", "request"), _BESIDE):
            given = {key: one for key, one in _at(step, (action, part)).items() if one is not None or key == "json"}
            made_of = next((key for key in _BESIDE[part] if key in given), "")
            for key in _BESIDE[part].get(made_of, ()):
                if key in given:
                    message = f"{key!r} has no effect in `{part}` beside {made_of!r}"
                    yield scenario.problem(("steps", number, action, part, key), message, "leave it out", key=True)


def _at(step: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    part: Any = step
    for name in path:
        part = part.get(name, {}) if isinstance(part, Mapping) else {}
    return part if isinstance(part, Mapping) else {}
