"""Dynamic metadata of one exchange, merged and forwarded as Envoy's `StreamInfo` and ext_proc filter do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ext_proc.headers import to_struct
from ext_proc.messages import Metadata, Struct, Value

_TAG = b"\x42"  # metadata_context = 8, length-delimited
_NOTHING = _TAG + b"\x00"


def varint(number: int) -> bytes:
    """`number` as a protobuf varint."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class DynamicMetadata:
    """Namespaces of metadata, and the `metadata_context` field they make. Serialised once per change."""

    __slots__ = ("_context", "_forwarding", "_namespaces")

    def __init__(self, initial: Mapping[str, Mapping[str, Any]], forwarding: tuple[str, ...]) -> None:
        self._namespaces: dict[str, Struct] = {name: to_struct(fields) for name, fields in initial.items()}
        self._forwarding = forwarding
        self._context: bytes | None = None if initial else _NOTHING

    def merge(self, answer: Struct, receiving: tuple[str, ...]) -> None:
        """Take over the EPP's `dynamic_metadata`: one field per namespace, merged key by key.

        Namespaces outside `receiving` are dropped; a value that is no Struct counts as an empty one.
        """
        for namespace in receiving:
            if namespace in answer.fields:
                self._of(namespace).MergeFrom(answer.fields[namespace].struct_value)

    def put(self, namespace: str, key: str, value: Value) -> None:
        """Set one key, keeping the rest of its namespace."""
        self._of(namespace).fields[key].CopyFrom(value)

    def text(self, namespace: str, key: str) -> str | None:
        """The value of `key` if it is a string."""
        struct = self._namespaces.get(namespace)
        if struct is None or key not in struct.fields:
            return None
        value = struct.fields[key]
        return value.string_value if value.WhichOneof("kind") == "string_value" else None

    def context(self) -> bytes:
        """Field `metadata_context` as it goes on the wire: always present, empty if there is nothing to forward."""
        if self._context is None:
            forwarded = {name: self._namespaces[name] for name in self._forwarding if name in self._namespaces}
            raw = Metadata(filter_metadata=forwarded).SerializeToString(deterministic=True)
            self._context = _TAG + varint(len(raw)) + raw
        return self._context

    def _of(self, namespace: str) -> Struct:
        self._context = None
        return self._namespaces.setdefault(namespace, Struct())
