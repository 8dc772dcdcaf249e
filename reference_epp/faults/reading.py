"""Faults of reading the metrics of model servers."""
# fmt: off

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

from reference_epp.changes import changed, eligible
from reference_epp.deviations import WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.gauges import KV_CACHE, QUEUED, RUNNING, Gauges
from reference_epp.picker import Picker, inside_subset
from reference_epp.scraper import Scraper

reading_fault = partial(fault, versions=WITH_SUBSET)


@fault("odd-gauge-is-fatal", "ENV-27", "A gauge that is NaN or negative ends the process.")
class OddGaugeIsFatal(Scraper):
    def read(self, page: str) -> Gauges:
        read = (*QUEUED, *RUNNING, *KV_CACHE)  # others may be NaN on the page of a right server
        if any(line.startswith(read) and line.endswith((" NaN", " -1", " -1.0")) for line in page.splitlines()):
            os._exit(70)
        return super().read(page)


class _Known:
    """The endpoints that the scraper is done with, by the name of the fault, for its picker."""

    read: ClassVar[set[Endpoint]] = set()
    unread: ClassVar[set[Endpoint]] = set()
    locked: ClassVar[list[Endpoint]] = []
    followed: ClassVar[list[Endpoint]] = []


def _inside(known: Iterable[Endpoint]) -> type[Picker]:
    return changed(Picker, eligible=lambda _, __, request: inside_subset(tuple(known), request))


@reading_fault("scraped-until-it-fails", "EPP-ERR-02",
               "A pod's metrics are not read again after the first failure, and it is not picked any more.",
               eligible(lambda _, __, found: [one for one in found if one not in _Known.unread]),
               also={"EPP-SUB-01": "a subset of that pod alone gets 503, too"})
class ScrapedUntilItFails(Scraper):
    def refused(self, endpoint: Endpoint, problem: Exception) -> None:
        super().refused(endpoint, problem)
        if not isinstance(problem, TimeoutError):  # on a busy machine any scrape may come too late
            _Known.unread.add(endpoint)

    def follow(self) -> None:
        _Known.unread.intersection_update(self._pool.endpoints)
        super().follow()


@reading_fault("scraped-in-turn", "EPP-SUB-02",
               "Pods are read in turn, without a time limit, and one that was never read is not picked.",
               eligible(lambda _, __, found: [one for one in found if one in _Known.read]))
class ScrapedInTurn(Scraper):
    limit = None
    turn: ClassVar[asyncio.Lock] = asyncio.Lock()

    async def fetch(self, endpoint: Endpoint, connection: Any) -> bytes:
        async with self.turn:
            page = await super().fetch(endpoint, connection)
        _Known.read.add(endpoint)
        return page

    def follow(self) -> None:
        _Known.read.intersection_update(self._pool.endpoints)
        super().follow()


class _Follows(Scraper):
    """Follows the pool late. `reading` are the endpoints whose pages are on their way."""

    limit = None
    reading: ClassVar[list[Endpoint]] = []
    known: ClassVar[list[Endpoint]]

    async def fetch(self, endpoint: Endpoint, connection: Any) -> bytes:
        self.reading.append(endpoint)
        try:
            return await super().fetch(endpoint, connection)
        finally:
            self.reading.remove(endpoint)
            if tuple(self.known) != self._pool.endpoints:
                self.follow()


@reading_fault("locked-while-it-reads", "EPP-DEST-06",
               "A scrape holds a lock on the pool until the page is there, without a time limit.",
               _inside(_Known.locked),
               also={"EPP-SUB-02": "a subset of a pod that was added gets 503, and one of a pod that left gets it"})
class LockedWhileItReads(_Follows):
    known = _Known.locked

    def follow(self) -> None:
        if not self.reading:
            self.known[:] = self._pool.endpoints
            super().follow()


@reading_fault("waits-for-the-last-scrape", "EPP-SUB-02",
               "When a pod leaves, its last scrape is awaited; changes meanwhile are not followed.",
               _inside(_Known.followed))
class WaitsForTheLastScrape(_Follows):
    known = _Known.followed

    def follow(self) -> None:
        if set(self.reading).issubset(self.known):
            self.known[:] = self._pool.endpoints
        if set(self.reading).issubset(self.known):
            super().follow()
