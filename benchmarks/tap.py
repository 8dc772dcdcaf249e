"""Measure the tap: added latency at the median, and streams a second, with judging on, against no tap at all.

    python benchmarks/tap.py [--seconds 3] [--concurrent 64]

A scripted EPP, the tap and the process that judges are separate processes; the client here uses the project's own
HTTP/2 connections. An exchange is a request with a body in full duplex: two messages, two answers, and Envoy's reset.
Latency is measured one exchange at a time, direct and tapped in turn, so that both meet the same machine. `cpu` is the
tap's own processor time per stream: what it could carry on a dedicated core, where the machine is shared. Exchanges
that judging had no time for are left out of it, and counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvloop

from ext_proc.channel import Channel, dial
from ext_proc.headers import header_map
from ext_proc.messages import HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration

ADDED, RATE = 1.0, 1000
"""The figures to hold: milliseconds at the median, streams a second on one core."""

HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in (
        (":authority", "gateway"),
        (":path", "/v1/chat/completions"),
        (":method", "POST"),
        (":scheme", "http"),
        ("content-type", "application/json"),
        ("authorization", "Bearer sk-0123456789"),
        ("user-agent", "benchmark"),
        ("x-forwarded-proto", "http"),
        ("x-request-id", "0b0f6a3a-7a70-4e3e-9a53-0a6c1b3f1d63"),
    )
)
SENT = (
    ProcessingRequest(
        request_headers=HttpHeaders(headers=header_map(HEADERS)),
        protocol_config=ProtocolConfiguration(request_body_mode=4, response_body_mode=4),
    ).SerializeToString(),
    ProcessingRequest(
        request_body=HttpBody(body=b'{"model":"llama-3","prompt":"Say hello.","max_tokens":16}', end_of_stream=True)
    ).SerializeToString(),
)


# -- the processes -----------------------------------------------------------------------------------------------------


async def serve_epp() -> None:
    """The EPP's process."""
    from fake_epp import open_epp, picks

    epp = await open_epp(default=picks("10.0.0.1:8000"))
    print(epp.address, flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        epp.asked.clear()
        print("{}", flush=True)


async def serve_tap(upstream: str, *, judging: bool) -> None:
    """The tap's process: where it is, and on each line of input what it has done."""
    from conformance.tap.judging import JudgingSettings, context
    from conformance.tap.session import LiveSettings, LiveTap
    from ext_proc.relay import open_tap

    def report(counts: Any, judged: int, left_out: int) -> None:
        figures = {"cpu": time.process_time(), "streams": counts.streams, "judged": judged, "left_out": left_out}
        print(json.dumps(figures), flush=True)

    loop = asyncio.get_running_loop()
    if not judging:
        tap = await open_tap("127.0.0.1", 0, upstream)
        print(tap.address, flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            report(tap.counts, 0, 0)
        await tap.close()
        return
    settings = LiveSettings(
        host="127.0.0.1", port=0, upstream=upstream, judging=JudgingSettings(context=context("1.0.0"))
    )
    async with LiveTap(settings, show=lambda _: None, warn=lambda _: None) as live:
        print(live.address, flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            report(live.tap.counts, live.tally.judged, live.left_out)


class Process:
    """A child process, spoken to in lines."""

    def __init__(self, *arguments: str) -> None:
        self.child = subprocess.Popen(
            [sys.executable, __file__, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.child.stdout is not None
        self.address = self.child.stdout.readline().strip()

    def ask(self) -> dict[str, Any]:
        """What it has done so far."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write("\n")
        self.child.stdin.flush()
        figures: dict[str, Any] = json.loads(self.child.stdout.readline())
        return figures


@contextlib.contextmanager
def started(*arguments: str) -> Iterator[Process]:
    process = Process(*arguments)
    try:
        yield process
    finally:
        assert process.child.stdin is not None
        process.child.stdin.close()
        process.child.wait(30)


# -- the client --------------------------------------------------------------------------------------------------------


async def exchange(channel: Channel) -> None:
    """One stream: two messages, two answers, a reset."""
    stream = await channel.open()
    for raw in SENT:
        stream.send(raw)
    for _ in SENT:
        if await stream.recv() is None:
            raise RuntimeError(f"the stream ended early: {stream.ended}")
    stream.reset()


async def latencies(channels: list[Channel], seconds: float) -> list[list[float]]:
    """Milliseconds of exchanges, one at a time, over each channel in turn."""
    found: list[list[float]] = [[] for _ in channels]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for channel, taken in zip(channels, found, strict=True):
            begin = time.perf_counter()
            await exchange(channel)
            taken.append((time.perf_counter() - begin) * 1000)
    return found


async def rate(channel: Channel, seconds: float, concurrent: int) -> float:
    """Exchanges a second with so many at once."""
    done = 0
    end = time.perf_counter() + seconds

    async def one_after_the_other() -> None:
        nonlocal done
        while time.perf_counter() < end:
            await exchange(channel)
            done += 1

    begin = time.perf_counter()
    await asyncio.gather(*(one_after_the_other() for _ in range(concurrent)))
    return done / (time.perf_counter() - begin)


async def measure(seconds: float, concurrent: int) -> bool:
    """Measure and print. True if the figures hold."""
    with started("--role", "epp") as epp, contextlib.ExitStack() as stack:
        taps = {
            "relay only": stack.enter_context(started("--role", "tap", "--upstream", epp.address)),
            "judging": stack.enter_context(started("--role", "tap", "--upstream", epp.address, "--judging")),
        }
        addresses = [epp.address, *(tap.address for tap in taps.values())]
        channels = [await dial(address, connections=2) for address in addresses]
        await latencies(channels, 0.3)  # until all is warm
        taken = await latencies(channels, seconds)
        medians = [statistics.median(one) for one in taken]
        print(f"{'latency, one at a time':28}{'median':>10}{'p99':>10}{'added':>10}{'ratio':>8}")
        for name, one, median in zip(("direct", *taps), taken, medians, strict=True):
            p99 = statistics.quantiles(one, n=100)[98]
            ratio = median / medians[0]
            print(f"  {name:26}{median:7.3f} ms{p99:7.3f} ms{median - medians[0]:7.3f} ms{ratio:8.2f}")
        epp.ask()
        direct = await rate(channels[0], seconds, concurrent)
        print(f"{f'{concurrent} at once':28}{'streams/s':>10}{'ratio':>8}{'cpu/stream':>12}{'a core':>10}{'judged':>9}")
        print(f"  {'direct':26}{direct:10.0f}{1:8.2f}")
        held = medians[2] - medians[0] <= ADDED
        for (name, tap), channel in zip(taps.items(), channels[1:], strict=True):
            before = tap.ask()
            got = await rate(channel, seconds, concurrent)
            after = tap.ask()
            epp.ask()
            streams = after["streams"] - before["streams"]
            cpu = (after["cpu"] - before["cpu"]) / streams
            share = (after["judged"] - before["judged"]) / streams
            print(f"  {name:26}{got:10.0f}{got / direct:8.2f}{cpu * 1e6:9.0f} µs{1 / cpu:10.0f}{share:9.0%}")
            held = held and 1 / cpu >= RATE
        for channel in channels:
            await channel.close()
    print(f"figures: ≤ {ADDED:g} ms added, ≥ {RATE} streams/s on a core: {'held' if held else 'NOT HELD'}")
    return held


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--role", choices=("epp", "tap"), help=argparse.SUPPRESS)
    parser.add_argument("--upstream", help=argparse.SUPPRESS)
    parser.add_argument("--judging", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role == "epp":
        uvloop.run(serve_epp())
    elif options.role == "tap":
        uvloop.run(serve_tap(options.upstream, judging=options.judging))
    else:
        sys.exit(0 if uvloop.run(measure(options.seconds, options.concurrent)) else 1)


if __name__ == "__main__":
    main()
