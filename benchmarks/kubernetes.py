"""Figures of the Kubernetes API emulator: start, 1,000 pods listed, and how soon a change is at a watcher.

Run `python benchmarks/kubernetes.py`. Client and emulator share one loop, so the figures hold both sides' work.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time

import httpx

from fake_kubernetes import Emulator, builders

PODS = 1_000
CHANGES = 200


async def start_and_stop() -> tuple[float, float]:
    emulator = Emulator()
    begun = time.perf_counter()
    await emulator.start()
    started = time.perf_counter()
    await emulator.stop()
    return started - begun, time.perf_counter() - started


async def list_pods(client: httpx.AsyncClient) -> float:
    begun = time.perf_counter()
    answer = await client.get("/api/v1/namespaces/default/pods")
    elapsed = time.perf_counter() - begun
    assert len(answer.json()["items"]) == PODS
    return elapsed


async def change_latencies(emulator: Emulator, client: httpx.AsyncClient) -> list[float]:
    latencies = []
    query = {"watch": "true", "resourceVersion": str(emulator.store.resource_version)}
    async with client.stream("GET", "/api/v1/namespaces/default/pods", params=query) as answer:
        lines = answer.aiter_lines()
        for number in range(CHANGES):
            begun = time.perf_counter()
            change = emulator.store.put(builders.pod("changing", "127.1.0.1", labels={"round": str(number)}))
            event = json.loads(await anext(lines))
            latencies.append(time.perf_counter() - begun)
            assert event["object"]["metadata"]["resourceVersion"] == str(change.resource_version)
    return latencies


async def main() -> None:
    starts = [await start_and_stop() for _ in range(10)]
    async with Emulator() as emulator, httpx.AsyncClient(base_url=emulator.url) as client:
        begun = time.perf_counter()
        for number in range(PODS):
            emulator.store.put(builders.pod(f"pod-{number}", f"127.1.{number // 250}.{number % 250 + 1}"))
        filled = time.perf_counter() - begun
        lists = [await list_pods(client) for _ in range(20)]
        latencies = sorted(await change_latencies(emulator, client))
    print(f"start                    {max(start for start, _ in starts) * 1e3:8.2f} ms (slowest of 10, at most 100)")
    print(f"stop                     {max(stop for _, stop in starts) * 1e3:8.2f} ms (slowest of 10)")
    print(f"store of {PODS} pods filled {filled * 1e3:7.2f} ms")
    print(f"{PODS} pods listed         {statistics.median(lists) * 1e3:8.2f} ms (median of 20, at most 100)")
    print(f"change at a watcher      {statistics.median(latencies) * 1e3:8.2f} ms (median of {CHANGES}, at most 10)")
    print(f"                         {latencies[int(CHANGES * 0.99)] * 1e3:8.2f} ms (99th percentile)")


if __name__ == "__main__":
    asyncio.run(main())
