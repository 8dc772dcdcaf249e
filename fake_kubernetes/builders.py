"""Objects as EPPs read them: pods, pools, objectives, models, rewrites; and the kubeconfig that leads to the emulator.

Each builder returns a plain dict for `Store.put`. They fill in what the CRDs require and EPPs ignore (an endpoint
picker reference, a container), so that real tools accept the objects too; nothing is checked, since wrong objects are
stimuli.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fake_kubernetes.kinds import (
    INFERENCE_MODEL_REWRITES,
    INFERENCE_MODELS,
    INFERENCE_OBJECTIVES,
    INFERENCE_POOLS,
    INFERENCE_POOLS_V1ALPHA2,
    PODS,
    Kind,
)

__all__ = ["ACTIVE_PORTS", "ENGINE_TYPE", "kubeconfig", "model", "objective", "pod", "pool", "rewrite"]

Object = dict[str, Any]

ACTIVE_PORTS = "inference.networking.k8s.io/active-ports"
"""Annotation of a pod: which of the pool's target ports are served there (GIE from 1.3 on)."""

ENGINE_TYPE = "inference.networking.k8s.io/engine-type"
"""Label of a pod: which model server it runs, so which gauge names an EPP reads (GIE from 1.5 on)."""

Readiness = bool | Literal["unknown", "missing", "gated", "pending", "ended"]

_SCHEDULED = {"PodScheduled": "True"}
_STARTED = {"PodReadyToStartContainers": "True", "Initialized": "True"}
_CONDITIONS: Mapping[bool | str, Mapping[str, str]] = {
    True: {**_STARTED, "Ready": "True", "ContainersReady": "True", **_SCHEDULED},
    False: {**_STARTED, **_SCHEDULED, "ContainersReady": "False", "Ready": "False"},
    "unknown": {**_STARTED, **_SCHEDULED, "ContainersReady": "Unknown", "Ready": "Unknown"},
    "missing": {**_STARTED, **_SCHEDULED},
    "gated": {**_STARTED, **_SCHEDULED, "ContainersReady": "True", "Ready": "False"},
    "pending": _SCHEDULED,
    "ended": {
        "PodReadyToStartContainers": "False",
        "Initialized": "True",
        "Ready": "False",
        "ContainersReady": "False",
        **_SCHEDULED,
    },
}
"""In the kubelet's order and in another one: conditions are found by their type, never by their place."""

_PHASES = {"pending": "Pending", "ended": "Succeeded"}

_CONTAINERS = ("auth-proxy", "model-server")

_TEMPLATE = "聊天模板" * 700
"""A chat template, which makes a pod some 10 KB long, as those of a cluster are, and most of it no ASCII."""

_EPOCH = "2000-01-01T00:00:00Z"  # fixed, so that building the same pod twice makes no change


def pod(
    name: str,
    ip: str,
    *,
    namespace: str = "default",
    ready: Readiness = True,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    active_ports: Sequence[int] | None = None,
    terminating: bool = False,
) -> Object:
    """Return a Pod with address `ip` ("" for none yet). `active_ports` sets the annotation of that name.

    `ready` is its Ready condition: True, False, Unknown, none at all, or (`gated`) False although its containers are
    ready, as a readiness gate makes it. A pod that is `pending` was only scheduled, and has no address whatever `ip`
    says; one that has `ended` ran to its end. `terminating` gives it a deletionTimestamp while it stays as ready as it
    is.
    """
    annotations = dict(annotations or {})
    if active_ports is not None:
        annotations[ACTIVE_PORTS] = ",".join(str(port) for port in active_ports)
    obj = _object(PODS, name, namespace, labels=labels, annotations=annotations)
    if terminating:
        obj["metadata"] |= {"deletionTimestamp": _EPOCH, "deletionGracePeriodSeconds": 30}
    containers: list[Object] = [{"name": name, "image": name} for name in _CONTAINERS]
    containers[-1]["env"] = [{"name": "CHAT_TEMPLATE", "value": _TEMPLATE}]
    obj["spec"] = {"containers": containers, "nodeName": "emulated"}
    obj["status"] = {
        "phase": _PHASES.get(str(ready), "Running"),
        "conditions": [
            {"type": kind, "status": status, "lastTransitionTime": _EPOCH}
            for kind, status in _CONDITIONS[ready].items()
        ],
        "containerStatuses": [_container_status(name, ready) for name in _CONTAINERS],
    }
    if ip and ready != "pending":
        obj["status"] |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    return obj


