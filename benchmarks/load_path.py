"""The load path beside grpc.aio's bare client: two-message streams against the same fast server, in the same run.

    python benchmarks/load_path.py [--seconds 2] [--rounds 3] [--address HOST:PORT]

A stream is a request with a body in full duplex: two messages, two answers, the end. grpc.aio's client sends bytes that
were made before, reads bytes, and does nothing else. The load path makes each request with another id, does what
Envoy does with every answer, and has a verdict of all judges on every exchange. `cpu` is user and system time of the
client's process for each stream, without starting and warming up; `a core` is how many that makes in a second of it.
Without `--address` the server is ours (`ext_proc.server`), in another process; with it, any other EPP that answers
these two messages, such as one in Go.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
from typing import Any

from fake_proxy_vs_grpc import BODY, ENDPOINT, WARM_UP, grpc_client, serve

TIMES, A_CORE = 8.0, 30_000
"""The figures: so many times the streams of grpc.aio's client for the same processor time, and so many in a second."""

KINDS = {"grpc-64": "grpc.aio's client, bare, 64 at once"} | {
    f"load-{number}": f"the load path, every stream judged, {number} at once" for number in (64, 1000)
}


async def grpc_aio(address: str, seconds: float, concurrent: int) -> dict[str, float]:
    """Streams of grpc.aio's client."""
    one, close = await grpc_client(address)
    names, done = map(str, itertools.count()), 0

    async def worker(end: float) -> None:
        nonlocal done
        while time.perf_counter() < end:
            await one(next(names))
            done += 1

    async def work(seconds: float) -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(*(worker(end) for _ in range(concurrent)))

    await work(WARM_UP)
    before, used, began = done, time.process_time(), time.perf_counter()
    await work(seconds)
    cpu, took = time.process_time() - used, time.perf_counter() - began
    await close()
    return {"rate": (done - before) / took, "cpu": cpu / (done - before), "hits": 0}


async def load_path(address: str, seconds: float, concurrent: int) -> dict[str, float]:
    """Streams of the load path. Any telling verdict, and any stream without one, raises."""
    from conformance.evidence.episode import Context, PodFact
    from conformance.load.judgement import Bench
    from conformance.load.memory import Memory
    from conformance.load.moments import Moments, State
    from conformance.load.shape import RequestIds, RequestShape
    from conformance.load.traffic import Traffic
    from conformance.requirements.catalogue import Catalogue
    from conformance.run.engine import LagMeter
    from ext_proc.channel import dial
    from fake_proxy.client import HttpRequest
    from fake_proxy.config import BodyMode, ProxyConfig
    from fake_proxy.scripted import json_reply

    loop = asyncio.get_running_loop()
    memory = Memory(Bench(Context(version="1.0.0", scenario="benchmark"), Catalogue.load()), RequestIds())
    moments = Moments(5)
    moments.asked(
        State((PodFact(name="a", endpoints=(ENDPOINT,)), PodFact(name="b", endpoints=("10.9.9.9:1",))), {}), 0
    )
    config = ProxyConfig(response_body_mode=BodyMode.NONE, send_response_headers=False, send_response_trailers=False)
    request = HttpRequest(body=BODY, http=2, headers=((b"content-type", b"application/json"),))
    shape = RequestShape(name="two-messages", request=request, config=config, reply=json_reply({"choices": []}))
    judged, stopping = 0, False

    def finished(exchange: Any) -> None:
        nonlocal judged
        if exchange.judgement is None or exchange.judgement.telling:
            raise RuntimeError(f"not what was expected: {exchange.judgement}")
        judged += 1
        if not stopping:
            traffic.start(shape, loop.time())

    channel = await dial(address, connections=2)
    traffic = Traffic(
        lambda: channel, memory, moments, deadline=10, lag=LagMeter(), finished=finished, corrected=lambda *_: None
    )
    async with traffic:
        for _ in range(concurrent):
            traffic.start(shape, loop.time())
        await asyncio.sleep(WARM_UP)
        before, used, began = judged, time.process_time(), time.perf_counter()
        await asyncio.sleep(seconds)
        done, cpu, took = judged - before, time.process_time() - used, time.perf_counter() - began
        stopping = True
        if not await traffic.drained(10):
            raise RuntimeError(f"{len(traffic.open)} streams have no end")
    await channel.close()
    return {"rate": done / took, "cpu": cpu / done, "hits": memory.counts.hit_rate}


def compare(seconds: float, rounds: int, address: str | None) -> bool:
    """Measure all kinds in turn, and print. True if the figures hold."""
    server = None
    if address is None:
        command = [sys.executable, __file__, "--serve"]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        address = server.stdout.readline().strip()
    taken: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    try:
        for kind in [kind for _ in range(rounds) for kind in KINDS]:
            options = ["--client", kind, "--address", address, "--seconds", str(seconds)]
            command = [sys.executable, __file__, *options]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
            taken[kind].append(json.loads(ran.stdout.splitlines()[-1]))
    finally:
        if server is not None:
            server.communicate()
    medians = {
        kind: {name: statistics.median(one[name] for one in got) for name in got[0]} for kind, got in taken.items()
    }
    bare = medians["grpc-64"]["cpu"]
    print(f"{'two messages':50}{'streams/s':>10}{'cpu':>10}{'a core':>9}{'x grpc.aio':>12}{'remembered':>12}")
    for kind, got in medians.items():
        hits = f"{got['hits']:12.4%}" if got["hits"] else ""
        cost = f"{got['cpu'] * 1e6:7.1f} µs{1 / got['cpu']:9.0f}{bare / got['cpu']:12.2f}"
        print(f"  {KINDS[kind]:48}{got['rate']:10.0f}{cost}{hits}")
    load = medians["load-64"]["cpu"]
    held = bare / load >= TIMES and 1 / load >= A_CORE
    print(f"figures: ≥ {TIMES:g} times grpc.aio and ≥ {A_CORE} a core: {'held' if held else 'NOT HELD'}")
    return held


def kind_of_client(text: str) -> str:
    """`text`, if it is one of the two clients and how many streams it has at once, such as `grpc-64`."""
    if not re.fullmatch(r"(grpc|load)-[1-9]\d*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither grpc-N nor load-N")
    return text


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--address", help="an EPP that runs already")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--client", type=kind_of_client, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.serve or options.client):
        sys.exit(0 if compare(options.seconds, options.rounds, options.address) else 1)
    kind, _, concurrent = (options.client or "").partition("-")
    if kind == "grpc":  # grpc.aio is no faster on uvloop
        print(json.dumps(asyncio.run(grpc_aio(options.address, options.seconds, int(concurrent)))))
        return
    import uvloop

    from conformance.run.engine import collect_seldom

    collect_seldom()
    if options.serve:
        uvloop.run(serve())
    else:
        print(json.dumps(uvloop.run(load_path(options.address, options.seconds, int(concurrent)))))


if __name__ == "__main__":
    main()
