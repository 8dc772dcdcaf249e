"""Objects as clients may ask to see them: lists, a `Table` for `kubectl get`, metadata alone, bookmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from fake_kubernetes.kinds import (
    INFERENCE_MODELS,
    INFERENCE_OBJECTIVES,
    INFERENCE_POOLS,
    INFERENCE_POOLS_V1ALPHA2,
    NAMESPACES,
    PODS,
    Kind,
)
from fake_kubernetes.media import Form
from fake_kubernetes.store import encode

__all__ = ["render", "render_bookmark", "render_list"]

Object = dict[str, Any]
Cell = Callable[[Object], Any]


def render_list(
    kind: Kind, encoded: Iterable[bytes], resource_version: int, form: Form, *, include_object: str = "Metadata"
) -> bytes:
    """Return a list document. `encoded` are the objects as JSON, `include_object` is the Table option of that name."""
    if form is Form.TABLE:
        return encode(_table(kind, [json.loads(item) for item in encoded], resource_version, include_object))
    if form is Form.METADATA:
        items = b",".join(encode(_metadata_only(json.loads(item))) for item in encoded)
        api_version, list_kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
    else:
        items = b",".join(encoded if kind.custom else map(_without_type, encoded))
        api_version, list_kind = kind.api_version, f"{kind.kind}List"
    return b'{"kind":"%b","apiVersion":"%b","metadata":{"resourceVersion":"%d"},"items":[%b]}' % (
        list_kind.encode(),
        api_version.encode(),
        resource_version,
        items,
    )


def render(kind: Kind, encoded: bytes, form: Form, *, include_object: str = "Metadata") -> bytes:
    """Return one object, given as JSON, in the form asked for."""
    if form is Form.PLAIN:
        return encoded
    obj = json.loads(encoded)
    if form is Form.METADATA:
        return encode(_metadata_only(obj))
    return encode(_table(kind, [obj], int(obj["metadata"]["resourceVersion"]), include_object))


def render_bookmark(kind: Kind, resource_version: int, form: Form, *, initial_events_end: bool) -> bytes:
    """Return the object of a BOOKMARK event: nothing but a resource version, and for WatchList the end-of-list mark."""
    metadata: Object = {"resourceVersion": str(resource_version), "creationTimestamp": None}
    if initial_events_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    if form is Form.TABLE:
        table: Object = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "columnDefinitions": [], "rows": []}
        return encode({**table, "metadata": metadata})
    if form is Form.METADATA:
        return encode(_metadata_only({"metadata": metadata}))
    return encode({"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})


def _without_type(encoded: bytes) -> bytes:
    """As a real server lists what is built in: each item's type is that of the list."""
    obj = json.loads(encoded)
    return encode({name: value for name, value in obj.items() if name not in ("kind", "apiVersion")})


def _metadata_only(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def _table(kind: Kind, objects: Sequence[Object], resource_version: int, include_object: str) -> Object:
    columns = {"Name": _name, **_COLUMNS.get(kind, {}), "Age": _age}
    definitions = [
        {"name": name, "type": "string", "format": "name" if name == "Name" else "", "description": "", "priority": 0}
        for name in columns
    ]
    rows = []
    for obj in objects:
        row: Object = {"cells": [cell(obj) for cell in columns.values()]}
        if include_object != "None":
            row["object"] = obj if include_object == "Object" else _metadata_only(obj)
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": str(resource_version)},
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _at(obj: Any, *path: str) -> Any:
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _age(obj: Object) -> str:
    try:
        created = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
        seconds = int((datetime.now(UTC) - created).total_seconds())
    except (KeyError, ValueError, TypeError):
        return "<unknown>"
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _ready(obj: Object) -> str:
    conditions = _at(obj, "status", "conditions") or []
    return next((str(each.get("status")) for each in conditions if _at(each, "type") == "Ready"), "Unknown")


def _pod_status(obj: Object) -> str:
    return "Terminating" if _at(obj, "metadata", "deletionTimestamp") else str(_at(obj, "status", "phase") or "Unknown")


def _labels(labels: Any) -> str:
    return ",".join(f"{key}={value}" for key, value in labels.items()) if isinstance(labels, dict) else ""


def _ports(obj: Object) -> str:
    ports = _at(obj, "spec", "targetPorts") or []
    return ",".join(str(_at(port, "number")) for port in ports)


def _pool(obj: Object) -> str:
    return str(_at(obj, "spec", "poolRef", "name") or "")


_COLUMNS: dict[Kind, dict[str, Cell]] = {
    NAMESPACES: {"Status": lambda obj: str(_at(obj, "status", "phase") or "")},
    PODS: {"Ready": _ready, "Status": _pod_status, "IP": lambda obj: str(_at(obj, "status", "podIP") or "<none>")},
    INFERENCE_POOLS: {
        "Selector": lambda obj: _labels(_at(obj, "spec", "selector", "matchLabels")),
        "Ports": _ports,
    },
    INFERENCE_POOLS_V1ALPHA2: {
        "Selector": lambda obj: _labels(_at(obj, "spec", "selector")),
        "Ports": lambda obj: str(_at(obj, "spec", "targetPortNumber") or ""),
    },
    INFERENCE_OBJECTIVES: {"Priority": lambda obj: str(_at(obj, "spec", "priority") or 0), "Pool": _pool},
    INFERENCE_MODELS: {"Model": lambda obj: str(_at(obj, "spec", "modelName") or ""), "Pool": _pool},
}
