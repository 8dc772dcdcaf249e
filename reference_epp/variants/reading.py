"""Variants that read the metrics of model servers in another way. How an EPP balances is not in the protocol."""
# fmt: off
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import math

from reference_epp.deviations import variant
from reference_epp.endpoints import Endpoint
from reference_epp.gauges import Gauges, parse_gauges
from reference_epp.scraper import Scraper


@variant("reads-the-first-series",
         "Of several series of a gauge the first counts, as in most EPPs of the field.")
class ReadsTheFirstSeries(Scraper):
    def read(self, page: str) -> Gauges:
        seen: set[str] = set()
        lines = []
        for line in page.splitlines(keepends=True):
            name = line.partition("{")[0]
            if name not in seen or name.endswith("lora_requests_info"):
                lines.append(line)
            if not line.startswith("#"):
                seen.add(name)
        return super().read("".join(lines))


@variant("reads-new-names-only",
         "Of vLLM's KV cache it knows the name of today's releases, old ones look empty, as in EPPs of the field.")
class ReadsNewNamesOnly(Scraper):
    def read(self, page: str) -> Gauges:
        lines = page.splitlines(keepends=True)
        return super().read("".join(line for line in lines if "vllm:gpu_cache_usage_perc" not in line))


@variant("forgets-at-a-bad-page",
         "A page that can't be read makes its server as good as unknown; it stays a pick.")
class ForgetsAtABadPage(Scraper):
    def refused(self, endpoint: Endpoint, problem: Exception) -> None:
        self.readings.forget(endpoint)


@variant("takes-nan-for-an-empty-queue",
         "NaN is the least number of all, as in EPPs in Go: unwise, allowed.")
class TakesNanForAnEmptyQueue(Scraper):
    def read(self, page: str) -> Gauges:
        try:
            return super().read(page)
        except ValueError:
            parse_gauges(page.replace(" NaN", " 0"))
            return Gauges(queued=-math.inf, running=-math.inf, kv_cache=0.0)
