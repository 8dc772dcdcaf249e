"""`tap` at its end: streams that are open when it is told to stop, and what it says of them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from ext_proc.channel import Channel, dial
from ext_proc.http2.errors import ConnectFailed
from ext_proc.record import Author, Entry, Message, Recorder
from fake_epp import Script, open_epp, picks
from fake_proxy.client import Chunk, HttpRequest
from fake_proxy.config import BodyMode, ProxyConfig
from fake_proxy.exchange import ExchangeOutcome, run_exchange
from fake_proxy.pace import Pace
from fake_proxy.scripted import ScriptedUpstream, json_reply
from fake_proxy.stimulus import Stimulus

pytestmark = pytest.mark.program

A = "127.0.0.1:8001"
RIGHT, WRONG = picks(A), picks(A, metadata=False)
BOUND = 30.0
"""Seconds within which a program ends that ends at once, on a machine with other work."""


@dataclass
class Tapped:
    """A running `tap`, and a data plane's channel to it."""

    process: subprocess.Popen[str]
    address: str
    channel: Channel

    async def begin(self, seconds: float) -> asyncio.Task[ExchangeOutcome]:
        """An exchange that goes on for so long after the EPP has answered its headers, as it has when this returns."""
        answered = asyncio.Event()
        recorder = Recorder()

        def listener(entry: Entry) -> None:
            if isinstance(entry.event, Message) and entry.event.author is Author.EPP:
                answered.set()

        recorder.listen(listener)
        body = (Chunk(data=b'{"model": '), Chunk(data=b'"m"}', after=seconds))
        config = ProxyConfig().with_modes(BodyMode.FULL_DUPLEX_STREAMED)
        upstream = ScriptedUpstream(json_reply({"ok": True}))
        work = run_exchange(
            *(self.channel, HttpRequest(body=body), config, Stimulus(), upstream, recorder, "x"),
            pace=Pace(deadline=2 * BOUND),
        )
        going = asyncio.create_task(work)
        await answered.wait()
        return going

    async def line(self) -> str:
        """The next line that it says on stderr."""
        assert self.process.stderr is not None
        return await asyncio.to_thread(self.process.stderr.readline)

    async def end(self) -> tuple[int, str, str]:
        """Wait for its end: exit code, and the rest of stdout and stderr."""
        out, err = await asyncio.to_thread(self.process.communicate, timeout=2 * BOUND)
        return self.process.returncode, out, err


@pytest.fixture
def tapped(program) -> Callable[..., contextlib.AbstractAsyncContextManager[Tapped]]:
    @contextlib.asynccontextmanager
    async def begin(script: Script, *flags: str) -> AsyncIterator[Tapped]:
        epp = await open_epp(default=script)
        process = program("tap", "--listen", "127.0.0.1:0", "--upstream", epp.address, *flags, PYTHONUNBUFFERED="1")
        assert process.stderr is not None
        found = re.search(r"relaying (\S+)", await asyncio.to_thread(process.stderr.readline))
        assert found
        channel = await dial(found[1])
        try:
            yield Tapped(process, found[1], channel)
        finally:
            await channel.close()
            await epp.close()

    return begin


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(4 * BOUND):
            await main()

    asyncio.run(bounded())


@pytest.mark.skipif(sys.platform != "linux", reason="makes a pipe small")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_relaying_does_not_wait_for_a_reader_of_the_output(stream: str) -> None:
    """Nor does the end of the tap."""
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096)
    os.write(writes, bytes(4096))
    said = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, stream: writes}
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"

    def tap(upstream: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "conformance", "tap", "--listen", address, "--upstream", upstream]
        return subprocess.Popen(command, **said, text=True)

    async def main() -> None:
        epp = await open_epp(default=WRONG)
        process = tap(epp.address)
        try:
            channel = await _dialled(address)
            for number in range(20):
                pace, upstream = Pace(deadline=BOUND), ScriptedUpstream(json_reply({"ok": True}))
                config = ProxyConfig().with_modes(BodyMode.FULL_DUPLEX_STREAMED)
                request = HttpRequest(body=(Chunk(data=b'{"model": "m"}'),))
                outcome = await run_exchange(
                    channel, request, config, Stimulus(), upstream, Recorder(), f"x{number}", pace=pace
                )
                assert outcome.status == 200
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, BOUND) == 1
            await channel.close()
        finally:
            process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()
            await epp.close()

    run(main)
    os.close(reads)
    os.close(writes)


