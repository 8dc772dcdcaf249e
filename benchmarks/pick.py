"""Measure what the reference EPP's choice costs among many pods.

python -P benchmarks/pick.py [--pods 1000]
"""

from __future__ import annotations

import argparse
import statistics
import time

from reference_epp.accounting import Accounting
from reference_epp.endpoints import Pool, parse_endpoint
from reference_epp.gauges import Gauges
from reference_epp.picker import Limits, Picker, Request
from reference_epp.scraper import Readings


def pick_seconds(pods: int, picks: int = 500) -> float:
    """The median of what one pick among `pods` endpoints takes, with gauges of each, a subset and a prompt."""
    pool, readings, accounting = Pool(), Readings(60), Accounting()
    endpoints = tuple(parse_endpoint(f"10.{n >> 8}.{n & 255}.1:8000") for n in range(pods))
    for number, endpoint in enumerate(endpoints):
        readings.put(endpoint, Gauges(queued=number % 7, running=number % 5, kv_cache=number % 100 / 100))
    pool.update(endpoints, synced=True)
    picker = Picker(pool, readings, accounting, Limits())
    took = []
    for number in range(picks):
        request = Request(model="m", body=b'{"prompt": "%d"}' % number * 30, subset=frozenset(endpoints))
        begin = time.perf_counter()
        picker.pick(request)
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    options = parser.parse_args()
    print(f"pick among {options.pods} pods {pick_seconds(options.pods) * 1000:.2f} ms; wanted 1 ms at 1000")


if __name__ == "__main__":
    main()
