"""Connecting: what works in plaintext and TLS, and the error for every way in which it does not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop
from wire import asked, echo, grpcio_server

from ext_proc.channel import dial
from ext_proc.http2 import dial as dialing
from ext_proc.http2 import errors, frames
from ext_proc.http2.address import split_address
from ext_proc.http2.dial import connect
from ext_proc.http2.tls import ClientTls, ServerTls, self_signed
from ext_proc.server import serve

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@pytest.fixture(autouse=True, params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest):
    """Both event loops that the suite runs on word their errors differently."""
    return request.param


@contextlib.asynccontextmanager
async def peer(talk: Talk, tls: ServerTls | None = None) -> AsyncIterator[str]:
    """A TCP (or TLS) server that says what `talk` says."""

    writers: list[asyncio.StreamWriter] = []

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(OSError):
            await talk(reader, writer)
        writer.close()

    context = None if tls is None else tls.context()
    server = await asyncio.start_server(guarded, "127.0.0.1", 0, ssl=context)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


async def fails(address: str, tls: ClientTls | None = None, timeout: float = 5.0) -> errors.ConnectFailed:
    with pytest.raises(errors.ConnectFailed) as failed:
        await connect(address, tls=tls, timeout=timeout)
    assert failed.value.where == address
    assert str(failed.value) == f"{address}: {failed.value.what}. {failed.value.hint}"
    return failed.value


async def echoes(address: str, tls: ClientTls | None = None, authority: str | None = None) -> None:
    channel = await dial(address, tls=tls, authority=authority)
    stream = await channel.open()
    assert await asked(stream, b"hello", end=True) == b"hello"
    assert (await stream.wait_ended()).status == 0
    await channel.close()


@pytest.mark.parametrize(
    ("address", "parts"),
    [("127.0.0.1:9002", ("127.0.0.1", 9002)), ("epp.ns.svc:80", ("epp.ns.svc", 80)), ("[::1]:9002", ("::1", 9002))],
)
def test_addresses(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":80", "host:0", "host:99999", "host:http", "::1:9002", "h:²"]
)
def test_bad_addresses(address: str) -> None:
    with pytest.raises(errors.BadAddress):
        split_address(address)


async def test_a_port_without_a_listener_refuses() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: no other process can take it meanwhile
        failed = await fails(f"127.0.0.1:{taken.getsockname()[1]}")
    assert type(failed) is errors.ConnectionRefused
    assert failed.what == "connection refused"


async def test_an_unusable_name_or_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    assert type(await fails("no-such-host.invalid:9002")) is errors.BadAddress
    for tls in (ClientTls(ca=tmp_path / "none.pem"), ClientTls(certificate=tmp_path / "bad.pem")):
        assert type(await fails("127.0.0.1:1", tls)) is errors.UnusableFiles


def _says(data: bytes) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(24)
        writer.write(data)
        await writer.drain()

    return talk


async def _silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)


@pytest.mark.parametrize(
    ("said", "kind", "text"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\nno", errors.NotHttp2, "HTTP/1 server answers (HTTP/1.1 400 Bad Request)"),
        (b"220 mail.example ESMTP ready to serve\r\n", errors.NotHttp2, "220 mail.example"),
        (b"", errors.NotHttp2, "without a word"),
        (bytes(200), errors.NotHttp2, "not an HTTP/2 server"),
        (b"\x15\x03\x01\x00\x02\x02\x46", errors.PeerSpeaksTls, "expects TLS"),
        ((2**24 - 1).to_bytes(3) + bytes(6) + b"x" * 100, errors.NotHttp2, "not an HTTP/2 server"),
    ],
    ids=["http/1", "smtp", "closes", "zeros", "tls alert", "huge frame"],
)
async def test_a_peer_that_is_not_http2_is_named(said: bytes, kind: type[errors.ConnectFailed], text: str) -> None:
    async with peer(_says(said)) as address:
        failed = await fails(address)
    assert type(failed) is kind
    assert text in failed.what


@pytest.mark.parametrize(("tls", "step"), [(None, "HTTP/2 settings"), (ClientTls(verify=False), "TLS handshake")])
async def test_a_silent_server_times_out(tls: ClientTls | None, step: str) -> None:
    async with peer(_silent) as address:
        failed = await fails(address, tls, timeout=0.5)
    assert type(failed) is errors.ConnectTimedOut
    assert step in failed.what


@contextlib.asynccontextmanager
async def theirs(tls: ServerTls | None) -> AsyncIterator[str]:
    async with grpcio_server(tls) as (address, _):
        yield address


@contextlib.asynccontextmanager
async def own_server(tls: ServerTls | None) -> AsyncIterator[str]:
    server = await serve("127.0.0.1", 0, echo, tls=tls)
    try:
        yield server.address
    finally:
        await server.close()


_SERVERS = pytest.mark.parametrize("around", [own_server, theirs], ids=["ours", "grpcio"])


@_SERVERS
async def test_plaintext_to_a_tls_port(around, tmp_path: Path) -> None:
    async with around(self_signed(tmp_path)) as address:
        assert type(await fails(address)) is errors.PeerSpeaksTls
        if around is own_server:
            await echoes(address, ClientTls(verify=False))  # the server goes on


def http1(tls: ServerTls | None) -> contextlib.AbstractAsyncContextManager[str]:
    return peer(_says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), tls)


@pytest.mark.parametrize("around", [own_server, theirs, http1], ids=["ours", "grpcio", "http/1"])
async def test_tls_to_a_plaintext_port(around) -> None:
    async with around(None) as address:
        assert type(await fails(address, ClientTls(verify=False))) is errors.PeerSpeaksPlaintext


async def test_tls_to_an_http1_server(tmp_path: Path) -> None:
    async with http1(self_signed(tmp_path)) as address:
        assert type(await fails(address, ClientTls(verify=False))) is errors.NotHttp2


@_SERVERS
async def test_tls_unverified_takes_a_certificate_without_any_name(around, tmp_path: Path) -> None:
    nameless = self_signed(tmp_path)
    async with around(nameless) as address:
        await echoes(address, ClientTls(verify=False), authority="epp.example")
        assert type(await fails(address, ClientTls(ca=nameless.certificate))) is errors.CertificateRejected


async def test_an_expired_certificate_is_to_be_renewed(tmp_path: Path) -> None:
    expired = self_signed(tmp_path, names=("127.0.0.1",), valid=-0.5)
    async with own_server(expired) as address:
        rejected = await fails(address, ClientTls(ca=expired.certificate))
    assert "expired" in rejected.what
    assert rejected.hint.startswith("Renew it")


@_SERVERS
async def test_tls_verified_by_address_and_by_server_name(around, tmp_path: Path) -> None:
    by_address = self_signed(tmp_path, names=("127.0.0.1", "epp.example"))
    ours = ClientTls(ca=by_address.certificate)
    other = dataclasses.replace(ours, server_name="other.example")
    async with around(by_address) as address:
        await echoes(address, ours)
        await echoes(address, dataclasses.replace(ours, server_name="epp.example"))
        for tls, what in ((other, "other.example"), (ClientTls(), "self-signed")):
            rejected = await fails(address, tls)
            assert type(rejected) is errors.CertificateRejected
            assert what in rejected.what


@_SERVERS
async def test_mutual_tls(around, tmp_path: Path) -> None:
    client = self_signed(tmp_path, names=("client.example",), stem="client")
    server = dataclasses.replace(self_signed(tmp_path), client_ca=client.certificate)
    async with around(server) as address:
        await echoes(address, ClientTls(verify=False, certificate=client.certificate, key=client.key))
        assert isinstance(await fails(address, ClientTls(verify=False)), errors.TlsFailed)


async def test_a_peer_that_floods_and_never_reads_is_cut() -> None:
    """Answers to its pings pile up: the connection ends instead of growing without bound."""

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.settings(()))
        ping = (frames.frame(frames.PING, 0, 0, bytes(8)) * 500) + frames.headers(1, b"\x88", end=False)
        while True:
            writer.write(ping)
            await writer.drain()

    async with peer(flood) as address:
        transport = await connect(address)
        await asyncio.wait_for(transport.wait_closed(), 20)
        assert transport.connection.failure


async def test_grpcio_trusts_our_server_with_our_certificate(tmp_path: Path) -> None:
    identity = self_signed(tmp_path, names=("localhost",))
    credentials = grpc.ssl_channel_credentials(identity.certificate.read_bytes())
    options = [("grpc.ssl_target_name_override", "localhost")]
    async with own_server(identity) as address, grpc.aio.secure_channel(address, credentials, options) as channel:
        call = channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")()
        for message in (b"", b"second"):
            await call.write(message)
        await call.done_writing()
        assert [answer async for answer in call] == [b"", b"second"]


@pytest.mark.parametrize("tls", [None, ClientTls(verify=False)], ids=["plaintext", "tls"])
async def test_a_connection_that_breaks_as_it_is_made_keeps_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, tls: ClientTls | None
) -> None:
    """A socket that does not know that its descriptor is closed would close it again, by when it is another's."""
    sockets: list[socket.socket] = []
    connected = dialing._tcp
    with socket.create_server(("127.0.0.1", 0)) as listener:

        async def reset_by_peer(*arguments: Any) -> socket.socket:
            one = await connected(*arguments)
            accepted, _ = listener.accept()
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            sockets.append(one)
            return one

        monkeypatch.setattr("ext_proc.http2.dial._tcp", reset_by_peer)
        with pytest.raises(errors.ConnectFailed):
            await connect(f"127.0.0.1:{listener.getsockname()[1]}", timeout=5, tls=tls)
    assert [one.fileno() for one in sockets] == [-1]
