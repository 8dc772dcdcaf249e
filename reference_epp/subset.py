"""Read the subset hint from a message's metadata (section Endpoint Subset)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from reference_epp.endpoints import Endpoint, parse_endpoint
from reference_epp.names import SUBSET

if TYPE_CHECKING:
    from ext_proc.messages import Metadata, Value

Subset = frozenset[Endpoint]
"""The endpoints that may be picked; without members: none may."""


def read_subset(metadata: Metadata, namespace: str) -> Subset | None:
    """The subset that `metadata` sets under `namespace`, or None if it sets none.

    The key counts as set whatever its value is: a list that holds no endpoint, or a value of a wrong kind, is an empty
    subset, so that a data plane's mistake closes the door and does not open it. A string is read as a comma-separated
    list, because data planes that copy a header into metadata produce that.
    """
    if namespace not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[namespace].fields
    return frozenset(_endpoints(_items(fields[SUBSET]))) if SUBSET in fields else None


def _items(value: Value) -> Iterable[str]:
    match value.WhichOneof("kind"):
        case "list_value":
            return (item.string_value for item in value.list_value.values)
        case "string_value":
            return value.string_value.split(",")
        case _:
            return ()


def _endpoints(items: Iterable[str]) -> Iterable[Endpoint]:
    for item in items:
        try:
            yield parse_endpoint(item)
        except ValueError:
            continue  # names no endpoint, so it allows none
