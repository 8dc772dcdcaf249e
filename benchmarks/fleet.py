"""Measure the fleet: pods ready, memory, scrapes in open loop beside two peers with the same page, and SSE streams.

    python benchmarks/fleet.py [--pods 1000] [--seconds 4] [--streams 500]

Needs the dependency group `benchmarks`. Servers run in their own process on one core, the loader here on another.
Every pod is scraped over its own keep-alive connection, at times fixed beforehand; a scrape's latency counts from the
time it was meant to start, so a stall of the server cannot hide. A scrape that is due while the one
before is unanswered waits its turn on that connection. Lateness is how far behind the loader itself was: large, and the
figures are the loader's. The peers serve one address, over as many connections: uvicorn with prometheus-client, which
makes its page for each scrape, and aiohttp with the page made beforehand.
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
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, cast

import uvloop

from fake_modelserver import Fleet, Gauges, Latency, PodSpec, Serving

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: pod\r\nUser-Agent: Go-http-client/1.1\r\nAccept-Encoding: gzip\r\n\r\n"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
TOKENS = 200
BETWEEN = 0.01
SERVERS = ("fleet", "uvicorn", "aiohttp")
RATES = {"minimal": 20_000, "real": 4_000}
"""Scrapes a second that the fleet is to hold, by page."""


@contextlib.asynccontextmanager
async def fleet(pods: int, page: str, *, streams: int = 0) -> AsyncIterator[list[tuple[str, int]]]:
    """Pods with that page; with `streams` one pod that takes so many requests at once."""
    serving = Serving(
        max_running=max(1, streams), first_token=Latency(mean=BETWEEN), between_tokens=Latency(mean=BETWEEN)
    )
    async with Fleet() as running:
        for number in range(pods):
            gauges = Gauges(queue=number % 9, kv=0.25, running_loras=("a", "b"), max_lora=4)
            spec = PodSpec(
                name=f"pod-{number}",
                models=(MODEL,),
                page=page,
                gauges=gauges,
                serving=serving if streams else None,
                num_gpu_blocks=2048 + 16 * streams,  # none of them waits for the cache
            )
            await running.add(spec)
        yield [(pod.addresses[0].host, pod.addresses[0].port) for pod in running.pods.values()]


@contextlib.asynccontextmanager
async def aiohttp_peer(pods: int, page: str) -> AsyncIterator[list[tuple[str, int]]]:
    """aiohttp with one page made beforehand."""
    from aiohttp import web

    body = await _page(page)

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/plain")

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield [runner.addresses[0][:2]] * pods
    await runner.cleanup()


@contextlib.asynccontextmanager
async def uvicorn_peer(pods: int, page: str) -> AsyncIterator[list[tuple[str, int]]]:
    """uvicorn with prometheus-client, whose registry has the families and samples of the page."""
    import uvicorn
    from prometheus_client import CollectorRegistry, make_asgi_app
    from prometheus_client.parser import text_string_to_metric_families

    families = list(text_string_to_metric_families((await _page(page)).decode()))

    class Collector:
        def collect(self) -> list[Any]:
            return families

    registry = CollectorRegistry()
    registry.register(Collector())  # type: ignore[arg-type]
    application = make_asgi_app(registry, disable_compression=True)
    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="error", lifespan="off", loop="none")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield [server.servers[0].sockets[0].getsockname()] * pods
    server.should_exit = True
    await task


async def _page(page: str) -> bytes:
    async with Fleet() as one:
        gauges = Gauges(queue=1, kv=0.25, running_loras=("a", "b"), max_lora=4)
        return (await one.add(PodSpec(name="a", models=(MODEL,), page=page, gauges=gauges))).page()


async def serve(server: str, pods: int, page: str, streams: int) -> None:
    """The server's process: print where it serves, serve until stdin closes, print what it took."""
    size = len(await _page(page))
    begin = time.perf_counter()
    made = {"uvicorn": uvicorn_peer, "aiohttp": aiohttp_peer}.get(server)
    context = made(pods, page) if made else fleet(pods, page, streams=streams)
    async with context as where:
        ready = time.perf_counter() - begin
        print(json.dumps({"ready": ready, "page": size, "where": where}), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        before = time.process_time()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        used = time.process_time() - before
        print(json.dumps({"cpu": used, "memory": _memory()}), flush=True)


class Scraper(asyncio.Protocol):
    """One pod's scraper: sends when told, and notes how long after its intended start each answer was whole."""

    def __init__(self, latencies: list[float]) -> None:
        self._latencies = latencies
        self._due: deque[float] = deque()
        self._left: int | None = 0
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
        if self._left is None:  # chunked, and the last chunk ends what was received
            self._left = 0 if data.endswith(b"0\r\n\r\n") else None
        elif not self._left:
            head, _, rest = data.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"not a page: {data[:80]!r}")
            _, found, length = head.lower().partition(b"content-length: ")
            if found:
                self._left = int(length.split(b"\r\n")[0]) - len(rest)
            else:
                self._left = 0 if data.endswith(b"0\r\n\r\n") else None
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
        async with asyncio.timeout(2):
            await asyncio.gather(*[scraper.idle.wait() for scraper in scrapers])
    for scraper in scrapers:
        scraper.close()
    return latencies, lateness, count


