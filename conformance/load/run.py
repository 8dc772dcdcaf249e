"""A load run: a target, its pool in motion, requests that arrive, and what came of them.

Nothing here waits for the target without a bound. Ctrl-C ends the arrivals; what was seen until then is the result.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.evidence.episode import Context, ProcessExited, ProcessStarted
from conformance.evidence.redaction import Redactor
from conformance.load.arrivals import Schedule, cancelled, first_of
from conformance.load.churn import PoolChurn, PoolWatcher
from conformance.load.course import Course, Snapshot, Stretch
from conformance.load.disturber import Disturber
from conformance.load.examples import Examples
from conformance.load.exchange import LATE_SECONDS, LiveExchange
from conformance.load.figures import FIRST_BYTE, LATENESS, PICK, Figures
from conformance.load.idleness import Idleness
from conformance.load.judgement import Bench, Judgement
from conformance.load.memory import Memory
from conformance.load.mix import Mix
from conformance.load.moments import Moments
from conformance.load.recovery import TargetStaysAway, TroubleBegan, TroubleEvent, Troubles
from conformance.load.settings import LoadSettings
from conformance.load.shape import RequestIds
from conformance.load.totals import Totals
from conformance.load.traffic import LoadTally, Traffic
from conformance.load.vitals import Vitals
from conformance.printable import plural
from conformance.requirements.catalogue import Catalogue
from conformance.run.data_plane.stimuli import Prepared
from conformance.run.engine import LagMeter
from conformance.run.epp.runner import EppRunner
from conformance.run.processor import INTERVAL, ProcessorTime
from conformance.scenario.pool import Pod, Pool
from conformance.scenario.schema import Exchange
from conformance.targets.listening import family
from conformance.verdict import Verdict
from ext_proc.channel import Channel
from ext_proc.record import Entry

SCENARIO = "load"

_DYING, _LOOK = 1.5, 0.05
"""Seconds in which a lost connection may turn out to be the end of the target's process, and between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAccess:
    """Where requests go: connections to the target, and how an exchange is made ready for it."""

    channel: Callable[[], Channel]
    prepared: Callable[[Exchange, random.Random], Prepared]


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
        self._redactor = Redactor.of(settings.profile)
        self.bench = Bench(self.context, self.catalogue)
        self.examples = Examples(self.bench, self._redactor)
        self.by_shape: Counter[str] = Counter()
        self.crashes: list[ProcessExited] = []
        self.troubles = Troubles()
        self.target_vitals = Vitals()
        self.own_vitals = Vitals()
        self.idleness = Idleness()
        """That of the thread that makes the requests, from when they began."""
        self.generators: list[Mapping[str, float]] = []
        """Of the processes that make the requests, where they are others: what `Vitals` and `Idleness` come to."""
        self.course = Course()
        self._pid = 0
        self.processor = ProcessorTime(0)
        """That of the target, as far as it is known here."""
        self.seconds = 0.0
        self.begun = 0
        self.lost_with_process = 0
        self.unfinished = 0
        self.memory: Memory | None = None
        self.traffic: Traffic | None = None
        self.schedule: Schedule | None = None
        self.churn: PoolChurn | None = None
        self.start_time = 0.0
        """When requests began to arrive, a monotonic time."""
        self.began = False
        """Whether the target was there, and requests began."""
        self.complete = False
        """Whether all stages ran to their end, and the process of the target that began them did not end."""
        self.cut_short = ""
        """What ended the load before its time, in words, where that was not its target."""
        self.workers: list[Mapping[str, Any]] = []
        """Of machines that share the load, as in `load.json`: the name of each, and what it came to there."""
        self._lag = lag
        self._status = status
        self._watch = watch
        self._lost: list[tuple[float, LiveExchange]] = []
        self._seen = Snapshot.beginning()

    async def run(self) -> None:
        """Start the target, let the load pass, and stop everything."""
        settings = self.settings
        profile = settings.profile
        moments = self._moments(settings.grace_time)
        runner = EppRunner(
            profile, settings.version, dict(settings.values), seed=settings.seed, lag=self._lag, status=self._status,
            redactor=self._redactor,
        )  # fmt: skip
        runner.recorder.listen(PoolWatcher(moments, time.monotonic))
        runner.recorder.listen(self._heed)
        async with runner:
            if profile.discovery.fixed is None:
                self._status(f"making a pool of {plural(settings.file.pods, 'pod')}")
                await runner.pool.reset(Pool(pods=tuple(Pod(name=name) for name in settings.file.pod_names)))
            moments.delivered(time.monotonic() - moments.grace)  # the pool has settled
            alone = asyncio.Lock()
            churn = self.churn = PoolChurn(runner.pool, settings.file.churn, moments, settings.seed, alone)
            disturber = Disturber(
                runner,
                settings.file.trouble,
                settings.file.seconds,
                moments=moments,
                churn=churn,
                alone=alone,
                tell=self._trouble,
            )
            await self._pass(runner, moments, churn, disturber)

    def _moments(self, grace: float) -> Moments:
        return Moments(grace, self.settings.longest_end)

    async def _pass(self, runner: EppRunner, moments: Moments, churn: PoolChurn, disturber: Disturber) -> None:
        mode = self.settings.profile.body_modes[0]
        place = TargetAccess(
            channel=lambda: runner.target.channel,
            prepared=lambda exchange, rng: runner.prepared(exchange, 0, mode, rng),
        )
        await self._generate(place, moments, churn.run(), disturber.run(), self._without_episodes(runner))

    async def _generate(self, place: TargetAccess, moments: Moments, *beside: Coroutine[None, None, None]) -> None:
        """Make the requests of this process at `place`, and judge them by `moments`, with `beside` going on."""
        settings = self.settings
        ids = RequestIds(settings.index, settings.head)
        self.memory = Memory(self.bench, ids, limit=settings.memory)
        rng = random.Random(settings.seed)
        mix = Mix(
            settings.file.mix,
            lambda exchange: place.prepared(exchange, rng),
            lambda: moments.current,
            settings.seed,
            reset=lambda: "model-servers-reset" in self.troubles.now,
        )
        traffic = self.traffic = Traffic(
            place.channel,
            self.memory,
            moments,
            deadline=settings.profile.timeouts.answer,
            lag=self._lag,
            withheld=lambda seconds: self.processor.withheld(seconds, 0.0),
            finished=self._finished,
            corrected=self._corrected,
            away=lambda: self.troubles.away,
        )

        def begin(due: float) -> bool:
            if len(traffic.open) >= settings.at_once:
                return False
            self.begun += 1
            self.figures.add(LATENESS, max(0.0, time.monotonic() - due))
            traffic.start(mix.draw(), due)
            return True

        schedule = self.schedule = Schedule(settings.file.arrivals, begin, index=settings.index, of=settings.of)
        async with traffic:
            await self._let_pass(schedule.run(), *beside)

    async def _let_pass(self, arrivals: Coroutine[None, None, None], *beside: Coroutine[None, None, None]) -> None:
        """Until `arrivals` are over or the target is gone; then what is under way ends."""
        loop = asyncio.get_running_loop()
        self.began, self.start_time, self.idleness = True, time.monotonic(), Idleness()
        looking = [loop.create_task(one) for one in (self._every_second(), self._watch_processor())]
        arriving, *others = (loop.create_task(one) for one in (arrivals, *beside))
        try:
            await first_of(arriving, *looking, *others)
            self.complete = not (self.troubles.gone or self.cut_short)
        finally:
            self.seconds = time.monotonic() - self.start_time
            await cancelled([arriving, *others])
            try:
                await self._end()  # which is looked at, too: it may take long
            finally:
                await cancelled(looking)
            self.complete = self.complete and not self.crashes

    async def _end(self) -> None:
        """Let what is under way end, and count what could not be counted before."""
        traffic = self.traffic
        assert traffic is not None
        try:
            if self.complete:
                await traffic.drained(self.settings.longest_end)
                self._take_stock()
                await self._aftermath(_DYING if self._lost else LATE_SECONDS)
        except BaseException:
            self.complete = False  # an interrupt leaves unknown what would have come
            raise
        finally:
            traffic.judge_late()
            self.unfinished = len(traffic.open)
            self._settle_lost(everything=True)
            self._take_stock()

    async def _aftermath(self, seconds: float) -> None:
        """Let something still come of the last exchanges: more messages, or the end of the target's process."""
        until = time.monotonic() + seconds
        while not self.crashes and time.monotonic() < until:  # noqa: ASYNC110 - a message has no event
            await asyncio.sleep(_LOOK)

    @property
    def totals(self) -> Totals:
        """What it has come to until now."""
        if (traffic := self.traffic) is None or (schedule := self.schedule) is None or (memory := self.memory) is None:
            return Totals()
        return Totals(
            stage=schedule.stage,
            due=schedule.due,
            crowded_out=schedule.crowded_out,
            left_out=schedule.left_out,
            open=len(traffic.open),
            refused=traffic.refused,
            waited=traffic.waited,
            memory=memory.counts,
            memory_bytes=memory.size,
        )

    # -- what comes of exchanges ---------------------------------------------------------------------------------------

    def _finished(self, exchange: LiveExchange) -> None:
        if not exchange.lost:
            self._count(exchange)
        elif not self.troubles.lose(exchange.started, exchange.progress):
            self._lost.append((exchange.progress, exchange))
        assert self.schedule is not None
        self.schedule.over(exchange.intended)

    def _count(self, exchange: LiveExchange) -> None:
        judgement = exchange.judgement
        assert judgement is not None
        self.tally.add(judgement)
        self.by_shape[exchange.shape.name] += 1
        if picked := exchange.decided or exchange.given_up:  # what never came took at least as long as was waited
            self.figures.add(PICK, picked - exchange.intended)
        if responded := exchange.responded or (exchange.shape.reply.fail != "never" and exchange.given_up):
            self.figures.add(FIRST_BYTE, responded - exchange.intended - exchange.served)
        self._count_trouble(exchange, judgement)
        if judgement.telling:
            self.examples.keep(exchange, judgement, exchange.progress - self.start_time)

    def _count_trouble(self, exchange: LiveExchange, judgement: Judgement, times: int = 1) -> None:
        if self.troubles.open and not judgement.undecided:
            broken = {one.requirement for one in judgement.telling if one.verdict is Verdict.FAIL}
            decided = exchange.decided or exchange.over
            self.troubles.count(exchange.started, decided, exchange.over, broken, times)

    def _corrected(self, exchange: LiveExchange, earlier: Judgement) -> None:
        """Something came after the exchange was over, and it is judged again."""
        assert exchange.judgement is not None
        self.tally.add(earlier, -1)
        self.tally.add(exchange.judgement)
        self._count_trouble(exchange, earlier, -1)
        self._count_trouble(exchange, exchange.judgement)
        self.examples.keep(exchange, exchange.judgement, exchange.progress - self.start_time)

    def _settle_lost(self, *, everything: bool = False) -> None:
        """Exchanges whose connection broke: the end of the process explains them, or they are counted as they are."""
        now = time.monotonic()
        waiting = []
        for when, exchange in self._lost:
            if self.troubles.lose(exchange.started, when):
                continue
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
                self.processor = ProcessorTime(pid)
                self.target_vitals.begin_again()

    def _trouble(self, event: TroubleEvent) -> None:
        self.troubles.heed(event)
        match event:
            case TroubleBegan(kind=kind):
                self._status(f"{event.at - self.start_time:6.1f} s: trouble begins: {kind}")
            case TargetStaysAway(why=why):
                self._status(why)

    # -- beside --------------------------------------------------------------------------------------------------------

    async def _every_second(self) -> None:
        """Take stock, and end the load when the target's process is gone."""
        while not (self.crashes or self.troubles.gone):
            await asyncio.sleep(1)
            if self.traffic is not None:
                self.traffic.check()
            self._settle_lost()
            self._take_stock()

    async def _without_episodes(self, runner: EppRunner) -> None:
        """Keep nothing for a next episode, as there is none, and little of pods that are gone: for hours they go."""
        while True:
            runner.take_polls()
            runner.forget_standing()
            runner.pool.forget_gone(self.settings.file.pod_names)
            await asyncio.sleep(1)

    async def _watch_processor(self) -> None:
        while True:
            self.processor.look()
            await asyncio.sleep(INTERVAL)

    @property
    def _covered(self) -> float:
        """Seconds since requests began to arrive, of which everything is known here."""
        return time.monotonic() - self.start_time

    def _take_stock(self) -> None:
        if self._covered > self._seen.seconds:
            self._watch(self._look())

    def _look(self) -> Snapshot:
        """What happened since the last look."""
        before, second = self._seen, self._covered
        self.own_vitals.look([os.getpid()], second)
        self.idleness.look(self.tally.exchanges - before.judged)
        sample = self.target_vitals.look(family(self._pid), second) if self._pid else None
        totals = self.totals
        snapshot = Snapshot(
            seconds=second,
            stage=totals.stage,
            due=totals.due,
            begun=self.begun,
            judged=self.tally.exchanges,
            failed=self.tally.failed,
            open=totals.open,
            rate=(self.tally.exchanges - before.judged) / (second - before.seconds),
            latest=self.figures.fold(),
            hit_rate=totals.memory.hit_rate,
            troubles=[one.plain(self.start_time) for one in self.troubles.open],
        )
        changes = self.churn.lately.copy() if self.churn is not None else Counter()
        self.course.add(Stretch.between(before, snapshot, sample, changes))
        if self.churn is not None:
            self.churn.lately.clear()
        self._seen = snapshot
        return snapshot
