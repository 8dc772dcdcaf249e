"""`epp-conformance pool`: serve fake model servers alone."""

from __future__ import annotations

import contextlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fake_modelserver import Fleet
    from fake_modelserver.control.schema import PodModel


class PageSize(StrEnum):
    """How much of an engine's page of metrics there is."""

    MINIMAL = "minimal"
    REAL = "real"


def pool(
    pods: Annotated[int, typer.Option("--pods", min=1, max=1000, help="How many model servers.")] = 3,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="YAML", help="Serve the pods of this file: `pods: [{name: a}, …]`.")
    ] = None,
    endpoint: Annotated[
        list[str] | None, typer.Option("--endpoint", metavar="IP:PORT", help="Serve exactly these instead. Repeatable.")
    ] = None,
    endpoints_file: Annotated[
        Path | None, typer.Option("--endpoints-file", metavar="PATH", help="Write them here, one a line.")
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", help="vllm, sglang, trtllm-serve or triton-tensorrt-llm.")
    ] = "vllm",
    generation: Annotated[
        str | None, typer.Option("--generation", metavar="RELEASE", help="Of the engine; default: its newest.")
    ] = None,
    page: Annotated[
        PageSize, typer.Option("--page", help="What the protocol names alone, or all families of the engine.")
    ] = PageSize.MINIMAL,
    model: Annotated[
        str, typer.Option("--model", help="The model that they say they serve; any is accepted.")
    ] = "llama-3",
    adapter: Annotated[
        list[str] | None, typer.Option("--adapter", metavar="NAME", help="A LoRA adapter that is loaded. Repeatable.")
    ] = None,
    ranks: Annotated[int, typer.Option("--ranks", min=1, max=64, help="Data-parallel ranks of each.")] = 1,
    rank_ports: Annotated[bool, typer.Option("--rank-ports", help="Each rank has a port, with a page for itself.")] = (
        False
    ),
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Requests waiting; default: 0.")] = None,
    running: Annotated[int | None, typer.Option("--running", min=0, help="Requests running; default: 0.")] = None,
    kv: Annotated[
        float | None, typer.Option("--kv", min=0.0, max=1.0, help="Share of the KV cache in use; default: 0.1.")
    ] = None,
    max_running: Annotated[
        int | None,
        typer.Option("--max-running", min=1, help="Requests take their time, so many at once; gauges follow them."),
    ] = None,
    first_token: Annotated[
        float | None, typer.Option("--first-token", metavar="MS", min=0, help="Likewise: until the first token.")
    ] = None,
    between_tokens: Annotated[
        float | None, typer.Option("--between-tokens", metavar="MS", min=0, help="Likewise: between two tokens.")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            "--fault", metavar="TYPE[,KEY=VALUE…]", help="What is wrong with each, as latency,latency=500. Repeatable."
        ),
    ] = None,
    control: Annotated[
        str | None,
        typer.Option("--control", metavar="IP:PORT", help="Serve an HTTP API that changes them; port 0: any."),
    ] = None,
    table: Annotated[
        bool | None,
        typer.Option("--table/--no-table", help="Gauges, scrapes and requests, live. Default: on a terminal."),
    ] = None,
) -> None:
    """Serve fake model servers (OpenAI API, metrics as their engine has them) on loopback addresses, until Ctrl-C."""
    from conformance.cli import pool_spec
    from conformance.cli.serving import until_interrupted
    from conformance.errors import UsageError

    if file is not None:
        if endpoint:
            raise UsageError("--file and --endpoint exclude each other", hint="the file has addresses and ports")
        found = pool_spec.read(file)
    else:
        found = pool_spec.alike(
            [pool_spec.place(text) for text in endpoint or ()] or [(None, ())] * pods,
            engine=engine,
            generation=generation,
            page=page.value,
            models=(model,),
            adapters=tuple(adapter or ()),
            ranks=ranks,
            rank_ports=rank_ports,
            gauges={"queue": queue, "running": running, "kv": kv},
            serving={"max_running": max_running, "first_token": first_token, "between_tokens": between_tokens},
            faults=[pool_spec.fault(text) for text in fault or ()],
        )
    where = None if control is None else pool_spec.place(control, "--control", any_free=True)
    shown = sys.stderr.isatty() if table is None else table
    until_interrupted(_serve(found, endpoints_file, where, shown=shown))


async def _serve(
    pods: list[PodModel],
    endpoints_file: Path | None,
    control: tuple[str | None, tuple[int, ...]] | None,
    *,
    shown: bool,
) -> None:
    import asyncio

    from conformance.cli.files import write_file
    from conformance.errors import UsageError
    from fake_modelserver import Fleet, FleetError
    from fake_modelserver.control import Control, Recorder

    recorder = Recorder()
    async with contextlib.AsyncExitStack() as stack:
        try:
            fleet = Fleet(on_scrape=recorder.scrape, on_request=recorder.request)
            await stack.enter_async_context(fleet)
            for one in pods:
                pod = await fleet.add(one.spec())
                for fault in one.faults:
                    await pod.inject(fault.fault())
            if control is not None:
                host, (port,) = control
                served = Control(fleet, recorder=recorder, host=host or "127.0.0.1", port=port)
                await stack.enter_async_context(served)
                typer.echo(f"control API at http://{served.address}/openapi.json", err=True)
        except FleetError as problem:
            raise UsageError(problem.message, hint=problem.hint) from None
        except ValueError as problem:
            raise UsageError(str(problem)) from None
        endpoints = [one for pod in fleet.pods.values() for one in pod.endpoints]
        if endpoints_file is not None:
            write_file(endpoints_file, "".join(f"{one}\n" for one in endpoints), "--endpoints-file")
        typer.echo("\n".join(endpoints))
        if shown:
            await _show(fleet)
        await asyncio.get_running_loop().create_future()


async def _show(fleet: Fleet) -> None:
    import asyncio

    from rich.live import Live

    from conformance.cli.console import err
    from conformance.cli.pool_table import table

    with Live(table(fleet), console=err(), auto_refresh=False, transient=True) as live:
        while True:
            await asyncio.sleep(0.5)
            live.update(table(fleet), refresh=True)
