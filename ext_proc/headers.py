"""Header lists and structs as plain Python: facts of the messages, without any opinion about their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ext_proc.messages import NULL_VALUE, HeaderMap, HeaderValue, ListValue, Struct, Value
from ext_proc.record import Headers


def is_grpc(content_type: bytes | None) -> bool:
    """Whether Envoy takes the request of this content-type for one of gRPC, whose errors have status 200."""
    kind, _, _ = (content_type or b"").partition(b"+")
    return kind == b"application/grpc"


def is_final_status(value: bytes) -> bool:
    """Whether it is the status of a response that is no interim one: Envoy takes 200 and above."""
    return value.isdigit() and int(value[:9]) >= 200


def value_of(header: HeaderValue) -> bytes:
    """The value of one header: `raw_value` if it is set, else `value` (Envoy reads them in this order)."""
    return header.raw_value or header.value.encode()


def header_map(pairs: Iterable[tuple[bytes, bytes]]) -> HeaderMap:
    """`pairs` as Envoy sends them: values in `raw_value`, `value` empty. Names must be UTF-8 (`UnicodeDecodeError`)."""
    return HeaderMap(headers=[HeaderValue(key=name.decode(), raw_value=value) for name, value in pairs])


def pairs_of(headers: HeaderMap) -> Headers:
    """The (name, value) pairs of `headers` in message order."""
    return tuple((header.key.encode(), value_of(header)) for header in headers.headers)


def plain(value: Value) -> Any:
    """`value` as None, bool, float, str, list or dict. A `Value` without a kind is None too."""
    match value.WhichOneof("kind"):
        case "struct_value":
            return plain_struct(value.struct_value)
        case "list_value":
            return [plain(item) for item in value.list_value.values]
        case None | "null_value":
            return None
        case kind:
            return getattr(value, kind)


def plain_struct(struct: Struct) -> dict[str, Any]:
    """`struct` as a dict; numbers become floats, as the message has only those.

    In the order of names: a map has none, and gives another to each process, so that no two would say the same of it.
    """
    return {name: plain(item) for name, item in sorted(struct.fields.items())}


def to_value(item: Any) -> Value:
    """A `Value` for None, bool, number, str, mapping or iterable. Raises `TypeError` for anything else."""
    match item:
        case None:
            return Value(null_value=NULL_VALUE)
        case bool():
            return Value(bool_value=item)
        case int() | float():
            return Value(number_value=item)
        case str():
            return Value(string_value=item)
        case Mapping():
            return Value(struct_value=to_struct(item))
        case list() | tuple():
            return Value(list_value=ListValue(values=[to_value(one) for one in item]))
        case _:
            raise TypeError(f"{type(item).__name__} has no form as a google.protobuf.Value: {item!r}")


def to_struct(mapping: Mapping[str, Any]) -> Struct:
    """A `Struct` for a mapping of names to what `to_value` takes."""
    return Struct(fields={name: to_value(item) for name, item in mapping.items()})
