"""The control endpoint over HTTP: every operation, its document, and requests that make no sense."""

from __future__ import annotations

import asyncio
import json

import httpx
import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_modelserver import Fleet, PodSpec
from fake_modelserver.control import Control, Recorder
from fake_modelserver.messages import Request


def controlled(run, look):
    """What `look(client, fleet)` gives, with a client of the control endpoint of a fleet that has one pod, `a`."""

    async def scenario():
        recorder = Recorder()
        async with (
            Fleet(on_scrape=recorder.scrape, on_request=recorder.request) as fleet,
            Control(fleet, recorder=recorder) as control,
            httpx.AsyncClient(base_url=f"http://{control.address}") as client,
        ):
            await fleet.add(PodSpec(name="a"))
            return await look(client, fleet)

    return run(scenario())


def test_only_addresses_and_own_names_are_served(run):
    """A web page can give its own name the address of this machine, and then use what is served there."""

    async def look(client, _):
        named = ("127.0.0.1:80", "localhost", "evil.example", "[::")
        return [(await client.get("/pods", headers={"host": host})).status_code for host in named]

    assert controlled(run, look) == [200, 200, 421, 421]


def test_a_pod_comes_is_changed_and_goes(run):
    async def look(client, fleet):
        body = {
            "name": "b/1",
            "engine": "sglang",
            "page": "real",
            "gauges": {"queue": 2, "kv": 0.5},
            "serving": {"max_running": 2, "between_tokens": {"mean": 0.001}},
            "faults": [{"type": "status", "path": "/health", "attributes": {"status": 503}}],
        }
        made = await client.post("/pods", json=body)
        assert made.status_code == 201, made.text
        assert made.json()["generation"] == "0.5.23"
        pod = fleet.pod("b/1")
        assert (await client.get(f"http://{pod.endpoint}/health")).status_code == 503
        assert [one["name"] for one in (await client.get("/pods")).json()] == ["a", "b/1"]
        changed = await client.patch("/pods/b%2F1", json={"adapters": ["x"], "accepting": False})
        assert (changed.json()["adapters"], changed.json()["accepting"], pod.accepting) == (["x"], False, False)
        restarted = await client.post("/pods/b%2F1/restart", json={})
        assert restarted.json()["accepting"] is True
        assert (await client.delete("/pods/b%2F1")).status_code == 204
        assert list(fleet.pods) == ["a"]

    controlled(run, look)


def test_gauges_are_set_pinned_and_read(run):
    async def look(client, fleet):
        assert (await client.put("/pods/a/gauges", json={"queue": 5, "running_loras": ["x"]})).status_code == 200
        assert fleet.pod("a").gauges.queue == 5
        pin = {"kind": "ramp", "start": 1, "stop": 0, "seconds": 3600}
        pinned = await client.put("/pods/a/pins/kv?rank=0", json=pin)
        assert pinned.json()["pinned"] == [["kv"]]
        page = (await client.get("/pods/a/page")).text
        assert "vllm:num_requests_waiting" in page
        assert fleet.scrapes("a") == 0
        assert pinned.json()["gauges"][0]["kv"] == pytest.approx(1, abs=0.05)
        assert (await client.delete("/pods/a/pins/kv")).status_code == 204
        assert (await client.delete("/pods/a/pins/kv")).status_code == 404
        assert fleet.pod("a").gauges.kv == 0

    controlled(run, look)


def test_faults_come_are_counted_and_go(run):
    async def look(client, fleet):
        fault = {"type": "status", "name": "early", "path": "/metrics", "count": 2, "attributes": {"status": 404}}
        assert (await client.post("/pods/a/faults", json=fault)).json()["attributes"] == {"status": 404}
        url = f"http://{fleet.pod('a').endpoint}/metrics"
        assert [(await client.get(url)).status_code for _ in range(3)] == [404, 404, 200]
        assert (await client.get("/pods/a")).json()["faults"][0]["befell"] == 2
        assert (await client.delete("/pods/a/faults/early")).status_code == 204
        missing = await client.delete("/pods/a/faults/early")
        assert (missing.status_code, missing.json()["error"]) == (404, "pod 'a' has no fault 'early'; now: none")
        await client.post("/pods/a/faults", json={"type": "down"})
        assert not fleet.pod("a").accepting
        assert (await client.delete("/pods/a/faults")).status_code == 204
        assert fleet.pod("a").accepting

    controlled(run, look)


