"""A load made by several processes: each walks its own trie and judges what it asked.

The one that begins the run starts the target, changes the pool, and puts together what the others tell it. They have
the pool's history from a file (`shared_moments`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.errors import TargetUnreachableError
from conformance.evidence.episode import ProcessExited, ProcessStarted
from conformance.load.examples import Example, KeptExchange
from conformance.load.figures import KeptTimes
from conformance.load.moments import Moments, State
from conformance.load.recovery import Aftermath, TargetIsBack, TroubleBegan, TroubleEnded
from conformance.load.run import LoadRun, TargetAccess
from conformance.load.settings import LoadSettings
from conformance.load.shared_moments import ReadMoments
from conformance.load.totals import Totals
from conformance.load.traffic import LoadTally
from conformance.run.child_process import Say
from conformance.run.data_plane.stimuli import Prepared, prepare
from conformance.run.engine import EngineThread, LagMeter
from conformance.run.epp.target import dial_target
from conformance.run.processor import ProcessorTime
from conformance.scenario.schema import Exchange
from ext_proc.channel import Channel
from ext_proc.http2.errors import ConnectFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one process has to know: its settings, where the target is and its process (0: not on this machine), the
    pool's endpoints by their references, and the file with its history, or what it is throughout. `grace` is in
    seconds."""

    settings: LoadSettings
    pid: int = 0
    address: str
    endpoints: Mapping[str, tuple[str, ...]]
    pool: Path | State
    grace: float

    def moments(self) -> contextlib.AbstractContextManager[Moments]:
        """The pool as the process knows it."""
        if isinstance(self.pool, Path):
            return contextlib.closing(ReadMoments(self.grace, self.settings.longest_end, self.pool))
        moments = Moments(self.grace, self.settings.longest_end)
        moments.asked(self.pool, -math.inf)
        moments.delivered(-math.inf)
        return contextlib.nullcontext(moments)


@dataclass(frozen=True, slots=True)
class GetReady:
    """Connect to the target. It is the answer, too, when that is done."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Make the requests. It is answered with a `ShareReport` a second, the last of which has the `end`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Make no more requests, and do not wait for those under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareEnd:
    """The end of a process's share: findings with the exchanges that show them, its memory over time, and whether it
    had time to spare (`Idleness`)."""

    complete: bool
    examples: Sequence[Example]
    shown: Mapping[str, KeptExchange]
    vitals: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReport:
    """What a process has seen in the `covered` seconds since it began: all of it, but of the `times` only those since
    the last report, and of `troubles` those that changed since."""

    covered: float
    totals: Totals
    tally: LoadTally
    begun: int
    by_shape: Counter[str]
    unfinished: int
    lost_with_process: int
    troubles: Sequence[Aftermath]
    times: Mapping[str, array[float]]
    end: ShareEnd | None = None


class SharedRun(LoadRun):
    """One process's share of a load. `say` gets its reports."""

    def __init__(self, share: Share, lag: LagMeter, say: Callable[[ShareReport], None]) -> None:
        super().__init__(share.settings, lag=lag, status=lambda _: None, watch=lambda _: say(self._report(None)))
        self.figures = self._times = KeptTimes()
        self.processor = ProcessorTime(share.pid)
        self._share = share
        self._say = say
        self._channel: Channel | None = None

    async def connect(self) -> None:
        """Connect to the target. Raises `TargetUnreachableError` if it can't be reached from here."""
        self._channel = await self._dialled(self._share.address)

    async def find_target(self, event: TargetIsBack) -> None:
        """Connect to the target where it is now. Raises as `connect`, unless it is killed again."""
        try:
            found = await self._dialled(event.address)
        except TargetUnreachableError:
            if event.number != self.troubles.killed:
                return
            raise
        await self.close()
        self._channel = found
        self.troubles.heed(event)

    async def _dialled(self, address: str) -> Channel:
        profile = self.settings.profile
        try:
            return await dial_target(profile, address, connections=profile.connect.connections)
        except ConnectFailed as problem:
            raise TargetUnreachableError(
                f"a generator can't connect to {problem.where}: {problem.what}",
                hint="the target must be reachable from each machine that makes requests",
            ) from problem

    async def run(self) -> None:
        """Make the requests and report."""
        with self._share.moments() as moments, contextlib.suppress(asyncio.CancelledError):
            # when it is stopped, what was seen until then is its share
            place = TargetAccess(channel=self._connected, prepared=self._prepared)
            await self._generate(place, moments, asyncio.sleep(0))
        end = ShareEnd(
            complete=self.complete,
            examples=self.examples.all,
            shown=self.examples.shown,
            vitals={**self.own_vitals.summary(), **self.idleness.summary()},
        )
        self._say(self._report(end))

    async def close(self) -> None:
        """Disconnect."""
        if self._channel is not None:
            await self._channel.close()

    def _connected(self) -> Channel:
        assert self._channel is not None, "it connects before it begins"
        return self._channel

    def _prepared(self, exchange: Exchange, rng: random.Random) -> Prepared:
        endpoints, profile = self._share.endpoints, self.settings.profile
        return prepare(
            exchange,
            index=0,
            mode=profile.body_modes[0],
            profile=profile,
            endpoints=endpoints,
            pool=tuple(one for name, own in endpoints.items() if name != "nobody" for one in own),
            rng=rng,
        )

    def _report(self, end: ShareEnd | None) -> ShareReport:
        return ShareReport(
            covered=self._covered,
            totals=self.totals,
            tally=self.tally.folded(),
            begun=self.begun,
            by_shape=self.by_shape,
            unfinished=self.unfinished,
            lost_with_process=self.lost_with_process,
            troubles=self.troubles.changed(),
            times=self._times.taken(),
            end=end,
        )


class Generator:
    """A `Service` that makes one share of a load."""

    def __init__(self, engine: EngineThread, say: Say, share: Share) -> None:
        self._say = say
        self._run = SharedRun(share, engine.lag, say)
        self._running: asyncio.Task[None] | None = None

    async def carry_out(self, command: Any) -> None:
        """See `Service`."""
        match command:
            case GetReady():
                await self._run.connect()
                self._say(GetReady())
            case Begin():
                self._running = asyncio.create_task(self._run.run())
                await asyncio.wait([self._running])
                self._running.result()
            case Stop():
                self._stop()
            case ProcessExited():
                self._run.crashes.append(command)
            case ProcessStarted(pid=pid):
                self._run.processor = ProcessorTime(pid)
            case TargetIsBack():
                await self._run.find_target(command)
            case TroubleBegan() | TroubleEnded():
                self._run.troubles.heed(command)

    async def close(self, *, hurry: bool) -> None:  # noqa: ARG002 - what runs is not waited for
        """See `Service`."""
        self._stop()
        if self._running is not None:
            await asyncio.wait([self._running])
        await self._run.close()

    def _stop(self) -> None:
        if self._running is not None:
            self._running.cancel()


def shares(settings: LoadSettings, number: int, head: str) -> list[LoadSettings]:
    """The settings of `number` processes that share a load. The pool is changed, and trouble made, by another."""
    return [
        replace(
            settings,
            file=settings.file.model_copy(update={"churn": (), "trouble": ()}),
            seed=settings.seed + index,
            at_once=max(1, len(range(index, settings.at_once, number))),
            memory=settings.memory // number,
            index=index,
            of=number,
            head=head,
        )
        for index in range(number)
    ]
