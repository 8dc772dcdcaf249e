"""Request bodies in the API's protobuf form, as far as a name and labels go: `kubectl create namespace` sends one.

The form is `k8s\0` and a `runtime.Unknown`: type (field 1: apiVersion 1, kind 2) and raw object (field 2), whose field
1 is its ObjectMeta (name 1, labels 11, annotations 12). Of kinds that have more to say, nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
KINDS = frozenset({("v1", "Namespace")})
"""Kinds (apiVersion, kind) of which the metadata is all that counts."""

_VARINT, _BYTES = 0, 2
_NAME, _MAPS = 1, {11: "labels", 12: "annotations"}


def read(body: bytes) -> dict[str, Any] | None:
    """The object; None if its kind has more than metadata. Raises `ValueError` if the body is not in this form."""
    if not body.startswith(MAGIC):
        raise ValueError("it does not begin with k8s\\0")
    unknown = dict(_fields(body[len(MAGIC) :]))
    kind = dict(_fields(unknown.get(1, b"")))
    api_version, name = (kind.get(number, b"").decode() for number in (1, 2))
    if (api_version, name) not in KINDS:
        return None
    metadata: dict[str, Any] = {}
    for number, value in _fields(dict(_fields(unknown.get(2, b""))).get(1, b"")):
        if number == _NAME:
            metadata["name"] = value.decode()
        elif number in _MAPS:
            entry = dict(_fields(value))
            metadata.setdefault(_MAPS[number], {})[entry.get(1, b"").decode()] = entry.get(2, b"").decode()
    return {"apiVersion": api_version, "kind": name, "metadata": metadata}


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message, each with its number."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        length, at = _varint(message, at)
        if key & 7 == _BYTES:
            if at + length > len(message):
                raise ValueError("it ends inside a field")
            yield key >> 3, message[at : at + length]
            at += length
        elif key & 7 != _VARINT:
            raise ValueError(f"it has a field of wire type {key & 7}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not byte & 0x80:
            return value, at
    raise ValueError("it ends inside a number")
