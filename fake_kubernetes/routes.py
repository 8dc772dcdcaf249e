"""Paths: which resource, in which namespace, under which name, a URL is about."""

from __future__ import annotations

from dataclasses import dataclass

from fake_kubernetes.kinds import REVIEWS, Kind, KindRegistry, Review

__all__ = ["ObjectRoute", "route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRoute:
    """A place in the tree of objects: a collection if `name` is "". `namespace` None means all of them, or none."""

    kind: Kind
    namespace: str | None
    name: str = ""
    subresource: str = ""


def route(catalogue: KindRegistry, path: str) -> ObjectRoute | Review | None:
    """Return what a path under `/api/v1` or `/apis/<group>/<version>` leads to, or None if nothing is served there."""
    match path.strip("/").split("/"):
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
        namespace, rest = rest[1], rest[2:]
    plural, *tail = rest
    if namespace is None and not tail:
        for review in REVIEWS:
            if (review.group, review.version, review.plural) == (group, version, plural):
                return review
    kind = catalogue.at(group, version, plural)
    if kind is None or len(tail) > 2 or (namespace is not None and not kind.namespaced):
        return None
    name, subresource = [*tail, "", ""][:2]
    if subresource and not (subresource == "status" and kind.has_status):
        return None
    if name and kind.namespaced and namespace is None:
        return None
    return ObjectRoute(kind=kind, namespace=namespace, name=name, subresource=subresource)
