"""One walk over a protobuf message that may replace any text or bytes in it; what is replaced is the policy's business.

    changed = rewrite(message, policy)

Two policies use it: secrets of a profile (`evidence.redaction`), and names of credentials in live traffic
(`tap.redaction`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.message import Message as Protobuf

from ext_proc.messages import HeaderValue


class Place(NamedTuple):
    """Where a value stands: the message type and field that hold it, and the name that the sender gave it.

    `name` is the name of a header, the dotted path within a Struct, and empty elsewhere. `key` marks a map's key.
    """

    type: str
    field: str
    name: str = ""
    key: bool = False


Policy = Callable[[Place, bytes], bytes]
"""What a value becomes; the value itself if it may stay. Text is given, and taken back, as UTF-8."""


def rewrite(message: Protobuf, policy: Policy, name: str = "") -> bool:
    """Ask the policy about every string and bytes field, deep; True if anything was replaced. Unknown fields stay."""
    changed = False
    kind = message.DESCRIPTOR.name
    if isinstance(message, HeaderValue):
        name = message.key
    for field, value in message.ListFields():
        match _form(field):
            case "value":
                new = _replaced(Place(kind, field.name, name), value, policy)
                if new is not value:
                    setattr(message, field.name, new)
                    changed = True
            case "message":
                changed |= rewrite(value, policy, name)
            case "messages":
                for item in value:
                    changed |= rewrite(item, policy, name)
            case "map":
                changed |= _map(kind, field.name, value, policy, name)
            case "values":
                before = list(value)
                replaced = [_replaced(Place(kind, field.name, name), item, policy) for item in before]
                if replaced != before:
                    value[:] = replaced
                    changed = True
    return changed


@functools.cache
def _form(field: Any) -> str:
    """How a field holds its values; empty for what is neither text nor bytes nor a message."""
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            return "map"
        return "messages" if field.is_repeated else "message"
    if field.type not in (field.TYPE_STRING, field.TYPE_BYTES):
        return ""
    return "values" if field.is_repeated else "value"


def _map(kind: str, field: str, entries: Any, policy: Policy, name: str) -> bool:
    """A map to messages, as all of ext_proc are. Its keys too: `Struct` is a map, and a key may hold a secret."""
    changed = False
    for key in list(entries):
        below = f"{name}.{key}".lstrip(".") if kind == "Struct" else ""
        changed |= rewrite(entries[key], policy, below)
        new = _replaced(Place(kind, field, key=True), key, policy)
        if new is not key:
            entries[new].CopyFrom(entries[key])
            del entries[key]
            changed = True
    return changed


def _replaced(place: Place, value: Any, policy: Policy) -> Any:
    """The value itself where the policy changes nothing."""
    raw = value if isinstance(value, bytes) else value.encode()
    new = policy(place, raw)
    if new is raw or new == raw:
        return value
    return new if isinstance(value, bytes) else new.decode()
