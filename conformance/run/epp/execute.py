"""Executes one piece of work on a lane: its steps, in order, into an episode."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Iterator

from conformance.errors import ConformanceError
from conformance.evidence.episode import Context, Episode, Expectation, HarnessTrouble, HealthProbe, Unmet
from conformance.planning.plan import Work
from conformance.run.barrier import Barrier
from conformance.run.capture import Capture
from conformance.run.epp.runner import EppRunner
from conformance.scenario import references
from conformance.scenario.schema import Exchange, Expect, HealthStep, Reply, Step
from ext_proc.channel import Channel
from ext_proc.health import health_check
from ext_proc.http2.errors import ConnectFailed
from ext_proc.messages import HealthCheckResponse
from ext_proc.record import DRAINING, UNROUTED, Wait

LAGGING = 1.0
"""Seconds that our own loop may be late; beyond that an expired deadline proves nothing about the target."""


async def execute(lane: EppRunner, work: Work) -> tuple[Episode, Context]:
    """Run the steps. Trouble of the harness ends the episode and is recorded in it; it never raises."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with lane.capture() as capture:
        execution = _Execution(lane, work, capture)
        try:
            await execution.steps()
            if execution.lost:
                await lane.target.given_time_to_end()
        except ConformanceError as problem:
            capture.remark(Unmet(what=str(problem)))
        except Exception as problem:  # noqa: BLE001 - a defect of the suite must become `error`, not a finding
            capture.remark(HarnessTrouble(what=f"{type(problem).__name__}: {problem}"))
        late = lane.lag.worst(began)
        if late > LAGGING and (execution.expired or _ran_out(capture.episode())):
            what = f"the suite's own event loop was {late:.1f} s late while a deadline ran out"
            capture.remark(HarnessTrouble(what=what))
        return capture.episode(), execution.context()


class _Execution:
    def __init__(self, lane: EppRunner, work: Work, capture: Capture) -> None:
        self._lane = lane
        self._work = work
        self._capture = capture
        self._expectations: dict[str, Expectation] = {}
        self.expired = False
        """The deadline of a health check ran out."""
        self.lost = False
        """The connection of some exchange broke."""

    def context(self) -> Context:
        """What the judges need beside the log."""
        profile, scenario = self._lane.profile, self._work.instance.scenario
        return Context(
            version=self._lane.version,
            scenario=self._work.id,
            requirements=scenario.requirements,
            stimulus=scenario.stimulus,
            provisional=scenario.provisional,
            destination_namespace=profile.metadata.destination,
            subset_namespace=profile.metadata.subset,
            deadline=profile.timeouts.answer,
            claims=profile.claims,
            expectations=self._expectations,
        )

    async def steps(self) -> None:
        """All of them, one after the other."""
        for step in self._work.instance.scenario.steps:
            if self._lane.target.crashed:
                return  # the crash is in the log; nothing can be sent any more
            await self._step(step)

    async def _step(self, step: Step) -> None:
        if step.exchange is not None:
            await self._exchanges(step.exchange, step.expect)
        elif step.pool is not None:
            await self._lane.pool.change(step.pool)
        elif step.gauges is not None:
            await self._lane.pool.load(step.gauges)
        elif step.health is not None:
            await self._health(step.health, step.expect)
        elif step.kubernetes is not None and self._lane.kubernetes is not None:
            await self._lane.kubernetes.trouble(step.kubernetes.fault)
        elif step.restart is not None:
            await self._lane.restart_target()

    # -- exchanges -----------------------------------------------------------------------------------------------------

    async def _exchanges(self, exchange: Exchange, expect: Expect | None) -> None:
        """The repeats of an exchange, as many at a time as it says."""
        queue: Iterator[int] = iter(range(exchange.repeat))
        barrier: Barrier | None = None
        if exchange.interleaved:
            profile = self._lane.profile
            size = min(exchange.repeat, exchange.concurrent, profile.limits.concurrency)
            barrier = Barrier(size, scouts=profile.connect.connections)
        await asyncio.gather(*(self._some(queue, exchange, expect, barrier) for _ in range(exchange.concurrent)))

    async def _some(
        self, queue: Iterator[int], exchange: Exchange, expect: Expect | None, barrier: Barrier | None
    ) -> None:
        for index in queue:
            mode = self._work.mode
            assert mode != "gateway", "scenarios of that role are executed elsewhere"
            prepared = self._lane.prepared(exchange, index, mode)
            name = self._capture.exchange()
            if expect is not None:
                self._expectations[name] = self._expectation(expect)
            with barrier.place() if barrier else contextlib.nullcontext() as hold:
                outcome = await self._lane.carry_out(
                    prepared,
                    name,
                    fresh_connection=exchange.connection == "fresh",
                    hold=hold,
                )
            if outcome.details == UNROUTED and _about_the_response(exchange, expect):
                self._unrouted(name)
            self.lost = self.lost or (outcome.stream is not None and outcome.stream.how == "lost")
            if outcome.expired.startswith("answer"):
                return  # one that was never answered says it all; a hung target would make each repeat wait as long

    def _unrouted(self, exchange: str) -> None:
        """The data plane can't follow this target: what the client got says nothing of the target."""
        if exchange in self._expectations:
            self._expectations[exchange] = dataclasses.replace(self._expectations[exchange], status=())
        what = "the data plane could not follow the pick, so that no model server answered"
        self._capture.remark(Unmet(what=what, verdict="skipped"))

    def _expectation(self, expect: Expect) -> Expectation:
        endpoints = self._lane.pool.endpoints
        return Expectation(
            answer=_several(expect.answer),
            within=None if expect.within is None else references.resolve(expect.within, endpoints),
            absent=references.resolve(expect.absent, endpoints),
            status=(expect.status,) if isinstance(expect.status, int) else expect.status or (),
            health=_several(expect.health),
            requirement=expect.requirement,
        )

    # -- health --------------------------------------------------------------------------------------------------------

    async def _health(self, step: HealthStep, expect: Expect | None) -> None:
        name = self._capture.exchange()
        if expect is not None:
            self._expectations[name] = self._expectation(expect)
        serving, status = None, 14
        channel: Channel | None = None
        try:
            channel = await self._lane.target.health_channel()
            answer = await health_check(channel, step.service, timeout=self._lane.profile.timeouts.answer)
            status = 14 if answer.grpc_status is None else answer.grpc_status
            serving = None if answer.status is None else HealthCheckResponse.ServingStatus.Name(answer.status)
        except (ConnectFailed, TimeoutError):
            self.expired = True
        if channel is not None:
            await channel.close()
        self._lane.recorder.emit(
            HealthProbe(
                exchange=name,
                service=step.service,
                serving=serving,
                grpc_status=status,
                pool_synced=self._lane.pool.exists,
            )
        )


def _ran_out(episode: Episode) -> bool:
    """Whether something was waited for in vain that was due."""
    return any(wait.outcome == "expired" and wait.what != DRAINING for _, wait in episode.of(Wait))


def _about_the_response(exchange: Exchange, expect: Expect | None) -> bool:
    """Whether the stimulus is a response of a model server."""
    return exchange.reply != Reply() or bool(exchange.fail_first) or (expect is not None and expect.status is not None)


def _several(value: tuple[str, ...] | str | None) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value or ()
