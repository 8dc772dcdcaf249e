"""Figures of the real Envoy as data plane, and of the fake beside it: start, and exchanges one after the other.

Run `python benchmarks/envoy.py`. Envoy is to be ready within 300 ms of the call, also of the first in a process; only
where nothing is remembered of the bootstrap yet (once a machine) it takes longer. EPP, model server and client share
one loop, so the figures hold all sides' work; the fake's share of it runs in the same loop too, Envoy's in
another process.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import statistics
import subprocess
import sys
import tempfile
import time

from ext_proc.channel import dial
from ext_proc.headers import to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeadersResponse,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
)
from ext_proc.record import Recorder
from ext_proc.server import ServedStream, serve
from fake_proxy.client import HttpRequest
from fake_proxy.config import ProxyConfig
from fake_proxy.exchange import run_exchange
from fake_proxy.stimulus import Stimulus
from fake_proxy.upstream import HttpUpstream
from real_envoy import EnvoySettings, find_envoy, send_request, start_envoy

STARTS = 10
EXCHANGES = 300
KEY = "x-gateway-destination-endpoint"
REQUEST = HttpRequest(body=b'{"model": "m", "prompt": "x"}')
REPLY = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 12\r\n\r\n{"ok": true}'


async def model_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            await reader.readuntil(b"0\r\n\r\n")  # full duplex: requests come in chunks
            writer.write(REPLY)
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


def echo(body: bytes, *, end: bool) -> BodyResponse:
    piece = StreamedBodyResponse(body=body, end_of_stream=end)
    return BodyResponse(response=CommonResponse(body_mutation=BodyMutation(streamed_response=piece)))


def picker(pick: str) -> object:
    async def handle(stream: ServedStream) -> None:
        while (raw := await stream.recv()) is not None:
            message = ProcessingRequest.FromString(raw)
            match message.WhichOneof("request"):
                case "request_headers":
                    answer = ProcessingResponse(
                        request_headers=HeadersResponse(), dynamic_metadata=to_struct({"envoy.lb": {KEY: pick}})
                    )
                case "request_body":
                    part = message.request_body
                    answer = ProcessingResponse(request_body=echo(part.body, end=part.end_of_stream))
                case "response_headers":
                    answer = ProcessingResponse(response_headers=HeadersResponse())
                case _:
                    part = message.response_body
                    answer = ProcessingResponse(response_body=echo(part.body, end=part.end_of_stream))
            stream.send(answer.SerializeToString())

    return handle


def report(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    rate = len(ordered) / sum(ordered)
    print(f"{name}: median {1000 * statistics.median(ordered):.2f} ms, "
          f"p99 {1000 * ordered[int(0.99 * len(ordered))]:.2f} ms, {rate:.0f} a second")  # fmt: skip


async def first_start() -> None:
    """Print how many seconds the first start of a process takes."""
    settings = EnvoySettings(epp="127.0.0.1:9", config=ProxyConfig(pool=("127.0.0.1:8000",)))
    begun = time.perf_counter()
    envoy = await start_envoy({"gw": settings})
    print(time.perf_counter() - begun)
    await envoy.stop()


def first_starts() -> None:
    """First starts in their own processes: where nothing is remembered, and then."""
    with tempfile.TemporaryDirectory() as cache:
        taken = []
        for _ in range(1 + STARTS):
            command = [sys.executable, __file__, "--first-start"]
            ran = subprocess.run(
                command, env={**os.environ, "XDG_CACHE_HOME": cache}, capture_output=True, text=True, check=True
            )
            taken.append(float(ran.stdout))
    cold, *warm = taken
    print(f"first start_envoy of a machine, nothing remembered: {1000 * cold:.0f} ms")
    print(f"first start_envoy of a process: median {1000 * statistics.median(warm):.0f} ms, worst "
          f"{1000 * max(warm):.0f} ms (to be 300 at most)")  # fmt: skip


async def main() -> None:
    binary = find_envoy()
    print(f"Envoy {'.'.join(map(str, binary.version))} from {binary.source}")
    models = await asyncio.start_server(model_server, "127.0.0.1", 0)
    pool = ("{}:{}".format(*models.sockets[0].getsockname()),)
    epp = await serve("127.0.0.1", 0, picker(pool[0]))  # type: ignore[arg-type]
    config = ProxyConfig(pool=pool)
    settings = EnvoySettings(epp=epp.address, config=config)

    first_starts()
    starts = []
    for _ in range(STARTS):
        begun = time.perf_counter()
        envoy = await start_envoy({"gw": settings}, binary=binary)
        starts.append(time.perf_counter() - begun)
        await envoy.stop()
    print(f"start_envoy to ready: median {1000 * statistics.median(starts):.0f} ms, worst {1000 * max(starts):.0f} ms")

    async with await start_envoy({"gw": settings}, binary=binary, component_log_level="ext_proc:warning") as envoy:
        taken = []
        for _ in range(EXCHANGES):
            begun = time.perf_counter()
            answer = await send_request(envoy.addresses["gw"], REQUEST)
            assert answer.status == 200
            taken.append(time.perf_counter() - begun)
        report("exchange through Envoy, a connection each", taken)

    channel = await dial(epp.address)
    recorder, taken = Recorder(), []
    for number in range(EXCHANGES):
        request = dataclasses.replace(REQUEST)
        begun = time.perf_counter()
        outcome = await run_exchange(channel, request, config, Stimulus(), HttpUpstream(), recorder, f"x{number}")
        assert outcome.status == 200
        taken.append(time.perf_counter() - begun)
    report("exchange through the fake, a connection each", taken)
    await channel.close()
    await epp.close()
    models.close()


if __name__ == "__main__":
    asyncio.run(first_start() if "--first-start" in sys.argv else main())
