"""The steps of scenarios for an endpoint picker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from random import Random

from conformance.evidence.episode import Context, HealthProbe, StartAttempt, Unmet
from conformance.evidence.local_paths import without_folders
from conformance.evidence.reported import configuration
from conformance.planning.data_plane import about_the_response
from conformance.planning.plan import Work
from conformance.run.barrier import Barrier
from conformance.run.capture import Capture
from conformance.run.epp.models import models_followed
from conformance.run.epp.runner import EppRunner
from conformance.run.epp.trial_start import trial_start
from conformance.run.epp.unread import unread_connection
from conformance.run.epp.until import until
from conformance.run.execution import Action, Execution
from conformance.scenario.expect import Expect
from conformance.scenario.models import NamedBy
from conformance.scenario.pool import KubernetesStep, Load, PoolStep
from conformance.scenario.schema import Exchange, HealthStep, StartWith
from conformance.scenario.unread_connection import UnreadConnectionStep
from ext_proc.channel import Channel
from ext_proc.health import health_check
from ext_proc.http2.errors import ConnectFailed, ConnectionRefused
from ext_proc.messages import HealthCheckResponse
from ext_proc.protocol import EXT_PROC_SERVICE, READINESS
from ext_proc.record import UNROUTED, Wait
from ext_proc.stream import record_late_connection

STARVED = 0.3
"""Seconds that our loop may be late while a target is given time to follow: it may have been kept from it, too."""


class EppExecution(Execution):
    """One piece of work on an endpoint picker."""

    def __init__(self, runner: EppRunner, work: Work, capture: Capture) -> None:
        super().__init__(runner, work, capture)
        self._epp = runner
        self._quiet = False
        """A change was followed by nothing but a wait."""
        self._lost = False
        """The connection of some exchange broke."""
        self._beside = contextlib.AsyncExitStack()
        """What is kept open beside the steps."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """See `Execution`."""
        return {
            "exchange": self._exchanges,
            "pool": self._change,
            "gauges": self._gauges,
            "health": self._health,
            "kubernetes": self._trouble,
            "models": self._models,
            "restart": self._restart,
            "start_with": self._start_with,
            "unread_connection": self._unread,
        }

    @property
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """See `Execution`."""
        return self._epp.pool.endpoints

    def context(self) -> Context:
        """See `Execution`."""
        return dataclasses.replace(super().context(), claims=self._epp.profile.claims)

    def spoilt(self, late: float) -> str:
        """A quiet time while the loop was late."""
        if late > STARVED and self._quiet:
            return f"the suite's own event loop was {late:.1f} s late in a quiet time: the target may have been, too"
        return ""

    async def steps(self) -> None:
        """See `Execution`."""
        pool = self._epp.pool
        pool.patient = self._work.id in self._epp.too_early.again
        try:
            await pool.give_time()
            async with self._beside:
                await super().steps()
        finally:
            pool.patient = False

    async def end(self) -> None:
        """See `Execution`."""
        if self._lost:
            await self._epp.target.given_time_to_end()

    # -- exchanges -----------------------------------------------------------------------------------------------------

    async def _exchanges(self, exchange: Exchange, expect: Expect | None) -> None:
        barrier: Barrier | None = None
        if exchange.interleaved:
            profile = self._epp.profile
            size = min(exchange.repeat, exchange.concurrent, profile.limits.concurrency)
            barrier = Barrier(size, scouts=profile.connect.connections)

        async def send(index: int, name: str, rng: Random) -> bool:
            mode = self._work.mode
            assert mode != "gateway", "those roles are executed elsewhere"
            assert mode != "direct", "those roles are executed elsewhere"
            prepared = self._epp.prepared(exchange, index, mode, rng)
            with barrier.place() if barrier else contextlib.nullcontext() as hold:
                outcome = await self._epp.carry_out(
                    prepared, name, fresh_connection=exchange.connection == "fresh", hold=hold
                )
            real = self._epp.data_plane.variant is not None  # else the details may be the target's own words
            if real and outcome.details == UNROUTED and about_the_response(exchange, expect):
                self._unrouted(name)
            self._lost = self._lost or (outcome.stream is not None and outcome.stream.how == "lost")
            return not outcome.expired.startswith("answer")

        await self.repeat(exchange, expect, send)

    def _unrouted(self, exchange: str) -> None:
        """The data plane can't follow this target: what the client got says nothing of the target."""
        if exchange in self._expectations:
            self._expectations[exchange] = dataclasses.replace(self._expectations[exchange], status=())
        what = "the data plane could not follow the pick, so that no model server answered"
        self._capture.remark(Unmet(what=what, verdict="skipped"))

    # -- other steps ---------------------------------------------------------------------------------------------------

    async def _change(self, step: PoolStep, _: Expect | None) -> None:
        self._quiet = self._quiet or step.settle == "quietly"
        try:
            await self._epp.pool.change(step)
        finally:
            self._capture.add(self._epp.take_polls())
        if not self._epp.pool.followed and step.settle is True:
            limit = f"{self._epp.pool.patience:g} s"
            what = f"in {self._work.id} the target {self._epp.pool.lag} a change of the pool within {limit}"
            self._epp.unsettled(f"{what} (timeouts.convergence): it was judged as it was then")

    async def _gauges(self, gauges: Mapping[str, Load], _: Expect | None) -> None:
        await self._epp.pool.load(gauges)

    async def _trouble(self, step: KubernetesStep, _: Expect | None) -> None:
        assert self._epp.kubernetes is not None, "the plan has no such step for other targets"
        await self._epp.kubernetes.trouble(step.fault)

    async def _models(self, models: Mapping[str, NamedBy], _: Expect | None) -> None:
        kubernetes = self._epp.kubernetes
        assert kubernetes is not None, "the plan has no such step for other targets"
        self._beside.callback(kubernetes.withdraw_models)
        kubernetes.change_models(models)
        await kubernetes.delivered(self._epp.profile.timeouts.convergence)

        async def served(model: str) -> bool:
            return bool((await self._epp.poll(Exchange(model=model, ending="envoy"))).attempts)

        patience, connections = self._epp.profile.timeouts.convergence, self._epp.profile.connect.connections
        try:
            followed = await models_followed(models, served, connections=connections, patience=patience)
            self._epp.recorder.emit(followed)
        finally:
            self._capture.add(self._epp.take_polls())

    async def _restart(self, _: str, __: Expect | None) -> None:
        await self._epp.restart_target()

    async def _start_with(self, step: StartWith, expect: Expect | None) -> None:
        name = self._capture.exchange()
        if expect is not None:
            self._expectations[name] = self.expectation(expect)
        profile = self._epp.profile
        text = configuration(profile.reporter_config, [step.attributes])
        request = self._epp.prepared(Exchange(ending="envoy"), 0, profile.body_modes[0], Random(self._epp.seed))
        start = await trial_start(self._epp.target, request, text, self._epp.pool.__contains__, self._epp.folder)
        self._epp.recorder.emit(
            StartAttempt(exchange=name, configuration=text, started=start.started, output=without_folders(start.output))
        )

    async def _unread(self, step: UnreadConnectionStep, _: Expect | None) -> None:
        if self._epp.profile.limits.concurrency < 2:  # its stream is one of those that are open at a time
            self._capture.remark(Unmet(what="the profile allows one exchange at a time", verdict="skipped"))
            return
        mode = self._work.mode
        assert mode != "gateway", "those roles are executed elsewhere"
        assert mode != "direct", "those roles are executed elsewhere"
        opening = unread_connection(self._epp, step, mode, self._random(0))
        try:
            self._capture.remark(await self._beside.enter_async_context(opening))
        except ConnectFailed as problem:
            what = f"no further connection to the target: {problem.what}"
            self._capture.remark(Unmet(what=what, verdict="skipped"))

    async def _health(self, step: HealthStep, expect: Expect | None) -> None:
        name = self._capture.exchange()
        wanted: tuple[str, ...] = ()
        if expect is not None:
            self._expectations[name] = self.expectation(expect)
            wanted = self._expectations[name].health
        serving, status = None, 14

        async def settled() -> bool:
            nonlocal serving, status
            try:
                serving, status = await self._checked(name, step.service)
            except ConnectionRefused:
                return False  # nothing says that its port is open as early as that of ext_proc
            return not self._may_follow(step.service, serving, wanted)

        await until(settled, asyncio.get_running_loop().time() + self._epp.profile.timeouts.convergence)
        self._epp.recorder.emit(
            HealthProbe(
                exchange=name,
                service=step.service,
                serving=serving,
                grpc_status=status,
                pool_synced=self._epp.pool.synced,
            )
        )

    def _may_follow(self, service: str, serving: str | None, wanted: Sequence[str]) -> bool:
        """Whether the target may be about to say something else: readiness follows the pool, in its time."""
        synced = self._epp.pool.synced
        if service not in (READINESS, EXT_PROC_SERVICE) or serving is None or synced is False:
            return False  # one that has read no pool is never ready
        if wanted:
            return serving not in {one.upper().replace("-", "_") for one in wanted}
        return bool(synced) and serving != "SERVING"

    async def _checked(self, name: str, service: str) -> tuple[str | None, int]:
        """What one health check gets: a status of the service, and one of gRPC. Raises `ConnectionRefused`."""
        serving, status = None, 14
        channel: Channel | None = None
        try:
            channel = await self._epp.target.health_channel()
            answer = await health_check(channel, service, timeout=self._epp.profile.timeouts.answer)
            status = 14 if answer.grpc_status is None else answer.grpc_status
            serving = None if answer.status is None else HealthCheckResponse.ServingStatus.Name(answer.status)
        except ConnectionRefused:
            raise
        except ConnectFailed as problem:
            record_late_connection(self._epp.recorder, name, problem)
        except TimeoutError:
            what, seconds = "the health service's answer", self._epp.profile.timeouts.answer
            self._epp.recorder.emit(Wait(exchange=name, what=what, outcome="expired", seconds=seconds))
        if channel is not None:
            await channel.close()
        return serving, status
