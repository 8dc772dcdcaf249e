"""The steps of scenarios for a model server."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from random import Random

from conformance.evidence.episode import Context, Unmet
from conformance.evidence.model_server import LoadPhase
from conformance.planning.plan import Work
from conformance.reading.metrics_page import Page
from conformance.run.capture import Capture
from conformance.run.execution import Action, Execution
from conformance.run.model_server.load import ServerLoad
from conformance.run.model_server.requests import ServerRequest, load_request, request_of
from conformance.run.model_server.runner import ModelServerRunner
from conformance.run.model_server.scraper import INTERVAL, Scraper
from conformance.scenario.model_server import Ask, LoadStep, ScrapeStep
from conformance.scenario.schema import Expect

LATE = 2.0
"""Seconds that our own loop may be late: nothing here is judged by the clock, but pages must belong to their load."""

RUNG = 1.5
"""Seconds that a level of load is held until it is raised: servers may show their gauges once a second."""

HELD = 4
"""Scrapes for which load is held on once it shows."""

TOP = 4.0
"""Seconds that the highest level is held."""

FIRST = 8
"""Requests of the lowest level of load."""


class ModelServerExecution(Execution):
    """One piece of work on a model server."""

    def __init__(self, runner: ModelServerRunner, work: Work, capture: Capture) -> None:
        super().__init__(runner, work, capture)
        self._server = runner
        self._scraper = Scraper(runner.client, runner.facts, capture.remark)
        self._tokens = 0
        """Tokens of each request of the load."""

    @property
    def actions(self) -> Mapping[str, Action]:
        """See `Execution`."""
        return {"ask": self._asks, "load": self._load, "scrape": self._scrape}

    @property
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """There is no pool to refer to."""
        return {}

    def context(self) -> Context:
        """See `Execution`."""
        return dataclasses.replace(super().context(), role="model-server", model_server=self._server.facts)

    def spoilt(self, late: float) -> str:
        """Requests that were sent late belong to no page."""
        return f"the suite's own event loop was {late:.1f} s late" if late > LATE else ""

    async def end(self) -> None:
        """See `Execution`."""
        self._scraper.flush()

    # -- steps ---------------------------------------------------------------------------------------------------------

    async def _asks(self, ask: Ask, _: Expect | None) -> None:
        for index in range(ask.repeat):
            same = Random(f"{self._server.seed} {self._work.instance.id} same")
            request = request_of(self._server.profile, self._server.model, ask, self._random(index), same)
            got = await self._server.exchange(request, self._capture.exchange())
            if got.outcome == "expired":
                return

    async def _scrape(self, scrape: ScrapeStep, _: Expect | None) -> None:
        for index in range(scrape.times):
            await self._scraper.scrape(whole=index == 0)
            await asyncio.sleep(INTERVAL)

    async def _load(self, step: LoadStep, _: Expect | None) -> None:
        if not await self._rest():
            self._capture.remark(
                Unmet(what="the server is not idle before the test: others ask it, or gauges are stuck")
            )
            return
        load = ServerLoad(self._server.client, lambda number: self._request(step, number))
        try:
            await self._raise(step, load)
            await self._end(step, load)
        finally:
            await load.abort()
        self._phase("over", load)
        await self._rest()

    async def _raise(self, step: LoadStep, load: ServerLoad) -> None:
        """More and more load until it shows."""
        idle = await self._scraper.scrape(load, whole=True)
        shows = self._shows(step, idle)
        rungs = list(self._rungs(step))
        for number, (level, tokens) in enumerate(rungs):
            self._tokens = tokens
            load.raise_to(level)
            self._phase("raised", load, level=level, tokens=tokens, words=self._words(step))
            held = await self._hold(load, shows, TOP if number == len(rungs) - 1 else RUNG)
            if held or self._server.crashed:
                return

    async def _hold(self, load: ServerLoad, shows: Callable[[Page], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and not self._server.crashed:
            if shows(await self._scraper.scrape(load)):
                for index in range(HELD):
                    await asyncio.sleep(INTERVAL)
                    await self._scraper.scrape(load, whole=index == 0)
                return True
            await asyncio.sleep(INTERVAL)
        return False

    async def _end(self, step: LoadStep, load: ServerLoad) -> None:
        if step.end == "abort":
            self._phase("aborted", load)
            await load.abort()
            return
        self._phase("released", load)
        await load.release(self._server.profile.timeouts.answer)

    async def _rest(self) -> bool:
        """Wait until nothing runs or waits, by the gauges that there are."""
        seconds = self._server.profile.timeouts.rest
        met = await self._scraper.rest(seconds, self._idle)
        self._scraper.flush()
        self._capture.remark(LoadPhase(phase="rest", seconds=seconds, met=met))
        return met

    def _idle(self, page: Page) -> bool:
        return not any((self._scraper.value(page, meaning) or 0) > 0 for meaning in ("queued", "running"))

    # -- load ----------------------------------------------------------------------------------------------------------

    def _rungs(self, step: LoadStep) -> Iterator[tuple[int, int]]:
        """How many requests at a time, and of how many tokens: first more requests, then longer ones."""
        limits = self._server.profile.limits
        tokens = min(64, limits.tokens)
        match step.until:
            case "one-runs":
                yield from ((1, size) for size in _doubling(tokens, limits.tokens, 4))
                return
            case "adapters":
                yield max(1, len(self._server.profile.adapters)), min(128, limits.tokens)
                return
        level = min(FIRST, limits.concurrency)
        yield from ((size, tokens) for size in _doubling(level, limits.concurrency, 2))
        yield from (
            (limits.concurrency, size) for size in itertools.islice(_doubling(tokens, limits.tokens, 4), 1, None)
        )

    def _shows(self, step: LoadStep, idle: Page) -> Callable[[Page], bool]:
        """Whether a page shows what the load was raised for."""
        scraper = self._scraper
        match step.until:
            case "queued":
                return lambda page: (scraper.value(page, "queued") or 0) > 0
            case "one-runs":
                return lambda page: (scraper.value(page, "running") or 0) > 0
            case "kv-cache":
                before = scraper.value(idle, "kv_cache") or 0.0
                return lambda page: (scraper.value(page, "kv_cache") or 0.0) > before
            case "adapters":
                adapters = set(self._server.profile.adapters)
                return lambda page: adapters <= _adapters_on(scraper, page)

    def _request(self, step: LoadStep, number: int) -> ServerRequest:
        profile = self._server.profile
        adapters = profile.adapters if step.until == "adapters" else ()
        model = adapters[number % len(adapters)] if adapters else self._server.model
        return load_request(profile, model, tokens=self._tokens, words=self._words(step), rng=self._random(number))

    def _words(self, step: LoadStep) -> int:
        return self._server.profile.limits.prompt_words if step.until == "kv-cache" else 8

    def _phase(self, phase: str, load: ServerLoad, *, level: int = 0, tokens: int = 0, words: int = 0) -> None:
        self._scraper.flush()
        self._capture.remark(
            LoadPhase(
                phase=phase,  # type: ignore[arg-type]
                level=level,
                tokens=tokens,
                words=words,
                finished=load.finished,
                refused=dict(load.refused),
            )
        )


def _doubling(first: int, most: int, factor: int) -> Iterator[int]:
    """From `first` up to `most`, each `factor` times the one before."""
    size = first
    while size < most:
        yield size
        size *= factor
    yield most


def _adapters_on(scraper: Scraper, page: Page) -> set[str]:
    found = scraper.look_up(page, "lora")
    labels = [one.labels.get("running_lora_adapters", "") for one in found.samples] if found is not None else []
    return {name.strip() for text in labels for name in text.split(",")}
