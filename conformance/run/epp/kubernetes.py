"""The Kubernetes channel: the pool as objects of the emulated API, and trouble with that API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.errors import UsageError
from conformance.run.epp import loads
from conformance.run.epp.members import OTHER_NAMESPACE, Member, PoolSpec
from conformance.scenario.models import OF_ANOTHER_NAMESPACE, OF_ANOTHER_POOL, NamedBy
from conformance.scenario.pool import LABELS, KubernetesFault, Pod
from conformance.targets.profile import Kubernetes
from fake_kubernetes import (
    INFERENCE_MODELS,
    INFERENCE_OBJECTIVES,
    INFERENCE_POOLS,
    INFERENCE_POOLS_V1ALPHA2,
    LLM_D_OBJECTIVES,
    PODS,
    Change,
    Emulator,
    Faults,
    KubernetesEmulatorError,
    builders,
)

FURTHER = {"pod-template-hash": "5d8c7b9f6"}
"""A label that the pool says nothing about, as every pod of a Deployment has one."""

SLOW = 0.3
"""Seconds before every answer of an API that is slow."""


class KubernetesApi:
    """Keeps the store equal to the pool; delivered once every watch of a changed kind has been sent the change."""

    def __init__(self, emulator: Emulator, settings: Kubernetes) -> None:
        self._emulator = emulator
        self._settings = settings
        self._newest: dict[str, Change] = {}
        self._lost = False
        self._beside: list[Change] = []
        """Other pools, and InferenceModels that reference them."""
        self._models: dict[str, set[str]] = {}
        """By model that scenarios changed: the InferenceModels that name it."""
        self._outage = False
        """It is lost until the change was published."""
        self._pods: dict[tuple[str, str], dict[str, Any]] = {}
        self._pool: dict[str, Any] | None = None
        for name, priority in settings.objectives.items():
            for kind in (INFERENCE_OBJECTIVES, LLM_D_OBJECTIVES):  # an EPP reads those of one group
                objective = builders.objective(
                    name, priority, settings.pool, namespace=settings.namespace, pool_group=settings.group, kind=kind
                )
                emulator.store.put(objective)
        for model in settings.models:
            emulator.store.put(self._model(model, settings.pool, settings.namespace))
        for number, manifest in enumerate(settings.objects):
            try:
                emulator.store.put(manifest.model_dump(by_alias=True, exclude_unset=True))
            except KubernetesEmulatorError as problem:
                raise UsageError(f"discovery.kubernetes.objects[{number}] of the profile: {problem}") from None

    async def publish(self, members: Sequence[Member], spec: PoolSpec | None) -> None:
        """Make the objects match: deletions first, so that an address can pass from one pod to another."""
        if not self._lost:  # else all that is changed meanwhile is to be delivered afterwards
            self._newest = {}
        wanted = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in map(self._pod, members)}
        if wanted != self._pods:  # a restart of the target changes nothing
            for other in self._beside:
                self._emulator.store.delete(other.kind, other.name, other.namespace)
            self._beside = []
        for namespace, name in [key for key in self._pods if key not in wanted or self._replaced(key, wanted[key])]:
            self._note("pods", self._emulator.store.delete(PODS, name, namespace))
            del self._pods[namespace, name]
        for key, pod in wanted.items():
            if self._pods.get(key) != pod:
                self._note("pods", self._emulator.store.put(pod))
                self._pods[key] = pod
        pool = self._pool_object(self._settings.pool, spec.selector, spec.ports) if spec else None
        if pool is None and self._pool is not None:
            kind = INFERENCE_POOLS if self._settings.group == INFERENCE_POOLS.group else INFERENCE_POOLS_V1ALPHA2
            self._note("pool", self._emulator.store.delete(kind, self._settings.pool, self._settings.namespace))
        elif pool is not None and pool != self._pool:
            self._note("pool", self._emulator.store.put(pool))
        self._pool = pool

    async def delivered(self, timeout: float) -> bool:
        """Until each kind's newest change was sent to every watch that should see it. Trouble ends when this begins.

        While the API is lost nothing is delivered.
        """
        self._emulator.faults = Faults()
        if self._outage:
            self._outage = False
            self._emulator.compact()
            await self.restore()
        if self._lost:
            return False
        changes = list(self._newest.values())
        return all([await self._emulator.delivered(one.resource_version, timeout, {one.kind}) for one in changes])

    async def trouble(self, kind: KubernetesFault) -> None:
        """Begin some API trouble; it lasts until the next change of the pool was published in the midst of it."""
        emulator = self._emulator
        match kind:
            case "drop-watches":
                emulator.drop_watches()
            case "end-watches":
                emulator.end_watches()
            case "bookmark":
                emulator.bookmark()
            case "longer-versions":
                emulator.store.lengthen_versions()
            case "other-pools":
                names = [f"{letter}-{self._settings.pool}" for letter in "az"]  # in lists before it and after it
                objects = [self._pool_object(name, False, [8000]) for name in names]
                elsewhere = [f"{letter}-{self._settings.namespace}" for letter in "az"]
                objects += [self._pool_object(self._settings.pool, False, [8000], namespace=one) for one in elsewhere]
                objects += [self._model(OF_ANOTHER_POOL, names[0], self._settings.namespace)]
                objects += [self._model(OF_ANOTHER_NAMESPACE, self._settings.pool, OTHER_NAMESPACE)]
                self._beside = [emulator.store.put(one) for one in objects]
            case "refuse-watch-list":
                emulator.faults = Faults(refuse_watch_list=True)
                emulator.drop_watches()
            case "compact":
                emulator.compact()
            case "restart":
                await emulator.restart()
            case "outage":
                await self.lose()
                self._outage = True
            case "slow":
                emulator.faults = Faults(delay=SLOW)
            case "error":
                emulator.faults = Faults(failing=frozenset({"list", "watch"}))
                emulator.drop_watches()

    def change_models(self, models: Mapping[str, NamedBy]) -> None:
        """Let InferenceModels name these models so, one after the other: those that come do before the others go."""
        store = self._emulator.store
        for model, by in models.items():
            wanted = self._naming(model, by)
            kept = {one["metadata"]["name"] for one in wanted}
            changes = [store.put(one) for one in wanted]
            gone = [one for one in self._models.get(model, ()) if one not in kept]
            changes += [store.delete(INFERENCE_MODELS, one, self._settings.namespace) for one in gone]
            self._models[model] = kept
            for change in changes:
                self._note("models", change)

    def withdraw_models(self) -> None:
        """Let nothing name the models of `change_models` any more."""
        self.change_models(dict.fromkeys(self._models, "none"))

    async def lose(self) -> None:
        """Refuse connections and cut those that there are, until `restore`."""
        self._lost = True
        await self._emulator.go_down()

    async def restore(self) -> None:
        """Take connections again."""
        await self._emulator.come_up()
        self._lost = False

    # -- objects -------------------------------------------------------------------------------------------------------

    def _pod(self, member: Member) -> dict[str, Any]:
        pod = member.pod
        namespace = OTHER_NAMESPACE if pod.namespace == "other" else self._settings.namespace
        return builders.pod(
            pod.shares_name_with or pod.name,
            member.endpoints[0].rpartition(":")[0].strip("[]"),
            namespace=namespace,
            ready=True if pod.ready is None else pod.ready,
            terminating=member.fact.terminating,
            labels={**FURTHER, **pod.labels, **_engine_label(pod)},
            active_ports=[int(endpoint.rpartition(":")[2]) for endpoint in member.endpoints]
            if pod.active_ports
            else None,
        )

    def _replaced(self, key: tuple[str, str], pod: dict[str, Any]) -> bool:
        """Another address under the same name is another pod, unless it had none in between: its sandbox was remade."""
        before, after = (one["status"].get("podIP") for one in (self._pods[key], pod))
        return before is not None and after is not None and before != after

    def _pool_object(
        self, name: str, selector: bool | str, ports: Sequence[int], *, namespace: str | None = None
    ) -> dict[str, Any]:
        return builders.pool(
            name,
            LABELS[selector],
            list(ports),
            namespace=namespace or self._settings.namespace,
            version="v1" if self._settings.group == INFERENCE_POOLS.group else "v1alpha2",
        )

    def _naming(self, model: str, by: NamedBy) -> list[dict[str, Any]]:
        """The InferenceModels that name a model. Its weights lead to itself: whether it is rewritten is no rule's."""
        settings = self._settings
        first = self._model(model, settings.pool, settings.namespace)
        second = self._model(model, settings.pool, settings.namespace, name=f"{model}-again")
        match by:
            case "one":
                return [first]
            case "updated":
                first["spec"] |= {"criticality": "Critical", "targetModels": [{"name": model, "weight": 2}]}
                return [first]
            case "two":
                return [first, second]
            case "the-second":
                return [second]
            case "another-pool":
                return [self._model(model, f"a-{settings.pool}", settings.namespace)]
            case "none":
                return []

    def _model(self, model: str, pool: str, namespace: str, *, name: str = "") -> dict[str, Any]:
        return builders.model(name or model, model, pool, namespace=namespace, pool_group=self._settings.group)

    def _note(self, kind: str, change: Change) -> None:
        self._newest[kind] = change


def _engine_label(pod: Pod) -> Mapping[str, str]:
    """The label by which endpoint pickers select the names of gauges; pods of the default engine need none."""
    engine = loads.engine_of(pod)
    return {} if engine is None else {builders.ENGINE_TYPE: engine.value}
