"""The HTTP face: discovery in both forms, the verbs, refusals, reviews, forms of answers, the request log."""

from __future__ import annotations

import json

import pytest
import yaml

from fake_kubernetes import (
    INFERENCE_OBJECTIVES,
    INFERENCE_POOLS,
    LLM_D_OBJECTIVES,
    PODS,
    Delivery,
    Emulator,
    Faults,
    KubernetesEmulatorError,
    RequestRecord,
    builders,
    without,
)
from fake_kubernetes.kinds import CORE

PODS_PATH = "/api/v1/namespaces/default/pods"
POOLS_PATH = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"
OBJECTIVES_PATH = "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/default/inferenceobjectives"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PROTOBUF = {"content-type": "application/vnd.kubernetes.protobuf"}


def _refused(answer, code, reason):
    status = answer.json()
    assert answer.status_code == code, answer.text
    assert (status["kind"], status["status"], status["code"]) == ("Status", "Failure", code)
    assert status["reason"] == reason
    return status["message"]


async def test_discovery_in_both_forms_names_the_same_resources(serving):
    async with serving() as (_, client):
        plain, whole = set(), set()
        assert (await client.get("/api")).json()["versions"] == ["v1"]
        groups = (await client.get("/apis", headers={"accept": "application/json"})).json()["groups"]
        paths = ["/api/v1"] + [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups]
        for path in paths:
            for resource in (await client.get(path)).json()["resources"]:
                plain.add((path, resource["name"], resource["kind"], resource["namespaced"]))
        for root in ("/api", "/apis"):
            answer = await client.get(root, headers={"accept": f"{AGGREGATED},application/json"})
            assert answer.headers["content-type"] == AGGREGATED
            for group in answer.json()["items"]:
                name = group["metadata"]["name"]
                for version in group["versions"]:
                    path = f"/apis/{name}/{version['version']}" if name else f"/api/{version['version']}"
                    for resource in version["resources"]:
                        kind, namespaced = resource["responseKind"]["kind"], resource["scope"] == "Namespaced"
                        whole.add((path, resource["resource"], kind, namespaced))
                        for sub in resource.get("subresources", ()):
                            whole.add((path, f"{resource['resource']}/{sub['subresource']}", kind, namespaced))
        assert plain == whole
        assert (
            "/apis/inference.networking.x-k8s.io/v1alpha2",
            "inferenceobjectives",
            "InferenceObjective",
            True,
        ) in plain
        group = (await client.get("/apis/inference.networking.k8s.io")).json()
        assert group["kind"] == "APIGroup"
        assert group["preferredVersion"]["version"] == "v1"
        assert (await client.get("/version")).json()["major"] == "1"
        for path in ("/healthz", "/readyz", "/livez", "/livez/ping"):
            assert (await client.get(path)).text == "ok"


async def test_kinds_that_are_left_out_are_nowhere(serving):
    kinds = without("inferenceobjectives", "inferencemodels", "inferencemodelrewrites")
    async with serving(kinds=kinds) as (_, client):
        names = [
            each["name"]
            for each in (await client.get("/apis/inference.networking.x-k8s.io/v1alpha2")).json()["resources"]
        ]
        assert names == ["inferencepools", "inferencepools/status"]
        _refused(await client.get(OBJECTIVES_PATH), 404, "NotFound")


async def test_the_life_of_an_object(serving):
    async with serving() as (emulator, client):
        created = await client.post(POOLS_PATH, json=builders.pool("p", {"app": "x"}, [8000]))
        assert created.status_code == 201
        first = created.json()
        assert (await client.get(f"{POOLS_PATH}/p")).json() == first

        first["spec"]["targetPorts"] = [{"number": 9000}]
        second = (await client.put(f"{POOLS_PATH}/p", json=first)).json()
        assert second["metadata"]["generation"] == 2
        assert second["metadata"]["uid"] == first["metadata"]["uid"]
        _refused(await client.put(f"{POOLS_PATH}/p", json=first), 409, "Conflict")  # it has the earlier version

        patch = {"metadata": {"labels": {"a": "b"}}}
        merge = {"content-type": "application/merge-patch+json"}
        third = (await client.patch(f"{POOLS_PATH}/p", json=patch, headers=merge)).json()
        assert third["metadata"]["labels"] == {"a": "b"}
        assert third["metadata"]["generation"] == 2
        operations = [{"op": "replace", "path": "/spec/targetPorts/0/number", "value": 7}]
        headers = {"content-type": "application/json-patch+json"}
        fourth = (await client.patch(f"{POOLS_PATH}/p", json=operations, headers=headers)).json()
        assert fourth["spec"]["targetPorts"] == [{"number": 7}]

        body = {**fourth, "spec": {}, "status": {"parents": []}}
        fifth = (await client.put(f"{POOLS_PATH}/p/status", json=body)).json()
        assert fifth["status"] == {"parents": []}
        assert fifth["spec"] == fourth["spec"]
        assert emulator.store.get(INFERENCE_POOLS, "p") == fifth

        deleted = (await client.delete(f"{POOLS_PATH}/p")).json()
        assert deleted["status"] == "Success"
        assert deleted["details"]["uid"] == first["metadata"]["uid"]
        assert 'inferencepools.inference.networking.k8s.io "p" not found' in _refused(
            await client.get(f"{POOLS_PATH}/p"), 404, "NotFound"
        )


