"""The resource types that are served: a table, and the look-ups on it.

An EPP of the Gateway API Inference Extension reads pods, its InferencePool, and InferenceObjectives; later versions add
InferenceModelRewrites, earlier ones had InferenceModels and an InferencePool in the experimental group, and llm-d has
objectives and rewrites in its own group. Some of what every cluster has is there, so that ordinary tools work, and EPPs
that read more. A kind that is left out of `Emulator(kinds=…)` is not discoverable and answers 404, as on a cluster
without that CRD.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from fake_kubernetes.errors import KubernetesEmulatorError

__all__ = [
    "EVENTS",
    "INFERENCE_MODELS",
    "INFERENCE_MODEL_REWRITES",
    "INFERENCE_OBJECTIVES",
    "INFERENCE_POOLS",
    "INFERENCE_POOLS_V1ALPHA2",
    "KINDS",
    "LEASES",
    "LLM_D_OBJECTIVES",
    "NAMESPACES",
    "PODS",
    "REVIEWS",
    "Kind",
    "KindRegistry",
    "Review",
    "without",
]

INFERENCE = "inference.networking.k8s.io"
INFERENCE_EXPERIMENTAL = "inference.networking.x-k8s.io"
LLM_D = "llm-d.ai"

OBJECT_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A resource type. `group` is "" for core; `fields` are selectable besides metadata.name and metadata.namespace."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    """Names of groups that the kind is in: `kubectl get all`."""
    fields: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` alone for the core group: what objects say in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def custom(self) -> bool:
        """Whether a cluster has it by a CustomResourceDefinition."""
        return self.group in (INFERENCE, INFERENCE_EXPERIMENTAL, LLM_D)

    @property
    def resource(self) -> str:
        """`plural.group`, as error messages and kubectl name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        """Return `plural.version.group`, the fully qualified form that kubectl accepts."""
        return f"{self.plural}.{self.version}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A create-only resource that is answered at once with yes, whatever the body says; nothing is stored.

    Typed Go clients send these bodies as protobuf, so nothing in them is needed; the spec of one in JSON is sent back.
    """

    group: str
    version: str
    plural: str
    kind: str
    answer: dict[str, Any] = field(hash=False)


PODS = Kind(
    group="",
    version="v1",
    plural="pods",
    kind="Pod",
    short_names=("po",),
    categories=("all",),
    fields=("status.phase", "status.podIP", "spec.nodeName"),
)
NAMESPACES = Kind(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False, short_names=("ns",))
EVENTS = Kind(
    group="",
    version="v1",
    plural="events",
    kind="Event",
    has_status=False,
    short_names=("ev",),
    fields=(
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "reason",
        "type",
    ),
)
CORE: tuple[Kind, ...] = (
    Kind(group="", version="v1", plural="nodes", kind="Node", namespaced=False, short_names=("no",)),
    Kind(group="", version="v1", plural="services", kind="Service", short_names=("svc",), categories=("all",)),
    Kind(group="", version="v1", plural="configmaps", kind="ConfigMap", has_status=False, short_names=("cm",)),
    Kind(group="", version="v1", plural="secrets", kind="Secret", has_status=False, fields=("type",)),
    Kind(group="discovery.k8s.io", version="v1", plural="endpointslices", kind="EndpointSlice", has_status=False),
)
"""What every cluster has, and an EPP may read. The suite puts nothing there; a profile's `objects` may."""
INFERENCE_POOLS = Kind(
    group=INFERENCE, version="v1", plural="inferencepools", kind="InferencePool", short_names=("infpool",)
)
INFERENCE_POOLS_V1ALPHA2 = Kind(
    group=INFERENCE_EXPERIMENTAL,
    version="v1alpha2",
    plural="inferencepools",
    kind="InferencePool",
    short_names=("xinfpool",),
)
INFERENCE_OBJECTIVES = Kind(
    group=INFERENCE_EXPERIMENTAL, version="v1alpha2", plural="inferenceobjectives", kind="InferenceObjective"
)
INFERENCE_MODEL_REWRITES = Kind(
    group=INFERENCE_EXPERIMENTAL,
    version="v1alpha2",
    plural="inferencemodelrewrites",
    kind="InferenceModelRewrite",
    short_names=("infmodelrewrite",),
)
LLM_D_OBJECTIVES = replace(INFERENCE_OBJECTIVES, group=LLM_D)
LLM_D_MODEL_REWRITES = replace(INFERENCE_MODEL_REWRITES, group=LLM_D)
INFERENCE_MODELS = Kind(
    group=INFERENCE_EXPERIMENTAL,
    version="v1alpha2",
    plural="inferencemodels",
    kind="InferenceModel",
    short_names=("infmodel",),
)
LEASES = Kind(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", has_status=False)

KINDS: tuple[Kind, ...] = (
    NAMESPACES,
    PODS,
    EVENTS,
    *CORE,
    INFERENCE_POOLS,
    INFERENCE_POOLS_V1ALPHA2,
    INFERENCE_OBJECTIVES,
    INFERENCE_MODEL_REWRITES,
    LLM_D_OBJECTIVES,
    LLM_D_MODEL_REWRITES,
    INFERENCE_MODELS,
    LEASES,
)
"""Everything that is served unless told otherwise."""

_YES = {"allowed": True, "reason": "the emulator allows everything"}
REVIEWS: tuple[Review, ...] = (
    Review(
        group="authentication.k8s.io",
        version="v1",
        plural="tokenreviews",
        kind="TokenReview",
        answer={"authenticated": True, "user": {"username": "emulator", "groups": ["system:authenticated"]}},
    ),
    Review(
        group="authorization.k8s.io",
        version="v1",
        plural="subjectaccessreviews",
        kind="SubjectAccessReview",
        answer=_YES,
    ),
    Review(
        group="authorization.k8s.io",
        version="v1",
        plural="selfsubjectaccessreviews",
        kind="SelfSubjectAccessReview",
        answer=_YES,
    ),
)


def without(*plurals: str, kinds: Iterable[Kind] = KINDS) -> tuple[Kind, ...]:
    """Return `kinds` less those with one of these plural names: a cluster that lacks some CRDs.

    Raises KubernetesEmulatorError for a name that is not among them, so that a typing error does not go unnoticed.
    """
    kinds = tuple(kinds)
    unknown = set(plurals) - {kind.plural for kind in kinds}
    if unknown:
        known = ", ".join(sorted({kind.plural for kind in kinds}))
        raise KubernetesEmulatorError(f"no kind is called {', '.join(sorted(unknown))}; known: {known}")
    return tuple(kind for kind in kinds if kind.plural not in plurals)


class KindRegistry:
    """The kinds of one emulator, found by path or by object."""

    def __init__(self, kinds: Iterable[Kind]) -> None:
        self.kinds = tuple(kinds)
        self.entries: tuple[Kind | Review, ...] = (*self.kinds, *REVIEWS)
        self._by_path = {(kind.group, kind.version, kind.plural): kind for kind in self.kinds}
        self._by_object = {(kind.api_version, kind.kind): kind for kind in self.kinds}

    def __contains__(self, kind: Kind) -> bool:
        """Whether `kind` is served."""
        return (kind.group, kind.version, kind.plural) in self._by_path

    def at(self, group: str, version: str, plural: str) -> Kind | None:
        """Return the kind served under these path parts, or None."""
        return self._by_path.get((group, version, plural))

    def of(self, obj: dict[str, Any]) -> Kind:
        """Return the kind of an object by its `apiVersion` and `kind`. Raises KubernetesEmulatorError if not served."""
        found = self._by_object.get((obj.get("apiVersion", ""), obj.get("kind", "")))
        if found is None:
            served = ", ".join(str(kind) for kind in self.kinds)
            raise KubernetesEmulatorError(
                f"no served kind for apiVersion={obj.get('apiVersion')!r}, kind={obj.get('kind')!r}; served: {served}"
            )
        return found

    def group_versions(self) -> dict[str, list[str]]:
        """Return group -> versions, core ("") included, reviews included, each in table order."""
        groups: dict[str, list[str]] = {}
        for entry in self.entries:
            versions = groups.setdefault(entry.group, [])
            if entry.version not in versions:
                versions.append(entry.version)
        return groups
