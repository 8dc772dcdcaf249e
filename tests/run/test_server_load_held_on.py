"""How long load on a model server is held: longer where pages come so seldom that they tell little of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from simulated_time import SimulatedTime, simulated

from conformance.evidence.model_server import LoadPhase, MetricsPage
from conformance.reading.metrics_page import Page
from conformance.run.model_server import execute
from conformance.run.model_server.execute import ModelServerExecution
from conformance.scenario.model_server import LoadStep

pytestmark = pytest.mark.program

RAISED = LoadPhase(phase="raised", level=8, tokens=64, words=8)
EMPTY = Page(samples={}, types={})


class SlowScraper:
    """Pages that take so many seconds each, on which load shows or does not."""

    def __init__(self, seconds: float, *, shows: bool = False) -> None:
        self.scrapes = 0
        self.metrics = SimpleNamespace(shows=lambda *_: shows, doubtful=lambda *_: False)
        self._seconds = seconds

    async def scrape(self, *_: object, whole: bool = False) -> MetricsPage:
        self.scrapes += 1
        await asyncio.sleep(self._seconds)
        return MetricsPage(url="http://x/metrics", status=200, seconds=self._seconds, whole=whole)


def held(scraper: SlowScraper, *, ended: int, longer: float = 1.6) -> float:
    """Seconds for which load is held that is to be held for 0.4 s, and so much longer at most."""
    execution = ModelServerExecution.__new__(ModelServerExecution)
    execution._server = SimpleNamespace(crashed=False)
    execution._scraper = scraper
    load = SimpleNamespace(ended=ended, finished=ended, refused={})

    async def hold(loop: SimulatedTime) -> float:
        await execution._hold(LoadStep(until="queued"), load, RAISED, EMPTY, 0.4, longer)
        return loop.now

    return simulated(hold)


@pytest.mark.parametrize(
    ("seconds", "ended", "longer"),
    [(0.15, 2, True), (0.15, 80, False)],
    ids=["few pages", "short answers"],
)
def test_load_that_does_not_show_is_held_on_where_pages_are_too_few(seconds, ended, longer) -> None:
    assert (held(SlowScraper(seconds), ended=ended) >= 2.0) is longer


@pytest.mark.parametrize(("seconds", "longer"), [(0.15, True), (0.0, False)], ids=["slow pages", "quick ones"])
def test_load_that_shows_on_slow_pages_is_watched_for_longer(monkeypatch, seconds, longer) -> None:
    monkeypatch.setattr(execute, "WATCHED", 2.0)
    scraper = SlowScraper(seconds, shows=True)
    held(scraper, ended=0)
    assert (scraper.scrapes > 1 + execute.HELD) is longer
