"""The names that the Endpoint Picker Protocol and its surroundings give to headers, metadata keys and services."""

from __future__ import annotations

DESTINATION = "x-gateway-destination-endpoint"
"""Header and metadata key of the picked endpoints (section Destination Endpoint)."""

FALLBACK = "x-gateway-destination-endpoint-fallback"
"""Metadata key of the one fallback endpoint (section Destination endpoint fallback, version 0.3.0)."""

SUBSET = "x-gateway-destination-endpoint-subset"
"""Metadata key of the endpoints to choose from (section Endpoint Subset)."""

SERVED = "x-gateway-destination-endpoint-served"
"""Metadata key under which the data plane says who served (section Destination Endpoint Served)."""

OBJECTIVE = "x-gateway-inference-objective"
"""Request header that names the request's objective, and through it its priority."""

METADATA_NAMESPACE = "envoy.lb"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"

EXT_PROC_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
HEALTH_SERVICE = "grpc.health.v1.Health"
LIVENESS = "liveness"
READINESS = "readiness"
