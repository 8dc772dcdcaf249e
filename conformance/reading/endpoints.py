"""Endpoints as text: `ip:port`, IPv6 in brackets, lists separated by commas (Destination Endpoint, Endpoint Subset).

Two endpoints are the same if address and port are: `canonical` gives one spelling to compare by.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

BLANKS = " \t\r\n"
"""What may stand around the items of a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item of a list of endpoints.

    `text` is what was there; `canonical` is its one spelling, None if it is no endpoint; then `problem` says why.
    """

    text: str
    canonical: str | None = None
    problem: str = ""

    @property
    def padded(self) -> bool:
        """Whether there are blanks around it, which the grammar does not have."""
        return self.text != self.text.strip(BLANKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointList:
    """A value of the destination header or metadata, taken apart."""

    text: str
    items: tuple[Item, ...]

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The well-formed items in order, in canonical spelling."""
        return tuple(item.canonical for item in self.items if item.canonical is not None)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong with the items that are no endpoints."""
        return tuple(f"{item.text!r}: {item.problem}" for item in self.items if item.canonical is None)

    @property
    def padded(self) -> bool:
        """Whether any item has blanks around it."""
        return any(item.padded for item in self.items)

    @property
    def respelled(self) -> tuple[str, ...]:
        """Endpoints that are not in their one spelling: IPv6 in capitals or with zeros, or IPv4 mapped to it."""
        return tuple(item.text for item in self.items if item.canonical not in (None, item.text.strip(BLANKS)))

    @property
    def repeated(self) -> tuple[str, ...]:
        """Endpoints that are listed more than once."""
        found = self.endpoints
        return tuple(dict.fromkeys(one for one in found if found.count(one) > 1))


def parse_list(text: str) -> EndpointList:
    """`text` as a comma-separated list; never raises. A text without items has one empty item, which is a problem."""
    return EndpointList(text=text, items=tuple(parse(part) for part in text.split(",")))


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Item:
    """`text` as one endpoint; never raises. Blanks around it are tolerated here and told by `padded`."""
    bare = text.strip(BLANKS)
    if not bare:
        return Item(text=text, problem="an empty item")
    if "://" in bare:
        return Item(text=text, problem="a URL, not ip:port")
    host, colon, port = bare.rpartition(":")
    if not colon:
        return Item(text=text, problem="there is no port")
    bracketed = host.startswith("[") and host.endswith("]")
    if ":" in host and not bracketed:
        return Item(text=text, problem="an IPv6 address must be in brackets: [address]:port")
    address = _address(host[1:-1] if bracketed else host)
    if address is None or (":" in host) != bracketed:
        return Item(text=text, problem=f"{host!r} is no IP address")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        return Item(text=text, problem=f"{port!r} is no port from 1 to 65535")
    if port.startswith("0"):  # who looks endpoints up by their text finds none
        return Item(text=text, problem=f"the port {port} has a leading zero")
    host = f"[{address}]" if address.version == 6 else str(address)
    return Item(text=text, canonical=f"{host}:{int(port)}")


def read_leniently(text: str) -> str | None:
    """The endpoint, in its one spelling, that a lenient reader finds in a `text` that is none: a URL, an IPv6 address
    without brackets or with a zone, a port with leading zeros. None if there is none."""
    host, _, port = text.strip(BLANKS).rpartition("://")[2].partition("/")[0].rpartition(":")
    address = _address(host.strip("[]").partition("%")[0])
    if address is None or not (port.isascii() and port.isdigit()):
        return None
    return parse(f"{f'[{address}]' if address.version == 6 else address}:{port.lstrip('0')}").canonical


def canonical(endpoint: str) -> str:
    """The one spelling of `endpoint`, or the text itself if it is no endpoint."""
    return parse(endpoint).canonical or endpoint


def address_of(endpoint: str) -> str:
    """The address of an endpoint (or of a bare address) in one spelling, without brackets; the text if it has none."""
    found = parse(endpoint).canonical
    host = found.rpartition(":")[0] if found else endpoint.strip(BLANKS)
    address = _address(host.strip("[]"))
    return str(address) if address is not None else host


def is_ipv6(endpoint: str) -> bool:
    """Whether it is an endpoint with an IPv6 address."""
    return (parse(endpoint).canonical or "").startswith("[")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if "%" in text:  # a zone means nothing on another machine
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address  # as the types of Go and Java have it


def distinct(texts: Iterable[str]) -> tuple[str, ...]:
    """The endpoints in their one spelling. Raises `ValueError` for what is none, and for one that is there twice."""
    found: list[str] = []
    for text in texts:
        item = parse(text)
        if item.canonical is None:
            raise ValueError(f"{text!r} is no endpoint: {item.problem}; give ip:port, IPv6 as [::1]:port")
        if item.canonical in found:
            raise ValueError(f"{text} is there twice")
        found.append(item.canonical)
    return tuple(found)
