"""Keys of a step that its role does not read: what they ask for is not done, and the scenario passes without."""

from __future__ import annotations

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


def _at(step: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    part: Any = step
    for name in path:
        part = part.get(name, {}) if isinstance(part, Mapping) else {}
    return part if isinstance(part, Mapping) else {}