async def test_lists_are_whole_and_selected(serving):
    async with serving() as (emulator, client):
        for number in range(5):
            emulator.store.put(builders.pod(f"p{number}", "127.0.0.1", labels={"n": str(number)}))
        emulator.store.put(builders.pod("p0", "127.0.0.1", namespace="other"))
        emulator.store.put(builders.objective("o", 1, "pool"))

        async def names(path, **query):
            listed = (await client.get(path, params=query)).json()
            assert listed["metadata"] == {"resourceVersion": str(emulator.store.resource_version)}
            return [f"{each['metadata']['namespace']}/{each['metadata']['name']}" for each in listed["items"]]

        every = [f"default/p{number}" for number in range(5)]
        assert await names(PODS_PATH, limit="2", resourceVersion="0") == every
        assert await names("/api/v1/pods") == [*every, "other/p0"]
        assert await names("/api/v1/pods", fieldSelector="metadata.name=p0") == ["default/p0", "other/p0"]
        assert await names("/api/v1/pods", fieldSelector="metadata.namespace!=default") == ["other/p0"]
        assert await names(PODS_PATH, labelSelector="n in (1,3)") == ["default/p1", "default/p3"]
        assert await names("/api/v1/namespaces/nowhere/pods") == []
        assert (await client.get(PODS_PATH)).json()["kind"] == "PodList"

        answer = await client.delete(PODS_PATH, params={"labelSelector": "n!=1"})
        assert [each["metadata"]["name"] for each in answer.json()["items"]] == ["p0", "p2", "p3", "p4"]
        assert await names("/api/v1/pods") == ["default/p1", "other/p0"]


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: kind.kind)
async def test_core_kinds_can_be_listed_and_created(serving, kind):
    async with serving() as (_, client):
        root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
        path = f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
        assert (await client.get(path)).json()["items"] == []
        made = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "one"}}
        assert (await client.post(path, json=made)).status_code == 201
        (item,) = (await client.get(f"{root}/{kind.plural}")).json()["items"]
        assert item["metadata"]["name"] == "one"


