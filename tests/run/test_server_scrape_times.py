"""How long a page of metrics took: what is kept of it is the server's time, and what may be the suite's own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from simulated_time import SimulatedTime, simulated

from conformance.evidence.model_server import ModelServerFacts
from conformance.run.engine import LagMeter
from conformance.run.model_server.client import Got
from conformance.run.model_server.runner import ModelServerRunner
from conformance.run.model_server.scraper import Scraper

pytestmark = pytest.mark.program


def late(seconds: float, blocks: float, withheld: float) -> float:
    """The seconds of a scrape that are not the server's: it takes `seconds`, our own loop stands still for `blocks`."""

    async def scraped(loop: SimulatedTime) -> float:
        runner = ModelServerRunner.__new__(ModelServerRunner)
        runner.lag = LagMeter(loop.time)
        runner.target = SimpleNamespace(withheld=lambda seconds: min(seconds, withheld))
        meter = asyncio.create_task(runner.lag.run())
        await asyncio.sleep(0)

        async def page(**_: object) -> Got:
            began = loop.now
            loop.now += blocks
            await asyncio.sleep(seconds)
            return Got(status=200, seconds=loop.now - began)

        client = SimpleNamespace(url="http://x", page_url="http://x/metrics", page=page)
        event = await Scraper(client, ModelServerFacts(), lambda _: None, runner.late).scrape()
        meter.cancel()
        return event.late

    return simulated(scraped)


@pytest.mark.parametrize(
    ("seconds", "blocks", "withheld", "least", "most"),
    [(1.0, 0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 0.6, 0.6, 0.6), (0.0, 0.3, 0.0, 0.25, 0.3), (0.0, 0.0, 0.2, 0.0, 0.0)],
    ids=["the server's", "the server had no processor", "our own loop's", "quick"],
)
def test_time_of_the_suite_is_subtracted_from_a_slow_page(seconds, blocks, withheld, least, most) -> None:
    assert least <= late(seconds, blocks, withheld) <= most
