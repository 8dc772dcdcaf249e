"""A Kubernetes API server, as far as endpoint pickers use one: no cluster, no etcd, one asyncio loop.

async with Emulator() as emulator:
    emulator.store.put(builders.pool("pool", {"app": "vllm"}, [8000]))
    change = emulator.store.put(builders.pod("a", "127.0.1.1", labels={"app": "vllm"}))
    emulator.kubeconfig("kubeconfig.yaml")          # start an EPP with KUBECONFIG=kubeconfig.yaml
    await emulator.delivered(change.resource_version, timeout=5)

emulator.py   the object the suite holds        store.py      objects, and the log of their changes
api.py        requests to answers               objects.py    the verbs on objects
watch.py      open watches                      discovery.py  what is served
server.py     HTTP on the loop                  faults.py     API trouble
builders.py   pods, pools, objectives           log.py        what was asked and delivered
"""

from fake_kubernetes import builders
from fake_kubernetes.emulator import Emulator, EmulatorEvent
from fake_kubernetes.errors import KubernetesEmulatorError
from fake_kubernetes.faults import Faults
from fake_kubernetes.kinds import (
    EVENTS,
    INFERENCE_MODEL_REWRITES,
    INFERENCE_MODELS,
    INFERENCE_OBJECTIVES,
    INFERENCE_POOLS,
    INFERENCE_POOLS_V1ALPHA2,
    KINDS,
    LEASES,
    LLM_D_OBJECTIVES,
    NAMESPACES,
    PODS,
    Kind,
    without,
)
from fake_kubernetes.log import Delivery, RequestRecord, WatchRecord
from fake_kubernetes.store import Change, Store

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
    "Change",
    "Delivery",
    "Emulator",
    "EmulatorEvent",
    "Faults",
    "Kind",
    "KubernetesEmulatorError",
    "RequestRecord",
    "Store",
    "WatchRecord",
    "builders",
    "without",
]