async def test_refusals_are_status_documents(serving):
    async with serving() as (emulator, client):
        pod = builders.pod("a", "127.0.0.1")
        assert (await client.post(PODS_PATH, json=pod)).status_code == 201
        _refused(await client.post(PODS_PATH, json=pod), 409, "AlreadyExists")
        _refused(await client.get("/apis/unknown.group/v1/things"), 404, "NotFound")
        _refused(await client.get("/api/v1/namespaces/default/podtemplates"), 404, "NotFound")
        _refused(await client.get("/nothing"), 404, "NotFound")
        _refused(await client.get(f"{PODS_PATH}/a/log"), 404, "NotFound")
        _refused(await client.put(f"{PODS_PATH}/b", json=builders.pod("b", "127.0.0.1")), 404, "NotFound")
        _refused(await client.delete(f"{PODS_PATH}/b"), 404, "NotFound")
        _refused(await client.post(f"{PODS_PATH}/a", json=pod), 405, "MethodNotAllowed")
        _refused(await client.post("/api/v1/pods", json=pod), 405, "MethodNotAllowed")
        _refused(await client.put(PODS_PATH, json=pod), 405, "MethodNotAllowed")
        _refused(await client.post(PODS_PATH, content=b"{"), 400, "BadRequest")
        _refused(await client.post(PODS_PATH, json=[]), 400, "BadRequest")
        _refused(await client.post(PODS_PATH, json=builders.pool("p", {}, [1])), 400, "BadRequest")
        _refused(await client.post(PODS_PATH, json=builders.pod("b", "", namespace="other")), 400, "BadRequest")
        _refused(await client.put(f"{PODS_PATH}/a", json=builders.pod("b", "")), 400, "BadRequest")
        _refused(await client.post(PODS_PATH, json=builders.pod("Not A Name", "")), 422, "Invalid")
        _refused(await client.post(PODS_PATH, json=builders.pod("", "")), 422, "Invalid")
        labelled = builders.pod("b", "")
        labelled["metadata"]["labels"] = {"a": 1}
        _refused(await client.post(PODS_PATH, json=labelled), 422, "Invalid")
        versioned = builders.pod("b", "")
        versioned["metadata"]["resourceVersion"] = "1"
        _refused(await client.post(PODS_PATH, json=versioned), 400, "BadRequest")
        preconditions = json.dumps({"preconditions": {"uid": "other"}})
        headers = {"content-type": "application/json"}
        answer = await client.request("DELETE", f"{PODS_PATH}/a", content=preconditions, headers=headers)
        _refused(answer, 409, "Conflict")
        message = _refused(
            await client.post(PODS_PATH, content=b"k8s\0", headers=PROTOBUF), 415, "UnsupportedMediaType"
        )
        assert "application/json" in message
        assert "protobuf" in message
        answer = await client.patch(f"{PODS_PATH}/a", json={}, headers={"content-type": "text/plain"})
        _refused(answer, 415, "UnsupportedMediaType")
        only_protobuf = {"accept": "application/vnd.kubernetes.protobuf"}
        _refused(await client.get(PODS_PATH, headers=only_protobuf), 406, "NotAcceptable")
        for query, code, reason in (
            ({"labelSelector": "a=b=c"}, 400, "BadRequest"),
            ({"fieldSelector": "spec.image=x"}, 400, "BadRequest"),
            ({"resourceVersion": "new"}, 422, "Invalid"),
            ({"resourceVersion": "999999"}, 504, "Timeout"),
            ({"resourceVersion": "1", "resourceVersionMatch": "Exact"}, 410, "Expired"),
            ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422, "Invalid"),
            ({"resourceVersion": "1", "resourceVersionMatch": "Newest"}, 422, "Invalid"),
            ({"resourceVersionMatch": "NotOlderThan"}, 422, "Invalid"),
            ({"sendInitialEvents": "true"}, 422, "Invalid"),
            ({"watch": "1", "timeoutSeconds": "soon"}, 400, "BadRequest"),
            ({"watch": "1", "sendInitialEvents": "true"}, 422, "Invalid"),
            ({"watch": "1", "resourceVersionMatch": "NotOlderThan"}, 422, "Invalid"),
        ):
            _refused(await client.get(PODS_PATH, params=query), code, reason)
        assert [change.name for change in emulator.store.list(PODS)] == ["a"]


async def test_items_of_a_list_say_what_they_are_as_those_of_a_real_server_do(serving):
    """Not those of built-in kinds: the list's own kind says it. Events of a watch do."""

    async with serving() as (emulator, client):
        emulator.store.put(builders.pod("a", "127.0.0.1"))
        for kind in (INFERENCE_OBJECTIVES, LLM_D_OBJECTIVES):
            emulator.store.put(builders.objective("low", -1, "pool", kind=kind))
        (pod,) = (await client.get(PODS_PATH)).json()["items"]
        assert (pod["metadata"]["name"], "kind" in pod, "apiVersion" in pod) == ("a", False, False)
        for kind in (INFERENCE_OBJECTIVES, LLM_D_OBJECTIVES):
            path = f"/apis/{kind.api_version}/namespaces/default/inferenceobjectives"
            (low,) = (await client.get(path)).json()["items"]
            assert (low["kind"], low["apiVersion"]) == ("InferenceObjective", kind.api_version)
        query = {"watch": "1", "timeoutSeconds": "1"}
        event = (await client.get(PODS_PATH, params=query)).text.splitlines()[0]
        assert json.loads(event)["object"]["kind"] == "Pod"


async def test_generated_names_dry_runs_and_apply(serving):
    async with serving() as (emulator, client):
        pod = builders.pod("", "127.0.0.1")
        pod["metadata"] = {"generateName": "web-"}
        name = (await client.post(PODS_PATH, json=pod)).json()["metadata"]["name"]
        assert name.startswith("web-")
        before = emulator.store.resource_version
        dry = {"dryRun": "All"}
        assert (await client.post(PODS_PATH, json=builders.pod("b", ""), params=dry)).status_code == 201
        merge = {"content-type": "application/merge-patch+json"}
        await client.patch(f"{PODS_PATH}/{name}", json={"metadata": {"labels": {"a": "b"}}}, params=dry, headers=merge)
        await client.delete(f"{PODS_PATH}/{name}", params=dry)
        assert emulator.store.resource_version == before
        apply = {"content-type": "application/apply-patch+yaml"}
        text = yaml.safe_dump(builders.pod("applied", "127.0.0.9"))
        assert (await client.patch(f"{PODS_PATH}/applied", content=text, headers=apply)).status_code == 201
        assert (await client.patch(f"{PODS_PATH}/applied", content=text, headers=apply)).status_code == 200
        _refused(await client.patch(f"{PODS_PATH}/applied", content="a: [", headers=apply), 400, "BadRequest")


