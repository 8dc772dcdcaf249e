"""What `profile check` and `doctor` find out about an endpoint picker: it starts, answers, watches its pool."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal

from conformance.cli.diagnosis import Diagnosis
from conformance.printable import plural
from conformance.run.epp.gate import describe
from conformance.scenario.schema import Exchange
from ext_proc.protocol import EXT_PROC_SERVICE, LIVENESS, READINESS

if TYPE_CHECKING:
    from conformance.run.epp.runner import EppRunner

HEALTH_NAMES = ("", LIVENESS, READINESS, EXT_PROC_SERVICE, "inference-extension")
WATCH_TIME = 1.0
"""Seconds in which a target that scrapes must have read the pods' metrics."""


async def endpoint_picker(lane: EppRunner, took: float) -> AsyncIterator[Diagnosis]:
    """Send it one request, and look at what it does; it `took` so many seconds to start."""
    started = "started" if lane.profile.started_by_us else "reached"
    text = f"{started} at {lane.target.address} ({lane.profile.tls.mode}), ready after {took:.1f} s"
    yield Diagnosis(name="target", state="good", text=text)
    yield await _request(lane)
    for answer in await _surroundings(lane):
        yield answer


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
        answers += _objectives(lane)
    if lane.profile.discovery.scrapes:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(_scraped(lane), WATCH_TIME)
        counts = {name: pod.scrapes for name, pod in lane.fleet.pods.items()}
        some = any(counts.values())
        answers.append(
            Diagnosis(
                name="scrapes",
                state="good",
                text=f"it reads /metrics of {sum(map(bool, counts.values()))} of {plural(len(counts), 'pod')}",
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


def _objectives(lane: EppRunner) -> list[Diagnosis]:
    """Whether a target that claims to shed reads the objects that say which requests it may drop."""
    given, emulator = lane.profile.discovery.kubernetes, lane.emulator
    if given is None or emulator is None or not lane.profile.claims.sheds or not (given.objectives or given.models):
        return []
    paths = {one.path.rsplit("/", 1)[-1] for one in emulator.requests}
    lacking = [
        f"{kind} ({', '.join(names)})"
        for kind, names in (("InferenceObjectives", given.objectives), ("InferenceModels", given.models))
        if names and not any(path in paths for path in (kind.lower(), *names))
    ]
    if not lacking:
        return [Diagnosis(name="objectives", state="good", text="it reads what says which requests it may drop")]
    return [
        Diagnosis(
            name="objectives",
            state="bad",
            text=f"it claims to shed, and reads no {' and no '.join(lacking)}: which it may drop it can't know",
            hint="does it watch them in this version? If it never does, say claims.sheds: false",
        )
    ]


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
