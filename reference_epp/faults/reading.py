"""Faults of reading the metrics of model servers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from reference_epp.deviations import WITH_SUBSET, fault, part_of
from reference_epp.endpoints import Endpoint
from reference_epp.gauges import KV_CACHE, QUEUED, RUNNING, Gauges
from reference_epp.picker import Picker, Request
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