def pool(
    name: str,
    selector: Mapping[str, str],
    target_ports: Sequence[int],
    *,
    namespace: str = "default",
    version: Literal["v1", "v1alpha2"] = "v1",
    app_protocol: str | None = None,
) -> Object:
    """Return an InferencePool that selects pods by labels and serves on `target_ports`.

    `v1alpha2` is the one of the experimental group and knows one port; a longer list raises ValueError there.
    """
    reference = {"name": f"{name}-epp", "failureMode": "FailClose"}
    if version == "v1alpha2":
        if len(target_ports) != 1:
            raise ValueError(f"an InferencePool v1alpha2 has exactly one target port, not {list(target_ports)}")
        obj = _object(INFERENCE_POOLS_V1ALPHA2, name, namespace)
        obj["spec"] = {"selector": dict(selector), "targetPortNumber": target_ports[0], "extensionRef": reference}
        return obj
    obj = _object(INFERENCE_POOLS, name, namespace)
    obj["spec"] = {
        "selector": {"matchLabels": dict(selector)},
        "targetPorts": [{"number": port} for port in target_ports],
        "endpointPickerRef": {**reference, "port": {"number": 9002}},
    }
    if app_protocol is not None:
        obj["spec"]["appProtocol"] = app_protocol
    return obj


def objective(
    name: str,
    priority: int | None,
    pool: str,
    *,
    namespace: str = "default",
    pool_group: str = INFERENCE_POOLS.group,
    kind: Kind = INFERENCE_OBJECTIVES,
) -> Object:
    """Return an InferenceObjective; a negative `priority` marks requests that may be shed, None leaves it out.

    EPPs ignore it unless `pool_group` is the group of the pool they serve.
    """
    obj = _object(kind, name, namespace)
    obj["spec"] = {"poolRef": _pool_reference(pool, pool_group)}
    if priority is not None:
        obj["spec"]["priority"] = priority
    return obj


def model(
    name: str,
    model_name: str,
    pool: str,
    *,
    namespace: str = "default",
    criticality: Literal["Critical", "Standard", "Sheddable"] = "Standard",
    targets: Mapping[str, int] | None = None,
    pool_group: str = INFERENCE_POOLS_V1ALPHA2.group,
) -> Object:
    """Return an InferenceModel, as EPPs before 1.0 need one per served model. `targets` maps model names to weights."""
    obj = _object(INFERENCE_MODELS, name, namespace)
    obj["spec"] = {"modelName": model_name, "criticality": criticality, "poolRef": _pool_reference(pool, pool_group)}
    if targets:
        obj["spec"]["targetModels"] = [{"name": target, "weight": weight} for target, weight in targets.items()]
    return obj


def rewrite(
    name: str,
    model_name: str,
    targets: Mapping[str, int],
    pool: str,
    *,
    namespace: str = "default",
    pool_group: str = INFERENCE_POOLS.group,
) -> Object:
    """Return an InferenceModelRewrite of one rule: requests for `model_name` go to `targets`, by weight."""
    obj = _object(INFERENCE_MODEL_REWRITES, name, namespace)
    obj["spec"] = {
        "poolRef": _pool_reference(pool, pool_group),
        "rules": [
            {
                "matches": [{"model": {"type": "Exact", "value": model_name}}],
                "targets": [{"modelRewrite": target, "weight": weight} for target, weight in targets.items()],
            }
        ],
    }
    return obj


def kubeconfig(server: str, *, namespace: str = "default") -> str:
    """Return the text of a kubeconfig for `server`, a URL.

    The client for Node refuses plain HTTP unless TLS need not be verified, and that for .NET a user without
    credentials; the others do not mind. None are checked.
    """
    name = "epp-conformance"
    return f"""\
apiVersion: v1
kind: Config
current-context: {name}
clusters:
- name: {name}
  cluster:
    server: {server}
    insecure-skip-tls-verify: true
contexts:
- name: {name}
  context:
    cluster: {name}
    namespace: {namespace}
    user: {name}
users:
- name: {name}
  user: {{token: emulated}}
"""


def _container_status(name: str, ready: Readiness) -> Object:
    """A sidecar is ready as soon as it runs; of a node that is lost the last word on a container stands."""
    runs = ready not in ("pending", "ended")
    is_ready = runs and (name != "model-server" or ready not in (False, "missing"))
    state: Object = {"running": {"startedAt": _EPOCH}}
    if not runs:
        state = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        if ready == "pending":
            state = {"waiting": {"reason": "ContainerCreating"}}
    return {
        "name": name,
        "image": name,
        "imageID": "",
        "ready": is_ready,
        "started": runs,
        "restartCount": 0,
        "state": state,
    }


def _object(
    kind: Kind,
    name: str,
    namespace: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    metadata: Object = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    if annotations:
        metadata["annotations"] = dict(annotations)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def _pool_reference(name: str, group: str) -> Object:
    return {"group": group, "kind": "InferencePool", "name": name}
