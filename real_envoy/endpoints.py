"""The endpoints of Envoy's clusters: those of the bootstrap, and those of a pool that changes, in a file it watches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ext_proc.http2.address import socket_path, split_address

_TYPE = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"


def load_assignment(cluster: str, addresses: Iterable[str], *, label: str = "") -> dict[str, Any]:
    """A `ClusterLoadAssignment` as JSON; with `label`, each endpoint carries its own address under that key of
    `envoy.lb`, for subset load balancing."""
    endpoints = []
    for address in addresses:
        endpoint: dict[str, Any] = {"endpoint": {"address": _address(address)}}
        if label:
            endpoint["metadata"] = {"filterMetadata": {"envoy.lb": {label: address}}}
        endpoints.append(endpoint)
    return {"clusterName": cluster, "endpoints": [{"lbEndpoints": endpoints}]}


def _address(address: str) -> dict[str, Any]:
    if (path := socket_path(address)) is not None:
        return {"pipe": {"path": str(Path(path).absolute())}}
    host, port = split_address(address)
    return {"socketAddress": {"address": host, "portValue": port}}


def pool_file(cluster: str) -> str:
    """The name, in Envoy's folder, of the file that a cluster with a changing pool reads its endpoints from."""
    return f"./{cluster}.endpoints.json"  # Envoy wants a folder to watch


def write_pool(folder: Path, version: str, assignment: dict[str, Any]) -> None:
    """Put the endpoints of a cluster into its file, in one step: Envoy reads a file that is moved to its place."""
    resources = {"versionInfo": version, "resources": [{"@type": _TYPE, **assignment}]}
    file = folder / pool_file(assignment["clusterName"])
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(resources), encoding="utf-8")
    fresh.replace(file)
