"""The store, and the one property that matters: a watch from any version ends with what a list says."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_kubernetes import (
    INFERENCE_OBJECTIVES,
    INFERENCE_POOLS,
    NAMESPACES,
    PODS,
    KubernetesEmulatorError,
    Store,
    builders,
    without,
)
from fake_kubernetes.errors import ExpiredError
from fake_kubernetes.log import WatchRecord
from fake_kubernetes.selectors import LabelSelector, ObjectSelection
from fake_kubernetes.watch import OpenWatch, Watches, WatchOptions

pod_names = st.sampled_from(["a", "b", "c"])
namespaces = st.sampled_from(["default", "other"])
steps = st.one_of(
    st.tuples(st.just("put"), pod_names, namespaces, st.sampled_from(["in", "out"]), st.booleans()),
    st.tuples(st.just("terminate"), pod_names, namespaces),
    st.tuples(st.just("delete"), pod_names, namespaces),
    st.tuples(st.just("pool"), st.integers(1, 3)),
    st.tuples(st.just("compact")),
)


def _do(store: Store, step: tuple) -> None:
    match step:
        case ("put", name, namespace, label, ready):
            store.put(builders.pod(name, "127.0.0.1", namespace=namespace, labels={"side": label}, ready=ready))
        case ("terminate" | "delete" as verb, name, namespace):
            if store.latest(PODS, name, namespace) is not None:
                getattr(store, verb)(PODS, name, namespace)
        case ("pool", port):
            store.put(builders.pool("pool", {}, [port]))
        case ("compact",):
            store.compact()


class _Client:
    """A client's cache, as an informer keeps it; it insists that events make sense."""

    def __init__(self, listed: list[dict]) -> None:
        self.cache = {self._key(obj): obj for obj in listed}
        self.rest = b""
        self.expired = False
        self.version = 0

    def _key(self, obj: dict) -> tuple[str, str]:
        return obj["metadata"]["namespace"], obj["metadata"]["name"]

    async def receive(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            event = json.loads(line)
            obj = event["object"]
            if event["type"] == "ERROR":
                assert obj["code"] == 410
                assert obj["reason"] == "Expired"
                self.expired = True
                continue
            if event["type"] == "BOOKMARK":
                continue
            version = int(obj["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                del self.cache[self._key(obj)]
            else:
                assert (self._key(obj) in self.cache) is (event["type"] == "MODIFIED")
                self.cache[self._key(obj)] = obj
            self.version = max(version, self.version)


@settings(max_examples=150)
@given(st.lists(steps, max_size=12), st.lists(steps, max_size=12), st.booleans(), namespaces | st.none(), st.booleans())
def test_a_watcher_from_any_version_ends_with_what_a_list_says(before, after, from_start, namespace, selective):
    selection = ObjectSelection(namespace=namespace, labels=LabelSelector.parse("side=in" if selective else ""))

    async def scenario() -> None:
        store = Store()
        watches = Watches(store, bookmark_interval=60, on_delivery=lambda _: None)
        store.subscribe(lambda _: watches.signal.notify())

        def present() -> list[dict]:
            return [change.object for change in store.list(PODS) if selection.matches(change.object)]

        for step in before:
            _do(store, step)
        listed, start = present(), store.resource_version
        if from_start:
            for step in after:  # all of it happens before the watch begins
                _do(store, step)
        client = _Client(listed)
        record = WatchRecord(kind=PODS, namespace=namespace)
        watch = OpenWatch(watches, record, selection, WatchOptions(start=start, timeout=60), user_agent="test")
        task = asyncio.create_task(watch.run(client.receive))
        if not from_start:
            for step in after:
                _do(store, step)
                await asyncio.sleep(0)
        done = asyncio.create_task(watches.delivered(store.resource_version, 30, [PODS]))
        await asyncio.wait([task, done], return_when=asyncio.FIRST_COMPLETED)
        for pending in (task, done):
            pending.cancel()
        await asyncio.gather(task, done, return_exceptions=True)
        if client.expired:
            assert any(step == ("compact",) for step in after)
        else:
            expected = {(obj["metadata"]["namespace"], obj["metadata"]["name"]): obj for obj in present()}
            assert client.cache == expected
            assert record.position == store.resource_version

    asyncio.run(scenario())


@given(st.lists(steps, max_size=20))
def test_versions_only_rise_and_the_log_holds_every_change_since_the_compaction(taken):
    store = Store(history=4)
    seen = []
    store.subscribe(seen.append)
    for step in taken:
        _do(store, step)
    versions = [change.resource_version for change in seen if change]
    assert versions == sorted(set(versions))
    with pytest.raises(ExpiredError):
        store.since(0)
    assert not store.since(store.resource_version)
    if versions and seen[-1] is not None:
        assert [change.resource_version for change in store.since(versions[-1] - 1)] == versions[-1:]


def test_put_fills_in_and_keeps_what_the_server_owns():
    store = Store()
    first = store.put(builders.pod("a", "127.0.0.1"))
    metadata = first.object["metadata"]
    assert first.type == "ADDED"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"] == str(first.resource_version)
    assert store.put(builders.pod("a", "127.0.0.1")) is first  # nothing changed, so nothing happened
    second = store.put(builders.pod("a", "127.0.0.2"))
    assert second.type == "MODIFIED"
    assert second.object["metadata"]["uid"] == metadata["uid"]
    assert second.object["metadata"]["generation"] == 1  # status is no desired state
    assert second.previous == first.object
    pool = store.put(builders.pool("p", {}, [1]))
    assert store.put(builders.pool("p", {}, [2])).object["metadata"]["generation"] == 2
    assert pool.resource_version < store.resource_version


def test_a_pod_replaced_under_its_name_has_another_uid():
    store = Store()
    first = store.put(builders.pod("a", "127.0.0.1"))
    store.delete(PODS, "a")
    assert store.put(builders.pod("a", "127.0.0.2")).object["metadata"]["uid"] != first.object["metadata"]["uid"]


def test_what_is_handed_out_can_not_change_the_store():
    store = Store()
    given_in = builders.pod("a", "127.0.0.1")
    store.put(given_in)
    given_in["status"]["podIP"] = "other"
    store.get(PODS, "a")["status"]["podIP"] = "other"
    assert store.get(PODS, "a")["status"]["podIP"] == "127.0.0.1"


def test_deletion_in_two_steps():
    store = Store()
    store.put(builders.pod("a", "127.0.0.1"))
    terminating = store.terminate(PODS, "a")
    assert terminating.type == "MODIFIED"
    assert terminating.object["metadata"]["deletionTimestamp"]
    assert store.terminate(PODS, "a") is terminating
    gone = store.delete(PODS, "a")
    assert gone.type == "DELETED"
    assert gone.object["metadata"]["resourceVersion"] == str(gone.resource_version)
    assert store.get(PODS, "a") is None


def test_namespaces_come_with_objects_and_take_them_along():
    store = Store(namespaces=("default", "system"))
    store.put(builders.pod("a", "127.0.0.1", namespace="made"))
    assert [change.name for change in store.list(NAMESPACES)] == ["default", "made", "system"]
    store.delete(NAMESPACES, "made")
    assert store.list(PODS) == []


def test_misuse_is_explained():
    store = Store(without("inferenceobjectives"))
    with pytest.raises(KubernetesEmulatorError, match=r"no served kind.*inferencepools\.v1"):
        store.put(builders.objective("low", -1, "pool"))
    with pytest.raises(KubernetesEmulatorError, match="not served; pass it in"):
        store.list(INFERENCE_OBJECTIVES)
    with pytest.raises(KubernetesEmulatorError, match=r"needs metadata\.name"):
        store.put({"apiVersion": "v1", "kind": "Pod"})
    with pytest.raises(KubernetesEmulatorError, match="no InferencePool 'x' in namespace default"):
        store.delete(INFERENCE_POOLS, "x")
    with pytest.raises(KubernetesEmulatorError, match="no kind is called podz"):
        without("podz")


def test_a_pod_is_ready_by_the_condition_of_that_type_wherever_it_stands():
    def conditions(ready):
        return [(one["type"], one["status"]) for one in builders.pod("a", "::1", ready=ready)["status"]["conditions"]]

    states = (True, False, "unknown", "missing", "gated", "pending", "ended")
    said = {ready: dict(conditions(ready)).get("Ready") for ready in states}
    assert said == {
        True: "True", False: "False", "unknown": "Unknown", "missing": None,
        "gated": "False", "pending": None, "ended": "False",
    }  # fmt: skip
    for place in (0, 2, -1):  # a reader that goes by the place takes some pod for ready that is not
        assert any(conditions(ready)[place][1] == "True" for ready in (False, "gated", "ended"))


def test_a_pod_that_is_pending_has_no_address_and_one_that_ended_keeps_its_own():
    pending, ended = (builders.pod("a", "127.0.0.1", ready=ready)["status"] for ready in ("pending", "ended"))
    assert (pending["phase"], ended["phase"]) == ("Pending", "Succeeded")
    assert "podIP" not in pending
    assert ended["podIP"] == "127.0.0.1"


def test_builders_make_what_epps_read():
    pod = builders.pod("a", "::1", ready=False, labels={"app": "x"}, active_ports=[8000, 8001], terminating=True)
    assert pod["metadata"]["annotations"] == {"inference.networking.k8s.io/active-ports": "8000,8001"}
    assert pod["metadata"]["deletionTimestamp"]
    assert pod["status"]["podIP"] == "::1"
    assert {each["type"]: each["status"] for each in pod["status"]["conditions"]}["Ready"] == "False"
    assert "podIP" not in builders.pod("b", "")["status"]
    pool = builders.pool("p", {"app": "x"}, [8000, 8001], app_protocol="http")
    assert pool["apiVersion"] == "inference.networking.k8s.io/v1"
    assert pool["spec"]["selector"] == {"matchLabels": {"app": "x"}}
    assert pool["spec"]["targetPorts"] == [{"number": 8000}, {"number": 8001}]
    assert pool["spec"]["appProtocol"] == "http"
    old = builders.pool("p", {"app": "x"}, [8000], version="v1alpha2")
    assert old["apiVersion"] == "inference.networking.x-k8s.io/v1alpha2"
    assert old["spec"]["selector"] == {"app": "x"}
    assert old["spec"]["targetPortNumber"] == 8000
    with pytest.raises(ValueError, match="exactly one target port"):
        builders.pool("p", {}, [1, 2], version="v1alpha2")
    objective = builders.objective("low", -1, "p")
    assert objective["spec"] == {
        "poolRef": {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "p"},
        "priority": -1,
    }
    assert "priority" not in builders.objective("none", None, "p")["spec"]
    model = builders.model("m", "llama", "p", criticality="Sheddable", targets={"llama-v2": 100})
    assert model["spec"]["targetModels"] == [{"name": "llama-v2", "weight": 100}]
    rewrite = builders.rewrite("r", "llama", {"llama-v2": 1}, "p")
    assert rewrite["spec"]["rules"][0]["targets"] == [{"modelRewrite": "llama-v2", "weight": 1}]
    store = Store()
    for obj in (pod, pool, old, objective, model, rewrite):
        assert store.put(obj).type == "ADDED"
