"""The steps of scenarios for a model server."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping

from conformance.evidence.episode import Context, Unmet
from conformance.evidence.model_server import LoadPhase
from conformance.planning.plan import Work
from conformance.reading.metrics_page import Page
from conformance.reading.server_metrics import OFTEN, page_of, too_few, too_long
from conformance.run.capture import Capture
from conformance.run.execution import Action, Execution
from conformance.run.model_server.load import ServerLoad
from conformance.run.model_server.requests import ServerRequest, load_request, request_of
from conformance.run.model_server.runner import ModelServerRunner
from conformance.run.model_server.scraper import INTERVAL, Scraper
from conformance.scenario.expect import Expect
from conformance.scenario.model_server import Ask, LoadStep, ScrapeStep
from conformance.scenario.seeded import shared_source_of
from conformance.scenario.server_stimulus import HELD, RUNG, TOP, WATCHED, halved, rungs, words_of

LONGER = 8.0
"""Seconds that the highest level is held on, at most, as long as pages are too few: a busy machine shows little."""

LATE = 2.0
"""Seconds that our own loop may be late: nothing here is judged by the clock, but pages must belong to their load."""


class ModelServerExecution(Execution):
    """One piece of work on a model server."""

    doubtful_lateness = 0.5
    """What the server has answered meanwhile counts as in flight, and its gauges then seem to show too little."""

    def __init__(self, runner: ModelServerRunner, work: Work, capture: Capture) -> None:
        super().__init__(runner, work, capture)
        self._server = runner
        self._scraper = Scraper(runner.client, runner.facts, capture.remark, runner.late)
        self._tokens = 0
        """Tokens of each request of the load."""
        self._words = 0
        """Words of each prompt of the load."""

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
            same = shared_source_of(self._server.seed, self._work.instance.id)
            request = request_of(self._server.profile, self._server.model, ask, self._random(index), same)
            got = await self._server.exchange(request, self._capture.exchange())
            if got.outcome == "expired":
                return

    async def _scrape(self, scrape: ScrapeStep, _: Expect | None) -> None:
        for index in range(scrape.times):
            await self._scraper.scrape(whole=index == 0, gzip=scrape.gzip)
            await asyncio.sleep(INTERVAL)
        self._scraper.flush()

    async def _load(self, step: LoadStep, _: Expect | None) -> None:
        if not await self._rest():
            self._capture.remark(
                Unmet(what="the server is not idle before the test: others ask it, or gauges are stuck")
            )
            return
        load = ServerLoad(self._server.client, lambda place, number: self._request(step, place, number))
        try:
            await self._raise(step, load)
            await self._end(step, load)
        finally:
            await load.abort()
        self._phase("over", load)
        await self._rest()

    async def _raise(self, step: LoadStep, load: ServerLoad) -> None:
        """More and more load until it shows. Prompts that are refused for their length are halved."""
        idle = page_of(await self._scraper.scrape(load, whole=True))
        limits = self._server.profile.limits
        levels = list(rungs(step, limits, len(self._server.profile.adapters)))
        self._words = words_of(step, limits)
        for number, (level, tokens) in enumerate(levels):
            self._tokens = tokens
            load.raise_to(level)
            top = number == len(levels) - 1
            while True:
                raised = self._phase("raised", load, level=level, tokens=tokens, words=self._words)
                held = await self._hold(step, load, raised, idle, TOP if top else RUNG, LONGER if top else 0.0)
                if held or self._server.crashed:
                    return
                if not too_long(raised, load.finished, load.refused):
                    break
                self._words = halved(self._words)

    async def _hold(
        self, step: LoadStep, load: ServerLoad, raised: LoadPhase, idle: Page, seconds: float, longer: float
    ) -> bool:
        """Whether load shows within so many seconds, and `longer` at most as long as there are too few pages."""
        loop = asyncio.get_running_loop()
        began, scrapes = loop.time(), 0
        while not self._server.crashed:
            lasted, ended = loop.time() - began, load.ended - raised.finished - sum(raised.refused.values())
            if lasted >= seconds and (lasted >= seconds + longer or not too_few(scrapes, lasted, raised, ended)):
                break
            scrapes += 1
            if self._scraper.metrics.shows(await self._scraper.scrape(load), raised, step.until, idle):
                await self._watch(step, load, raised)
                return True
            if too_long(raised, load.finished, load.refused):
                return False
            await asyncio.sleep(INTERVAL)
        return False

    async def _watch(self, step: LoadStep, load: ServerLoad, raised: LoadPhase) -> None:
        """Hold load on that shows: for some scrapes, and longer as long as what they show can hardly be, or they take
        so long that little of what was in flight was so all the while."""
        loop = asyncio.get_running_loop()
        until, number, doubted = loop.time() + WATCHED, 0, 0
        while number < doubted + HELD and (number < HELD or loop.time() < until) and not self._server.crashed:
            await asyncio.sleep(INTERVAL)
            event = await self._scraper.scrape(load, whole=number == 0)
            number += 1
            doubtful = INTERVAL + event.seconds > OFTEN or self._scraper.metrics.doubtful(event, raised, step.until)
            doubted = number if doubtful else doubted

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
        met = await self._scraper.rest(seconds)
        self._scraper.flush()
        self._capture.remark(LoadPhase(phase="rest", seconds=seconds, met=met))
        return met

    # -- load ----------------------------------------------------------------------------------------------------------

    def _request(self, step: LoadStep, place: int, number: int) -> ServerRequest:
        profile = self._server.profile
        adapters = profile.adapters if step.until == "adapters" else ()
        model = adapters[place % len(adapters)] if adapters else self._server.model
        return load_request(profile, model, tokens=self._tokens, words=self._words, rng=self._random(number))

    def _phase(self, phase: str, load: ServerLoad, *, level: int = 0, tokens: int = 0, words: int = 0) -> LoadPhase:
        self._scraper.flush()
        now = LoadPhase(
            phase=phase,  # type: ignore[arg-type]
            level=level,
            tokens=tokens,
            words=words,
            finished=load.finished,
            refused=dict(load.refused),
            message=load.message,
        )
        self._capture.remark(now)
        return now
