"""What `profile check` and `doctor` find out about an endpoint picker: it starts, answers, watches its pool."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Literal

from conformance.cli.diagnosis import Diagnosis
from conformance.errors import ConformanceError, UsageError
from conformance.run.epp.gate import describe
from conformance.run.epp.runner import EppRunner
from conformance.scenario.schema import Exchange
from ext_proc.protocol import EXT_PROC_SERVICE, LIVENESS, READINESS

if TYPE_CHECKING:
    from conformance.run.engine import EngineThread
    from conformance.targets.resolve import Resolved

HEALTH_NAMES = ("", LIVENESS, READINESS, EXT_PROC_SERVICE, "inference-extension")
WATCH_TIME = 1.0
"""Seconds in which a target that scrapes must have read the pods' metrics."""


def endpoint_picker(resolved: Resolved, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
    """Start the target (if it is ours), wait until it is ready, send it one request, and look at what it does.

    Raises `UsageError` if it can't be started as it was asked for.
    """
    return engine.call(_endpoint_picker(resolved, protocol_version, engine))


async def _endpoint_picker(resolved: Resolved, protocol_version: str, engine: EngineThread) -> list[Diagnosis]:
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