async def _dialled(address: str) -> Channel:
    """A channel to the tap, once it listens."""
    while True:
        try:
            return await dial(address)
        except ConnectFailed:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "script", "verdict"),
    [
        pytest.param(signal.SIGTERM, RIGHT, 0, id="SIGTERM"),
        pytest.param(signal.SIGINT, RIGHT, 0, id="SIGINT"),
        pytest.param(signal.SIGTERM, WRONG, 1, id="a broken rule", marks=pytest.mark.smoke),
    ],
)
def test_a_stream_that_is_open_at_the_signal_ends_as_it_would(
    tapped, number: signal.Signals, script: Script, verdict: int
) -> None:
    """The data plane learns to open its next ones elsewhere, and no new connection is taken meanwhile."""

    async def main() -> None:
        async with tapped(script, "--drain", "60") as tap:
            going = await tap.begin(2.0)
            transport = tap.channel.ready()
            assert transport is not None
            for _ in range(2):  # as from a terminal and a parent process: one wish
                tap.process.send_signal(number)
            said = "waiting up to 60 s for 1 open stream to end, and taking no new ones; interrupt again to end at once"
            assert said in await tap.line()
            while not transport.retired:  # noqa: ASYNC110 - the time-out of the test bounds it
                await asyncio.sleep(0.01)
            assert transport.connection.going_away
            assert not transport.closed
            host, port = tap.address.split(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=5).close()
            assert not going.done()
            assert (await going).status == 200
            code, out, err = await tap.end()
            assert code == verdict, out + err
            assert f"1 stream relayed, 1 judged, {verdict} with a broken rule" in out
            assert "Traceback" not in err
            assert "cutting" not in err

    run(main)


def test_a_second_signal_cuts_what_is_open(tapped) -> None:
    async def main() -> None:
        async with tapped(RIGHT, "--drain", "600") as tap:
            going = await tap.begin(600.0)
            tap.process.send_signal(signal.SIGTERM)
            assert "waiting up to 600 s for 1 open stream" in await tap.line()
            await asyncio.sleep(0.5)
            assert not going.done()
            tap.process.send_signal(signal.SIGTERM)
            code, out, err = await tap.end()
            assert code == 0, out + err
            assert err == "tap: cutting 1 open stream\n"
            assert "1 stream relayed, 1 judged, 0 with a broken rule" in out
            going.cancel()

    run(main)


@pytest.mark.parametrize("seconds", ["0", "0.5"])
def test_streams_are_cut_when_their_time_is_over(tapped, seconds: str) -> None:
    async def main() -> None:
        async with tapped(WRONG, "--drain", seconds) as tap:
            going = await tap.begin(600.0)
            tap.process.send_signal(signal.SIGTERM)
            code, out, err = await tap.end()
            assert code == 1, out + err
            assert ("waiting up to 0.5 s for 1 open stream" in err) is (seconds != "0")
            assert err.endswith("tap: cutting 1 open stream\n")
            assert "1 stream relayed, 1 judged, 1 with a broken rule" in out
            going.cancel()

    run(main)


def test_it_ends_at_once_where_nothing_is_open(tapped) -> None:
    """Neither a data plane that stays connected is waited for, nor one that says nothing."""

    async def main() -> None:
        async with tapped(RIGHT, "--drain", "600") as tap:
            await (await tap.begin(0.0))
            host, port = tap.address.split(":")
            with socket.create_connection((host, int(port))):
                began = time.monotonic()
                tap.process.send_signal(signal.SIGTERM)
                code, out, err = await tap.end()
            assert time.monotonic() - began < BOUND
            assert (code, err) == (0, "")
            assert "1 stream relayed, 1 judged, 0 with a broken rule" in out

    run(main)
