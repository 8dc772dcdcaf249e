"""The Jobs that test and load an EPP of a cluster: their manifests, and their commands beside an EPP that watches.

No cluster is at hand: the Kubernetes emulator takes the pool and the Job's pod, the EPP finds the pod by the pool's
selector, and the commands run here with the pod's address.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from conformance import strict_yaml
from conformance.load.mix import LoadFile
from fake_kubernetes import Emulator, builders

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
MANIFESTS = [
    pytest.param(one, id=f"{path.name}-{one['kind']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text())
]
MODELS = {
    "ConfigMap": client.V1ConfigMap,
    "Job": client.V1Job,
    "NetworkPolicy": client.V1NetworkPolicy,
    "Role": client.V1Role,
    "RoleBinding": client.V1RoleBinding,
    "Service": client.V1Service,
    "ServiceAccount": client.V1ServiceAccount,
}
"""Kubernetes' schema as its Python client has it: unknown keys and wrong types are refused."""

_BLOCK = f"127.0.{1 + os.getpid() % 254}"
POD_IP = {
    "epp-conformance": f"{_BLOCK}.9",
    "epp-load": f"{_BLOCK}.10",
    "gateway-conformance": f"{_BLOCK}.11",
}
"""The address of the pod of each Job that serves a pool: in no block that pools of other runs take."""


GATEWAY = ("gateway.yaml", "gateway-conformance")
JOBS = [("job.yaml", "epp-conformance"), ("load.yaml", "epp-load"), GATEWAY, ("load.yaml", "epp-load-worker")]
"""Each Job by its file and its name."""

SERVING = JOBS[:3]
"""Those whose pods are the model servers."""


def manifest(kind: str, file: str = "job.yaml", name: str = "") -> dict:
    """The manifest of a kind in a file, and of a name where there are several."""
    found = [one for one in yaml.safe_load_all((FOLDER / file).read_text()) if one["kind"] == kind]
    (own,) = [one for one in found if not name or one["metadata"]["name"] == name]
    return own


def pod_of(job: dict) -> tuple[dict, dict]:
    """What the pods of a Job are made from, and their container."""
    template = job["spec"]["template"]
    (container,) = template["spec"]["containers"]
    return template, container


def expanded(arguments: list[str], **values: str) -> list[str]:
    """The arguments with variables as Kubernetes puts them in."""
    return [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], one) for one in arguments]


@pytest.mark.parametrize("one", [param for param in MANIFESTS if param.values[0]["kind"] in MODELS])
def test_manifests_are_of_kubernetes_schema(one):
    MODELS[one["kind"]].model_validate(one, strict=True)


def test_the_schema_refuses_what_an_api_server_would():
    job = yaml.safe_load(yaml.safe_dump(manifest("Job")))
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["imagePolicy"] = "Always"
    container["ports"][0]["containerPort"] = "8000"
    del container["name"]
    with pytest.raises(ValueError, match="3 validation errors"):
        client.V1Job.model_validate(job, strict=True)


@pytest.mark.parametrize(("file", "name"), SERVING)
def test_the_pool_selects_the_pod_and_the_suite_serves_its_ports(file, name):
    pool = manifest("InferencePool", file)
    template, container = pod_of(manifest("Job", file, name))
    selector = pool["spec"]["selector"]["matchLabels"]
    assert selector.items() <= template["metadata"]["labels"].items()
    ports = [one["number"] for one in pool["spec"]["targetPorts"]]
    assert [one["containerPort"] for one in container["ports"]][: len(ports)] == ports
    (endpoints,) = [one for one in container["args"] if one.startswith("--endpoints=")]
    assert [int(port) for port in re.findall(r":(\d+)", endpoints)] == ports


