"""Faults of reading the metrics of model servers."""

from __future__ import annotations

import os

from reference_epp.deviations import fault
from reference_epp.gauges import Gauges
from reference_epp.scraper import Scraper


@fault("odd-gauge-is-fatal", breaks="ENV-27", why="A gauge that is NaN or negative ends the process.")
class OddGaugeIsFatal(Scraper):
    def read(self, page: str) -> Gauges:
        if any(line.endswith((" NaN", " -1", " -1.0")) and line[0] != "#" for line in page.splitlines()):
            os._exit(70)
        return super().read(page)
