"""`proxy` with bodies that no process should hold: the same bytes arrive, in bounded memory, whichever side is slow."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Literal

import pytest

from fake_epp import Delay, FakeEpp, does, open_epp, picks, stays_silent
from fake_epp.acts import Act, Immediate, Pick
from fake_epp.script import Script

pytestmark = pytest.mark.program

SOCKETS = Path(__file__).parents[1] / "support" / "hostile" / "sockets.py"
MIB = 1024 * 1024
PIECE = bytes(range(256)) * 256
UP, DOWN = 50 * MIB, 20 * MIB

BOUND = 150 * MIB
"""Memory of the proxy, of which half is Python with all that it has loaded; it took 477 MiB when it held bodies."""


PATIENT = ("--message-timeout", "60")
"""The fake EPP is in this process, beside the client that sends."""


def digest(size: int) -> str:
    return hashlib.sha256(PIECE * (size // len(PIECE))).hexdigest()


class ModelServer:
    """Digests what it gets, once it may read, and answers with `DOWN` bytes."""

    def __init__(self) -> None:
        self.may_read = asyncio.Event()
        self.got = hashlib.sha256()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await self.may_read.wait()
        while length := int(await reader.readline(), 16):
            self.got.update(await reader.readexactly(length))
            await reader.readexactly(2)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % DOWN)
        with contextlib.suppress(ConnectionError):
            for _ in range(DOWN // len(PIECE)):
                writer.write(PIECE)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def proxied(
    program: Callable[..., subprocess.Popen[str]],
    server: ModelServer,
    script: Callable[[str], Script],
    *flags: str,
    pool: str = "--any-endpoint",
) -> AsyncIterator[tuple[int, subprocess.Popen[str], FakeEpp]]:
    """The port of a proxy before an EPP and `server`, its process, whose output is read, and the EPP."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    epp = await open_epp(default=script(f"{host}:{port}"))
    process = program("proxy", "--listen", "127.0.0.1:0", "--epp", epp.address, pool, *flags, PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    found = re.search(r"http://127.0.0.1:(\d+)", await asyncio.to_thread(process.stdout.readline))
    assert found
    reading = asyncio.create_task(asyncio.to_thread(process.stdout.read))
    try:
        yield int(found[1]), process, epp
    finally:
        process.terminate()
        await reading
        await epp.close()
        listening.close()


def peak(process: subprocess.Popen[str]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024


def send(client: socket.socket, stalled: Callable[[], None]) -> None:
    """Send the request; `stalled` is called when the proxy has taken nothing for a while."""
    client.settimeout(1)
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    left = memoryview(b"".join((b"%x\r\n" % len(PIECE), PIECE, b"\r\n")) * (UP // len(PIECE)) + b"0\r\n\r\n")
    while left:
        try:
            left = left[client.send(left) :]
        except TimeoutError:
            stalled()
            client.settimeout(60)


def receive(client: socket.socket) -> tuple[int, str]:
    """The status of the response, and the digest of its body."""
    client.settimeout(60)
    found = hashlib.sha256()
    with HTTPResponse(client) as response:
        response.begin()
        while data := response.read(MIB):
            found.update(data)
    return response.status, found.hexdigest()


@pytest.mark.parametrize(
    ("mode", "decides"),
    [
        ("full-duplex", "headers"),
        ("full-duplex", "end"),
        ("streamed", "headers"),
        pytest.param("none", "headers", marks=pytest.mark.smoke),
    ],
)
def test_large_bodies_arrive_whole_and_are_not_held(program, mode: str, decides: Literal["headers", "end"]) -> None:
    """The model server reads only once the client could send no more, or could send all: to an EPP that collects the
    body before it decides."""

    async def main() -> None:
        server = ModelServer()
        loop = asyncio.get_running_loop()
        script = partial(picks, decides=decides)
        async with proxied(program, server, script, "--body-mode", mode, *PATIENT) as (port, process, _):
            with socket.create_connection(("127.0.0.1", port)) as client:
                await asyncio.to_thread(send, client, lambda: loop.call_soon_threadsafe(server.may_read.set))
                server.may_read.set()
                status, answered = await asyncio.to_thread(receive, client)
            assert (status, server.got.hexdigest(), answered) == (200, digest(UP), digest(DOWN))
            assert peak(process) < BOUND

    asyncio.run(asyncio.wait_for(main(), 120))


MISBEHAVING = {
    "half-open": {504},
    "resets": {503},
    "closes": {503},
    "garbage": {503},
    "html": {200},
    "http-slow-head": {504},
    "http-1xx": {504},
    "http-headers": {503},
    "http-body": {200},
    "http-lines": {200},
    "http-cut": {200, 502},
    "http-bad-chunks": {200, 502},
    "http-gzip": {200},
}
"""What model servers of `hostile/sockets.py` do, and the status that the client of the proxy gets: 503 once the other
places that name the endpoint have been tried; 502 in place of a response that has not begun."""


@contextlib.contextmanager
def misbehaving(what: str) -> Iterator[str]:
    """The endpoint of such a model server."""
    with socket.create_server(("127.0.0.1", 0)) as found:  # it is handed on, so that its port stays ours
        port, number = found.getsockname()[1], found.fileno()
        command = [sys.executable, SOCKETS, f"fd:{number}", what]
        process = subprocess.Popen(command, pass_fds=[number], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def ask(port: int) -> int:
    """The status of a response, of which no more than a part is read."""
    client = HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(client):
        client.request(
            "POST", "/v1/completions", b'{"model": "m", "prompt": "p"}', {"content-type": "application/json"}
        )
        response = client.getresponse()
        with contextlib.suppress(HTTPException, OSError):
            response.read(65_536)
        return response.status


@pytest.mark.parametrize("hangs", [True, False])
def test_model_servers_that_misbehave_cost_one_request_each(program, hangs) -> None:
    """The proxy goes on after each, in bounded memory. Only those that hang are to run into the deadline."""
    timeout = "2" if hangs else "60"

    async def main() -> None:
        async with proxied(program, ModelServer(), picks, "--timeout", timeout, *PATIENT) as (port, process, epp):
            got = {}
            for what in (what for what, statuses in MISBEHAVING.items() if (statuses == {504}) is hangs):
                with misbehaving(what) as endpoint:
                    epp.default = picks(endpoint)
                    got[what] = await asyncio.to_thread(ask, port)
            assert {what: status for what, status in got.items() if status not in MISBEHAVING[what]} == {}
            assert process.poll() is None
            assert peak(process) < BOUND

    asyncio.run(asyncio.wait_for(main(), 150))


@pytest.mark.program
def test_an_endpoint_outside_the_pool_is_not_connected_to(program) -> None:
    """A client's credentials go to nobody that the EPP alone names."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            other.setblocking(False)
            elsewhere = picks(f"127.0.0.1:{other.getsockname()[1]}")
            pool = "--endpoints=127.0.0.1:9"
            async with proxied(program, ModelServer(), lambda _: elsewhere, *PATIENT, pool=pool) as (port, *_):
                assert await asyncio.to_thread(ask, port) == 503
            with pytest.raises(BlockingIOError):
                other.accept()

    asyncio.run(asyncio.wait_for(main(), 150))


def test_a_proxy_without_a_pool_is_refused(cli) -> None:
    ran = cli("proxy", "--epp", "127.0.0.1:9")
    assert (ran.code, "--any-endpoint" in ran.err) == (2, True)


def test_an_epp_that_does_not_run_is_not_accused(program) -> None:
    async def main() -> None:
        async with proxied(program, ModelServer(), picks) as (port, process, epp):
            await epp.close()
            assert await asyncio.to_thread(ask, port) == 500
            process.send_signal(signal.SIGINT)
            assert await asyncio.to_thread(process.wait, 60) == 0

    asyncio.run(asyncio.wait_for(main(), 150))


@contextlib.asynccontextmanager
async def judged(
    program: Callable[..., subprocess.Popen[str]], script: Callable[[str], Script], *flags: str
) -> AsyncIterator[tuple[int, subprocess.Popen[str]]]:
    """The port of a proxy before an EPP, with a model server that takes requests and is silent; and its process."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        epp = await open_epp(default=script(f"127.0.0.1:{server.getsockname()[1]}"))
        flags = ("--epp", epp.address, "--any-endpoint", *flags)
        process = program("proxy", "--listen", "127.0.0.1:0", *flags, PYTHONUNBUFFERED="1")
        found = re.search(r"http://127.0.0.1:(\d+)", await asyncio.to_thread(process.stdout.readline))
        assert found
        try:
            yield int(found[1]), process
        finally:
            await epp.close()


async def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code after Ctrl-C, and all that it printed since."""
    process.send_signal(signal.SIGINT)
    said, _ = await asyncio.to_thread(process.communicate, timeout=60)
    return process.returncode, said


def headers_only(*acts: Act) -> Callable[[str], Script]:
    """An EPP that answers the headers, and does this at the body."""
    return lambda endpoint: does(pick=Pick(endpoints=(endpoint,)), request_body=acts)


@pytest.mark.parametrize(
    ("mode", "script", "missing"),
    [
        ("buffered", headers_only(), "request_body"),
        ("streamed", headers_only(), "request_body"),
        ("none", lambda _: stays_silent(), "request_headers"),
        ("buffered", lambda _: stays_silent(), "request_headers"),
    ],
)
def test_an_epp_that_is_silent_until_the_message_timeout_is_accused(program, mode, script, missing) -> None:
    async def main() -> None:
        async with judged(program, script, "--body-mode", mode, "--message-timeout", "0.3") as (port, process):
            status = await asyncio.to_thread(ask, port)
            code, said = await end_of(process)
        assert (status, code) == (504, 1), said
        assert re.search(rf"ENV-16.*\n.*expected.*\n(.*\n)?.*no answer to {missing}", said), said

    asyncio.run(asyncio.wait_for(main(), 150))


def test_a_standstill_of_the_proxy_is_not_the_silence_of_the_epp(program) -> None:
    """The answer came while the proxy stood still, in which its timer ran out."""

    async def main() -> None:
        late = headers_only(Delay(seconds=1), Immediate(code=429))
        flags = ("--body-mode", "buffered", "--message-timeout", "2")
        async with judged(program, late, *flags) as (port, process):
            asking = asyncio.create_task(asyncio.to_thread(ask, port))
            while "request_body" not in await asyncio.to_thread(process.stdout.readline):
                pass
            process.send_signal(signal.SIGSTOP)
            await asyncio.wait([asking], timeout=4)
            process.send_signal(signal.SIGCONT)
            assert await asking == 429
            code, said = await end_of(process)
        assert code == 0, said

    asyncio.run(asyncio.wait_for(main(), 150))


def test_a_defect_of_the_proxy_is_no_success(cli, monkeypatch) -> None:
    async def failing(*_: object) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(0)

    monkeypatch.setattr("conformance.cli.proxy._serve", failing)
    assert cli("proxy", "--epp", "127.0.0.1:9", "--any-endpoint").code == 3
