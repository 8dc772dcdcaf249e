"""How long a page of metrics took: what is kept of it is the server's time, and what may be the suite's own."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from conformance.evidence.model_server import ModelServerFacts
from conformance.run.engine import LagMeter
from conformance.run.model_server.client import Got
from conformance.run.model_server.runner import ModelServerRunner
from conformance.run.model_server.scraper import Scraper


def late(answer, withheld: float = 0.0) -> float:
    """The seconds of a scrape that are not the server's, while the suite's loop is as it is and the server answers."""

    async def scraped() -> float:
        runner = ModelServerRunner.__new__(ModelServerRunner)
        runner.lag = LagMeter()
        runner.target = SimpleNamespace(withheld=lambda seconds: min(seconds, withheld))
        meter = asyncio.create_task(runner.lag.run())
        await asyncio.sleep(0)

        async def page(**_: object) -> Got:
            began = time.monotonic()
            await answer()
            return Got(status=200, seconds=time.monotonic() - began)

        client = SimpleNamespace(url="http://x", page_url="http://x/metrics", page=page)
        event = await Scraper(client, ModelServerFacts(), lambda _: None, runner.late).scrape()
        meter.cancel()
        return event.late

    return asyncio.run(scraped())


async def sleeps() -> None:
    await asyncio.sleep(1.0)


async def blocks() -> None:
    time.sleep(0.3)  # noqa: ASYNC251 - that is what is wrong


async def answers() -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("answer", "withheld", "least", "most"),
    [(sleeps, 0.0, 0.0, 0.9), (sleeps, 0.6, 0.6, 1.5), (blocks, 0.0, 0.25, 0.5), (answers, 0.2, 0.0, 0.0)],
    ids=["the server's", "the server had no processor", "our own loop's", "quick"],
)
def test_what_is_not_the_servers_is_told_of_a_slow_page(answer, withheld, least, most) -> None:
    assert least <= late(answer, withheld) <= most
