"""All exchanges that are under way on the connections to one target."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from conformance.load.defects import Defects
from conformance.load.exchange import LATE_SECONDS, LiveExchange
from conformance.load.judgement import Judgement
from conformance.load.memory import Memory
from conformance.load.moments import Moments
from conformance.load.shape import RequestShape
from conformance.run.engine import LAGGING, LagMeter
from conformance.run.processor import starved
from conformance.verdict import Verdict
from ext_proc import grpc
from ext_proc.channel import Channel
from ext_proc.http2.errors import ConnectFailed, ConnectTimedOut

_SWEEP = 0.05
"""Seconds between two looks at what is over, and until what came is read where a look takes long."""

_LOOKS = 2
"""Turns of the loop in which it reads what came, before waits end: after a standstill, timers are first."""

_REFUSAL = 0.1
"""Seconds until a request fails to which no connection is made: in a closed loop, the next begins then."""

_BUSY = 0.25
"""Seconds that our own loop may stand still at a time, in place of `LAGGING`, where answers to others took more than
half of the deadline: the machine is overloaded, nothing hangs."""


class Traffic:
    """Starts exchanges, lets time pass for them, and hands each to `finished` with its verdict.

    `channel` gives the connections to the target that are there now. `deadline`: seconds in which something must happen
    in an exchange. `lag`: how late our own loop was; `withheld(seconds)`: in how many of the last so many
    seconds the target could have run and got no processor. While the target is `away`, no connection is tried and
    requests fail as if it had been refused. `corrected` gets exchanges of which something came after they were over,
    with their earlier verdict. Use as an async context manager.
    """

    def __init__(
        self,
        channel: Callable[[], Channel],
        memory: Memory,
        moments: Moments,
        *,
        deadline: float,
        lag: LagMeter,
        finished: Callable[[LiveExchange], None],
        corrected: Callable[[LiveExchange, Judgement], None],
        withheld: Callable[[float], float] = lambda _: 0.0,
        away: Callable[[], bool] = lambda: False,
    ) -> None:
        self.memory = memory
        self.moments = moments
        self._current = channel()
        self.headers = self._current.headers(grpc.PROCESS)
        self._channel = channel
        self._away = away
        self._deadline = deadline
        self._lag = lag
        self._withheld = withheld
        self._finished = finished
        self._corrected = corrected
        self._slow = (0.0, 0.0)
        """When the last answer came that took more than half of the deadline, and the seconds that it took."""
        self._prompt = 0.0
        """When the latest request was sent whose answer took less."""
        self._loop = asyncio.get_running_loop()
        self.now = time.monotonic
        self.open: set[LiveExchange] = set()
        self._late: set[LiveExchange] = set()
        self._heavy: deque[LiveExchange] = deque()
        self.waiting: deque[LiveExchange] = deque()
        """Exchanges without a stream yet: the connections' limits, or their making, keep them."""
        self.waited = 0
        """How many exchanges had to wait for a stream."""
        self.refused = 0
        self._ids = iter(memory.ids)
        self._opener: asyncio.Task[None] | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._defects = Defects()
        self.check = self._defects.check
        """Raises what broke in our own code, where nobody waits for it: no exchange since then is the target's."""

    async def __aenter__(self) -> Traffic:
        self._defects.watch()
        self._sweeper = self._watched(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        for exchange in self.open:
            exchange.finished = True  # it was counted as unfinished: what ends it now is no more judged
        for task in (self._sweeper, self._opener):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        self._defects.leave()
        self.check()

    def start(self, shape: RequestShape, intended: float) -> LiveExchange:
        """Start an exchange that was due at the monotonic time `intended`."""
        exchange = LiveExchange(self, shape, next(self._ids), intended)
        self.open.add(exchange)
        self._open(exchange)
        return exchange

    async def drained(self, timeout: float) -> bool:
        """Wait until nothing is under way; False if that took longer than `timeout`."""
        until = self.now() + timeout
        while self.open and self.now() < until:
            self.check()
            await asyncio.sleep(_SWEEP)
        return not self.open

    # -- what exchanges ask --------------------------------------------------------------------------------------------

    def done(self, exchange: LiveExchange) -> None:
        """The exchange is over and judged."""
        took = exchange.decided - exchange.started
        answered = exchange.decided and not exchange.lost  # what a client gets without a connection is no answer
        if answered and took > self._deadline / 2:
            self._slow = (exchange.decided, took)
        elif answered and exchange.started > self._prompt:
            self._prompt = exchange.started
        self.open.discard(exchange)
        self._finished(exchange)

    def heavy(self, exchange: LiveExchange) -> None:
        """It is over and takes memory, as long as something may still come."""
        self._heavy.append(exchange)

    def late(self, exchange: LiveExchange) -> None:
        """Something came after the exchange was over. More may follow: it is judged again at the next sweep."""
        self._late.add(exchange)

    def judge_late(self) -> None:
        """Judge again what something came for after it was over."""
        late, self._late = self._late, set()
        for exchange in late:
            earlier = exchange.judgement
            assert earlier is not None
            exchange.judge()
            if exchange.judgement is not earlier:
                self._corrected(exchange, earlier)
            if exchange.holds:
                self.heavy(exchange)

    def again(self, exchange: LiveExchange, pause: float) -> None:
        """Open a refused stream again."""
        self.refused += 1
        self._loop.call_later(pause, self._open, exchange)

    def later(self, seconds: float, what: Callable[..., None], *arguments: Any) -> None:
        """Call `what` after `seconds`."""
        self._loop.call_later(seconds, what, *arguments)

    def expired(self, exchange: LiveExchange, since: float) -> None:
        """A wait from the monotonic time `since` ran out: for the target, for us, or for others with its processor?"""
        waited = self.now() - since
        others = self._prompt >= since  # a target that answered requests that came later had a processor
        withheld, ours = (0.0, 0.0) if others else (self._withheld(waited), self._lag.total(since))
        if trouble := starved(withheld, waited, "an answer", ours=ours):
            exchange.trouble = trouble
            return
        slow_at, took = self._slow
        slow = slow_at > since
        if late := self._lag.spoilt(since, most=_BUSY if slow else LAGGING):
            also = f", and answers to other requests took up to {took:.1f} s" if slow else ""
            exchange.trouble = f"the suite's own event loop stood still for {late:.1f} s while a deadline ran out{also}"

    # -- inside --------------------------------------------------------------------------------------------------------

    def _open(self, exchange: LiveExchange) -> None:
        if exchange.finished:
            return  # a timer came when the traffic had been left
        transport = self._connections().ready() if not (self.waiting or self._away()) else None
        if transport is not None:
            exchange.open(transport, self.now())
            return
        self.waited += 1
        self.waiting.append(exchange)
        if self._opener is None or self._opener.done():
            self._opener = self._watched(self._open_waiting())

    async def _open_waiting(self) -> None:
        while self.waiting:
            if self._away():
                await asyncio.sleep(_REFUSAL)
                if self._away():
                    self._unreachable("the target was killed")
                continue
            since = self.now()
            try:
                transport = await self._connections().transport()
            except ConnectFailed as problem:
                if not isinstance(problem, ConnectTimedOut):
                    await asyncio.sleep(_REFUSAL)
                self._unreachable(str(problem), since if isinstance(problem, ConnectTimedOut) else None)
                continue
            while self.waiting and transport.can_open():
                self.waiting.popleft().open(transport, self.now())

    def _connections(self) -> Channel:
        channel = self._channel()
        if channel is not self._current:  # the target was started again, at another address
            self._current = channel
            self.headers = channel.headers(grpc.PROCESS)
        return channel

    def _unreachable(self, why: str, since: float | None = None) -> None:
        """There is no connection for those that wait. More may wait then: in a closed loop the next begins. `since`:
        when the wait for the connection began that ran out."""
        waiting, self.waiting = self.waiting, deque()
        for exchange in waiting:
            if since is not None:
                self.expired(exchange, since)
            exchange.unreachable(why, self.now())

    def _watched(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        task.add_done_callback(self._defects.ended)
        return task

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP)
            await _reading()
            now = self.now()
            for exchange in tuple(self.open):
                if self.now() - now > _SWEEP:  # many waits have run out, and each was judged: what came is first
                    await _reading()
                    now = self.now()
                if not exchange.finished:
                    exchange.due(now, self._deadline)
            self.judge_late()
            while self._heavy and now - self._heavy[0].over > LATE_SECONDS:
                self._heavy.popleft().release()


async def _reading() -> None:
    """Let the loop read what came."""
    for _ in range(_LOOKS):
        await asyncio.sleep(0)


class LoadTally:
    """Findings by requirement and verdict, over all exchanges."""

    def __init__(self) -> None:
        self.exchanges = 0
        self.failed = 0
        self.undecided = 0
        """Exchanges that did not fail and can't be said to conform (see `Judgement`)."""
        self._counts: Counter[tuple[str, Verdict]] = Counter()
        self._shared: Counter[Judgement] = Counter()

    @classmethod
    def of(cls, exchanges: int, failed: int, undecided: int, counts: Mapping[tuple[str, Verdict], int]) -> LoadTally:
        """What another has counted."""
        tally = cls()
        tally.exchanges, tally.failed, tally.undecided = exchanges, failed, undecided
        tally._counts = Counter(counts)
        return tally

    def add(self, judgement: Judgement, times: int = 1) -> None:
        """Count a judgement; with -1, take it back."""
        self._shared[judgement] += times
        self.exchanges += times
        self.failed += times * judgement.failed
        self.undecided += times * judgement.undecided
        if len(self._shared) > 1024:
            self._fold()

    def include(self, other: LoadTally) -> None:
        """Count what another has counted."""
        self.exchanges += other.exchanges
        self.failed += other.failed
        self.undecided += other.undecided
        self._counts += other.counts

    def folded(self) -> LoadTally:
        """The same, with nothing of it waiting to be counted: it is small then."""
        self._fold()
        return self

    @property
    def counts(self) -> Counter[tuple[str, Verdict]]:
        """How many exchanges had each finding."""
        self._fold()
        return self._counts

    def _fold(self) -> None:
        for judgement, times in self._shared.items():
            for one in set(judgement.counts):
                self._counts[one] += times
        self._shared.clear()
