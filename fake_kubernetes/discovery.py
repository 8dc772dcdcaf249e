"""What the API server says about itself: versions, groups and resources, in the plain and in the aggregated form.

Both forms are needed at once: client-go asks for the aggregated one, and EPPs additionally read a single group's
plain list. The OpenAPI documents hold what kubectl looks for before it creates, that field validation is the server's
task, and the fields of each kind down to `spec` and `status` for `kubectl explain`.
"""

from __future__ import annotations

from typing import Any

from fake_kubernetes.kinds import OBJECT_VERBS, Kind, KindRegistry, Review

__all__ = [
    "OPENAPI_V2_TYPE",
    "VERSION",
    "aggregated",
    "api_versions",
    "group",
    "group_list",
    "openapi_document",
    "openapi_index",
    "resource_list",
]

Document = dict[str, Any]

OPENAPI_V2_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

VERSION: Document = {
    "major": "1",
    "minor": "33",
    "gitVersion": "v1.33.0+emulated",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-08-27T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}


def api_versions() -> Document:
    """Return the plain answer to `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def group_list(catalogue: KindRegistry) -> Document:
    """Return the plain answer to `/apis`: every named group."""
    groups = [_group(name, versions) for name, versions in catalogue.group_versions().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(catalogue: KindRegistry, name: str) -> Document | None:
    """Return the answer to `/apis/<group>`, or None if there is no such group."""
    versions = catalogue.group_versions().get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def _group(name: str, versions: list[str]) -> Document:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def resource_list(catalogue: KindRegistry, group_name: str, version: str) -> Document | None:
    """Return the answer to `/api/v1` and `/apis/<group>/<version>`, or None if nothing is served there."""
    resources: list[Document] = []
    for entry in _entries(catalogue, group_name, version):
        resource: Document = {
            "name": entry.plural,
            "singularName": entry.kind.lower(),
            "namespaced": isinstance(entry, Kind) and entry.namespaced,
            "kind": entry.kind,
            "verbs": list(_verbs(entry)),
        }
        if isinstance(entry, Kind):
            resource.update(_names(entry))
        resources.append(resource)
        if isinstance(entry, Kind) and entry.has_status:
            status = {"name": f"{entry.plural}/status", "singularName": "", "verbs": ["get", "patch", "update"]}
            resources.append({name: value for name, value in resource.items() if name not in _names(entry)} | status)
    if not resources:
        return None
    group_version = f"{group_name}/{version}" if group_name else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def aggregated(catalogue: KindRegistry, *, core: bool) -> Document:
    """Return the aggregated answer to `/api` (`core`) or `/apis`: groups, versions and resources in one document."""
    items = []
    for name, versions in catalogue.group_versions().items():
        if (name == "") is core:
            documents = [_aggregated_version(catalogue, name, version) for version in versions]
            items.append({"metadata": {"name": name, "creationTimestamp": None}, "versions": documents})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated_version(catalogue: KindRegistry, group_name: str, version: str) -> Document:
    resources = []
    for entry in _entries(catalogue, group_name, version):
        kind = {"group": group_name, "version": version, "kind": entry.kind}
        resource: Document = {
            "resource": entry.plural,
            "responseKind": kind,
            "scope": "Namespaced" if isinstance(entry, Kind) and entry.namespaced else "Cluster",
            "singularResource": entry.kind.lower(),
            "verbs": list(_verbs(entry)),
        }
        if isinstance(entry, Kind):
            resource.update(_names(entry))
            if entry.has_status:
                status = {"subresource": "status", "responseKind": kind, "verbs": ["get", "patch", "update"]}
                resource["subresources"] = [status]
        resources.append(resource)
    return {"version": version, "resources": resources, "freshness": "Current"}


def _entries(catalogue: KindRegistry, group_name: str, version: str) -> list[Kind | Review]:
    return [entry for entry in catalogue.entries if (entry.group, entry.version) == (group_name, version)]


def _names(kind: Kind) -> Document:
    """What else the kind may be called, alone and with others; empty lists are left out."""
    names = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {name: values for name, values in names.items() if values}


def _verbs(entry: Kind | Review) -> tuple[str, ...]:
    return OBJECT_VERBS if isinstance(entry, Kind) else ("create",)


def openapi_index(catalogue: KindRegistry) -> Document:
    """Return the answer to `/openapi/v3`: where each group version's document is."""
    paths = {}
    for name, versions in catalogue.group_versions().items():
        for version in versions:
            path = _root(name, version)
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi_document(catalogue: KindRegistry, group_name: str, version: str) -> Document | None:
    """Return the OpenAPI v3 document of a group version, or None if nothing is served there.

    It describes one operation per kind, PATCH with `fieldValidation`: kubectl reads from it that it need not validate.
    """
    paths: Document = {}
    schemas: Document = {}
    for kind in catalogue.kinds:
        if (kind.group, kind.version) == (group_name, version):
            scope = "namespaces/{namespace}/" if kind.namespaced else ""
            group_kind = {"group": kind.group, "version": kind.version, "kind": kind.kind}
            schemas[kind.kind] = _schema(kind) | {"x-kubernetes-group-version-kind": [group_kind]}
            parameters = [
                {"name": name, "in": "query", "schema": {"type": "string"}} for name in ("dryRun", "fieldValidation")
            ]
            paths[f"/{_root(group_name, version)}/{scope}{kind.plural}/{{name}}"] = {
                "patch": {
                    "x-kubernetes-action": "patch",
                    "x-kubernetes-group-version-kind": group_kind,
                    "parameters": parameters,
                    "responses": {"200": {"description": "OK"}},
                }
            }
    if not paths:
        return None
    info = {"title": "Kubernetes API emulator", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _schema(kind: Kind) -> Document:
    texts = {"apiVersion": f"Always {kind.api_version}.", "kind": f"Always {kind.kind}."}
    fields: Document = {name: {"type": "string", "description": text} for name, text in texts.items()}
    for name in ("metadata", "spec", *(["status"] if kind.has_status else [])):
        fields[name] = {"type": "object", "description": "Kept as it is sent; the emulator checks what it needs."}
    return {"type": "object", "description": f"{kind.kind}, as the emulator serves it.", "properties": fields}


def _root(group_name: str, version: str) -> str:
    return f"apis/{group_name}/{version}" if group_name else f"api/{version}"
