"""Real clients against the emulator: kubectl, and the Python `kubernetes` client."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess

import kubernetes
import pytest
from programs import needs_kubectl

from fake_kubernetes import INFERENCE_OBJECTIVES, INFERENCE_POOLS, PODS, Faults, RequestRecord, builders

DEADLINE = 30.0
KUBECTL = shutil.which("kubectl")


def minor():
    """1.minor is the version of kubectl. Debian 12 has 1.20, which knows less."""
    said = subprocess.run([KUBECTL, "version", "--client", "-o", "json"], capture_output=True, check=True).stdout
    return int(json.loads(said)["clientVersion"]["minor"].rstrip("+"))


class Kubectl:
    """Runs the real kubectl with its own kubeconfig and an empty home."""

    def __init__(self, emulator, directory, **environment):
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "KUBECONFIG": str(emulator.kubeconfig(directory / "kubeconfig")),
            **environment,
        }

    async def start(self, *arguments, stdin=b""):
        process = await asyncio.create_subprocess_exec(
            KUBECTL, *arguments, env=self._environment,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        process.stdin.write(stdin)
        process.stdin.close()
        return process

    async def __call__(self, *arguments, stdin=b"", code=0):
        process = await self.start(*arguments, stdin=stdin)
        try:
            async with asyncio.timeout(DEADLINE):
                output, errors = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == code, errors.decode()
        return (output if code == 0 else errors).decode()


@pytest.mark.smoke
@pytest.mark.program
@needs_kubectl
async def test_kubectl_looks(serving, tmp_path):
    async with serving() as (emulator, _):
        kubectl = Kubectl(emulator, tmp_path)
        emulator.store.put(builders.pool("pool", {"app": "x"}, [8000]))
        emulator.store.put(builders.objective("low", -1, "pool"))
        emulator.store.put(builders.pod("a", "127.0.1.1", labels={"app": "x"}))
        emulator.store.put(builders.pod("b", "127.0.1.2", namespace="other"))
        kinds = await kubectl("api-resources", "--no-headers", "-o", "name")
        assert "inferencepools.inference.networking.k8s.io\n" in kinds
        assert "inferenceobjectives.inference.networking.x-k8s.io\n" in kinds
        table = await kubectl("get", "pods", "-A")
        assert table.split("\n")[0].split() == ["NAMESPACE", "NAME", "READY", "STATUS", "IP", "AGE"]
        assert "127.0.1.2" in table
        assert "app=x" in await kubectl("get", "inferencepools.inference.networking.k8s.io")
        assert (await kubectl("get", "po", "-l", "app in (x),!y", "-o", "name")) == "pod/a\n"
        assert (await kubectl("get", "po", "-A", "--field-selector", "metadata.name=b", "-o", "name")) == "pod/b\n"
        objective = json.loads(await kubectl("get", "inferenceobjective", "low", "-o", "json"))
        assert objective["spec"]["priority"] == -1
        assert "127.0.1.1" in await kubectl("describe", "pod", "a")
        assert "NotFound" in await kubectl("get", "pod", "none", code=1)


@pytest.mark.program
@needs_kubectl
async def test_kubectl_explains_and_lists_what_is_there(serving, tmp_path):
    async with serving() as (emulator, _):
        kubectl = Kubectl(emulator, tmp_path)
        emulator.store.put(builders.pod("a", "127.0.1.1"))
        assert "pod/a" in await kubectl("get", "all", "-o", "name")
        assert "team-a" in await kubectl("create", "namespace", "team-a")
        assert "team-a" in await kubectl("get", "namespaces", "-o", "name")
        if minor() >= 27:  # earlier ones read OpenAPI v2
            explained = await kubectl("explain", "inferencepools.inference.networking.k8s.io")
            assert "InferencePool" in explained
            assert "spec" in explained


@pytest.mark.program
@needs_kubectl
async def test_kubectl_changes(serving, tmp_path):
    async with serving() as (emulator, _):
        kubectl = Kubectl(emulator, tmp_path)
        store = emulator.store
        pod = builders.pod("a", "127.0.1.1", labels={"app": "x"})
        await kubectl("create", "-f", "-", stdin=json.dumps(pod).encode())
        assert store.get(PODS, "a")["status"]["podIP"] == "127.0.1.1"
        assert "AlreadyExists" in await kubectl("create", "-f", "-", stdin=json.dumps(pod).encode(), code=1)
        await kubectl("label", "pod", "a", "app=y", "--overwrite")
        await kubectl("annotate", "pod", "a", "inference.networking.k8s.io/active-ports=8001")
        metadata = store.get(PODS, "a")["metadata"]
        assert metadata["labels"] == {"app": "y"}
        assert metadata["annotations"] == {builders.ACTIVE_PORTS: "8001"}
        not_ready = json.dumps({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        subresource = ["--subresource=status"] if minor() >= 24 else []
        await kubectl("patch", "pod", "a", *subresource, "-p", not_ready)
        assert store.get(PODS, "a")["status"]["conditions"] == [{"type": "Ready", "status": "False"}]
        pool = builders.pool("pool", {"app": "x"}, [8000])
        for ports in ([8000], [8000, 8001]):
            pool["spec"]["targetPorts"] = [{"number": port} for port in ports]
            await kubectl("apply", "-f", "-", stdin=json.dumps(pool).encode())
            assert store.get(INFERENCE_POOLS, "pool")["spec"]["targetPorts"] == pool["spec"]["targetPorts"]
        objective = builders.objective("low", -1, "pool")
        await kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(objective).encode())
        objective["spec"]["priority"] = 5
        await kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(objective).encode())
        assert store.get(INFERENCE_OBJECTIVES, "low")["spec"]["priority"] == 5
        await kubectl("delete", "pod", "a")
        await kubectl("delete", "inferenceobjectives", "--all")
        assert store.list(PODS) == []
        assert store.list(INFERENCE_OBJECTIVES) == []


@pytest.mark.program
@needs_kubectl
@pytest.mark.parametrize("fault", ["", "watch-list", "refused watch-list", "expired", "dropped"])
async def test_kubectl_wait_survives_faults(serving, tmp_path, fault):
    opened = asyncio.Event()

    def hear(event):
        if isinstance(event, RequestRecord) and event.watch and event.status == 200:
            opened.set()

    async with serving(on_event=hear) as (emulator, _):
        kubectl = Kubectl(emulator, tmp_path, KUBE_FEATURE_WatchListClient=str("watch-list" in fault).lower())
        emulator.faults = Faults(refuse_watch_list=fault.startswith("refused"))
        emulator.store.put(builders.pod("a", "127.0.1.1", ready=False))
        process = await kubectl.start("wait", "--for=condition=Ready", "pod/a", f"--timeout={DEADLINE:.0f}s")
        await asyncio.wait_for(opened.wait(), DEADLINE)
        if fault == "expired":
            emulator.compact()
        if fault == "dropped":
            emulator.drop_watches()
        emulator.store.put(builders.pod("a", "127.0.1.1"))
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        assert output == b"pod/a condition met\n"
        statuses = {each.status for each in emulator.requests if "sendInitialEvents" in each.query}
        asked = {"watch-list": {200}, "refused watch-list": {422}}.get(fault, set())
        assert statuses == (asked if minor() >= 30 else set())


@pytest.mark.program
@needs_kubectl
async def test_kubectl_follows_a_watch(serving, tmp_path):
    async with serving() as (emulator, _):
        kubectl = Kubectl(emulator, tmp_path)
        emulator.store.put(builders.pod("a", "127.0.1.1"))
        process = await kubectl.start("get", "pods", "-w", "--no-headers")
        try:
            async with asyncio.timeout(DEADLINE):
                assert b"127.0.1.1" in await process.stdout.readline()
                emulator.store.put(builders.pod("b", "127.0.1.2", ready=False))
                assert (await process.stdout.readline()).split()[:4] == [b"b", b"False", b"Running", b"127.0.1.2"]
        finally:
            process.kill()
            await process.communicate()


def _python_client(emulator, directory):
    path = emulator.kubeconfig(directory / "kubeconfig")
    return kubernetes.config.new_client_from_config(str(path))


async def test_the_python_client_reads_and_writes(serving, tmp_path):
    def work(api_client, url):
        with api_client:
            core, custom = kubernetes.client.CoreV1Api(api_client), kubernetes.client.CustomObjectsApi(api_client)
            assert [
                each.metadata.name for each in core.list_namespaced_pod("default", label_selector="n!=1").items
            ] == ["p0", "p2"]
            assert (
                core.list_pod_for_all_namespaces(field_selector="metadata.name=p1").items[0].status.pod_ip
                == "127.0.1.1"
            )
            core.create_namespaced_pod("default", builders.pod("made", "127.0.1.9"))
            core.patch_namespaced_pod("made", "default", {"metadata": {"labels": {"a": "b"}}})
            with pytest.raises(kubernetes.client.ApiException) as refused:
                core.create_namespaced_pod("default", builders.pod("made", "127.0.1.9"))
            assert refused.value.status == 409
            place = ("inference.networking.k8s.io", "v1", "default", "inferencepools")
            pool = custom.create_namespaced_custom_object(*place, builders.pool("pool", {}, [1]))
            pool["spec"]["targetPorts"] = [{"number": 2}]
            custom.replace_namespaced_custom_object(*place, "pool", pool)
            with pytest.raises(kubernetes.client.ApiException) as refused:
                custom.replace_namespaced_custom_object(*place, "pool", pool)
            assert refused.value.status == 409
            core.delete_namespaced_pod("p0", "default")
            dynamic = kubernetes.dynamic.DynamicClient(api_client)
            models = dynamic.resources.get(api_version="inference.networking.x-k8s.io/v1alpha2", kind="InferenceModel")
            assert models.get(namespace="default").items == []

    async with serving() as (emulator, _):
        for number in range(3):
            emulator.store.put(builders.pod(f"p{number}", f"127.0.1.{number}", labels={"n": str(number)}))
        await asyncio.to_thread(work, _python_client(emulator, tmp_path), emulator.url)
        assert emulator.store.get(PODS, "made")["metadata"]["labels"] == {"a": "b"}
        assert emulator.store.get(PODS, "p0") is None
        assert emulator.store.get(INFERENCE_POOLS, "pool")["spec"]["targetPorts"] == [{"number": 2}]


async def test_the_python_client_watches_and_lists_again_after_410(serving, tmp_path):
    def work(api_client, call):
        with api_client:
            core = kubernetes.client.CoreV1Api(api_client)
            seen = []
            listed = core.list_namespaced_pod("default")
            watch = kubernetes.watch.Watch()
            version = listed.metadata.resource_version
            call("first")
            for event in watch.stream(core.list_namespaced_pod, "default", resource_version=version):
                seen.append((event["type"], event["object"].metadata.name))
                if event["object"].metadata.name == "b":
                    watch.stop()
            call("compact")
            with pytest.raises(kubernetes.client.ApiException) as expired:
                for _ in kubernetes.watch.Watch().stream(
                    core.list_namespaced_pod, "default", resource_version=version, timeout_seconds=5
                ):
                    pass
            assert expired.value.status == 410
            return seen

    loop = asyncio.get_running_loop()
    async with serving() as (emulator, _):

        def act(what):
            if what == "compact":
                emulator.compact()
            else:
                emulator.store.put(builders.pod("a", "127.0.1.1"))
                emulator.store.delete(PODS, "a")
                emulator.store.put(builders.pod("b", "127.0.1.2"))

        async def on_loop(what):
            act(what)

        def call(what):
            asyncio.run_coroutine_threadsafe(on_loop(what), loop).result(DEADLINE)

        seen = await asyncio.to_thread(work, _python_client(emulator, tmp_path), call)
        assert seen == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "b")]
