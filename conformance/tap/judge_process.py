"""The process in which live traffic is judged, so that judging never takes time from relaying.

    judging = JudgingProcess(settings, on_judged, on_trouble)
    await judging.start()
    judging.offer(gathered)        # False: the queue is full, the exchange is not judged

What happens in it is in `judge_worker`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from conformance.errors import HarnessError
from conformance.run.child_process import ChildProcess
from conformance.run.engine import CLEAN_UP
from conformance.tap.gathering import Gathered
from conformance.tap.judge_worker import LiveJudge
from conformance.tap.judging import JudgedExchange, JudgingSettings

_BATCH = 32
"""Exchanges that are sent at a time."""

_ATTEMPTS = 3
"""How often in a row the process may end without having judged anything."""


class JudgingProcess:
    """The near side. `on_judged` gets each result, `on_trouble` what keeps exchanges from being judged, in words."""

    def __init__(
        self,
        settings: JudgingSettings,
        on_judged: Callable[[JudgedExchange], None],
        on_trouble: Callable[[str], None],
        *,
        max_waiting: int = 10_000,
        max_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        self.lost = 0
        """Exchanges that were taken and not judged, as the process ended."""
        self.late = 0
        """Exchanges that were taken and not judged, as their turn had not come when it was closed."""
        self._settings = settings
        self._on_judged = on_judged
        self._on_trouble = on_trouble
        self._max_waiting = max_waiting
        self._max_bytes = max_bytes
        self._waiting: deque[Gathered] = deque()
        self._bytes = 0
        self._given_up = self._closing = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process, in the background: exchanges wait until it is there."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def waiting(self) -> int:
        """Exchanges that wait."""
        return len(self._waiting)

    def has_room(self) -> bool:
        """Whether an exchange would be taken."""
        return len(self._waiting) < self._max_waiting and self._bytes < self._max_bytes and not self._given_up

    def offer(self, gathered: Gathered) -> bool:
        """Take an exchange if there is room."""
        if not self.has_room():
            return False
        self._waiting.append(gathered)
        self._bytes += gathered.size
        self._idle.clear()
        self._wake.set()
        return True

    async def close(self, timeout: float = 10.0) -> None:
        """Judge what waits, for at most `timeout` seconds or until this is cancelled, and end the process.

        What it has in hand by then it still judges.
        """
        if self._task is None:
            return
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._idle.wait()
        finally:
            self._closing = True
            self._wake.set()
            try:
                await asyncio.wait([self._task], timeout=CLEAN_UP)  # it writes their transcripts: they are counted
            finally:
                self._task.cancel()
                await asyncio.wait([self._task])
                self._task = None
                self.late += len(self._waiting)
                self._waiting.clear()

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while failures < _ATTEMPTS:
            judged, ended = await self._serve()
            failures = 0 if judged else failures + 1
            if self._closing:
                if ended:
                    self._on_trouble(f"judging broke ({ended})")
                return
            self._on_trouble(f"judging broke ({ended}), it is started again")
        self._on_trouble("the judging process can't be kept running: nothing is judged any more, relaying goes on")
        self._given_up = True
        self.lost += len(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        self._idle.set()

    async def _serve(self) -> tuple[int, str]:
        """Feed one process until it ends: how many it judged, and how it ended, if it was not told to."""
        child: ChildProcess | None = None
        judged = 0
        batch: list[Gathered] = []
        try:
            child = ChildProcess(LiveJudge, self._settings)
            while batch := await self._batch():
                await asyncio.to_thread(child.send, batch)
                for one in await child.answer():
                    judged += 1
                    self._on_judged(one)
                    del batch[0]
                if not self._waiting:
                    self._idle.set()
            return judged, ""
        except Exception as problem:  # noqa: BLE001 - whatever broke, judging goes on with what comes next
            return judged, problem.message if isinstance(problem, HarnessError) else repr(problem)
        finally:
            self.lost += len(batch)
            if child is not None:
                await asyncio.to_thread(child.close)

    async def _batch(self) -> list[Gathered]:
        """What is judged next; nothing once this is being closed."""
        while not (self._waiting or self._closing):
            self._wake.clear()
            await self._wake.wait()
        if self._closing:
            return []
        batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
        self._bytes -= sum(one.size for one in batch)
        return batch
