"""Request bodies in the API's protobuf form, of the two kinds that clients in Go write so: namespaces and leases.

The form is `k8s\0` and a `runtime.Unknown`: type (field 1: apiVersion 1, kind 2) and raw object (field 2), whose field
1 is its ObjectMeta and 2 its spec. `kubectl create namespace` sends one, and so does client-go's leader election,
whose typed client prefers this form. Of other kinds nothing is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
LEASE = ("coordination.k8s.io/v1", "Lease")
KINDS = frozenset({("v1", "Namespace"), LEASE})
"""Kinds (apiVersion, kind) that are read."""

_VARINT, _BYTES = 0, 2
_TEXTS = {1: "name", 2: "generateName", 3: "namespace", 5: "uid", 6: "resourceVersion"}
_MAPS = {11: "labels", 12: "annotations"}
_LEASE_TEXTS = {1: "holderIdentity", 6: "strategy", 7: "preferredHolder"}
_LEASE_NUMBERS = {2: "leaseDurationSeconds", 5: "leaseTransitions"}
_LEASE_TIMES = {3: "acquireTime", 4: "renewTime"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read(body: bytes) -> dict[str, Any] | None:
    """The object; None if its kind is not read. Raises `ValueError` if the body is not in this form."""
    if not body.startswith(MAGIC):
        raise ValueError("it does not begin with k8s\\0")
    unknown = dict(_fields(body[len(MAGIC) :]))
    kind = dict(_fields(unknown.get(1, b"")))
    api_version, name = (kind.get(number, b"").decode() for number in (1, 2))
    if (api_version, name) not in KINDS:
        return None
    raw = dict(_fields(unknown.get(2, b"")))
    obj = {"apiVersion": api_version, "kind": name, "metadata": _metadata(raw.get(1, b""))}
    if (api_version, name) == LEASE:
        obj["spec"] = _lease_spec(raw.get(2, b""))
    return obj


def _metadata(message: bytes) -> dict[str, Any]:
    """What of an ObjectMeta a client may say: names, version, labels and annotations. Go writes empty texts, too."""
    metadata: dict[str, Any] = {}
    for number, value in _fields(message):
        if number in _TEXTS and value:
            metadata[_TEXTS[number]] = value.decode()
        elif number in _MAPS:
            entry = dict(_fields(value))
            metadata.setdefault(_MAPS[number], {})[entry.get(1, b"").decode()] = entry.get(2, b"").decode()
    return metadata


def _lease_spec(message: bytes) -> dict[str, Any]:
    spec: dict[str, Any] = {_LEASE_NUMBERS[at]: value for at, value in _numbers(message) if at in _LEASE_NUMBERS}
    for number, value in _fields(message):
        if number in _LEASE_TEXTS:
            spec[_LEASE_TEXTS[number]] = value.decode()
        elif number in _LEASE_TIMES:
            spec[_LEASE_TIMES[number]] = _time(value)
    return spec


def _time(message: bytes) -> str:
    """A MicroTime as JSON has it."""
    parts = dict(_numbers(message))
    try:
        time = _EPOCH + timedelta(seconds=parts.get(1, 0), microseconds=parts.get(2, 0) // 1000)
    except OverflowError as error:
        raise ValueError(f"it has a time out of range: {error}") from error
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The length-delimited fields of a message, each with its number."""
    return ((number, value) for number, value in _all_fields(message) if isinstance(value, bytes))


def _numbers(message: bytes) -> Iterator[tuple[int, int]]:
    """The integers of a message, each with the number of its field; negative ones are written as 64 bits."""
    return (
        (number, value - (1 << 64) if value >> 63 else value)
        for number, value in _all_fields(message)
        if isinstance(value, int)
    )


def _all_fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == _BYTES:
            if at + value > len(message):
                raise ValueError("it ends inside a field")
            yield key >> 3, message[at : at + value]
            at += value
        elif key & 7 == _VARINT:
            yield key >> 3, value
        else:
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
