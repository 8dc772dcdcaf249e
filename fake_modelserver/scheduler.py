"""How an engine takes requests: a queue, a batch, blocks of a KV cache, and tokens one after another.

What the gauges show follows from the requests: waiting are those that the batch has no place for, running are those
in it, and the KV cache is used by the blocks of live requests alone. Blocks that were used before and are free stay
known by what is in them, the least recently used longest: a later prompt that begins alike finds them.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fake_modelserver.engines.statistics import Statistics
from fake_modelserver.gauges import Gauges, LoraSeries
from fake_modelserver.kv_cache import Cache

_TICK = 0.001
"""Seconds within which tokens that fall due are handed out together."""
_REMEMBERED_LORAS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A time in seconds: `mean`, with a normal deviation of `deviation`, and `per_running` more for each that runs."""

    mean: float = 0.0
    deviation: float = 0.0
    per_running: float = 0.0

    def __post_init__(self) -> None:
        for name in ("mean", "deviation", "per_running"):
            if not 0 <= getattr(self, name) < 3600:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is a number of seconds, from 0 to 3600")

    def draw(self, chance: random.Random, running: int) -> float:
        """One time."""
        value = self.mean + self.per_running * running
        return max(0.0, chance.gauss(value, self.deviation)) if self.deviation else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What a pod can serve at a time, and how fast.

    - `max_running` requests run at once, `max_waiting` wait (None: as many as come; one more is refused with 503);
    - `max_loras` adapters run at once: 0 for a pod without adapters;
    - `first_token` passes until the first token, and `per_prompt_token` seconds for each of its prompt that no cache
      has; `between_tokens` passes until each further one;
    - `prefix_caching`: blocks of a prompt that were used before are found again;
    - `output_tokens` is the length of an answer that nothing limits. Same `seed`, same times.
    """

    max_running: int = 8
    max_waiting: int | None = None
    max_loras: int = 0
    first_token: Latency = field(default_factory=lambda: Latency(mean=0.05))
    per_prompt_token: float = 0.0
    between_tokens: Latency = field(default_factory=lambda: Latency(mean=0.01))
    prefix_caching: bool = True
    output_tokens: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("max_running", 1), ("max_loras", 0), ("output_tokens", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)!r}; it is a whole number from {least}")
        if self.max_waiting is not None and self.max_waiting < 0:
            raise ValueError(f"max_waiting is {self.max_waiting!r}; it is a whole number from 0, or none")
        if not 0 <= self.per_prompt_token < 60:
            raise ValueError(f"per_prompt_token is {self.per_prompt_token!r}; it is a number of seconds below 60")


@dataclass(eq=False, slots=True, kw_only=True)
class Job:
    """A request in the engine. `token` is called with the index of each token, `done` when the last one was made."""

    prompt: Sequence[Any]
    length: int
    adapter: str | None
    most: int
    token: Callable[[int], object]
    done: Callable[[], object]
    arrived: float
    made: int = 0
    cached: int = 0
    preempted: int = 0
    admitted: float = 0.0
    last: float = 0.0
    first: float = 0.0
    due: float = 0.0
    blocks: list[int] = field(default_factory=list)
    gone: bool = False


class Scheduler:
    """The engine of one rank. `changed` is called with the new gauges after every step."""

    def __init__(
        self,
        serving: Serving,
        *,
        blocks: int,
        block_size: int,
        statistics: Statistics,
        changed: Callable[[Gauges], object],
    ) -> None:
        self.serving = serving
        self._blocks, self._block_size = blocks, block_size
        self._statistics = statistics
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._chance = random.Random(serving.seed)
        self._cache = Cache(blocks, block_size)
        self._waiting: deque[Job] = deque()
        self._running: dict[Job, None] = {}
        self._due: list[tuple[float, int, Job]] = []
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loras: dict[tuple[tuple[str, ...], tuple[str, ...]], float] = {}
        self._lora_now: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
        self._stale_loras: tuple[LoraSeries, ...] = ()

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def full(self) -> bool:
        """Whether a further request is refused."""
        most = self.serving.max_waiting
        return most is not None and len(self._waiting) >= most and len(self._running) >= self.serving.max_running

    @property
    def load(self) -> int:
        """How many requests there are, waiting or running."""
        return len(self._waiting) + len(self._running)

    def submit(self, job: Job) -> None:
        """Take a request; it waits until the batch has a place for it."""
        self._waiting.append(job)
        self._statistics.observe("max_tokens", job.most)
        self._statistics.observe("n", 1)
        self._step()

    def abort(self, job: Job) -> None:
        """The client is gone. Nothing happens if the request has ended."""
        if job.gone:
            return
        self._leave(job, "abort")
        self._step()

    def stop(self) -> None:
        """Forget every request."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting.clear()
        self._running.clear()
        self._due.clear()

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Fill the batch, say what there is, and sleep until the next token is due."""
        self._admit()
        self._changed(self._gauges())
        self._sleep()

    def _sleep(self, least: float = 0.0) -> None:
        """Wake when the next token is due, but not before loop time `least`."""
        while self._due and (self._due[0][2].gone or self._due[0][0] != self._due[0][2].due):
            heapq.heappop(self._due)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            self._timer = self._loop.call_at(max(least, self._due[0][0]), self._wake)

    def _wake(self) -> None:
        self._timer = None
        now = self._loop.time() + _TICK / 2
        while self._due and self._due[0][0] <= now:
            due, _, job = heapq.heappop(self._due)
            if not job.gone and due == job.due:
                self._make_token(job, due)
        # Those that fall due within a tick of now are made together in the next step.
        self._admit()
        self._changed(self._gauges())
        self._sleep(now + _TICK / 2)

    def _admit(self) -> None:
        for job in tuple(self._waiting):
            if len(self._running) >= self.serving.max_running:
                return
            if not self._has_adapter_slot(job):
                continue  # others may overtake one that waits for the slot of an adapter
            if not self._enter(job):
                return

    def _has_adapter_slot(self, job: Job) -> bool:
        running = {other.adapter for other in self._running if other.adapter}
        return job.adapter is None or job.adapter in running or len(running) < self.serving.max_loras

    def _enter(self, job: Job) -> bool:
        """Put `job` into the batch; False if the cache has no place for it now, nor for those behind it."""
        keys = self._cache.keys(job.prompt) if self.serving.prefix_caching else []
        # The last token is always computed: a prompt is never found whole.
        known = min(self._cache.known(keys), max(0, (len(job.prompt) - 1) // self._block_size))
        tokens = len(job.prompt) + job.made
        wanted: list[int | None] = [*keys]
        wanted += [None] * (max(1, -(-tokens // self._block_size)) - len(keys))
        blocks = self._cache.take(wanted)
        if blocks is None:
            if self._running:
                return False
            self._leave(job, "length")  # it can never fit
            job.done()
            return True
        now = self._loop.time()
        self._waiting.remove(job)
        self._running[job] = None
        job.blocks, job.cached = blocks, known * self._block_size
        if not job.preempted:
            job.admitted = now
            self._statistics.observe("queued", now - job.arrived)
        if self.serving.prefix_caching:
            self._statistics.add("prefix_queries", len(job.prompt))
            self._statistics.add("prefix_hits", job.cached)
            self._statistics.add("prompt_source", job.cached, label="local_cache_hit")
            for label in ("device", "total"):
                self._statistics.add("cached", job.cached, label=label)
            self._statistics.add("reused_blocks", known)
        self._statistics.add("prompt_source", len(job.prompt) - job.cached, label="local_compute")
        self._statistics.observe("computed_tokens", len(job.prompt) - job.cached)
        self._statistics.add("prompt_tokens", len(job.prompt))
        wait = self.serving.first_token.draw(self._chance, len(self._running))
        self._schedule(job, now + wait + self.serving.per_prompt_token * (tokens - job.cached))
        return True

    def _schedule(self, job: Job, due: float) -> None:
        job.due = due
        self._number += 1
        heapq.heappush(self._due, (due, self._number, job))

    def _make_token(self, job: Job, due: float) -> None:
        now = self._loop.time()
        if not job.made:
            job.first = now
            self._statistics.observe("first_token", now - job.arrived)
            self._statistics.observe("prefill", now - job.admitted)
        else:
            self._statistics.observe("between_tokens", now - job.last)
        job.last = now
        self._statistics.add("generation_tokens")
        job.token(job.made)
        job.made += 1
        if job.made >= job.length:
            self._leave(job, "length" if job.length >= job.most else "stop")
            job.done()
        elif len(job.prompt) + job.made <= len(job.blocks) * self._block_size or self._grow(job):
            # From when it was due, not from now: lateness does not add up.
            self._schedule(job, due + self.serving.between_tokens.draw(self._chance, len(self._running)))

    def _grow(self, job: Job) -> bool:
        """A further block for `job`, if need be from the youngest in the batch; False if that is `job` itself."""
        while (blocks := self._cache.take([None])) is None:
            youngest = next(reversed(self._running))
            if youngest is not job:
                self._preempt(youngest)
            elif len(self._running) > 1:
                self._preempt(job)
                return False
            else:  # it has the whole cache, and that is too small
                self._leave(job, "length")
                job.done()
                return False
        job.blocks += blocks
        return True

    def _preempt(self, job: Job) -> None:
        del self._running[job]
        self._cache.give_back(job.blocks)
        job.blocks, job.due = [], 0.0
        job.preempted += 1
        self._waiting.appendleft(job)
        self._statistics.add("preemptions")

    def _leave(self, job: Job, how: str) -> None:
        job.gone = True
        if job in self._running:
            del self._running[job]
            self._cache.give_back(job.blocks)
        else:
            self._waiting.remove(job)
        now = self._loop.time()
        count = self._statistics
        count.add("finished", label=how)
        count.add("requests" if how != "abort" else "aborted")
        if how == "abort":
            return
        count.observe("whole", now - job.arrived)
        count.observe("inference", now - job.admitted)
        count.observe("decode", now - job.first)
        count.observe("per_token", (now - job.first) / max(1, job.made - 1))
        count.observe("prompt_tokens", len(job.prompt))
        count.observe("generation_tokens", job.made)
        count.observe("request_preemptions", job.preempted)

    # -- gauges --------------------------------------------------------------------------------------------------------

    def _gauges(self) -> Gauges:
        running = tuple(dict.fromkeys(job.adapter for job in self._running if job.adapter))
        waiting = tuple(dict.fromkeys(job.adapter for job in self._waiting if job.adapter))
        return Gauges(
            queue=len(self._waiting),
            running=len(self._running),
            kv=self._cache.usage,
            running_loras=running,
            waiting_loras=waiting,
            max_lora=self.serving.max_loras,
            stale_loras=self._stale(running, waiting) if self.serving.max_loras else (),
        )

    def _stale(self, running: tuple[str, ...], waiting: tuple[str, ...]) -> tuple[LoraSeries, ...]:
        """Every set of adapters that there was before, as the metric keeps them."""
        if (running, waiting) != self._lora_now:
            self._loras[self._lora_now] = time.time()
            self._loras.pop((running, waiting), None)
            if len(self._loras) > _REMEMBERED_LORAS:
                del self._loras[next(iter(self._loras))]
            self._lora_now = (running, waiting)
            self._stale_loras = tuple(
                LoraSeries(running=one, waiting=other, max_lora=self.serving.max_loras, at=at)
                for (one, other), at in self._loras.items()
            )
        return self._stale_loras
