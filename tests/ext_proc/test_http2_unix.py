"""Unix sockets: grpcio as a witness on either side, TLS over one, and the error for each way in which it fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ext_proc.channel import dial
from ext_proc.health import health_check
from ext_proc.http2 import errors
from ext_proc.http2.address import LONGEST_PATH, socket_path
from ext_proc.http2.dial import connect
from ext_proc.http2.tls import ClientTls, self_signed
from ext_proc.messages import HealthCheckResponse
from ext_proc.relay import open_tap
from ext_proc.server import ServedStream, serve

Run = Callable[[Coroutine[Any, Any, Any]], Any]
SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Both event loops that the suite runs on."""
    return request.param


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, which every user may enter."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


@contextlib.asynccontextmanager
async def grpcio_server(path: Path) -> AsyncIterator[str]:
    """A real gRPC server that echoes on `Process` and serves health."""
    server = grpc.aio.server()

    async def process(requests, _context):
        async for request in requests:
            yield request

    methods = {"Process": grpc.stream_stream_rpc_method_handler(process)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
    checks = health.aio.HealthServicer()
    await checks.set("", health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    try:
        yield f"unix:{path}"
    finally:
        await server.stop(0)


async def echo(stream: ServedStream) -> None:
    while (raw := await stream.recv()) is not None:
        stream.send(raw)


async def echoes(address: str, tls: ClientTls | None = None) -> None:
    channel = await dial(address, tls=tls)
    try:
        stream = await channel.open()
        stream.send(b"hello", end=True)
        assert await stream.recv() == b"hello"
        assert (await stream.wait_ended()).status == 0
    finally:
        await channel.close()


async def fails(address: str, **how: Any) -> errors.ConnectFailed:
    with pytest.raises(errors.ConnectFailed) as failed:
        await connect(address, **how)
    return failed.value


def test_a_grpcio_server_on_a_socket(run: Run, folder: Path) -> None:
    async def main() -> None:
        async with grpcio_server(folder / "epp.sock") as address:
            await echoes(address)
            await echoes(address.replace("unix:", "unix://"))
            channel = await dial(address)
            found = await health_check(channel)
            await channel.close()
            assert found.status == HealthCheckResponse.SERVING

    run(main())


def test_a_relative_path(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)

    async def main() -> None:
        async with grpcio_server(folder / "epp.sock"):
            await echoes("unix:epp.sock")

    run(main())


def test_a_grpcio_client_reaches_our_server_through_a_tap_and_the_sockets_are_removed(run: Run, folder: Path) -> None:
    async def main() -> None:
        server = await serve(f"unix:{folder}/epp.sock", 0, echo)
        tap = await open_tap(f"unix:{folder}/tap.sock", 0, server.address)
        async with grpc.aio.insecure_channel(tap.address) as channel:
            call = channel.stream_stream(f"/{SERVICE}/Process")()
            await call.write(b"hello")
            assert await call.read() == b"hello"
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
        await tap.close()
        await server.close()

    run(main())
    assert list(folder.iterdir()) == []


def test_a_tap_that_drains_leaves_its_path_to_the_next_one(run: Run, folder: Path) -> None:
    async def main() -> None:
        server = await serve("127.0.0.1", 0, echo)
        path = f"unix:{folder}/tap.sock"
        tap = await open_tap(path, 0, server.address)
        channel = await dial(path)
        stream = await channel.open()
        stream.send(b"hello")
        assert await stream.recv() == b"hello"
        assert not await tap.drain(0.1)
        successor = await open_tap(path, 0, server.address)
        await tap.close()
        await echoes(path)
        await successor.close()
        await channel.close()
        await server.close()

    run(main())


def test_tls_over_a_socket(run: Run, folder: Path) -> None:
    identity = self_signed(folder, names=("localhost",))

    async def main() -> None:
        server = await serve(f"unix:{folder}/epp.sock", 0, echo, tls=identity)
        await echoes(server.address, ClientTls(ca=identity.certificate))
        await echoes(server.address, ClientTls(verify=False))
        wrong = await fails(server.address, tls=ClientTls(ca=identity.certificate, server_name="other.invalid"))
        plain = await fails(server.address, timeout=2)
        await server.close()
        assert type(wrong) is errors.CertificateRejected
        assert type(plain) is errors.PeerSpeaksTls

    run(main())


def test_a_socket_that_a_killed_process_left_is_taken_over_and_one_in_use_is_not(run: Run, folder: Path) -> None:
    path = folder / "epp.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    async def main() -> None:
        refused = await fails(f"unix:{path}")
        assert "no process listens on it" in refused.what
        first = await serve(f"unix:{path}", 0, echo)
        with pytest.raises(OSError, match="listens on it already"):
            await serve(f"unix:{path}", 0, echo)
        await echoes(first.address)
        await first.close()

    run(main())


@pytest.mark.parametrize(
    ("name", "kind", "text"),
    [
        ("epp.sock", errors.ConnectionRefused, "there is no such socket"),
        ("no/epp.sock", errors.ConnectionRefused, "nor the folder"),
        ("file", errors.BadAddress, "there is a file, not a socket"),
        ("made", errors.BadAddress, "there is a folder, not a socket"),
        ("x" * LONGEST_PATH, errors.BadAddress, f"at most {LONGEST_PATH}"),
    ],
)
def test_what_is_no_socket(run: Run, folder: Path, name: str, kind: type[errors.ConnectFailed], text: str) -> None:
    (folder / "file").touch()
    (folder / "made").mkdir()
    found = run(fails(f"unix:{folder}/{name}"))
    assert type(found) is kind
    assert text in found.what
    assert found.hint


def test_no_permission(folder: Path) -> None:
    async def main() -> tuple[errors.ConnectFailed, errors.ConnectFailed]:
        server = await serve(f"unix:{folder}/epp.sock", 0, echo)
        os.chmod(f"{folder}/epp.sock", 0)  # noqa: PTH101 - a local socket, in an async function
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # whom modes bind
        try:
            closed = await fails(server.address)
        finally:
            os.seteuid(user)
        os.chmod(folder, 0)  # noqa: PTH101 - likewise
        if user == 0:
            os.seteuid(65534)
        try:
            hidden = await fails(server.address)
        finally:
            os.seteuid(user)
            os.chmod(folder, 0o755)  # noqa: PTH101 - likewise
        await server.close()
        return closed, hidden

    closed, hidden = asyncio.run(main())
    assert closed.what == "no permission to connect"
    assert "folders above" in hidden.hint


@pytest.mark.parametrize("address", ["unix:", "unix://host/path", "unix:a\0b"])
def test_addresses_that_can_not_be(address: str) -> None:
    with pytest.raises(errors.BadAddress, match="unix:/PATH"):
        socket_path(address)
