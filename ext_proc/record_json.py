"""The JSON form of a record's entries: `to_json` writes it, `from_json` reads it back and refuses anything else."""

from __future__ import annotations

import base64
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Literal

from ext_proc.record import Entry, Event


def to_json(entry: Entry, pack: Callable[[bytes], Any] | None = None) -> dict[str, Any]:
    """`entry` as a JSON object.

    Bytes become `{"b64": …}` unless they are printable ASCII; fields at their default are left out. `pack` writes the
    fields of an event that are bytes (messages, bodies) in another way.
    """
    event = entry.event
    body: dict[str, Any] = {"seq": entry.seq, "t": entry.t, "kind": event.kind}
    body.update(_written(event, pack or plain_bytes))
    return body


def from_json(body: Mapping[str, Any], unpack: Callable[[Any], bytes] | None = None) -> Entry:
    """The entry that `to_json` wrote; `unpack` reads what its `pack` wrote.

    Raises `ValueError` if it was not written by it: unknown fields, and values of a wrong type.
    """
    rest = dict(body)
    try:
        seq, t, kind = rest.pop("seq"), rest.pop("t"), rest.pop("kind")
        if type(seq) is not int or type(t) is not int or not (0 <= seq < 2**63 and 0 <= t < 2**63):
            raise TypeError("seq and t are whole numbers of 63 bits")
        cls = Event.registry[kind]
        hints = _hints(cls)
        fields: dict[str, Any] = {
            name: unpack(value) if unpack is not None and hints[name] is bytes else _rich(value, hints[name])
            for name, value in rest.items()
        }
        return Entry(seq, t, cls(**fields))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ValueError(f"not an event of this record: {problem!r} in {str(body)[:200]}") from problem


_HINTS: dict[type[Any], dict[str, Any]] = {}


def _hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = typing.get_type_hints(cls)
    return _HINTS[cls]


_REQUIRED = object()
"""The default of a field that has none: equal to nothing else."""


_DEFAULTS: dict[type[Any], tuple[tuple[str, Any], ...]] = {}


def _defaults(cls: type[Any]) -> tuple[tuple[str, Any], ...]:
    """The fields of a dataclass with their defaults."""
    if cls in _DEFAULTS:
        return _DEFAULTS[cls]
    found = []
    for field in dataclasses.fields(cls):
        default = field.default
        if default is dataclasses.MISSING:
            default = _REQUIRED if field.default_factory is dataclasses.MISSING else field.default_factory()
        found.append((field.name, default))
    return _DEFAULTS.setdefault(cls, tuple(found))


def plain_bytes(value: bytes) -> Any:
    """Bytes as JSON has them: as text if they are printable ASCII, else `{"b64": …}`."""
    text = value.decode("ascii") if value.isascii() else ""
    return text if text.isprintable() and len(text) == len(value) else {"b64": base64.b64encode(value).decode()}


def _written(value: Any, pack: Callable[[bytes], Any] = plain_bytes) -> dict[str, Any]:
    """The fields of a dataclass that are not at their default, as JSON has them."""
    written = {}
    for name, default in _defaults(type(value)):
        item = getattr(value, name)
        if item is not default and item != default:
            written[name] = pack(item) if type(item) is bytes else _plain(item)
    return written


_AS_THEY_ARE = frozenset({str, int, bool, float, types.NoneType})


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is bytes:
        return plain_bytes(value)
    if kind is tuple or kind is list:
        return [_plain(item) for item in value]
    if isinstance(value, StrEnum | IntEnum):
        return value.value
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return _written(value) if dataclasses.is_dataclass(kind) else value


def _rich(value: Any, hint: Any) -> Any:
    """A value of the type that a field has. Raises `TypeError` or `ValueError` for one of another type."""
    if hint in _AS_THEY_ARE:
        if type(value) is hint or (hint is float and type(value) is int):
            return value
        raise TypeError(f"{str(value)[:80]!r} is not of type {hint.__name__}")
    if hint is Any:
        return value
    origin, arguments = _parts_of(hint)
    if origin is Literal:
        if not any(value == one and type(value) is type(one) for one in arguments):
            raise ValueError(f"{str(value)[:80]!r} is none of {arguments}")
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        return _rich(value, next(item for item in arguments if item is not types.NoneType))
    if hint is bytes:
        return base64.b64decode(value["b64"], validate=True) if isinstance(value, dict) else value.encode("ascii")
    if origin is tuple:
        if not isinstance(value, list):
            raise TypeError(f"{str(value)[:80]!r} is no list")
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(_rich(item, arguments[0]) for item in value)
        return tuple(_rich(item, one) for item, one in zip(value, arguments, strict=True))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        inner = _hints(hint)
        return hint(**{name: _rich(item, inner[name]) for name, item in value.items()})
    if not isinstance(value, dict):
        raise TypeError(f"{str(value)[:80]!r} is no object")
    return value


@functools.cache
def _parts_of(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(hint), typing.get_args(hint)
