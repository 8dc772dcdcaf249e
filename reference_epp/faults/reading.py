"""Faults of reading the metrics of model servers."""

from __future__ import annotations

import os

from reference_epp.deviations import fault
from reference_epp.gauges import KV_CACHE, QUEUED, RUNNING, Gauges
from reference_epp.scraper import Scraper


@fault("odd-gauge-is-fatal", breaks="ENV-27", why="A gauge that is NaN or negative ends the process.")
class OddGaugeIsFatal(Scraper):
    def read(self, page: str) -> Gauges:
        read = (*QUEUED, *RUNNING, *KV_CACHE)  # others may be NaN on the page of a right server
        if any(line.startswith(read) and line.endswith((" NaN", " -1", " -1.0")) for line in page.splitlines()):
            os._exit(70)
        return super().read(page)
