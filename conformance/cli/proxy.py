"""`epp-conformance proxy`: the fake proxy as an HTTP server, to aim curl or an OpenAI client at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import options
from conformance.targets.flags import TargetFlags

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.run.engine import LagMeter
    from fake_modelserver import Fleet
    from fake_proxy.config import ProxyConfig
    from fake_proxy.listener import Serving
    from fake_proxy.stimulus import Stimulus


@options.spelt_out
def proxy(
    epp: Annotated[str, typer.Option("--epp", metavar="HOST:PORT|unix:/PATH", help="The endpoint picker.")],
    listen: Annotated[str, typer.Option("--listen", metavar="[HOST]:PORT", help="Where clients connect.")] = (
        "127.0.0.1:8080"
    ),
    pods: Annotated[
        int, typer.Option("--pods", min=0, max=1000, help="Serve so many fake model servers beside it.")
    ] = 0,
    endpoints_file: Annotated[
        Path | None, typer.Option("--endpoints-file", metavar="PATH", help="Write their endpoints here, one a line.")
    ] = None,
    endpoints: Annotated[
        list[str] | None,
        typer.Option("--endpoints", metavar="IP:PORT", help="The pool, beside --pods. Repeatable."),
    ] = None,
    any_endpoint: Annotated[
        bool,
        typer.Option("--any-endpoint", help="Connect to any address that the endpoint picker names."),
    ] = False,
    body_mode: Annotated[
        str, typer.Option("--body-mode", metavar="MODE", help="full-duplex, buffered, streamed or none.")
    ] = "full-duplex",
    subset: Annotated[
        list[str] | None, typer.Option("--subset", metavar="IP:PORT", help="Subset hint of every request. Repeatable.")
    ] = None,
    fail_open: Annotated[
        bool, typer.Option("--fail-open", help="Let requests pass when the endpoint picker fails.")
    ] = False,
    tls: Annotated[
        str | None, typer.Option("--tls", metavar="MODE", help="plaintext, unverified (any certificate) or verified.")
    ] = None,
    *,
    trust: Annotated[TargetFlags, options.Taken(only=("ca",))],
    protocol_version: Annotated[
        str | None, typer.Option("--protocol-version", metavar="VERSION", help="Judge by this version.")
    ] = None,
    judge: Annotated[bool, typer.Option("--judge/--no-judge", help="Judge each exchange when it is over.")] = True,
    details: Annotated[bool, typer.Option("--details", help="Print headers and bodies, too.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long nothing may happen.")
    ] = 300.0,
    message_timeout: Annotated[
        float,
        typer.Option(
            "--message-timeout",
            min=0.01,
            metavar="SECONDS",
            help="How long an answer may take; in full-duplex only --timeout limits it.",
        ),
    ] = 10.0,
    no_color: options.NoColor = False,
) -> None:
    """Serve HTTP as a gateway would: every request goes through the endpoint picker to the model server that it picks.

    Only endpoints of the pool (--endpoints, --pods) get requests, which may carry secret headers. --any-endpoint lifts
    that limit.

    The conversation is printed as it happens, and judged when it is over. Ends with Ctrl-C. The exit code is 1 if a
    rule was broken, and 3 if something could not be judged, or the proxy itself failed.

    epp-conformance proxy --epp localhost:9002 --pods 3 --endpoints-file endpoints

    curl localhost:8080/v1/chat/completions -d '{"model": "llama-3", "messages": [{"role": "user", "content": "hi"}]}'
    """
    from conformance.cli.console import out, without_colour
    from conformance.cli.serving import until_interrupted
    from conformance.cli.tap import judged_by, listening, spoken
    from conformance.errors import UsageError
    from conformance.run.engine import LagMeter
    from conformance.tap.judging import context
    from conformance.tap.narrator import Narrator
    from conformance.targets.resolve import endpoints_of
    from conformance.verdict import Verdict
    from ext_proc.channel import Channel
    from ext_proc.http2.address import check_address
    from ext_proc.http2.errors import BadAddress
    from ext_proc.record import Recorder
    from fake_proxy.listener import Serving
    from fake_proxy.pace import Pace
    from fake_proxy.upstream import HttpUpstream

    if no_color:
        without_colour()
    try:
        check_address(epp)
    except BadAddress as problem:
        raise UsageError(f"--epp {epp}: {problem.what}", hint=problem.hint) from None
    version, claims = judged_by(None, protocol_version)
    config, stimulus = _config(
        body_mode, endpoints_of("--subset", subset or ()), fail_open=fail_open, message_timeout=message_timeout
    )
    pool = set(endpoints_of("--endpoints", endpoints or ()))
    if not (pool or pods or any_endpoint):
        what = "the proxy has no pool: no request could be passed on"
        raise UsageError(what, hint="give --endpoints or --pods, or --any-endpoint to connect to whatever it picks")
    show = out().print
    patience = timeout if body_mode == "full-duplex" else min(timeout, message_timeout)
    by = context(version, claims, deadline=patience) if judge else None
    lag = LagMeter()
    narrator = Narrator(show, context=by, details=details, lag=lag)
    recorder = Recorder()
    recorder.listen(narrator)
    serving = Serving(
        channel=Channel(epp, tls=spoken(tls, trust.ca, None)),
        recorder=recorder,
        config=config,
        stimulus=stimulus,
        upstream=HttpUpstream(may_dial=lambda endpoint: any_endpoint or endpoint in pool),
        pace=Pace(deadline=timeout, withheld=lag.lately),
        finished=lambda outcome: narrator.finished(outcome.exchange),
    )
    defect = until_interrupted(_serve(listening(listen, "--listen"), serving, pods, pool, endpoints_file, show, lag))
    narrator.stop()
    tally = narrator.tally
    ours = defect or tally.problems or tally.of(Verdict.ERROR)
    raise typer.Exit(1 if tally.violating else 3 if ours else 0)


def _config(
    body_mode: str, subset: tuple[str, ...], *, fail_open: bool, message_timeout: float
) -> tuple[ProxyConfig, Stimulus]:
    from conformance.errors import UnknownNameError
    from fake_proxy.config import BodyMode, ProxyConfig
    from fake_proxy.stimulus import Stimulus, subset_hint

    modes = {
        "full-duplex": BodyMode.FULL_DUPLEX_STREAMED,
        "buffered": BodyMode.BUFFERED,
        "streamed": BodyMode.STREAMED,
        "none": BodyMode.NONE,
    }
    if body_mode not in modes:
        raise UnknownNameError("body mode", body_mode, modes)
    config = ProxyConfig(failure_mode_allow=fail_open, message_timeout=message_timeout).with_modes(modes[body_mode])
    return config, Stimulus(metadata=subset_hint(config, subset)) if subset else Stimulus()


async def _serve(
    where: tuple[str, int],
    serving: Serving,
    pods: int,
    pool: set[str],
    endpoints_file: Path | None,
    show: Callable[[str], None],
    lag: LagMeter,
) -> None:
    import asyncio
    from contextlib import AsyncExitStack

    from conformance.errors import UsageError
    from fake_modelserver import Fleet
    from fake_proxy.listener import open_listener

    async with AsyncExitStack() as stack:
        stack.push_async_callback(serving.channel.close)
        stack.callback(asyncio.create_task(lag.run()).cancel)
        if pods:
            pool.update(await _add_pods(await stack.enter_async_context(Fleet()), pods, endpoints_file, show))
        try:
            listener = await open_listener(*where, serving)
        except OSError as problem:
            hint = "choose another address with --listen"
            raise UsageError(f"{where[0]}:{where[1]}: {problem.strerror}", hint=hint) from None
        stack.push_async_callback(listener.close)
        show(f"http://{listener.address} → endpoint picker {serving.channel.address} → the endpoint that it picks")
        await asyncio.get_running_loop().create_future()


async def _add_pods(fleet: Fleet, pods: int, endpoints_file: Path | None, show: Callable[[str], None]) -> list[str]:
    from conformance.cli.files import write_file
    from conformance.errors import UsageError
    from fake_modelserver import FleetError, PodSpec

    try:
        served = [await fleet.add(PodSpec(name=f"pod-{number}", any_model=True)) for number in range(1, pods + 1)]
    except FleetError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None
    endpoints = [pod.endpoint for pod in served]
    show("model servers: " + ", ".join(endpoints))
    if endpoints_file is not None:
        write_file(endpoints_file, "".join(f"{one}\n" for one in endpoints), "--endpoints-file")
    return endpoints
