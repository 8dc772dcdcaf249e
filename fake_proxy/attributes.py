"""Request and response attributes that a data plane may send along, evaluated as Envoy's CEL would.

Only plain attributes are known, no expressions. What does not exist is the string `NULL`, as Envoy writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ext_proc.messages import ProcessingRequest, Struct, Value
from fake_proxy.actions import HeaderList
from fake_proxy.mutations import get

_FILTER = "envoy.filters.http.ext_proc"


@dataclass(slots=True, kw_only=True)
class Facts:
    """What attributes are made of; grows while the exchange goes on."""

    source: str
    cluster: str
    request: HeaderList
    response: HeaderList | None = None
    details: str = ""
    endpoint: str | None = None


def attributes_field(names: tuple[str, ...], facts: Facts) -> bytes:
    """Field `attributes` of a ProcessingRequest with the attributes `names`, serialised."""
    fields = {name: _KNOWN.get(name, _null)(facts) for name in names}
    return ProcessingRequest(attributes={_FILTER: Struct(fields=fields)}).SerializeToString(deterministic=True)


def _null(_: Facts) -> Value:
    return Value(string_value="NULL")


def _text(value: bytes | str | None) -> Value:
    return Value(string_value=value.decode("utf-8", "replace") if isinstance(value, bytes) else value or "NULL")


def _header(name: bytes) -> Callable[[Facts], Value]:
    return lambda facts: _text(get(facts.request, name))


def _code(facts: Facts) -> Value:
    status = get(facts.response or [], b":status")
    return Value(number_value=float(status)) if status else _null(facts)


_KNOWN: dict[str, Callable[[Facts], Value]] = {
    "request.method": _header(b":method"),
    "request.path": _header(b":path"),
    "request.host": _header(b":authority"),
    "request.scheme": _header(b":scheme"),
    "request.id": _header(b"x-request-id"),
    "request.useragent": _header(b"user-agent"),
    "source.address": lambda facts: _text(facts.source),
    "xds.cluster_name": lambda facts: _text(facts.cluster),
    "response.code": _code,
    "response.code_details": lambda facts: _text(facts.details),
    "upstream.address": lambda facts: _text(facts.endpoint),
}
