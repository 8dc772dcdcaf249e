"""Request and response attributes that a data plane may send along, evaluated as Envoy's CEL would.

Only plain attributes are known, no expressions. What does not exist, or has no value yet, is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ext_proc.headers import to_value
from ext_proc.messages import ProcessingRequest, Struct
from fake_proxy.actions import HeaderList
from fake_proxy.header_map import get

_FILTER = "envoy.filters.http.ext_proc"


@dataclass(slots=True, kw_only=True)
class Facts:
    """What attributes are made of; grows while the exchange goes on."""

    source: str
    cluster: str
    protocol: str
    request: HeaderList
    response: HeaderList | None = None
    details: str = ""
    endpoint: str | None = None


def attributes_field(names: tuple[str, ...], facts: Facts) -> bytes:
    """Field `attributes` of a ProcessingRequest with the attributes `names`, serialised; those that exist."""
    found = {name: _KNOWN[name](facts) for name in names if name in _KNOWN}
    fields = {name: to_value(value) for name, value in found.items() if value is not None}
    return ProcessingRequest(attributes={_FILTER: Struct(fields=fields)}).SerializeToString(deterministic=True)


_Attribute = Callable[[Facts], str | float | None]


def _header(name: bytes) -> _Attribute:
    def value(facts: Facts) -> str | None:
        found = get(facts.request, name)
        return None if found is None else found.decode("utf-8", "replace")

    return value


def _path(part: int) -> _Attribute:
    """A part of the path: 0 before the question mark, 2 behind it."""
    return lambda facts: (get(facts.request, b":path") or b"").decode("utf-8", "replace").partition("?")[part]


def _port(address: str | None) -> float | None:
    return None if address is None else float(address.rpartition(":")[2])


def _code(facts: Facts) -> float | None:
    status = get(facts.response or [], b":status")
    return float(status) if status else None


_KNOWN: dict[str, _Attribute] = {
    "request.method": _header(b":method"),
    "request.path": _header(b":path"),
    "request.url_path": _path(0),
    "request.query": _path(2),
    "request.host": _header(b":authority"),
    "request.scheme": _header(b":scheme"),
    "request.protocol": lambda facts: facts.protocol,
    "request.id": _header(b"x-request-id"),
    "request.referer": _header(b"referer"),
    "request.useragent": _header(b"user-agent"),
    "source.address": lambda facts: facts.source,
    "source.port": lambda facts: _port(facts.source),
    "xds.cluster_name": lambda facts: facts.cluster,
    "response.code": _code,
    "response.code_details": lambda facts: facts.details or None,
    "upstream.address": lambda facts: facts.endpoint,
    "xds.upstream_host_metadata": lambda facts: "NULL" if facts.endpoint else None,  # so Envoy says that it has none
    "upstream.port": lambda facts: _port(facts.endpoint),
}
