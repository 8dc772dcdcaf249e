"""Which form of a document the client asked for in `Accept`: plain JSON, a Table, metadata only, aggregated discovery.

Built-in kinds are asked for as protobuf first and JSON second by typed Go clients; they decode what Content-Type
says, so JSON serves them. A client that takes protobuf alone gets 406 with that explanation.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from fake_kubernetes.errors import ApiError

__all__ = ["AGGREGATED_TYPE", "Form", "negotiate"]

AGGREGATED_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class Form(StrEnum):
    """A form of an answer."""

    PLAIN = "plain"
    TABLE = "table"
    METADATA = "metadata"
    AGGREGATED = "aggregated"


_FORMS = {
    ("", "", ""): Form.PLAIN,
    ("Table", "meta.k8s.io", "v1"): Form.TABLE,
    ("PartialObjectMetadata", "meta.k8s.io", "v1"): Form.METADATA,
    ("PartialObjectMetadataList", "meta.k8s.io", "v1"): Form.METADATA,
    ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2"): Form.AGGREGATED,
}


def negotiate(accept: str, offered: Collection[Form]) -> Form:
    """Return the first form in `accept` that is offered; an empty `accept` means plain. Raises ApiError 406."""
    if not accept.strip():
        return Form.PLAIN
    for entry in accept.split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        if media_type not in ("application/json", "application/*", "*/*"):
            continue
        values = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        form = _FORMS.get((values.get("as", ""), values.get("g", ""), values.get("v", "")))
        if form is not None and form in offered:
            return form
    raise ApiError(
        406, "NotAcceptable", f"only application/json is served here, and the request accepts only {accept!r}"
    )