async def test_built_in_kinds_need_not_be_named_in_bodies(serving):
    async with serving() as (_, client):
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        lease = {"metadata": {"name": "epp"}, "spec": {"holderIdentity": "a"}}
        created = await client.post(leases, json=lease)
        assert created.status_code == 201
        assert (created.json()["apiVersion"], created.json()["kind"]) == ("coordination.k8s.io/v1", "Lease")
        replaced = await client.put(f"{leases}/epp", json={**lease, "apiVersion": None, "kind": ""})
        assert (replaced.status_code, replaced.json()["kind"]) == (200, "Lease")
        _refused(await client.post(leases, json={**lease, "kind": "Pod"}), 400, "BadRequest")
        pool = builders.pool("p", {}, [1])
        del pool["kind"]
        _refused(await client.post(POOLS_PATH, json=pool), 400, "BadRequest")


async def test_finalizers_hold_a_deletion_and_pods_terminate_before_they_go(serving, watching):
    async with serving() as (emulator, client):
        held = builders.pool("p", {}, [1])
        held["metadata"]["finalizers"] = ["example.com/wait"]
        emulator.store.put(held)
        assert (await client.delete(f"{POOLS_PATH}/p")).json()["metadata"]["deletionTimestamp"]
        headers = {"content-type": "application/merge-patch+json"}
        await client.patch(f"{POOLS_PATH}/p", json={"metadata": {"finalizers": None}}, headers=headers)
        assert emulator.store.get(INFERENCE_POOLS, "p") is None

        emulator.store.put(builders.pod("a", "127.0.0.1"))
        async with watching(client, PODS_PATH, resourceVersion=emulator.store.resource_version) as watch:
            assert (await client.delete(f"{PODS_PATH}/a")).json()["metadata"]["deletionTimestamp"]
            events = [await watch.next(), await watch.next()]
        assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]
        emulator.store.put(builders.pod("b", "127.0.0.1"))
        before = emulator.store.resource_version
        await client.delete(f"{PODS_PATH}/b", params={"gracePeriodSeconds": "0"})
        assert emulator.store.resource_version == before + 1


async def test_reviews_say_yes_and_events_are_accepted_whatever_the_body(serving):
    async with serving() as (_, client):
        for path, field in (
            ("/apis/authentication.k8s.io/v1/tokenreviews", "authenticated"),
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "allowed"),
            ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "allowed"),
        ):
            answer = await client.post(path, content=b"k8s\0\x0a\x01", headers=PROTOBUF)
            assert answer.status_code == 201
            assert answer.json()["status"][field] is True
            for question in ({"spec": {"token": "t"}}, {}, [], None):
                told = (await client.post(path, json=question)).json()
                assert (told["spec"], told["status"][field]) == (dict(question or {}).get("spec", {}), True)
            _refused(await client.get(path), 405, "MethodNotAllowed")
        events = "/api/v1/namespaces/default/events"
        assert (await client.post(events, content=b"k8s\0", headers=PROTOBUF)).status_code == 201
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"}, "involvedObject": {"name": "a"}}
        assert (await client.post(events, json=event)).status_code == 201
        query = {"fieldSelector": "involvedObject.name=a"}
        assert len((await client.get(events, params=query)).json()["items"]) == 1