def test_what_was_served_can_be_asked_for(run):
    async def look(client, fleet):
        base = f"http://{fleet.pod('a').endpoint}"
        await client.get(f"{base}/metrics")
        for number in range(3):
            await client.post(f"{base}/v1/completions", json={"model": "fake-model", "prompt": str(number)})
        served = (await client.get("/requests?pod=a&limit=2")).json()
        later = (await client.get(f"/requests?after={served[-1]['number']}")).json()
        assert [json.loads(one["body"])["prompt"] for one in (*served, *later)] == ["0", "1", "2"]
        assert {one["model"] for one in served} == {"fake-model"}
        assert [one["outcome"] for one in (await client.get("/scrapes")).json()] == ["ok"]
        assert (await client.get("/requests?pod=other")).json() == []

    controlled(run, look)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("GET", "/nothing", None, 404, "there is no /nothing; GET /openapi.json lists what there is"),
        ("PUT", "/pods", None, 405, "/pods takes GET, POST, not PUT"),
        ("GET", "/pods/b", None, 404, "no pod 'b' in the fleet. Pods now: a."),
        ("POST", "/pods", {"name": "a"}, 409, "pod 'a' is already in the fleet"),
        ("POST", "/pods", {}, 422, "name: Field required"),
        ("POST", "/pods", {"name": "b", "colour": 1}, 422, "colour: Extra inputs are not permitted"),
        ("POST", "/pods", {"name": "b", "engine": "ollama"}, 422, "engine: Input should be 'vllm'"),
        (
            "POST",
            "/pods",
            {"name": "b", "generation": "0.7"},
            422,
            "generation is '0.7'; of vllm the fleet knows 0.33.0",
        ),
        ("POST", "/pods", {"name": "b", "faults": [{"type": "no"}]}, 422, "faults.0.type: Input should be 'down'"),
        ("POST", "/pods", b"{", 422, "body: Invalid JSON"),
        ("POST", "/pods", b"[]", 422, "body: Input should be an object"),
        ("PATCH", "/pods/a", {"healthy": "yes"}, 422, "healthy: Input should be a valid boolean"),
        ("PUT", "/pods/a/gauges", {"queue": -1}, 422, "queue is -1; it is a number of requests, 0 or more"),
        ("PUT", "/pods/a/gauges", {"kv": 1.5}, 422, "kv is 1.5; it is a share of the cache, from 0 to 1"),
        ("PUT", "/pods/a/gauges", {"queue": "many"}, 422, "queue: Input should be a valid integer"),
        ("PUT", "/pods/a/gauges?rank=1", {}, 422, "rank is 1; pod 'a' has 1, counted from 0"),
        ("PUT", "/pods/a/gauges?rank=x", {}, 422, "rank is 'x'; it is a whole number from 0"),
        ("PUT", "/pods/a/pins/kv", {"kind": "constant", "value": 2}, 422, "kv takes values from 2 to 2"),
        ("PUT", "/pods/a/pins/lora", {"kind": "constant", "value": 2}, 422, "gauge is 'lora'"),
        ("PUT", "/pods/a/pins/kv", {"kind": "sine"}, 422, "body: Input tag 'sine'"),
        ("POST", "/pods/a/faults", {"type": "latency", "attributes": {"delay": 1}}, 422, "unknown attribute 'delay'"),
        ("POST", "/pods/a/faults", {"type": "status", "attributes": {"status": 200}}, 422, "status is 200"),
        ("POST", "/pods/a/restart", {"down": -1}, 422, "down: Input should be greater than or equal to 0"),
        ("GET", "/requests?limit=-1", None, 422, "limit is '-1'"),
    ],
)
def test_requests_that_make_no_sense_say_why(run, method, path, body, status, message):
    async def look(client, fleet):
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        answer = await client.request(method, path, content=content)
        return answer.status_code, answer.json()["error"], list(fleet.pods)

    found, error, pods = controlled(run, look)
    assert (found, pods) == (status, ["a"])
    assert message in error


def test_the_document_describes_every_operation(run):
    async def look(client, _):
        return (await client.get("/openapi.json")).json(), (await client.get("/faults")).json()

    document, faults = controlled(run, look)
    assert document["openapi"].startswith("3.1")
    operations = [one for methods in document["paths"].values() for one in methods.values()]
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert all(one["summary"] for one in operations)
    schema = document["paths"]["/pods"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    complete = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator.check_schema(complete)
    jsonschema.validate({"name": "b", "serving": {"max_running": 2}}, complete)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "b", "engine": "ollama"}, complete)
    assert faults["latency"]["attributes"]["latency"]["default"] == 1000


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    path=st.sampled_from(["/pods", "/pods/a", "/pods/a/gauges", "/pods/a/faults", "/pods/a/pins/kv", "/requests"]),
    query=st.sampled_from(["", "?rank=", "?rank=9", "?after=x", "?limit=999999999999999999999"]),
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["name", "queue", "kv", "type", "attributes", "kind", "value", "ranks"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=6,
    ),
)
def test_no_request_breaks_the_endpoint(method, path, query, body):
    async def scenario():
        async with Fleet(mode="shared") as fleet:
            await fleet.add(PodSpec(name="a"))
            control = Control(fleet, recorder=Recorder())
            content = json.dumps(body).encode()
            response = control._answer(Request(method=method, target=path + query, headers=(), body=content))
            return (await response.later()).status

    assert asyncio.run(scenario()) in (200, 201, 204, 404, 405, 409, 422)
