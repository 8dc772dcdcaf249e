"""The engines of a pod: what each reports, by itself or as it is told, and how they take requests."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from fake_modelserver.answer import Answer, Streamed
from fake_modelserver.exporter import Exporter
from fake_modelserver.feed import Feed
from fake_modelserver.gauges import Gauges
from fake_modelserver.messages import Response, json_response
from fake_modelserver.openai import EVENTS, RefusalError
from fake_modelserver.page import Page, Rank
from fake_modelserver.scheduler import Job, Scheduler
from fake_modelserver.signals import Constant, Signal, check
from fake_modelserver.spec import PodSpec

PINNED = ("queue", "running", "kv")
"""The gauges that can be pinned."""


class Ranks:
    """The ranks of one pod, with the pages that show them."""

    def __init__(self, spec: PodSpec, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._spec = spec
        self._clock = clock
        self._base = [spec.gauges] * spec.ranks
        self._pins: list[dict[str, tuple[Signal, float]]] = [{} for _ in range(spec.ranks)]
        self._schedulers: list[Scheduler] = []
        self._turns = itertools.cycle(range(spec.ranks))
        self.ranks = tuple(Rank(number=spec.first_rank + index, gauges=spec.gauges) for index in range(spec.ranks))
        self.exporters: tuple[Exporter, ...] = ()
        self._start(None)

    # -- gauges --------------------------------------------------------------------------------------------------------

    def set(self, gauges: Gauges, rank: int) -> None:
        """Set what a rank reports. One that takes requests by a model has its counts and its cache pinned so."""
        self._base[rank] = gauges
        if self._schedulers:
            for name in PINNED:
                self._pins[rank][name] = (Constant(value=getattr(gauges, name)), self._clock())
        self._show(rank)

    def pin(self, gauge: str, signal: Signal, rank: int) -> None:
        """Let a gauge follow `signal` from now on. Raises `ValueError` if that leaves its range."""
        check(gauge, signal)
        self._pins[rank][gauge] = (signal, self._clock())
        self._show(rank)

    def unpin(self, gauge: str | None, rank: int) -> bool:
        """Let a gauge (None: all) be again what it is by itself; False if it was not pinned."""
        pins = self._pins[rank]
        found = bool(pins) if gauge is None else gauge in pins
        for name in (gauge,) if gauge is not None else tuple(pins):
            pins.pop(name, None)
        self._show(rank)
        return found

    def pinned(self, rank: int) -> dict[str, Signal]:
        """The gauges that are pinned, and what they follow."""
        return {name: signal for name, (signal, _) in self._pins[rank].items()}

    def refresh(self) -> None:
        """Bring gauges up to date that follow time."""
        for index, pins in enumerate(self._pins):
            if any(not isinstance(signal, Constant) for signal, _ in pins.values()):
                self._show(index)

    def _show(self, rank: int) -> None:
        gauges = self._base[rank]
        if self._pins[rank]:
            now = self._clock()
            at = {name: signal.at(now - since) for name, (signal, since) in self._pins[rank].items()}
            queue, running = round(at.get("queue", gauges.queue)), round(at.get("running", gauges.running))
            gauges = replace(gauges, queue=queue, running=running, kv=at.get("kv", gauges.kv))
        if self._spec.shown_as is not None:
            gauges = self._spec.shown_as(gauges)
        shown = self.ranks[rank]
        shown.gauges, shown.updated, shown.touched = gauges, time.time(), True
        for exporter in self.exporters:
            exporter.changed()

    # -- requests ------------------------------------------------------------------------------------------------------

    @property
    def serves(self) -> bool:
        """Whether requests are taken by a model, instead of answered at once."""
        return bool(self._schedulers)

    def generate(self, answer: Answer, adapter: str | None, rank: int | None) -> Response:
        """The answer of one rank (None: as the pod shares requests out), token by token. Raises `RefusalError`."""
        if rank is None and self._spec.ranks_in_turn:
            rank = next(self._turns)
        schedulers = self._schedulers if rank is None else self._schedulers[rank : rank + 1]
        if all(scheduler.full for scheduler in schedulers):
            raise RefusalError("The queue is full.", status=503, kind="ServiceUnavailableError")
        return _Generation(answer, adapter, schedulers).response()

    # -- life ----------------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """Begin again: counters at zero, no request, nothing in the cache. What was set and pinned stays."""
        for scheduler in self._schedulers:
            scheduler.stop()
        self._start(time.time())

    def _start(self, started: float | None) -> None:
        spec, now = self._spec, time.time()
        groups = [(rank,) for rank in self.ranks] if spec.rank_ports else [self.ranks]
        exporters = []
        for group in groups:
            identity = spec.identity(ranks=len(group), first_rank=group[0].number)
            page = Page(spec.kind, identity, real=spec.page == "real", lora=spec.lora)
            page.decoys = spec.decoys
            page.started = started or page.started
            for rank in group:
                rank.statistics, rank.updated, rank.touched = page.statistics(), now, spec.serving is None
            exporters.append(Exporter(page, group))
        self.exporters = tuple(exporters)
        if spec.serving is not None:
            self._base = [replace(spec.gauges, max_lora=spec.serving.max_loras)] * spec.ranks
            self._schedulers = [self._scheduler(index) for index in range(spec.ranks)]
            for index, rank in enumerate(self.ranks):
                rank.gauges = self._base[index]

    def _scheduler(self, index: int) -> Scheduler:
        spec = self._spec
        assert spec.serving is not None

        def changed(gauges: Gauges) -> None:
            self._base[index] = gauges
            self._show(index)

        return Scheduler(
            replace(spec.serving, seed=spec.serving.seed + index),
            blocks=spec.num_gpu_blocks,
            block_size=spec.block_size,
            statistics=self.ranks[index].statistics,
            changed=changed,
        )


class _Generation:
    """One answer on its way."""

    def __init__(self, answer: Answer, adapter: str | None, schedulers: Sequence[Scheduler]) -> None:
        self._answer, self._schedulers = answer, schedulers
        self._scheduler = schedulers[0]
        self._loop = asyncio.get_running_loop()
        call = answer.call
        self._job = Job(
            prompt=call.prompt,
            length=answer.length,
            adapter=adapter,
            most=call.tokens or answer.length,
            token=self._token,
            done=self._done,
            arrived=0.0,
        )
        self._streamed = Streamed(answer) if call.stream else None
        self._feed = Feed(self._begin, self._abort)

    def response(self) -> Response:
        """The response; the request is in the engine once it is played."""
        if self._streamed is not None:
            return Response(headers=EVENTS, feed=self._feed)
        return Response(later=self._whole)

    def _begin(self) -> None:
        self._job.arrived = self._loop.time()
        self._scheduler = min(self._schedulers, key=lambda scheduler: scheduler.load)
        self._scheduler.submit(self._job)

    def _abort(self) -> None:
        self._scheduler.abort(self._job)

    async def _whole(self) -> Response:
        while await self._feed.next() is not None:
            pass
        return json_response(200, self._answer.whole())

    def _token(self, index: int) -> None:
        if index == 0 and self._scheduler.serving.prefix_caching:
            self._answer.cached = self._job.cached
        if self._streamed is None:
            return
        if index == 0:
            for event in self._streamed.begin():
                self._feed.put(event)
        self._feed.put(self._streamed.token(index))

    def _done(self) -> None:
        if self._job.made < self._answer.length:  # the cache was too small for all of it
            self._answer.length, self._answer.finish = self._job.made, "length"
        if self._streamed is not None:
            for event in self._streamed.end():
                self._feed.put(event)
        self._feed.end()
