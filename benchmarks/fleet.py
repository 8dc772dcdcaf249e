"""Measure the fleet: 1,000 pods ready, memory, and 20,000 scrapes a second in open loop.

    python benchmarks/fleet.py [--pods 1000] [--interval 0.05] [--seconds 4]

The fleet runs in a process of its own on one core, the loader here on another. Every pod is scraped every `interval`
seconds over its own keep-alive connection, at times fixed beforehand; a scrape's latency counts from the time it was
meant to start, so a stall of the fleet cannot hide. A scrape that is due while the one before is unanswered waits its
turn on that connection. Lateness is how far behind the loader itself was: large, and the figures are the loader's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter, deque
from typing import cast

import uvloop

from fake_modelserver import Fleet, Gauges, PodSpec

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: pod\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n"
FIGURES = {"ready": 1.0, "memory": 150.0, "p99": 25.0}


async def serve(pods: int) -> None:
    """The fleet's process: print where the pods are, serve until stdin closes, print what it took."""
    outcomes: Counter[str] = Counter()
    begin = time.perf_counter()
    async with Fleet(on_scrape=lambda started: outcomes.update((started.outcome,))) as fleet:
        for number in range(pods):
            spec = PodSpec(
                name=f"pod-{number}",
                adapters=("a",),
                gauges=Gauges(queue=number % 9, kv=0.25, running_loras=("a", "b"), max_lora=4),
            )
            await fleet.add(spec)
        ready = time.perf_counter() - begin
        body = len(next(iter(fleet.pods.values())).page())
        where = [(pod.addresses[0].host, pod.addresses[0].port) for pod in fleet.pods.values()]
        print(json.dumps({"ready": ready, "page": body, "where": where}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        before = time.process_time()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        used = time.process_time() - before
        print(json.dumps({"cpu": used, "memory": _memory(), "outcomes": outcomes}), flush=True)


class Scraper(asyncio.Protocol):
    """One pod's scraper: sends when told, and notes how long after its intended start each answer was whole."""

    def __init__(self, latencies: list[float]) -> None:
        self._latencies = latencies
        self._due: deque[float] = deque()
        self._left = 0
        self.idle = asyncio.Event()
        self.idle.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def scrape(self, intended: float) -> None:
        self._due.append(intended)
        if self.idle.is_set():
            self.idle.clear()
            self._transport.write(REQUEST)

    def data_received(self, data: bytes) -> None:
        if not self._left:
            head, _, rest = data.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"not a page: {data[:80]!r}")
            self._left = int(head.split(b"content-length: ")[1].split(b"\r\n")[0]) - len(rest)
        else:
            self._left -= len(data)
        if self._left == 0:
            self._latencies.append(time.perf_counter() - self._due.popleft())
            if self._due:
                self._transport.write(REQUEST)
            else:
                self.idle.set()

    def close(self) -> None:
        self._transport.close()


async def load(where: list[tuple[str, int]], interval: float, seconds: float) -> tuple[list[float], list[float], int]:
    """Scrape every pod every `interval` seconds, evenly spread: latencies, lateness (seconds), scrapes intended."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    lateness: list[float] = []
    scrapers = [(await loop.create_connection(lambda: Scraper(latencies), *place))[1] for place in where]
    step = interval / len(scrapers)
    count = round(seconds / step)
    begin = time.perf_counter() + 0.05
    number = 0
    while number < count:
        now = time.perf_counter()
        while number < count and (intended := begin + number * step) <= now:
            lateness.append(now - intended)
            scrapers[number % len(scrapers)].scrape(intended)
            number += 1
        await asyncio.sleep(0.0005)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(5):
            await asyncio.gather(*[scraper.idle.wait() for scraper in scrapers])
    for scraper in scrapers:
        scraper.close()
    return latencies, lateness, count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--interval", type=float, default=0.05, help="seconds between two scrapes of a pod")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _pin(0)
        uvloop.run(serve(options.pods))
        return 0
    _pin(1)
    command = [sys.executable, __file__, "--serve", "--pods", str(options.pods)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        start = json.loads(server.stdout.readline())
        server.stdin.write("measure\n")
        server.stdin.flush()
        latencies, lateness, count = uvloop.run(
            load([tuple(place) for place in start["where"]], options.interval, options.seconds)
        )
        server.stdin.write("stop\n")
        server.stdin.flush()
        end = json.loads(server.stdout.readline())
    p99 = _quantile(latencies, 0.99) * 1000
    print(f"pods                 {options.pods}, page of {start['page']} bytes")
    print(f"ready                {start['ready']:.3f} s            (to hold: {FIGURES['ready']:.0f} s)")
    print(f"memory               {end['memory']:.0f} MB              (to hold: {FIGURES['memory']:.0f} MB)")
    print(f"scrapes              {len(latencies)} of {count} answered, {count / options.seconds:.0f} a second intended")
    print(f"seen by the fleet    {end['outcomes']}")
    print(f"latency p50 / p99    {_quantile(latencies, 0.5) * 1000:.1f} / {p99:.1f} ms      (to hold: p99 25 ms)")
    print(f"loader lateness p99  {_quantile(lateness, 0.99) * 1000:.1f} ms")
    print(f"fleet's core         {100 * end['cpu'] / options.seconds:.0f} % of one")
    held = start["ready"] <= FIGURES["ready"] and end["memory"] <= FIGURES["memory"] and p99 <= FIGURES["p99"]
    return 0 if held and len(latencies) == count else 1


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def _pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


def _memory() -> float:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


if __name__ == "__main__":
    raise SystemExit(main())
