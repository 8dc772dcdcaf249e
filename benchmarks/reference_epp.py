"""Measure the reference EPP: streams a second on one core, and 2,000 streams at once of which none may be lost.

    python benchmarks/reference_epp.py [--seconds 4] [--concurrent 64] [--burst 2000] [--exchanges 100000]

The EPP runs in a separate process, which with all its threads has the last core, where the platform allows it; the
client here uses the project's own HTTP/2 connections and ends streams by reset, as Envoy does. `cpu` is the EPP's
processor time per stream, the figure to compare where the machine is shared. Then: its memory while it serves further
exchanges.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop

from ext_proc.channel import Channel, dial
from ext_proc.messages import ProcessingRequest

FIGURE = 3000
"""Two-message streams a second on one core that the EPP is to reach."""


def messages(*, body: bool) -> list[bytes]:
    """What a data plane sends in full duplex: the headers of a request, and its body if it has one."""
    headers = ProcessingRequest()
    headers.metadata_context.SetInParent()
    headers.protocol_config.request_body_mode = headers.protocol_config.response_body_mode = 4
    for key, value in (
        (":authority", "gateway"),
        (":path", "/v1/completions"),
        (":method", "POST" if body else "GET"),
        (":scheme", "http"),
        ("content-type", "application/json"),
        ("user-agent", "benchmark"),
        ("x-forwarded-proto", "http"),
        ("x-request-id", "0b0f6a3a-7a70-4e3e-9a53-0a6c1b3f1d63"),
    ):
        headers.request_headers.headers.headers.add(key=key, raw_value=value.encode())
    headers.request_headers.end_of_stream = not body
    if not body:
        return [headers.SerializeToString()]
    content = ProcessingRequest()
    content.metadata_context.SetInParent()
    content.request_body.body = b'{"model":"llama-3","prompt":"Say hello.","max_tokens":16}'
    content.request_body.end_of_stream = True
    return [headers.SerializeToString(), content.SerializeToString()]


async def exchange(channel: Channel, sent: list[bytes]) -> bool:
    """One stream: all of `sent` at once, as many answers, reset. True if all answers came."""
    stream = await channel.open()
    for raw in sent:
        stream.send(raw)
    for _ in sent:
        if await stream.recv() is None:
            return False
    stream.reset()
    return True


async def rate(address: str, sent: list[bytes], seconds: float, concurrent: int) -> tuple[int, int, float]:
    """Streams done, streams lost, and the seconds it took."""
    channel = await dial(address, connections=2)
    done = lost = 0
    end = time.perf_counter() + seconds

    async def worker() -> None:
        nonlocal done, lost
        while time.perf_counter() < end:
            if await exchange(channel, sent):
                done += 1
            else:
                lost += 1

    begin = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(concurrent)))
    took = time.perf_counter() - begin
    await channel.close()
    return done, lost, took


async def some(address: str, sent: list[bytes], streams: int, concurrent: int) -> None:
    """So many streams, some at a time."""
    channel = await dial(address, connections=2)
    left = iter(range(streams))

    async def worker() -> None:
        for _ in left:
            await exchange(channel, sent)

    await asyncio.gather(*(worker() for _ in range(concurrent)))
    await channel.close()


async def burst(address: str, sent: list[bytes], streams: int) -> int:
    """How many of `streams` streams that begin at once are lost."""
    channel = await dial(address, connections=2)
    answered = await asyncio.gather(*(exchange(channel, sent) for _ in range(streams)))
    await channel.close()
    return answered.count(False)


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, int, float]]:
    """The EPP's address, its process id, and the seconds that its start took."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "endpoints"
        file.write_text("127.0.0.1:9\n127.0.0.2:9\n127.0.0.3:9\n")
        command = [sys.executable, "-m", "reference_epp", "--listen=127.0.0.1:0", f"--endpoints-file={file}"]
        begin = time.perf_counter()
        if hasattr(os, "sched_setaffinity"):  # inherited by all threads of the process
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {max(cores)})
        process = subprocess.Popen(
            [*command, "--scrape-interval=10s", "--log-level=error"],
            stdout=subprocess.PIPE,
            text=True,
        )
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            started = time.perf_counter() - begin
            yield address, process.pid, started
        finally:
            process.terminate()
            process.wait(20)


def threads_off_the_core(pid: int) -> int:
    """How many threads of process `pid` may use another core than the last."""
    if not hasattr(os, "sched_getaffinity"):
        return 0
    only = {max(os.sched_getaffinity(0))}
    return sum(os.sched_getaffinity(int(task.name)) != only for task in Path(f"/proc/{pid}/task").iterdir())


def resident(pid: int) -> float:
    """Memory of process `pid` in MiB; not a number where /proc does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def processor_seconds(pid: int) -> float:
    """Processor time that process `pid` has used; not a number where /proc does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--concurrent", type=int, default=64)
    parser.add_argument("--burst", type=int, default=2000)
    parser.add_argument("--exchanges", type=int, default=100_000, help="while which the memory is looked at")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, serving() as (address, pid, started):
        print(f"start to first stream    {started * 1000:8.0f} ms")
        for name, body in (("headers only (1 + 1)", False), ("headers and body (2 + 2)", True)):
            before = processor_seconds(pid)
            done, lost, took = runner.run(rate(address, messages(body=body), options.seconds, options.concurrent))
            used = (processor_seconds(pid) - before) / max(done, 1)
            print(f"{name:24} {done / took:8.0f} streams/s, {used * 1e6:.0f} us cpu each, {lost} lost")
        lost = runner.run(burst(address, messages(body=True), options.burst))
        print(f"{options.burst} streams at once     {lost:8} lost")
        for done in range(0, options.exchanges + 1, max(options.exchanges // 5, 1)):
            print(f"memory after {done:7} more {resident(pid):6.1f} MiB")
            if done < options.exchanges:
                runner.run(some(address, messages(body=True), options.exchanges // 5, options.concurrent))
        if stray := threads_off_the_core(pid):
            print(f"not a measurement on one core: {stray} threads may use others")
    print(f"wanted                   {FIGURE:8} streams/s, none lost, memory level")


if __name__ == "__main__":
    main()
