"""A load run: a target, its pool in motion, requests that arrive, and what came of them.

Nothing here waits for the target without a bound. Ctrl-C ends the arrivals; what was seen until then is the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import UsageError
from conformance.evidence.episode import Context, ProcessExited, ProcessStarted
from conformance.evidence.redaction import Redactor
from conformance.evidence.store import EvidenceWriter
from conformance.load.arrivals import Schedule
from conformance.load.churn import PoolChurn, PoolWatcher
from conformance.load.exchange import LiveExchange
from conformance.load.figures import FIRST_BYTE, LATENESS, PICK, Figures
from conformance.load.judgement import Bench, Judgement, episode
from conformance.load.memory import MEMORY, Memory
from conformance.load.mix import LoadFile, Mix
from conformance.load.moments import Moments
from conformance.load.shape import RequestIds
from conformance.load.traffic import LoadTally, Traffic
from conformance.load.vitals import Vitals
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import LagMeter
from conformance.run.epp.runner import EppRunner
from conformance.scenario.pool import Pod, Pool
from conformance.targets.profile import Profile
from conformance.verdict import Finding, Verdict
from ext_proc.http2.address import UNIX
from ext_proc.record import Entry

SCENARIO = "load"

EXAMPLES = 5
"""Exchanges of each kind of finding that are kept as evidence."""

_DYING = 1.5
"""Seconds in which a lost connection may turn out to be the end of the target's process."""