async def test_tables_and_metadata_for_those_who_ask(serving, watching):
    async with serving() as (emulator, client):
        emulator.store.put(builders.pod("a", "127.0.0.1", ready=False))
        emulator.store.put(builders.pod("b", "", terminating=True))
        emulator.store.put(builders.pool("p", {"app": "x"}, [8000, 8001]))
        table = {"accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
        pods = (await client.get(PODS_PATH, headers=table)).json()
        assert pods["kind"] == "Table"
        assert [column["name"] for column in pods["columnDefinitions"]] == ["Name", "Ready", "Status", "IP", "Age"]
        assert [row["cells"][:4] for row in pods["rows"]] == [
            ["a", "False", "Running", "127.0.0.1"],
            ["b", "True", "Terminating", "<none>"],
        ]
        assert pods["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        pool = (await client.get(f"{POOLS_PATH}/p", headers=table, params={"includeObject": "Object"})).json()
        assert pool["rows"][0]["cells"][:3] == ["p", "app=x", "8000,8001"]
        assert pool["rows"][0]["object"]["kind"] == "InferencePool"
        metadata = {"accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
        listed = (await client.get(PODS_PATH, headers=metadata)).json()
        assert listed["kind"] == "PartialObjectMetadataList"
        assert set(listed["items"][0]) == {"kind", "apiVersion", "metadata"}


async def test_the_log_says_who_asked_what_and_on_event_hears_it(serving, watching):
    heard = []
    async with serving(on_event=heard.append) as (emulator, client):
        client.headers["user-agent"] = "epp/1.5"
        emulator.store.put(builders.pod("a", "127.0.0.1"))
        await client.get(PODS_PATH, params={"limit": "5"}, headers={"accept": "*/*"})
        await client.get("/apis/none")
        async with watching(client, PODS_PATH) as watch:
            await watch.next()
        listing, unknown, opened = emulator.requests
        assert (listing.method, listing.path, listing.query) == ("GET", PODS_PATH, {"limit": "5"})
        assert (listing.user_agent, listing.accept, listing.status) == ("epp/1.5", "*/*", 200)
        assert unknown.status == 404
        assert "could not find" in unknown.message
        (delivery,) = opened.watch.events
        assert (delivery.type, delivery.name, delivery.user_agent) == ("ADDED", "a", "epp/1.5")
        assert delivery.resource_version == emulator.store.resource_version
        assert str(listing) == f"GET {PODS_PATH}?limit=5 -> 200"
        assert f"GET {PODS_PATH}?watch=true -> 200, 1 event, open" in str(opened)
        assert [each for each in heard if isinstance(each, RequestRecord)] == [listing, unknown, opened]
        assert [each for each in heard if isinstance(each, Delivery)] == [delivery]


@pytest.mark.parametrize("verb", ["list", "watch", "get", "discovery"])
async def test_verbs_can_be_made_to_fail(serving, verb):
    paths = {"list": PODS_PATH, "watch": f"{PODS_PATH}?watch=true", "get": f"{PODS_PATH}/a", "discovery": "/apis"}
    async with serving() as (emulator, client):
        emulator.store.put(builders.pod("a", "127.0.0.1"))
        emulator.faults = Faults(failing=frozenset({verb}))
        for each, path in paths.items():
            async with client.stream("GET", path) as answer:
                assert answer.status_code == (500 if each == verb else 200)
        emulator.faults = Faults()
        assert (await client.get(PODS_PATH)).status_code == 200


async def test_a_defect_of_the_emulator_is_an_answer_and_not_a_hang(serving, caplog, monkeypatch):
    async with serving() as (emulator, client):
        monkeypatch.setattr(emulator.store, "list", lambda *_: 1 / 0)
        message = _refused(await client.get(PODS_PATH), 500, "InternalError")
        assert "ZeroDivisionError" in message
        assert emulator.requests[-1].message == message
    assert "the emulator failed on GET" in caplog.text


async def test_a_taken_port_is_explained_and_the_kubeconfig_leads_here(serving, tmp_path):
    async with serving() as (emulator, client):
        with pytest.raises(KubernetesEmulatorError, match=rf"can't listen on 127\.0\.0\.1:{emulator.port}"):
            await Emulator(port=emulator.port).start()
        text = emulator.kubeconfig(tmp_path / "kubeconfig", namespace="other").read_text()
        document = yaml.safe_load(text)
        cluster = document["clusters"][0]["cluster"]
        assert cluster["server"] == emulator.url == f"http://127.0.0.1:{emulator.port}"
        assert cluster["insecure-skip-tls-verify"] is True  # without it the client for Node takes no plain HTTP
        assert document["contexts"][0]["context"]["namespace"] == "other"
        path = emulator.kubeconfig(tmp_path / "inside", server="http://172.17.0.1:1")
        assert "server: http://172.17.0.1:1\n" in path.read_text()
        emulator.kubeconfig(tmp_path / "named", server="http://host.example:1")
        assert (await client.get(PODS_PATH, headers={"host": "host.example:1"})).status_code == 200
    assert Emulator(host="0.0.0.0", port=1).url == "http://127.0.0.1:1"
    assert Emulator(host="::1", port=1).url == "http://[::1]:1"