class Stream(asyncio.Protocol):
    """One streamed completion: counts its events, and notes how long the first took to come, and the rest."""

    def __init__(self) -> None:
        self.events = 0
        self.asked = self.begun = 0.0
        self.done: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        asked = {"model": MODEL, "prompt": "Hello", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
        body = json.dumps(asked).encode()
        head = b"POST /v1/completions HTTP/1.1\r\nhost: pod\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.asked = time.perf_counter()
        cast("asyncio.Transport", transport).write(head + body)

    def data_received(self, data: bytes) -> None:
        self.events += data.count(b"data: ")
        if not self.begun:  # all are asked at once: until then it waited for its turn
            self.begun = time.perf_counter()
        if b"[DONE]" in data and not self.done.done():
            self.done.set_result((self.begun - self.asked, time.perf_counter() - self.begun))


async def stream(where: tuple[str, int], count: int) -> tuple[float, float, int]:
    """Of `count` streams at once the longest wait for a first event, and the longest time from then on, in seconds; and
    how many events came."""
    loop = asyncio.get_running_loop()
    streams = [(await loop.create_connection(Stream, *where))[1] for _ in range(count)]
    first, rest = zip(*await asyncio.wait_for(asyncio.gather(*[one.done for one in streams]), 60), strict=True)
    return max(first), max(rest), sum(one.events for one in streams)


@contextlib.contextmanager
def served(server: str, pods: int, page: str, streams: int = 0) -> Any:
    """A server's process: what it said at its start, and a function that ends it and gives what it took."""
    command = [sys.executable, __file__, "--serve", server, "--pods", str(pods), "--page", page]
    with subprocess.Popen(
        [*command, "--streams", str(streams)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        start = json.loads(process.stdout.readline())
        process.stdin.write("measure\n")
        process.stdin.flush()

        def end() -> dict[str, Any]:
            print("stop", file=process.stdin, flush=True)
            return cast("dict[str, Any]", json.loads(process.stdout.readline()))

        yield start, end


def scrapes(server: str, pods: int, page: str, rate: int, seconds: float) -> tuple[bool, float]:
    """Print what scrapes of one server at `rate` a second took: whether all were answered within the limit, and p99."""
    with served(server, pods, page) as (start, end):
        where = [tuple(place) for place in start["where"]]
        latencies, lateness, count = uvloop.run(load(where, pods / rate, seconds))
        took = end()
    p50, p99 = (_quantile(latencies, share) * 1000 for share in (0.5, 0.99))
    print(
        f"{page:8} {start['page']:7} B {server:8} {rate:6}/s asked, {len(latencies) / count:6.1%} answered, "
        f"p50 {p50:7.1f} ms, p99 {p99:7.1f} ms, core {took['cpu'] / seconds:4.0%}, ready {start['ready']:.2f} s, "
        f"{took['memory']:.0f} MB, loader late {_quantile(lateness, 0.99) * 1000:.1f} ms"
    )
    return len(latencies) == count and start["ready"] <= 1 and took["memory"] <= 200, p99


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--page", choices=tuple(RATES), default="minimal", help=argparse.SUPPRESS)
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _pin(0)
        uvloop.run(serve(options.serve, options.pods, options.page, options.streams))
        return 0
    _pin(1)
    held = True
    for page, rate in RATES.items():
        for server in SERVERS:
            # A peer that can't follow is asked for less, to see what it can.
            for asked in (rate,) if server == "fleet" else (rate, rate // 10):
                complete, p99 = scrapes(server, options.pods, page, asked, options.seconds)
                held = held and (server != "fleet" or (complete and p99 <= 25))
                if complete and p99 <= 25:
                    break
    with served("fleet", 1, "real", options.streams) as (start, end):
        first, worst, events = uvloop.run(stream(tuple(start["where"][0]), options.streams))
        took = end()
    ideal = (TOKENS - 1) * BETWEEN
    print(
        f"streams  {options.streams} of {TOKENS} tokens at {BETWEEN * 1000:.0f} ms: ideal {ideal:.2f} s, "
        f"slowest {worst:.2f} s from its first event on, which came within {first:.2f} s, {events} events, "
        f"{took['cpu']:.1f} s of a core"
    )
    return 0 if held and worst <= 1.1 * ideal else 1


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
