"""Keep the gauges of every endpoint fresh: GET /metrics over a connection that stays open."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import ClassVar

from reference_epp.endpoints import Endpoint, Pool
from reference_epp.gauges import Gauges, parse_gauges
from reference_epp.metrics_client import MetricsConnection
from reference_epp.ticks import until_turn

LOG = logging.getLogger(__name__)

SCRAPE_TIMEOUT = 1.0
"""Seconds that one scrape may take."""


class Readings:
    """The last reading of each endpoint; readings that are too old are as good as none."""

    def __init__(self, staleness: float) -> None:
        self._staleness = staleness
        self._readings: dict[Endpoint, tuple[float, Gauges]] = {}

    def put(self, endpoint: Endpoint, gauges: Gauges) -> None:
        """Remember that `endpoint` said `gauges` just now."""
        self._readings[endpoint] = (time.monotonic(), gauges)

    def get(self, endpoint: Endpoint) -> Gauges | None:
        """What `endpoint` said last, or None if that is unknown or too long ago."""
        reading = self._readings.get(endpoint)
        if reading is None or time.monotonic() - reading[0] > self._staleness:
            return None
        return reading[1]

    def forget(self, endpoint: Endpoint) -> None:
        """Drop the reading of an endpoint that left the pool, or that nothing listens at."""
        self._readings.pop(endpoint, None)


class Scraper:
    """One task per endpoint of the pool, each scraping its endpoint every `interval` seconds, one scrape at a time."""

    limit: ClassVar[float | None] = SCRAPE_TIMEOUT

    def __init__(self, pool: Pool, readings: Readings, interval: float) -> None:
        self._pool = pool
        self.readings = readings
        self._interval = interval
        self._tasks: dict[Endpoint, asyncio.Task[None]] = {}
        pool.listen(self.follow)

    def read(self, page: str) -> Gauges:
        """What a page says. Raises `ValueError` for one that is not to be believed: then the one before stands."""
        return parse_gauges(page)

    async def fetch(self, endpoint: Endpoint, connection: MetricsConnection) -> bytes:  # noqa: ARG002 - see `read`
        """The page of `endpoint`. Raises as `MetricsConnection.fetch` does."""
        return await connection.fetch()

    def refused(self, endpoint: Endpoint, problem: Exception) -> None:
        """A scrape failed. A server that restarts is not as idle as it last said."""
        if isinstance(problem, ConnectionError):
            self.readings.forget(endpoint)

    def follow(self) -> None:
        """Scrape what is in the pool, and nothing else."""
        wanted = set(self._pool.endpoints)
        for endpoint in self._tasks.keys() - wanted:
            self._tasks.pop(endpoint).cancel()
            self.readings.forget(endpoint)
        for endpoint in wanted - self._tasks.keys():
            self._tasks[endpoint] = asyncio.get_running_loop().create_task(self._scrape(endpoint))

    async def stop(self) -> None:
        """End all scraping."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _scrape(self, endpoint: Endpoint) -> None:
        connection: MetricsConnection | None = None
        failing = False
        said: bytes | None = None
        try:
            while True:
                started = time.monotonic()
                try:
                    async with asyncio.timeout(self.limit):
                        if connection is None or connection.closed:
                            connection = await MetricsConnection.open(endpoint)
                        page = await self.fetch(endpoint, connection)
                    if page != said:  # an idle server says the same again and again
                        gauges = self.read(page.decode("utf-8", "replace"))
                        said = page
                    self.readings.put(endpoint, gauges)
                except (OSError, ValueError) as problem:
                    if connection is not None:
                        connection.close()
                    self.refused(endpoint, problem)
                    if not failing:
                        LOG.warning("no metrics from %s: %s", endpoint, problem or type(problem).__name__)
                    failing = True
                else:
                    failing = False
                await until_turn(started, self._interval)
        finally:
            if connection is not None:
                connection.close()
