"""The engine: one thread that owns one event loop and everything async. Faces stay synchronous and wait for futures.

A second job: it measures how late its own loop runs, because a late loop must never become a finding about the target.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, TypeVar

from conformance.run.defects import DefectWatch

T = TypeVar("T")

LAG_INTERVAL = 0.05
"""Seconds between two looks at how late the loop is. A standstill is measured so exactly."""

LAGGING = 1.0
"""Seconds of one standstill of our own loop; beyond that a wait that ran out proves nothing about the target."""

ENOUGH = 0.9
"""The part of the time for an answer that proves it all the same, if the target had it: such a wait is put off
(`fake_proxy.pace`)."""

WAKE = 0.25
"""Seconds between two looks for a signal while work is waited for."""

CLEAN_UP = 30.0
"""Seconds that cancelled work has to leave nothing behind."""

LAG_KEPT = 2400
"""How many measurements are kept: the last two minutes."""


def collect_seldom() -> None:
    """Let Python look for cyclic garbage seldom, and never again among what was made until now.

    For programs whose process is the suite's. Events pile up by the thousand until an episode is judged; looking
    through them each time that 700 more are there, as the defaults have it, is a waste. But what is found is freed at
    one go, at a million objects a second, and the loop stands still: the second threshold is reached with 50,000.
    """
    gc.freeze()
    gc.set_threshold(5_000, 10, 10)


def cores(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """How many processor cores this process may use: by its affinity, and by the quota of its container in `groups`."""
    given = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return math.ceil(min(given, max(1.0, _quota(groups))))


def _quota(groups: Path) -> float:
    """Cores that the control group may use (`cpu.max` of version 2, else version 1); infinite without a limit."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            quota, period = map(float, " ".join((groups / name).read_text() for name in names).split())
            if quota > 0 and period > 0:
                return quota / period
    return math.inf


class LagMeter:
    """How late the loop was in waking up, lately. A wait that ran out while the loop stood still proves nothing.

    Times are monotonic, and an overdue wake-up counts, too.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._woke: deque[tuple[float, float]] = deque(maxlen=LAG_KEPT)
        """When it was to wake up, and when it did."""
        self._due = math.inf

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            self._due = self.now() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self.woke(self._due, self.now())

    def woke(self, due: float, now: float) -> None:
        """The loop was to wake up at `due`, and did `now`."""
        self._woke.append((due, now))

    def worst(self, begin: float, end: float = math.inf) -> float:
        """The longest standstill between two times, in seconds."""
        return max(self._standstills(begin, end), default=0.0)

    def total(self, begin: float, end: float = math.inf) -> float:
        """The seconds of all standstills between two times."""
        return sum(self._standstills(begin, end))

    def lately(self, seconds: float, ago: float = 0.0) -> float:
        """The seconds of all standstills in so many seconds, which ended `ago` seconds ago."""
        end = self.now() - ago
        return self.total(end - seconds, end)

    def spoilt(self, begin: float, end: float = math.inf, *, most: float = LAGGING) -> float:
        """The seconds of standstills, if a wait between two times that ran out proves nothing for them; else 0.

        That is half of the wait, or one of more than `most`.
        """
        total = self.total(begin, end)
        half = total >= (min(end, self.now()) - begin) / 2 > 0
        return total if half or self.worst(begin, end) > most else 0.0

    def excuse(self, seconds: float, what: str, *, ago: float = 0.0, due: float = math.inf) -> str:
        """Why a wait of so many seconds for `what`, which ran out `ago` seconds ago, proves nothing; "" if it does.

        It does if the loop did not stand still in about the time in which it was `due`: such a wait is put off.
        """
        end = self.now() - ago
        if seconds - self.lately(seconds, ago) >= ENOUGH * due:
            return ""
        late = self.spoilt(end - seconds, end)
        waited = f"{late:.1f} of the {seconds:.1f} s in which it waited ({what})"
        return f"the suite's own event loop stood still for {waited}" if late else ""

    def _standstills(self, begin: float, end: float) -> Iterator[float]:
        wakes = itertools.chain([(self._due, self.now())], reversed(self._woke))
        lately = itertools.takewhile(lambda wake: wake[1] > begin, wakes)
        return (max(0.0, min(woke, end) - max(due, begin)) for due, woke in lately)


class EngineThread:
    """Use as a context manager, or `start` and `stop`. Thread-safe where it is called from outside."""

    def __init__(self) -> None:
        self.lag = LagMeter()
        self.defects = DefectWatch()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._main, name="epp-conformance-engine", daemon=True)

    def __enter__(self) -> EngineThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run `work` on the engine's loop; the future can be waited for, or cancelled, from any other thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call(self, work: Coroutine[Any, Any, T], leave: Callable[[], None] | None = None) -> T:
        """Run `work` and wait for it. Ctrl-C, or whatever ends the wait, cancels the work, which then cleans up.

        With `leave`, the first Ctrl-C only calls that, on the loop: the work ends by itself, and is waited for.
        """
        over = threading.Event()

        async def tracked() -> T:
            try:
                return await work
            finally:
                over.set()

        future = self.submit(tracked())
        try:
            try:
                return result_of(future)
            except KeyboardInterrupt:
                if leave is None:
                    raise
            self._loop.call_soon_threadsafe(leave)
            return result_of(future)
        except BaseException:
            if future.cancel():  # False if it was the work itself that raised
                over.wait(CLEAN_UP)
            raise

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self.defects)
        meter = self._loop.create_task(self.lag.run())
        try:
            self._loop.run_forever()
        finally:
            meter.cancel()
            self._loop.run_until_complete(_settled())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def result_of(future: Future[T]) -> T:
    """Wait for it, as the main thread may: a signal that comes as the wait begins would wake no one who waits for
    good."""
    while not wait([future], WAKE).done:
        pass
    return future.result()


async def _settled() -> None:
    """Returns when every other task that was cancelled has ended; cancels those that were not."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        if not task.cancelling():
            task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # no uvloop on this platform: slower, and right
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
