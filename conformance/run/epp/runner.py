"""An endpoint picker under test with everything around it: its pool, its discovery, its data plane, and the gate."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from conformance.errors import GateFailedError, TargetUnreachableError, UsageError
from conformance.evidence.episode import Context, Episode, GaugesShown, PoolState
from conformance.evidence.reported import configuration
from conformance.outcome import Anomaly
from conformance.planning.epp import EppTraits
from conformance.run.data_plane.plane import DataPlane, FakeDataPlane
from conformance.run.data_plane.stimuli import Prepared, prepare
from conformance.run.epp import gate
from conformance.run.epp.discovery import FixedEndpoints, PoolDiscovery, WatchedFile
from conformance.run.epp.early import Early
from conformance.run.epp.kubernetes import KubernetesApi
from conformance.run.epp.patience import Patience
from conformance.run.epp.polls import Polls, picked
from conformance.run.epp.pool import PoolController
from conformance.run.epp.target import Target
from conformance.run.epp.trial_start import written
from conformance.run.target_runner import TargetRunner
from conformance.scenario.pool import Pool
from conformance.scenario.schema import BodyMode, Exchange
from conformance.targets.bridge import Bridge, open_bridge
from conformance.targets.launch import fill, in_bridge
from conformance.targets.profile import Profile
from conformance.verdict import Finding
from ext_proc.record import Entry
from fake_kubernetes import Emulator
from fake_kubernetes.builders import kubeconfig
from fake_modelserver import Fleet, ScrapeStarted
from fake_proxy.exchange import ExchangeOutcome

if TYPE_CHECKING:
    from conformance.run.data_plane.envoy import EnvoyDataPlane

RESTARTS = 2
"""How often a target that does not follow the pool of a scenario is still not right after it was started again, before
it is not started again for that any more."""

UNSETTLED = 8
"""So many changes that were not followed are told of; all are in the evidence."""

WITHOUT_SUBSETS = ("0.2.0",)
SETTLING = {"settling": True}
"""Note of exchanges that are made while the pool settles: judged for how the stream behaves only."""


class EppRunner(TargetRunner):
    """An endpoint picker with its pool and its discovery."""

    at_a_time = 12
    profile: Profile
    target: Target
    pool: PoolController

    def __init__(self, profile: Profile, version: str, values: Mapping[str, str], **rest: Any) -> None:
        super().__init__(profile, version, values, **rest)
        self._patience = Patience(
            profile.timeouts.answer, self.recorder, self.noting("silent"), queues=profile.claims.queues
        )
        self._settling = itertools.count(1)
        self._polls = Polls(self.recorder)
        self._transition: list[Entry] = []
        """How the pool came to be what it is, since an episode had it last: it explains the polls."""
        self._unsettled = 0
        self.too_early = Early(self.recorder, lambda: self.pool.left)
        self._restarts_that_may_help = RESTARTS
        self._fake = FakeDataPlane(lambda: self.target, self.recorder, lambda endpoint: endpoint in self.pool)
        self._envoy: EnvoyDataPlane | None = None
        if self.data_plane.variant is not None:
            from conformance.run.data_plane.envoy import EnvoyDataPlane

            self._envoy = EnvoyDataPlane(self.data_plane, profile, lambda: self.target, self.recorder)
        self.fleet = self._new_fleet()
        self.emulator: Emulator | None = None
        self.kubernetes: KubernetesApi | None = None
        self._bridge: Bridge | None = None
        self._watched: WatchedFile | None = None

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """See `TargetRunner`."""
        if in_bridge(self.profile, self.version):
            self._bridge = await self._bridged()
            self.fleet = self._new_fleet(self._bridge.pods)
        await self.fleet.start()
        values = dict(self._values)
        channel = await self._discovery(values)
        values["reporterConfig"] = written(self.folder, configuration(self.profile.reporter_config))
        self.pool = PoolController(self.fleet, channel, self.profile, self.recorder.emit)
        if self._bridge is not None:
            self.pool.ipv6_host = self._bridge.ipv6
        self.pool.supports_subset = self.version not in WITHOUT_SUBSETS
        self.target = Target(
            self.profile,
            self.version,
            values,
            emit=self.recorder.emit,
            redact=self.redactor.text,
            bridge=self._bridge,
        )
        await self.pool.reset(EppTraits.of(self.profile).first_pool)
        await self.start_target()
        if self._envoy is not None:
            self.status("starting Envoy")
            await self._envoy.start()

    async def start_target(self) -> None:
        """Start the target, wait until it answers, and pass the gate: a plain request must get an endpoint."""
        self.status("starting the target" if self.profile.started_by_us else f"connecting to {self.profile.address}")
        self.pool.begin()
        try:
            await self.target.on_a_free_port(self._start_once)
        except TargetUnreachableError as problem:
            raise TargetUnreachableError(problem.message + self._asked(), hint=problem.hint) from problem
        for _ in range(self.profile.limits.warm_up):
            await self.ask(Exchange(ending="envoy"), SETTLING)
        await self.pool.begun(self._poll)
        self.too_early.begun(self.pool.facts)

    async def _start_once(self) -> None:
        await self.target.start()
        if self.pool.eligible:  # without an endpoint it need not be ready
            self.status("waiting until it is ready")
            await self.target.serving()
        self.status("waiting for an endpoint")
        await self._gate()

    async def restart_target(self) -> None:
        """See `TargetRunner`. Meanwhile all metrics can be read: those of before may have ended it, or made it hang."""
        self.pool.probe = None
        await self.target.stop()
        await self.pool.publish()  # it may have spoilt its file
        async with self.pool.unloaded(readable=True):
            await self.start_target()

    async def close(self, *, hurry: bool = False) -> None:
        """See `TargetRunner`. The user's endpoints file is theirs again."""
        try:
            if self._watched is not None:  # first, as nothing that hangs may keep it from its owner
                self._watched.restore()
        finally:
            try:
                await self._stop(hurry=hurry)
            finally:
                self.folder.release()

    async def _stop(self, *, hurry: bool) -> None:
        async with contextlib.AsyncExitStack() as last_first:  # one that fails keeps none of the others running
            if self._bridge is not None:
                last_first.push_async_callback(self._bridge.close)
            last_first.push_async_callback(self.fleet.stop)
            if self.emulator is not None:
                last_first.push_async_callback(self.emulator.stop)
            if hasattr(self, "target"):
                last_first.push_async_callback(self.target.stop, hurry=hurry)
            if self._envoy is not None:
                last_first.push_async_callback(self._envoy.close)

    def _new_fleet(self, hosts: Sequence[str] = ()) -> Fleet:
        if self._envoy is None:
            return Fleet(on_scrape=self._scraped, hosts=hosts)
        return Fleet(on_scrape=self._scraped, hosts=hosts, script=self._envoy.script, on_request=self._envoy.served)

    async def _discovery(self, values: dict[str, str]) -> PoolDiscovery:
        discovery = self.profile.discovery
        if discovery.file is not None:
            own = {**values, "workdir": str(self.folder.own)}
            path = Path(fill(discovery.file.path, own, "discovery.file.path"))
            if self._number and self.folder.own not in path.parents:
                raise UsageError(f"the endpoints file {path} is one for all", hint="run one target at a time: --jobs 1")
            values["endpointsFile"] = str(path)
            self._watched = WatchedFile(path, discovery.file, self.noting("endpoints-file"))
            return self._watched
        if discovery.kubernetes is not None:
            host = self._bridge.gateway if self._bridge is not None else "127.0.0.1"
            self.emulator = Emulator(host=host, namespaces=(discovery.kubernetes.namespace,))
            await self.emulator.start()
            path = self.folder.write("kubeconfig", kubeconfig(self.emulator.url))
            names = {"namespace": discovery.kubernetes.namespace, "pool": discovery.kubernetes.pool}
            values |= {"kubeconfig": str(path), **names}
            self.kubernetes = KubernetesApi(self.emulator, discovery.kubernetes)
            return self.kubernetes
        return FixedEndpoints()

    async def _bridged(self) -> Bridge:
        discovery = self.profile.discovery
        if discovery.fixed is not None and discovery.scrapes:
            inside = [endpoint for endpoint in discovery.fixed.endpoints if endpoint.startswith(("127.", "[::1]"))]
            if inside:
                raise UsageError(
                    f"a container in a bridge network can't reach {inside[0]} of this machine",
                    hint="say `start.network: host`, or `discovery.scrapes: false` if it never reads gauges",
                )
        return await open_bridge(kubernetes=discovery.kubernetes is not None)

    # -- for batches ---------------------------------------------------------------------------------------------------

    async def prepare(self, pool: Pool) -> None:
        """See `TargetRunner`. A target that has not followed is started again: it reads the pool when it starts.

        So no scenario begins with what another has left, and it comes to the same verdict alone.
        """
        await self.pool.reset(pool)
        if not self.pool.followed:
            if not self.crashed:  # one that ended is started again before its next scenario
                await self._prove()
            self.pool.take_for_followed()

    async def _prove(self) -> None:
        """Start the target again, if that may help. Without an endpoint to give it would not have to pass the gate."""
        limit = f"{self.pool.patience:g} s (timeouts.convergence)"
        what = f"the target {self.pool.lag} the change to the pool of the next scenarios within {limit}"
        if not (self.profile.started_by_us and self.pool.eligible and self._restarts_that_may_help):
            self.unsettled(what)
            return
        self.unsettled(f"{what}, and was started again")
        await self.restart_target()
        await self.pool.settle()
        if not self.pool.followed:
            self._restarts_that_may_help -= 1
            self.unsettled("started again, the target does not pick from the pool either")

    def early(self, work: str, episode: Episode, context: Context, findings: Sequence[Finding]) -> bool:
        """See `TargetRunner`."""
        found = self.too_early.accused(work, episode, context, findings)
        if found:
            self.unsettled(f"an earlier pool would explain what the target did in {work}: it was given longer")
        return found

    def unsettled(self, what: str) -> None:
        """Tell of a change that was not followed."""
        self._unsettled += 1
        if self._unsettled <= UNSETTLED:
            more = "; further ones are in the evidence only" if self._unsettled == UNSETTLED else ""
            self.anomaly(Anomaly(code="unsettled", text=what + more))

    async def responds(self) -> bool:
        """See `TargetRunner`. All metrics can be read: without them a target need not give endpoints."""
        async with self.pool.unloaded(readable=True):
            return await self.probe(None) is not None or not self.pool.eligible

    async def relieve(self) -> None:
        """See `TargetRunner`."""
        await self.pool.relieve()

    @property
    def reads_no_metrics(self) -> bool:
        """See `TargetRunner`."""
        return self.pool.reads_no_metrics

    # -- the gate ------------------------------------------------------------------------------------------------------

    async def _gate(self) -> None:
        loop = asyncio.get_running_loop()
        patience = self.profile.timeouts.start if self.profile.started_by_us else self.profile.timeouts.answer
        wait, began = min(gate.FIRST_WAIT, self.profile.timeouts.answer), loop.time()
        last: ExchangeOutcome | None = None
        heard: list[str] = []
        self._patience.starting = True
        stop = self.recorder.listen(lambda entry: heard.append(gate.said(entry)))
        try:
            while loop.time() < began + patience:
                if self.target.crashed:
                    raise await self.target.explain_end()
                heard.clear()
                last = await self.ask(Exchange(ending="envoy"), SETTLING, deadline=wait)
                if gate.passes(last, heard, eligible=bool(self.pool.eligible)):
                    if gate.headers_only(last, heard):
                        await self._body_must_be_answered(heard)
                    return
                if not self.profile.started_by_us and last.stream is not None and last.stream.how == "malformed":
                    break
                wait = self.profile.timeouts.answer
                await asyncio.sleep(0.05)
        finally:
            self._patience.starting = False
            stop()
        if self.target.crashed:
            raise await self.target.explain_end()
        raise gate.error(self.profile, last, loop.time() - began, self.target.output, self._asked())

    async def _body_must_be_answered(self, heard: list[str]) -> None:
        """Ask once more and wait as long as scenarios do: each would wait as long for an answer that never comes."""
        heard.clear()
        deadline = min(10.0, self.profile.timeouts.answer)
        last = await self.ask(Exchange(ending="envoy"), SETTLING, deadline=deadline)
        if gate.headers_only(last, heard):
            what = "it answers the headers of the first plain request and not its body"
            raise GateFailedError(f"{what}: nothing came for {deadline:g} s", hint=gate.HEADERS_ONLY)

    def _asked(self) -> str:
        """What the target asked of the Kubernetes API, for a person who wonders why it is not ready."""
        if self.emulator is None:
            return ""
        return "\n" + gate.asked(self.emulator.requests, self.profile.discovery.kubernetes)

    # -- exchanges -----------------------------------------------------------------------------------------------------

    async def ask(
        self, exchange: Exchange, note: Mapping[str, object], *, deadline: float | None = None, name: str | None = None
    ) -> ExchangeOutcome:
        """One exchange beside the episodes."""
        name = name or f"settle.{next(self._settling)}"
        prepared = self.prepared(exchange, 0, self.profile.body_modes[0], Random(f"{self.seed} {name}"))
        # A cluster without configured endpoints goes where the EPP says, and nowhere else.
        prepared = dataclasses.replace(prepared, config=dataclasses.replace(prepared.config, pool=()))
        return await self.carry_out(prepared, name, note=note, deadline=deadline, through=self._fake)

    async def probe(self, subset: Sequence[str] | None) -> str | None:
        """The first endpoint that is picked within `subset` now, or None."""
        return await picked(subset, lambda exchange: self.ask(exchange, SETTLING))

    async def _poll(self, subset: Sequence[str] | None) -> str | None:
        """The same while the pool settles."""
        return await picked(subset, self.poll)

    async def poll(self, exchange: Exchange) -> ExchangeOutcome:
        """One exchange while a change settles: the next episode has it as evidence."""
        return await self._polls.ask(lambda name: self.ask(exchange, SETTLING, name=name))

    def prepared(self, exchange: Exchange, index: int, mode: BodyMode, rng: Random) -> Prepared:
        """What the fake proxy is asked for the `index`th repeat of `exchange`, with the pool as it is."""
        endpoints = self.pool.endpoints
        everything = tuple(one for name, own in endpoints.items() if name != "nobody" for one in own)
        return prepare(
            exchange,
            index=index,
            mode=mode,
            profile=self.profile,
            endpoints=endpoints,
            pool=everything,
            rng=rng,
        )

    async def carry_out(
        self,
        prepared: Prepared,
        exchange_id: str,
        *,
        note: Mapping[str, object] | None = None,
        fresh_connection: bool = False,
        deadline: float | None = None,
        through: DataPlane | None = None,
        hold: Callable[[], Awaitable[None]] | None = None,
    ) -> ExchangeOutcome:
        """Run one exchange within the target's limits (`hold`: see `Pace`); everything that happens is in the log."""
        async with self.throttle:
            return await (through or self._envoy or self._fake).carry_out(
                prepared,
                exchange_id,
                note={**prepared.note, **(note or {})},
                pace=self._patience.pace(
                    prepared.reply,
                    hold,
                    deadline,
                    pauses=prepared.request.pauses,
                    withheld=self.kept_from,
                ),
                fresh_connection=fresh_connection,
            )

    # -- the log -------------------------------------------------------------------------------------------------------

    def take_unseen(self) -> list[Entry]:
        """See `TargetRunner`. The first episode on a pool has how the target was brought to follow it."""
        unseen = [*super().take_unseen(), *self._transition, *self._polls.take()]
        self._transition.clear()
        return unseen

    def take_polls(self) -> list[Entry]:
        """The polls of a change that an episode has seen itself."""
        self._transition.clear()
        return self._polls.take()

    def _remember(self, entry: Entry) -> None:
        super()._remember(entry)
        if isinstance(entry.event, PoolState):
            if not self._transition and (last := self._standing.get("pool")) is not None:
                self._transition.append(last)
            self._transition.append(entry)
        match entry.event:
            case PoolState(phase="effective"):
                self._standing = {key: one for key, one in self._standing.items() if key != "pool"} | {"pool": entry}
            case GaugesShown(pod=pod):
                self._standing[f"gauges {pod}"] = entry

    def _scraped(self, _: ScrapeStarted) -> None:
        """Scrapes are counted by the fleet; thousands of them in the log would tell a reader nothing."""
        self.pool.was_scraped = True
