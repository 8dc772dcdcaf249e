"""The Job that tests an EPP of a cluster: its manifests, and its container's command beside an EPP that watches.

No cluster is at hand: the Kubernetes emulator takes the pool and the Job's pod, the EPP finds the pod by the pool's
selector, and the command runs here with the pod's address.
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

from fake_kubernetes import Emulator, builders

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
MANIFESTS = [
    pytest.param(one, id=f"{path.name}-{one['kind']}")
    for path in sorted(FOLDER.glob("*.yaml"))
    for one in yaml.safe_load_all(path.read_text())
]
MODELS = {
    "Job": client.V1Job,
    "Role": client.V1Role,
    "RoleBinding": client.V1RoleBinding,
    "ServiceAccount": client.V1ServiceAccount,
}
"""Kubernetes' schema as its Python client has it: unknown keys and wrong types are refused."""

POD_IP = "127.83.1.9"


def manifest(kind: str) -> dict:
    """The manifest of a kind in the Job's own file, which comes last."""
    return [one for param in MANIFESTS for one in param.values if one["kind"] == kind][-1]


@pytest.mark.parametrize("one", [param for param in MANIFESTS if param.values[0]["kind"] != "InferencePool"])
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


def test_the_pool_selects_the_pod_and_the_suite_serves_its_ports():
    job, pool = manifest("Job"), manifest("InferencePool")
    template = job["spec"]["template"]
    selector = pool["spec"]["selector"]["matchLabels"]
    assert selector.items() <= template["metadata"]["labels"].items()
    ports = [one["number"] for one in pool["spec"]["targetPorts"]]
    (container,) = template["spec"]["containers"]
    assert [one["containerPort"] for one in container["ports"]] == ports
    (endpoints,) = [one for one in container["args"] if one.startswith("--endpoints=")]
    assert [int(port) for port in re.findall(r":(\d+)", endpoints)] == ports


def test_no_container_runs_as_root_or_may_become_it():
    pod = manifest("Job")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    for container in pod["containers"]:
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert manifest("ServiceAccount")["automountServiceAccountToken"] is False


@pytest.fixture
def cluster(tmp_path):
    """The emulator with the pool and the Job's pod; yields the kubeconfig."""
    ready, done = threading.Event(), threading.Event()
    job, pool = manifest("Job"), manifest("InferencePool")
    kubeconfig = tmp_path / "kubeconfig"

    async def serve() -> None:
        async with Emulator() as emulator:
            emulator.store.put({**pool, "metadata": {**pool["metadata"], "namespace": "default", "name": "pool"}})
            labels = job["spec"]["template"]["metadata"]["labels"]
            emulator.store.put(builders.pod("epp-conformance-x7k2p", POD_IP, labels=labels))
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


def test_the_command_certifies_an_epp_of_the_cluster(epp, tmp_path):
    (container,) = manifest("Job")["spec"]["template"]["spec"]["containers"]
    values = {"POD_IP": POD_IP, "EPP": epp}
    expanded = [re.sub(r"\$\((\w+)\)", lambda found: values[found[1]], one) for one in container["args"]]
    script = [one.replace("/report", str(tmp_path / "report")) for one in container["command"]]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    command = [*script, *expanded, "--section", "Endpoint Subset", "--jobs", "1"]
    ran = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=110, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    _, _, packed = ran.stdout.partition("--- report.tar.gz ---\n")
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed))) as tar:
        report = json.load(tar.extractfile("./report.json"))
    assert report["versions"][0]["kinds"]["protocol"] in ("conformant", "incomplete")
    assert report["versions"][0]["scenarioVerdicts"]["pass"]
    assert "fail" not in report["versions"][0]["scenarioVerdicts"]
