"""References to endpoints in the strings of a scenario: `{a}`, `{a/1}`, `{a.ip}`, `{a.cut-port}`, `{nobody}`, ….

Other text in braces (JSON, say) is not a reference and stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

NOBODY = "nobody"
REFERENCE = re.compile(
    r"\{(?P<name>[a-z][a-z0-9-]*)(?:/(?P<port>\d)|\.(?P<part>ip|wrong-port|cut-port|cut-address|late-address))?\}"
)


def names(value: Any) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every name that is referred to in the strings of a JSON-shaped value, keys too, with its place in it."""
    for place, text in _strings(value, ()):
        for match in REFERENCE.finditer(text):
            yield place, match["name"]


def bare(exchange: Mapping[str, Any], pods: Collection[str]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every item of an exchange's subset hints that is a pod's name alone, with its place: no endpoint has it, so that
    the hint would fit no pod, unnoticed. `hint` takes any text."""
    hints = {name: exchange[name] for name in ("subset", "subsets") if name in exchange}
    return ((place, text) for place, text in _strings(hints, ()) if text in pods)


def resolve(value: Any, endpoints: Mapping[str, tuple[str, ...]]) -> Any:
    """`value` with every reference replaced. `endpoints` has each pod's endpoints (`ip:port`), one per pool port.

    Raises `KeyError` with the name of a pod that there is not (scenario files are checked when they are loaded).
    """
    return substitute(value, lambda match: _endpoint(match, endpoints))


def substitute(value: Any, replacement: Callable[[re.Match[str]], Any]) -> Any:
    """`value` with each reference replaced: by any value where it is a whole string, by text inside of text."""
    match value:
        case str():
            if "{" not in value:  # as most are
                return value
            whole = REFERENCE.fullmatch(value)
            return replacement(whole) if whole else REFERENCE.sub(lambda found: str(replacement(found)), value)
        case Mapping():
            return {substitute(key, replacement): substitute(item, replacement) for key, item in value.items()}
        case list() | tuple():
            return type(value)(substitute(item, replacement) for item in value)
        case _:
            return value


def _endpoint(match: re.Match[str], endpoints: Mapping[str, tuple[str, ...]]) -> str:
    own = endpoints[match["name"]]
    address, _, port = own[0].rpartition(":")
    match match["port"], match["part"]:
        case _, "ip":
            return address
        case _, "wrong-port":
            taken = {int(one.rpartition(":")[2]) for every in endpoints.values() for one in every}
            return f"{address}:{next(other for other in range(int(port) + 1, 65_000) if other not in taken)}"
        case _, "cut-port":
            return own[0][:-1]
        case _, "cut-address":
            return f"{address[:-1]}:{port}"
        case _, "late-address":
            return own[0][1:]
        case None, _:
            return own[0]
        case index, _:
            return own[int(index)]


def _strings(value: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    match value:
        case str():
            yield place, value
        case Mapping():
            for key, item in value.items():
                yield (*place, key), str(key)
                yield from _strings(item, (*place, key))
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _strings(item, (*place, index))
