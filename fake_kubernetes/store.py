"""The objects, and the log of their changes: what etcd and the watch cache are to a real API server.

One counter, the resource version, numbers every change of every kind. A list is the state at a resource version; a
watch is the changes after one. `compact` forgets the log, so that watchers from earlier versions must list again
(410). All of it is synchronous and belongs to one thread: the suite calls it directly, the HTTP side through
`api.py`.
"""

from __future__ import annotations

import bisect
import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from fake_kubernetes.errors import ExpiredError, KubernetesEmulatorError
from fake_kubernetes.kinds import KINDS, NAMESPACES, Kind, KindRegistry

__all__ = ["Change", "Store", "encode"]

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Change:
    """One entry of the log. `object` is the state after it (for DELETED, the last state) and must not be altered.

    `previous` is the state before it, None for ADDED. `encoded` is `object` as JSON. `namespace` is "" for
    cluster-wide kinds.
    """

    resource_version: int
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    kind: Kind
    namespace: str
    name: str
    object: Object = field(repr=False)
    encoded: bytes = field(repr=False)
    previous: Object | None = field(default=None, repr=False)


class Store:
    """Objects of the served kinds. Writing into a namespace that is not there makes it, as no admission is emulated.

    `history` is how many changes the log keeps at least; older ones are compacted away.
    """

    def __init__(
        self, kinds: Iterable[Kind] = KINDS, *, namespaces: Iterable[str] = ("default",), history: int = 5_000
    ) -> None:
        self.catalogue = KindRegistry(kinds)
        self.resource_version = 1
        self._floor = 1
        self._history = history
        self._log: list[Change] = []
        self._objects: dict[Kind, dict[tuple[str, str], Change]] = {kind: {} for kind in self.catalogue.kinds}
        self._subscribers: list[Callable[[Change | None], None]] = []
        for namespace in namespaces:
            self._ensure_namespace(namespace)

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, kind: Kind, name: str, namespace: str = "default") -> Object | None:
        """Return a copy of one object, or None."""
        latest = self.latest(kind, name, namespace)
        return json.loads(latest.encoded) if latest else None

    def latest(self, kind: Kind, name: str, namespace: str = "default") -> Change | None:
        """Return the change that gave one object its present state, or None if there is no such object."""
        return self._table(kind).get((namespace if kind.namespaced else "", name))

    def list(self, kind: Kind, namespace: str | None = None) -> list[Change]:
        """Return the latest change of every object, by namespace and name; `namespace` None means all."""
        table = self._table(kind)
        return [table[key] for key in sorted(table) if namespace is None or key[0] == namespace]

    def since(self, resource_version: int) -> Sequence[Change]:
        """Return the changes of all kinds after `resource_version`, oldest first. Raises ExpiredError if compacted."""
        if resource_version < self._floor:
            raise ExpiredError(resource_version, self._floor)
        start = bisect.bisect_right(self._log, resource_version, key=lambda change: change.resource_version)
        return self._log[start:]

    # -- writing -------------------------------------------------------------------------------------------------------

    def put(self, obj: Object) -> Change:
        """Create the object, or replace the one of its kind, namespace and name.

        uid, creationTimestamp and generation are kept or filled in, resourceVersion is set; all else is as `obj` says,
        deletionTimestamp too. An object equal to the stored one makes no change, and the earlier change is returned.
        Raises KubernetesEmulatorError for a kind that is not served or an object without a name.
        """
        kind = self.catalogue.of(obj)
        obj = json.loads(json.dumps(obj))
        metadata = obj.setdefault("metadata", {})
        name = metadata.get("name")
        if not name:
            raise KubernetesEmulatorError(f"a {kind.kind} needs metadata.name")
        if kind.namespaced:
            namespace = metadata.setdefault("namespace", "default")
            self._ensure_namespace(namespace)
        else:
            namespace = ""
            metadata.pop("namespace", None)
        before = self.latest(kind, name, namespace)
        if before is None:
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata.setdefault("creationTimestamp", _now())
            metadata["generation"] = 1
        else:
            old = before.object
            metadata.setdefault("uid", old["metadata"]["uid"])
            metadata.setdefault("creationTimestamp", old["metadata"]["creationTimestamp"])
            metadata["generation"] = old["metadata"]["generation"] + (_desired(obj) != _desired(old))
            metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
            if obj == old:
                return before
        return self._commit("MODIFIED" if before else "ADDED", kind, namespace, name, obj, before)

    def terminate(self, kind: Kind, name: str, namespace: str = "default", *, grace_seconds: int = 30) -> Change:
        """Take the first of the two steps of a deletion: set deletionTimestamp; `delete` takes the second.

        An object that is terminating already stays as it is. Raises KubernetesEmulatorError if it does not exist.
        """
        before = self._existing(kind, name, namespace)
        if "deletionTimestamp" in before.object["metadata"]:
            return before
        obj = json.loads(before.encoded)
        obj["metadata"] |= {"deletionTimestamp": _now(), "deletionGracePeriodSeconds": grace_seconds}
        obj["metadata"]["generation"] += 1
        return self._commit("MODIFIED", kind, before.namespace, name, obj, before)

    def delete(self, kind: Kind, name: str, namespace: str = "default") -> Change:
        """Remove an object; of a namespace, first all in it. Raises KubernetesEmulatorError if it does not exist."""
        before = self._existing(kind, name, namespace)
        if kind == NAMESPACES:
            for inner in [
                change for each in self.catalogue.kinds if each.namespaced for change in self.list(each, name)
            ]:
                self.delete(inner.kind, inner.name, inner.namespace)
        return self._commit("DELETED", kind, before.namespace, name, json.loads(before.encoded), before)

    def compact(self) -> None:
        """Forget the log: every resource version seen so far is expired, for open watches too."""
        self.resource_version += 1
        self._floor = self.resource_version
        self._log.clear()
        self._notify(None)

    def lengthen_versions(self) -> None:
        """Go on with resource versions of one digit more, as if other objects had been changed in between.

        Up to 15 digits: clients that take versions for numbers must be able to hold them.
        """
        longer: int = 10 ** len(str(self.resource_version))
        if longer < 10**15:
            self.resource_version = longer

    def subscribe(self, callback: Callable[[Change | None], None]) -> Callable[[], None]:
        """Call `callback` after every change, and with None after a compaction; return what ends the subscription."""
        self._subscribers.append(callback)
        return lambda: self._subscribers.remove(callback)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _table(self, kind: Kind) -> dict[tuple[str, str], Change]:
        table = self._objects.get(kind)
        if table is None:
            raise KubernetesEmulatorError(f"{kind} is not served; pass it in `kinds`")
        return table

    def _existing(self, kind: Kind, name: str, namespace: str) -> Change:
        found = self.latest(kind, name, namespace)
        if found is None:
            where = f" in namespace {namespace}" if kind.namespaced else ""
            raise KubernetesEmulatorError(f"there is no {kind.kind} {name!r}{where}")
        return found

    def _ensure_namespace(self, name: str) -> None:
        if NAMESPACES in self.catalogue and self.latest(NAMESPACES, name) is None:
            labels = {"kubernetes.io/metadata.name": name}
            self.put(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": {"name": name, "labels": labels},
                    "status": {"phase": "Active"},
                }
            )

    def _commit(
        self,
        change_type: Literal["ADDED", "MODIFIED", "DELETED"],
        kind: Kind,
        namespace: str,
        name: str,
        obj: Object,
        before: Change | None,
    ) -> Change:
        self.resource_version += 1
        obj["metadata"]["resourceVersion"] = str(self.resource_version)
        change = Change(
            resource_version=self.resource_version,
            type=change_type,
            kind=kind,
            namespace=namespace,
            name=name,
            object=obj,
            encoded=encode(obj),
            previous=before.object if before else None,
        )
        if change_type == "DELETED":
            del self._objects[kind][namespace, name]
        else:
            self._objects[kind][namespace, name] = change
        self._log.append(change)
        if len(self._log) > 2 * self._history:  # in halves, so that trimming is rare
            surplus = len(self._log) - self._history
            self._floor = self._log[surplus - 1].resource_version
            del self._log[:surplus]
        self._notify(change)
        return change

    def _notify(self, change: Change | None) -> None:
        for callback in tuple(self._subscribers):
            callback(change)


def encode(document: Any) -> bytes:
    """The document as a real server writes it: without blanks, and in UTF-8."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def _desired(obj: Object) -> Object:
    """What a change of `generation` is about: everything but metadata and status."""
    return {key: value for key, value in obj.items() if key not in ("metadata", "status")}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
