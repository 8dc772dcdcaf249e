"""The JSON form of a record's entries: `to_json` writes it, `from_json` reads it back and refuses anything else."""

from __future__ import annotations

import base64
import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, Literal, TypeAlias

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
        cls: Any = Event.registry[kind]
        readers = _readers(cls)
        fields: dict[str, Any] = {
            name: unpack(value) if readers[name] is _bytes and unpack is not None else readers[name](value)
            for name, value in rest.items()
        }
        return Entry(seq, t, cls(**fields))
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise ValueError(f"not an event of this record: {problem!r} in {str(body)[:200]}") from problem


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


_Reader: TypeAlias = Callable[[Any], Any]
"""Makes a JSON value one of a field's type. Raises `TypeError` or `ValueError` for one of another type."""


@functools.cache
def _readers(cls: Any) -> dict[str, _Reader]:
    """What reads each field of a dataclass."""
    return {name: _reader(hint) for name, hint in typing.get_type_hints(cls).items()}


@functools.cache
def _reader(hint: Any) -> _Reader:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _AS_THEY_ARE:
        return _exactly(hint)
    if hint is bytes:
        return _bytes
    if hint is Any:
        return lambda value: value
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    if origin is Literal:
        return _one_of(arguments)
    if origin in (types.UnionType, typing.Union):
        some = _reader(next(item for item in arguments if item is not types.NoneType))
        return lambda value: None if value is None else some(value)
    if origin is tuple:
        return _tuple(arguments)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        fields = _readers(hint)
        return lambda value: hint(**{name: fields[name](item) for name, item in value.items()})
    return _exactly(dict)


def _exactly(wanted: type[Any]) -> _Reader:
    taken = (wanted, int) if wanted is float else (wanted,)

    def read(value: Any) -> Any:
        if type(value) in taken:
            return value
        raise TypeError(f"{str(value)[:80]!r} is not of type {wanted.__name__}")

    return read


def _bytes(value: Any) -> bytes:
    return base64.b64decode(value["b64"], validate=True) if isinstance(value, dict) else value.encode("ascii")


def _one_of(values: tuple[Any, ...]) -> _Reader:
    known = {(type(one), one) for one in values}

    def read(value: Any) -> Any:
        if (type(value), value) in known:
            return value
        raise ValueError(f"{str(value)[:80]!r} is none of {values}")

    return read


def _tuple(items: tuple[Any, ...]) -> _Reader:
    """Of a tuple of any length whose items are alike, or of one of so many items."""
    alike = len(items) == 2 and items[1] is Ellipsis
    readers = tuple(_reader(item) for item in items if item is not Ellipsis)

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise TypeError(f"{str(value)[:80]!r} is no list")
        if alike:
            return tuple(map(readers[0], value))
        return tuple(reader(item) for reader, item in zip(readers, value, strict=True))

    return read
