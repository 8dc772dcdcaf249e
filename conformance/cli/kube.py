"""`epp-conformance kube`: serve the Kubernetes API emulator alone, with a pool of fake model servers."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from conformance.printable import plural

LABELS = {"app": "epp-conformance"}


def kube(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: any free port.")] = 0,
    host: Annotated[
        str, typer.Option("--host", help="No authentication: bind other than loopback with care.")
    ] = "127.0.0.1",
    name: Annotated[str, typer.Option("--pool", help="Name of the InferencePool.")] = "pool",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Its namespace.")] = "default",
    pods: Annotated[int, typer.Option("--pods", min=0, max=1000, help="Pods, each a fake model server.")] = 3,
    kubeconfig: Annotated[
        Path, typer.Option("--kubeconfig", metavar="PATH", help="Written for EPPs and for kubectl.")
    ] = Path("kubeconfig.yaml"),
) -> None:
    """Serve an emulated Kubernetes API with one InferencePool and its pods, until Ctrl-C.

    Pods and pools can be changed with kubectl: KUBECONFIG=kubeconfig.yaml kubectl get pods -w
    """
    from conformance.cli.serving import until_interrupted

    until_interrupted(_serve(host, port, name, namespace, pods, kubeconfig.absolute()))


async def _serve(host: str, port: int, name: str, namespace: str, pods: int, kubeconfig: Path) -> None:
    import asyncio

    from conformance.cli.files import write_file
    from conformance.errors import UsageError
    from fake_kubernetes import Emulator, KubernetesEmulatorError, builders
    from fake_modelserver import Fleet, PodSpec

    async with Fleet() as fleet:
        emulator = Emulator(host=host, port=port, namespaces=(namespace,))
        servers = [await fleet.add(PodSpec(name=f"pod-{number}", any_model=True)) for number in range(1, pods + 1)]
        ports = sorted({address.port for server in servers for address in server.addresses}) or [8000]
        emulator.store.put(builders.pool(name, LABELS, ports[:8], namespace=namespace))
        for server in servers:
            address = server.addresses[0]
            active = [address.port] if len(ports) > 1 else None
            pod = builders.pod(server.spec.name, address.host, namespace=namespace, labels=LABELS, active_ports=active)
            emulator.store.put(pod)
        try:
            await emulator.start()
        except KubernetesEmulatorError as problem:
            raise UsageError(str(problem)) from None
        try:
            write_file(kubeconfig, builders.kubeconfig(emulator.url, namespace=namespace), "--kubeconfig")
            typer.echo(f"Kubernetes API at {emulator.url}, pool {namespace}/{name} with {plural(pods, 'pod')}")
            typer.echo(f"export KUBECONFIG={shlex.quote(str(kubeconfig))}")
            await asyncio.get_running_loop().create_future()
        finally:
            await emulator.stop()