_MARGIN = 5.0
"""Seconds that exchanges get to end beyond the deadline of their answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSettings:
    """What a load run is to do. `grace`: seconds in which a change of the pool must be followed once it was delivered
    (None: the profile's convergence time). `at_once`: exchanges that may be under way; `memory`: bytes for what is
    remembered; `evidence`: the file for exchanges with findings."""

    profile: Profile
    version: str
    values: Mapping[str, str]
    file: LoadFile
    seed: int
    grace: float | None = None
    at_once: int = 10_000
    memory: int = MEMORY
    evidence: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What happened since the last one, and in all. Times are milliseconds."""

    seconds: float
    stage: int
    begun: int
    judged: int
    failed: int
    open: int
    rate: float
    latest: Mapping[str, Mapping[str, float]]
    hit_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A finding with the exchange that shows it: `episode` names it in the evidence, `second` is when it ended."""

    finding: Finding
    episode: str
    shape: str
    second: float


class LoadRun:
    """One load run. `status` gets what is waited for, `watch` a snapshot every second."""

    def __init__(
        self,
        settings: LoadSettings,
        *,
        lag: LagMeter,
        status: Callable[[str], None],
        watch: Callable[[Snapshot], None],
    ) -> None:
        self.settings = settings
        self.context = Context(
            version=settings.version,
            scenario=SCENARIO,
            destination_namespace=settings.profile.metadata.destination,
            subset_namespace=settings.profile.metadata.subset,
            deadline=settings.profile.timeouts.answer,
            claims=settings.profile.claims,
        )
        self.catalogue = Catalogue.load()
        self.tally = LoadTally()
        self.figures = Figures()
        self.examples: list[Example] = []
        self.by_shape: Counter[str] = Counter()
        self.crashes: list[ProcessExited] = []
        self.target_vitals = Vitals()
        self.own_vitals = Vitals()
        self._pid = 0
        self.seconds = 0.0
        self.begun = 0
        self.lost_with_process = 0
        self.unfinished = 0
        self.memory: Memory | None = None
        self.traffic: Traffic | None = None
        self.schedule: Schedule | None = None
        self.churn: PoolChurn | None = None
        self.complete = False
        """Whether all stages ran to their end."""
        self._lag = lag
        self._status = status
        self._watch = watch
        self._redactor = Redactor.of(settings.profile)
        self._evidence: EvidenceWriter | None = None
        self._kept: Counter[tuple[str, Verdict]] = Counter()
        self._lost: list[tuple[float, LiveExchange]] = []
        self._start = 0.0

    async def run(self) -> None:
        """Start the target, let the load pass, and stop everything."""
        settings = self.settings
        loop = asyncio.get_running_loop()
        profile = settings.profile
        moments = Moments(profile.timeouts.convergence if settings.grace is None else settings.grace)
        runner = EppRunner(
            profile, settings.version, dict(settings.values), seed=settings.seed, lag=self._lag, status=self._status,
            redactor=self._redactor,
        )  # fmt: skip
        runner.recorder.listen(PoolWatcher(moments, loop.time))
        runner.recorder.listen(self._heed)
        with EvidenceWriter(settings.evidence) if settings.evidence else contextlib.nullcontext() as self._evidence:
            async with runner:
                if profile.discovery.fixed is None:
                    self._status(f"making a pool of {settings.file.pods} pods")
                    pods = tuple(Pod(name=f"p{number}") for number in range(1, settings.file.pods + 1))
                    await runner.pool.reset(Pool(pods=pods))
                await self._pass(runner, moments)

    async def _pass(self, runner: EppRunner, moments: Moments) -> None:
        settings, loop = self.settings, asyncio.get_running_loop()
        mode = settings.profile.body_modes[0]
        moments.delivered(loop.time() - moments.grace)  # the pool has settled
        self.memory = Memory(Bench(self.context, self.catalogue), RequestIds(), limit=settings.memory)
        rng = random.Random(settings.seed)
        mix = Mix(
            settings.file.mix,
            lambda exchange: runner.prepared(exchange, 0, mode, rng),
            lambda: runner.pool.eligible,
            settings.seed,
        )
        traffic = self.traffic = Traffic(
            lambda: runner.target.channel,
            self.memory,
            moments,
            deadline=settings.profile.timeouts.answer,
            lag=self._lag.worst,
            finished=self._finished,
            corrected=self._corrected,
        )

        def begin(due: float) -> bool:
            if len(traffic.open) >= settings.at_once:
                return False
            self.begun += 1
            self.figures.add(LATENESS, max(0.0, loop.time() - due))
            traffic.start(mix.draw(), due)
            return True

        schedule = self.schedule = Schedule(settings.file.arrivals, begin)
        self.churn = PoolChurn(runner.pool, settings.file.churn, moments, settings.seed)
        self._start = loop.time()
        async with traffic:
            beside = [loop.create_task(self.churn.run()), loop.create_task(self._every_second(traffic))]
            try:
                arriving = loop.create_task(schedule.run())
                await _first_of(arriving, *beside)
                self.complete = True
            finally:
                self.seconds = loop.time() - self._start
                arriving.cancel()
                for task in beside:
                    task.cancel()
                await asyncio.gather(arriving, *beside, return_exceptions=True)
                await self._end(traffic)

    async def _end(self, traffic: Traffic) -> None:
        """Let what is under way end, and count what could not be counted before."""
        if self.complete:
            longest = max((one.service_time for one in self.settings.file.mix), default=0.0)
            await traffic.drained(self.settings.profile.timeouts.answer + longest + _MARGIN)
            if self._lost and not self.crashes:
                await asyncio.sleep(_DYING)
        self.unfinished = len(traffic.open)
        self._settle_lost(everything=True)
        self.figures.fold()

    # -- what comes of exchanges ---------------------------------------------------------------------------------------

    def _finished(self, exchange: LiveExchange) -> None:
        if exchange.lost:
            self._lost.append((exchange.progress, exchange))
        else:
            self._count(exchange)
        assert self.schedule is not None
        self.schedule.over()

    def _count(self, exchange: LiveExchange) -> None:
        judgement = exchange.judgement
        assert judgement is not None
        self.tally.add(judgement)
        self.by_shape[exchange.shape.name] += 1
        if exchange.decided:
            self.figures.add(PICK, exchange.decided - exchange.intended)
        if exchange.responded:
            self.figures.add(FIRST_BYTE, exchange.responded - exchange.intended - exchange.shape.service_time)
        if judgement.telling:
            self._keep(exchange, judgement)

    def _corrected(self, exchange: LiveExchange, earlier: Judgement) -> None:
        """Something came after the exchange was over, and it is judged again."""
        assert exchange.judgement is not None
        self.tally.add(earlier, -1)
        self.tally.add(exchange.judgement)
        if exchange.judgement.telling:
            self._keep(exchange, exchange.judgement)

    def _keep(self, exchange: LiveExchange, judgement: Judgement) -> None:
        """Keep the exchange as evidence for findings of which there is not enough yet."""
        wanted = {
            (one.requirement, one.verdict)
            for one in judgement.telling
            if self._kept[one.requirement, one.verdict] < EXAMPLES
        }
        if not wanted:
            return
        self._kept.update(wanted)
        name = exchange.own.decode()
        events = [
            dataclasses.replace(event, exchange=name) if event.exchange is not None else event
            for event in map(self._redactor.event, exchange.learner.events)
        ]
        seen = episode(events, exchange.window, name=name, trouble=exchange.trouble)
        if self._evidence is not None:
            self._evidence.add(name, seen, self.context)
        shown: dict[tuple[str, Verdict], Finding] = {}
        for one in judgement.telling:
            shown.setdefault((one.requirement, one.verdict), one)
        second = exchange.progress - self._start
        for key in sorted(wanted):
            finding = dataclasses.replace(shown[key], exchange=name, actual=self._redactor.text(shown[key].actual))
            self.examples.append(Example(finding=finding, episode=name, shape=exchange.shape.name, second=second))

    def _settle_lost(self, *, everything: bool = False) -> None:
        """Exchanges whose connection broke: the end of the process explains them, or they are counted as they are."""
        now = asyncio.get_running_loop().time()
        waiting = []
        for when, exchange in self._lost:
            if self.crashes:
                self.lost_with_process += 1
            elif everything or now - when > _DYING:
                self._count(exchange)
            else:
                waiting.append((when, exchange))
        self._lost = waiting

    def _heed(self, entry: Entry) -> None:
        match entry.event:
            case ProcessExited(asked=False):
                self.crashes.append(entry.event)
            case ProcessStarted(pid=pid):
                self._pid = pid
                self.target_vitals.begin_again()

    # -- beside --------------------------------------------------------------------------------------------------------

    async def _every_second(self, traffic: Traffic) -> None:
        """Take stock, and end the load when the target's process is gone."""
        judged, at = 0, time.monotonic()
        while not self.crashes:
            await asyncio.sleep(1)
            now = time.monotonic()
            self._settle_lost()
            second = asyncio.get_running_loop().time() - self._start
            self.own_vitals.look(os.getpid(), second)
            if self._pid:
                self.target_vitals.look(self._pid, second)
            assert self.memory is not None
            assert self.schedule is not None
            snapshot = Snapshot(
                seconds=second,
                stage=self.schedule.stage,
                begun=self.begun,
                judged=self.tally.exchanges,
                failed=self.tally.failed,
                open=len(traffic.open),
                rate=(self.tally.exchanges - judged) / (now - at),
                latest=self.figures.fold(),
                hit_rate=self.memory.counts.hit_rate,
            )
            judged, at = self.tally.exchanges, now
            self._watch(snapshot)


async def _first_of(arriving: asyncio.Task[None], *beside: asyncio.Task[None]) -> None:
    """Wait for the arrivals to end, or the target; a task beside that broke breaks the run."""
    churn, watching = beside
    waited = {arriving, watching, churn}
    while not arriving.done() and not watching.done():
        done, waited = await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()


def loopback(host: str) -> bool:
    """Whether a host is this machine's own."""
    return host.startswith("127.") or host in ("localhost", "::1", "[::1]")


def check_bounds(profile: Profile, *, remote: bool) -> None:
    """Raise `UsageError` for a target on another machine, unless that is meant."""
    if profile.address.startswith(UNIX):
        return
    host = profile.address.rpartition(":")[0]
    if not profile.started_by_us and not loopback(host) and not remote:
        raise UsageError(
            f"{host} is another machine, and a load may be more than it can bear",
            hint="add --allow-remote if it is yours to load",
        )
