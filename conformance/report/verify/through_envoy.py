"""Whether an exchange went through a real Envoy: far less is asked of one than of one through our own data plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.planning.data_plane import DataPlaneChoice
from conformance.report.verify.told import Told
from ext_proc.record import ClientResponse, Entry

_OF_OUR_OWN = "via_upstream"
"""Details that only our own data plane writes."""


def problems(entries: Sequence[Entry], told: Told, choice: DataPlaneChoice) -> Iterator[str]:
    """What speaks against the `entries` of an exchange, in which the EPP was `told` something, being those of the real
    Envoy of `choice`: what its variant does not do is asked of no target."""
    if any(isinstance(one.event, ClientResponse) and one.event.details == _OF_OUR_OWN for one in entries):
        yield "its response did not come from the Envoy of the report's topology"
    forwards = choice.variant is not None and choice.variant.config.forwarding_namespaces
    if not forwards and any(one.metadata_context.filter_metadata for one in told.messages):
        yield "the EPP was told metadata, which the Envoy of the report's topology forwards none of"
