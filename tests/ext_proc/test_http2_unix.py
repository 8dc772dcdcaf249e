"""Unix sockets: grpcio as a witness on either side, TLS over one, and the error for each way in which it fails."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from grpc_health.v1 import health
from wire import asked, echo, grpcio_server

from ext_proc.channel import dial
from ext_proc.health import health_check
from ext_proc.http2 import errors
from ext_proc.http2.address import LONGEST_PATH, socket_path
from ext_proc.http2.dial import connect
from ext_proc.http2.tls import ClientTls, self_signed
from ext_proc.messages import HealthCheckResponse
from ext_proc.relay import open_tap
from ext_proc.server import serve

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"


@pytest.fixture(autouse=True, params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest):
    """Both event loops that the suite runs on."""
    return request.param


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, which every user may enter."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


async def echoes(address: str, tls: ClientTls | None = None) -> None:
    channel = await dial(address, tls=tls)
    try:
        stream = await channel.open()
        assert await asked(stream, b"hello", end=True) == b"hello"
        assert (await stream.wait_ended()).status == 0
    finally:
        await channel.close()


async def fails(address: str, **how: Any) -> errors.ConnectFailed:
    with pytest.raises(errors.ConnectFailed) as failed:
        await connect(address, **how)
    return failed.value


async def test_a_grpcio_server_on_a_socket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = health.aio.HealthServicer()
    await checks.set("", HealthCheckResponse.SERVING)
    async with grpcio_server(at=f"unix:{folder}/epp.sock", health=checks) as (address, _):
        await echoes(address)
        await echoes(address.replace("unix:", "unix://"))
        monkeypatch.chdir(folder)
        await echoes("unix:epp.sock")
        channel = await dial(address)
        assert (await health_check(channel)).status == HealthCheckResponse.SERVING
        await channel.close()


async def test_a_grpcio_client_reaches_our_server_through_a_tap_and_the_sockets_are_removed(folder: Path) -> None:
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
    assert os.listdir(folder) == []  # noqa: PTH208 - a local folder, in an async function


async def test_a_tap_that_drains_leaves_its_path_to_the_next_one(folder: Path) -> None:
    server = await serve("127.0.0.1", 0, echo)
    path = f"unix:{folder}/tap.sock"
    tap = await open_tap(path, 0, server.address)
    channel = await dial(path)
    stream = await channel.open()
    assert await asked(stream, b"hello") == b"hello"
    assert not await tap.drain(0.1)
    successor = await open_tap(path, 0, server.address)
    await tap.close()
    await echoes(path)
    await successor.close()
    await channel.close()
    await server.close()


async def test_tls_over_a_socket(folder: Path) -> None:
    identity = self_signed(folder, names=("localhost",))
    server = await serve(f"unix:{folder}/epp.sock", 0, echo, tls=identity)
    await echoes(server.address, ClientTls(ca=identity.certificate))
    await echoes(server.address, ClientTls(verify=False))
    wrong = await fails(server.address, tls=ClientTls(ca=identity.certificate, server_name="other.invalid"))
    plain = await fails(server.address, timeout=2)
    await server.close()
    assert type(wrong) is errors.CertificateRejected
    assert type(plain) is errors.PeerSpeaksTls


async def test_a_socket_that_a_killed_process_left_is_taken_over_and_one_in_use_is_not(folder: Path) -> None:
    path = folder / "epp.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))

    refused = await fails(f"unix:{path}")
    assert "no process listens on it" in refused.what
    first = await serve(f"unix:{path}", 0, echo)
    with pytest.raises(OSError, match="listens on it already"):
        await serve(f"unix:{path}", 0, echo)
    await echoes(first.address)
    await first.close()


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
async def test_a_path_without_a_socket_is_rejected(
    folder: Path, name: str, kind: type[errors.ConnectFailed], text: str
) -> None:
    (folder / "file").touch()
    (folder / "made").mkdir()
    found = await fails(f"unix:{folder}/{name}")
    assert type(found) is kind
    assert text in found.what
    assert found.hint


@pytest.mark.parametrize(
    ("locked", "what", "hint"), [("epp.sock", "no permission to connect", ""), ("", "", "folders above")]
)
async def test_no_permission(folder: Path, locked: str, what: str, hint: str) -> None:
    server = await serve(f"unix:{folder}/epp.sock", 0, echo)
    user = os.geteuid()
    os.chmod(f"{folder}/{locked}", 0)  # noqa: PTH101 - a local path, in an async function
    try:
        if user == 0:
            os.seteuid(65534)  # root ignores modes
        failed = await fails(server.address)
    finally:
        os.seteuid(user)
        os.chmod(folder, 0o755)  # noqa: PTH101 - likewise
    await server.close()
    assert what in failed.what
    assert hint in failed.hint


@pytest.mark.parametrize("address", ["unix:", "unix://host/path", "unix:a\0b"])
def test_addresses_that_can_not_be(address: str) -> None:
    with pytest.raises(errors.BadAddress, match="unix:/PATH"):
        socket_path(address)
