"""What somebody who runs the EPP relies on: accounting, metrics, logs and memory, seen from outside the process."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ext_proc.channel import Channel, dial
from ext_proc.messages import ProcessingRequest, ProcessingResponse

pytestmark = pytest.mark.program

A, B = "127.0.0.1:18001", "127.0.0.1:18002"
PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
DEADLINE = 20


def stream(channel: Any) -> Any:
    method = channel.stream_stream(PROCESS, ProcessingRequest.SerializeToString, ProcessingResponse.FromString)
    return method(timeout=DEADLINE)


def figures(address: str) -> dict[str, float]:
    """The metrics page: the value of each series of this EPP."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=DEADLINE) as page:
        text = page.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(reference_epp_\S+) (\S+)$", text, re.MULTILINE)}


async def until(address: str, wanted: Callable[[dict[str, float]], bool]) -> dict[str, float]:
    """The metrics once they are as wanted."""
    async with asyncio.timeout(DEADLINE):
        while True:
            if wanted(found := await asyncio.to_thread(figures, address)):
                return found
            await asyncio.sleep(0.01)


def test_a_retry_and_an_abort_are_counted_where_they_were_served(run_epp: Callable[..., Any], data_plane: Any) -> None:
    at_b, open_at_b = f'reference_epp_served_total{{endpoint="{B}"}}', f'reference_epp_in_flight{{endpoint="{B}"}}'

    async def act(address: str, metrics: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            call = stream(channel)
            await call.write(data_plane.request_headers(end=True, subset=[A]))
            await call.read()
            assert f'reference_epp_in_flight{{endpoint="{A}"}}' in await asyncio.to_thread(figures, metrics)
            await call.write(data_plane.response_headers(served=B))  # the first endpoint failed, a retry went to B
            await call.read()
            found = await asyncio.to_thread(figures, metrics)
            assert (found[at_b], found[open_at_b]) == (1, 1)
            assert f'reference_epp_in_flight{{endpoint="{A}"}}' not in found
            call.cancel()  # the client goes away in the middle of the response
            found = await until(metrics, lambda now: open_at_b not in now)
            assert found[at_b] == 1
            assert found[f'reference_epp_picked_total{{endpoint="{A}"}}'] == 1

    with run_epp(f"{A}\n{B}\n", "--metrics-port", "0") as process:
        asyncio.run(act(process.address, process.metrics_address))


def test_a_refusal_says_when_to_try_again_and_is_logged_with_the_request_id(
    run_epp: Callable[..., Any], data_plane: Any
) -> None:
    async def act(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            call = stream(channel)
            await call.write(data_plane.request_headers(("x-request-id", b"id-7"), end=True))
            refusal = (await call.read()).immediate_response
            assert refusal.status.code == 503
            found = {one.header.key: one.header.raw_value for one in refusal.headers.set_headers}
            assert int(found["retry-after"]) > 0

    with run_epp("", "--metrics-port", "0") as process:
        asyncio.run(act(process.address))
        assert figures(process.metrics_address)['reference_epp_requests_total{answer="503"}'] == 1
        log = process.stop()
    assert [(line["request_id"], line["code"]) for line in log if line["message"] == "refused"] == [("id-7", 503)]


@pytest.mark.skipif(sys.platform != "linux", reason="memory of another process is read from /proc")
def test_bodies_that_are_too_large_take_no_memory(run_epp: Callable[..., Any], data_plane: Any) -> None:
    piece, page = b"x" * 60_000, os.sysconf("SC_PAGE_SIZE")

    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page

    async def send(channel: Channel) -> int:
        """A body of 60 MB, of which all is sent that the EPP takes, and the status that it gets."""
        stream = await channel.open()
        stream.send(data_plane.request_headers(("content-type", b"text/plain")).SerializeToString())
        for _ in range(1000):
            stream.send(data_plane.request_body(piece, end=False).SerializeToString())
            await stream.drain()
        answer = ProcessingResponse.FromString(await stream.recv() or b"")
        return int(answer.immediate_response.status.code)

    async def act(address: str, pid: int) -> None:
        channel = await dial(address)
        assert await send(channel) == 413
        before = resident(pid)
        assert set(await asyncio.gather(*(send(channel) for _ in range(10)))) == {413}
        assert resident(pid) - before < 50_000_000
        await channel.close()

    with run_epp(f"{A}\n", "--max-body", "1000000", "--log-level", "error") as process:
        asyncio.run(act(process.address, process.pid))
