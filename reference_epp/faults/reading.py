"""Faults of reading the metrics of model servers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import ClassVar

from reference_epp.deviations import WITH_SUBSET, fault, part_of
from reference_epp.endpoints import Endpoint
from reference_epp.gauges import KV_CACHE, QUEUED, RUNNING, Gauges
from reference_epp.metrics_client import MetricsConnection
from reference_epp.picker import Picker, Request, inside_subset
from reference_epp.scraper import Scraper


@fault("odd-gauge-is-fatal", breaks="ENV-27", why="A gauge that is NaN or negative ends the process.")
class OddGaugeIsFatal(Scraper):
    def read(self, page: str) -> Gauges:
        read = (*QUEUED, *RUNNING, *KV_CACHE)  # others may be NaN on the page of a right server
        if any(line.startswith(read) and line.endswith((" NaN", " -1", " -1.0")) for line in page.splitlines()):
            os._exit(70)
        return super().read(page)


@fault(
    "scraped-until-it-fails",
    breaks="EPP-ERR-02",
    why="The task that reads a pod's metrics ends with the first failure, and a pod that no one reads is not picked.",
    also_breaks={"EPP-SUB-01": "a subset of that pod alone gets 503, too"},
    versions=WITH_SUBSET,
)
class ScrapedUntilItFails(Scraper):
    unread: ClassVar[set[Endpoint]] = set()

    def refused(self, endpoint: Endpoint, problem: Exception) -> None:
        super().refused(endpoint, problem)
        if not isinstance(problem, TimeoutError):  # on a busy machine any scrape may come too late
            self.unread.add(endpoint)

    def follow(self) -> None:
        self.unread.intersection_update(self._pool.endpoints)
        super().follow()


@part_of("scraped-until-it-fails")
class LeavesOutTheUnread(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return [one for one in super().eligible(request) if one not in ScrapedUntilItFails.unread]


@fault(
    "scraped-in-turn",
    breaks="EPP-SUB-02",
    why="Pods are read one after the other, without a time limit, and one that was never read is not picked.",
    versions=WITH_SUBSET,
)
class ScrapedInTurn(Scraper):
    limit = None
    turn: ClassVar[asyncio.Lock] = asyncio.Lock()
    was_read: ClassVar[set[Endpoint]] = set()

    async def fetch(self, endpoint: Endpoint, connection: MetricsConnection) -> bytes:
        async with self.turn:
            page = await super().fetch(endpoint, connection)
        self.was_read.add(endpoint)
        return page

    def follow(self) -> None:
        self.was_read.intersection_update(self._pool.endpoints)
        super().follow()


@part_of("scraped-in-turn")
class PicksWhatWasRead(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return [one for one in super().eligible(request) if one in ScrapedInTurn.was_read]


@fault(
    "locked-while-it-reads",
    breaks="EPP-DEST-06",
    why="A scrape holds a lock on the pool until the page is there, without a time limit; changes wait for the lock.",
    also_breaks={"EPP-SUB-02": "a subset of a pod that was added gets 503, and one of a pod that left gets it"},
    versions=WITH_SUBSET,
)
class LockedWhileItReads(Scraper):
    limit = None
    reading = 0
    known: ClassVar[Sequence[Endpoint]] = ()

    async def fetch(self, endpoint: Endpoint, connection: MetricsConnection) -> bytes:
        self.reading += 1
        try:
            return await super().fetch(endpoint, connection)
        finally:
            self.reading -= 1
            if self.known != self._pool.endpoints:
                self.follow()

    def follow(self) -> None:
        if not self.reading:
            LockedWhileItReads.known = self._pool.endpoints
            super().follow()


@part_of("locked-while-it-reads")
class PicksWhatIsKnown(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return inside_subset(LockedWhileItReads.known, request)


@fault(
    "waits-for-the-last-scrape",
    breaks="EPP-SUB-02",
    why="When a pod leaves, its last scrape is awaited, without a time limit; what changes meanwhile is not followed.",
    versions=WITH_SUBSET,
)
class WaitsForTheLastScrape(Scraper):
    limit = None
    reading: ClassVar[set[Endpoint]] = set()
    known: ClassVar[Sequence[Endpoint]] = ()

    async def fetch(self, endpoint: Endpoint, connection: MetricsConnection) -> bytes:
        self.reading.add(endpoint)
        try:
            return await super().fetch(endpoint, connection)
        finally:
            self.reading.discard(endpoint)
            if self.known != self._pool.endpoints:
                self.follow()

    def follow(self) -> None:
        if self.reading.issubset(self.known):
            WaitsForTheLastScrape.known = self._pool.endpoints
        if self.reading.issubset(self.known):
            super().follow()


@part_of("waits-for-the-last-scrape")
class PicksWhatItFollowed(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return inside_subset(WaitsForTheLastScrape.known, request)