@pytest.mark.parametrize(("file", "name"), JOBS)
def test_no_container_runs_as_root_or_may_become_it(file, name):
    template, container = pod_of(manifest("Job", file, name))
    assert template["spec"]["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    account = manifest("ServiceAccount", file)
    assert template["spec"]["serviceAccountName"] == account["metadata"]["name"]
    assert account["automountServiceAccountToken"] is False


def test_workers_of_a_load_find_its_master_and_no_others_do():
    master, own = pod_of(manifest("Job", "load.yaml", "epp-load"))
    worker, other = pod_of(manifest("Job", "load.yaml", "epp-load-worker"))
    service, policy = manifest("Service", "load.yaml"), manifest("NetworkPolicy", "load.yaml")
    labels = master["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (port,) = [one["port"] for one in service["spec"]["ports"]]
    assert f"--bind=:{port}" in own["args"]
    assert f"{service['metadata']['name']}:{port}" in other["args"]
    workers = manifest("Job", "load.yaml", "epp-load-worker")["spec"]
    assert f"--workers={workers['completions']}" in own["args"]
    assert workers["parallelism"] == workers["completions"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    (allowed,) = [one for one in policy["spec"]["ingress"] if {"port": port} in one["ports"]]
    assert [one["podSelector"]["matchLabels"] for one in allowed["from"]] == [worker["metadata"]["labels"]]
    assert own["image"] == other["image"]


@pytest.fixture
def cluster(tmp_path, request):
    """The emulator with the pool and the pod of a Job, by its file and its name; yields the kubeconfig."""
    ready, done = threading.Event(), threading.Event()
    file, name = request.param
    job, pool = manifest("Job", file, name), manifest("InferencePool", file)
    kubeconfig = tmp_path / "kubeconfig"

    async def serve() -> None:
        async with Emulator() as emulator:
            emulator.store.put({**pool, "metadata": {**pool["metadata"], "namespace": "default", "name": "pool"}})
            labels = pod_of(job)[0]["metadata"]["labels"]
            emulator.store.put(builders.pod(f"{name}-x7k2p", POD_IP[name], labels=labels))
            emulator.kubeconfig(kubeconfig)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(30)
    yield kubeconfig
    done.set()
    thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def epp(cluster):
    """An EPP that finds its pool in the Kubernetes API; yields its address."""
    address = f"127.0.0.1:{free_port()}"
    script = ROOT / "tests" / "targets" / "kubernetes_epp.py"
    command = [sys.executable, script, f"--listen={address}", "--tls=self-signed", "--log-level=warning"]
    environment = {**os.environ, "KUBECONFIG": str(cluster), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment) as process:
        yield address
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def started(command: list[str]) -> subprocess.Popen[str]:
    """A command of a container, with the suite's program where the image has it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        command, env={**os.environ, "PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def unpacked(log: str, name: str) -> dict:
    """A file of the report in the log of a Job."""
    _, _, packed = log.partition("--- report.tar.gz ---\n")
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as tar:
        return json.load(tar.extractfile(name))


@pytest.mark.program
@pytest.mark.parametrize("cluster", [JOBS[0]], indirect=True)
def test_the_command_certifies_an_epp_of_the_cluster(epp, tmp_path):
    _, container = pod_of(manifest("Job"))
    script = [one.replace("/report", str(tmp_path / "report")) for one in container["command"]]
    arguments = expanded(container["args"], POD_IP=POD_IP["epp-conformance"], EPP=epp)
    ran = started([*script, *arguments, "--section", "Endpoint Subset", "--jobs", "1"])
    log, said = ran.communicate(timeout=110)
    assert ran.returncode == 0, log + said
    report = unpacked(log, "./report.json")
    assert report["versions"][0]["kinds"]["protocol"] in ("conformant", "incomplete")
    assert report["versions"][0]["scenarioVerdicts"]["pass"]
    assert "fail" not in report["versions"][0]["scenarioVerdicts"]


def test_the_gateway_of_a_cluster_finds_pool_and_epp_in_the_pod():
    pool, service, route = (manifest(kind, GATEWAY[0]) for kind in ("InferencePool", "Service", "HTTPRoute"))
    picker = pool["spec"]["endpointPickerRef"]
    (port,) = service["spec"]["ports"]
    assert (picker["name"], picker["port"]["number"]) == (service["metadata"]["name"], port["port"])
    template, container = pod_of(manifest("Job", *GATEWAY))
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert f"--epp-listen=$(POD_IP):{port['port']}" in container["args"]
    assert route["spec"]["rules"][0]["backendRefs"][0]["name"] == pool["metadata"]["name"]


@pytest.mark.program
def test_the_command_tests_a_gateway_that_knows_the_pod(tmp_path):
    """A gateway without TLS, reached by a name, as one is by that of its Service."""
    _, container = pod_of(manifest("Job", *GATEWAY))
    listen = free_port()
    values = {"POD_IP": POD_IP["gateway-conformance"], "GATEWAY": f"http://localhost:{listen}"}
    arguments = expanded(container["args"], **values)
    (pods,) = [one.removeprefix("--endpoints=") for one in arguments if one.startswith("--endpoints=")]
    command = [sys.executable, "-m", "reference_gateway", f"--listen=127.0.0.1:{listen}"]
    command += [f"--epp={values['POD_IP']}:9002", f"--endpoints={pods}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout.readline()
        places = {"/report": str(tmp_path / "report"), "sleep 20\n": ""}
        script = [re.sub("|".join(places), lambda found: places[found[0]], one) for one in container["command"]]
        ran = started([*script, *arguments, "--tls=plaintext", "-k", "gateway.follows-the-*", "-k", "gateway.fails-*"])
        log, said = ran.communicate(timeout=110)
        gateway.terminate()
    assert ran.returncode == 0, log + said
    verdicts = unpacked(log, "./report.json")["versions"][0]["scenarioVerdicts"]
    assert verdicts["pass"]
    assert "fail" not in verdicts


@pytest.mark.program
@pytest.mark.parametrize("cluster", [JOBS[1]], indirect=True)
def test_the_commands_load_an_epp_of_the_cluster(epp, tmp_path):
    """As in the manifests, but for where things are: folders, the master's port, and its name in the workers."""
    port = str(free_port())
    _, own = pod_of(manifest("Job", "load.yaml", "epp-load"))
    _, other = pod_of(manifest("Job", "load.yaml", "epp-load-worker"))
    file = tmp_path / "load.yaml"
    file.write_text(manifest("ConfigMap", "load.yaml")["data"]["load.yaml"])
    mix = strict_yaml.load(file, LoadFile).mix
    shorter = {**yaml.safe_load(file.read_text()), "arrivals": [{"seconds": 2, "rate": 60}]}
    file.write_text(yaml.safe_dump(shorter))
    places = {"/load/load.yaml": str(file), "/report": str(tmp_path / "report")}
    script = [re.sub("|".join(places), lambda found: places[found[0]], one) for one in own["command"]]
    arguments = expanded(own["args"], POD_IP=POD_IP["epp-load"], EPP=epp)
    bind = arguments.index("--bind=:5557")
    arguments[bind] = f"--bind=127.0.0.1:{port}"
    worker = [one.replace("epp-load:5557", f"127.0.0.1:{port}") for one in other["args"]]
    workers = [started(["epp-conformance", *worker]) for _ in range(2)]
    master = started([*script, *arguments])
    log, said = master.communicate(timeout=110)
    assert master.returncode == 0, log + said
    assert [one.communicate(timeout=30) and one.returncode for one in workers] == [0, 0]
    found = unpacked(log, "./load.json")
    assert found["exchanges"]["judged"] == sum(one["judged"] for one in found["generator"]["workers"]) == 120
    assert set(found["exchanges"]["byRequest"]) == {one.name for one in mix}


@pytest.mark.program
@pytest.mark.parametrize("page", ["containers", "load"])
@pytest.mark.parametrize("end", ["Complete", "FailureTarget Failed"])
def test_the_documented_wait_ends_with_the_job_whatever_its_result(tmp_path, page, end):
    text = (Path(__file__).parents[2] / "docs" / "how-to" / f"{page}.md").read_text()
    (wait,) = re.findall(r"^until kubectl .*; done$", text, re.MULTILINE)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\n[ -e "$0.asked" ] && echo "{end}"\n: > "$0.asked"\n')
    kubectl.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", wait], env={"PATH": path}, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"{end}\n")
