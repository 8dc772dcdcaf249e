"""`epp-conformance pool`: serve fake model servers alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pool(
    pods: Annotated[int, typer.Option("--pods", min=1, max=1000, help="How many model servers.")] = 3,
    endpoint: Annotated[
        list[str] | None, typer.Option("--endpoint", metavar="IP:PORT", help="Serve exactly these instead. Repeatable.")
    ] = None,
    endpoints_file: Annotated[
        Path | None, typer.Option("--endpoints-file", metavar="PATH", help="Write them here, one a line.")
    ] = None,
    queue: Annotated[int, typer.Option("--queue", min=0, help="Requests waiting, on every /metrics.")] = 0,
    running: Annotated[int, typer.Option("--running", min=0, help="Requests running.")] = 0,
    kv: Annotated[float, typer.Option("--kv", min=0.0, max=1.0, help="Share of the KV cache in use.")] = 0.1,
    model: Annotated[
        str, typer.Option("--model", help="The model that they say they serve; any is accepted.")
    ] = "llama-3",
) -> None:
    """Serve fake model servers (OpenAI API, /metrics as vLLM) on their own loopback addresses, until Ctrl-C."""
    from conformance.cli.serving import until_interrupted

    until_interrupted(_serve(pods, endpoint or [], endpoints_file, queue, running, kv, model))


async def _serve(
    pods: int, endpoints: list[str], endpoints_file: Path | None, queue: int, running: int, kv: float, model: str
) -> None:
    import asyncio

    from conformance.errors import UsageError
    from fake_modelserver import Fleet, FleetError, Gauges, PodSpec

    gauges = Gauges(queue=queue, running=running, kv=kv)
    places = [_place(text) for text in endpoints] or [(None, ())] * pods
    async with Fleet() as fleet:
        for number, (address, ports) in enumerate(places, 1):
            spec = PodSpec(
                name=f"pod-{number}", address=address, ports=ports, models=(model,), any_model=True, gauges=gauges
            )
            try:
                await fleet.add(spec)
            except FleetError as problem:
                raise UsageError(problem.message, hint=problem.hint) from None
        served = [one for pod in fleet.pods.values() for one in pod.endpoints]
        if endpoints_file is not None:
            _write(endpoints_file, served)
        typer.echo("\n".join(served))
        await asyncio.get_running_loop().create_future()


def _place(text: str) -> tuple[str | None, tuple[int, ...]]:
    from conformance.errors import UsageError
    from conformance.reading.endpoints import parse

    item = parse(text)
    if item.canonical is None:
        raise UsageError(f"--endpoint {text!r}: {item.problem}", hint="give ip:port, IPv6 as [::1]:port")
    host, _, port = item.canonical.rpartition(":")
    return host.strip("[]"), (int(port),)


def _write(path: Path, served: list[str]) -> None:
    from conformance.errors import UsageError

    try:
        path.write_text("".join(f"{one}\n" for one in served))
    except OSError as problem:
        raise UsageError(f"{path} can't be written: {problem.strerror}") from None
