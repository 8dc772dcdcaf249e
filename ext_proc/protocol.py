"""The protocol's own words: its header, the namespaces and keys of its metadata, the names of its health services.

The harness has them from here. The reference EPP and the reference gateway spell them themselves, so that a mistake
here shows as a disagreement with them.
"""

from __future__ import annotations

PREFIX = "x-gateway-"
"""How the names of the protocol's headers and metadata keys begin."""

DESTINATION = "x-gateway-destination-endpoint"
"""The header, and the metadata key, that names the destination (Destination Endpoint)."""
FALLBACK = "x-gateway-destination-endpoint-fallback"
"""The metadata key of a second destination, in 0.3.0 only."""
SCORES = "x-gateway-destination-endpoint-scores"
"""The metadata key of the endpoints' scores, proposed for the version after 1.0.0."""
SUBSET = "x-gateway-destination-endpoint-subset"
"""The metadata key of the endpoints to choose from (Endpoint Subset)."""
SERVED = "x-gateway-destination-endpoint-served"
"""The metadata key of the endpoint that gave the response (Destination Endpoint Served)."""

DESTINATION_NAMESPACE = "envoy.lb"
"""Where destination, fallback, scores and served endpoint are in the metadata."""
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
"""Where the subset is."""

LIVENESS, READINESS = "liveness", "readiness"
"""Services of the health check (Health Checking)."""
EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
"""The gRPC service that carries the protocol, which is a service of the health check too."""
