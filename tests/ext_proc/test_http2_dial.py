"""Connecting: what works in plaintext and TLS, and the error for every way in which it does not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
import uvloop

from ext_proc.channel import dial
from ext_proc.http2 import dial as dialing
from ext_proc.http2 import errors, frames
from ext_proc.http2.address import split_address
from ext_proc.http2.dial import connect
from ext_proc.http2.tls import ClientTls, ServerTls, self_signed
from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.server import ServedStream, serve

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
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


async def echo(stream: ServedStream) -> None:
    while (raw := await stream.recv()) is not None:
        stream.send(raw)


async def fails(address: str, tls: ClientTls | None = None, timeout: float = 5.0) -> errors.ConnectFailed:
    with pytest.raises(errors.ConnectFailed) as failed:
        await connect(address, tls=tls, timeout=timeout)
    assert failed.value.where == address
    assert str(failed.value) == f"{address}: {failed.value.what}. {failed.value.hint}"
    return failed.value


async def echoes(address: str, tls: ClientTls | None = None, authority: str | None = None) -> None:
    channel = await dial(address, tls=tls, authority=authority)
    stream = await channel.open()
    stream.send(b"hello", end=True)
    assert await stream.recv() == b"hello"
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


def test_nobody_listens(run: Run) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound but not listening: no other process can take it meanwhile
        failed = run(fails(f"127.0.0.1:{taken.getsockname()[1]}"))
    assert type(failed) is errors.ConnectionRefused
    assert failed.what == "connection refused"


def test_a_name_that_does_not_exist(run: Run) -> None:
    assert type(run(fails("no-such-host.invalid:9002"))) is errors.BadAddress


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
def test_what_is_not_http2(run: Run, said: bytes, kind: type[errors.ConnectFailed], text: str) -> None:
    async def main() -> errors.ConnectFailed:
        async with peer(_says(said)) as address:
            return await fails(address)

    failed = run(main())
    assert type(failed) is kind
    assert text in failed.what


def test_a_server_that_never_speaks(run: Run) -> None:
    async def main() -> list[errors.ConnectFailed]:
        async with peer(_silent) as address:
            return [await fails(address, timeout=0.05), await fails(address, ClientTls(verify=False), timeout=0.05)]

    plain, encrypted = run(main())
    assert type(plain) is type(encrypted) is errors.ConnectTimedOut
    assert "HTTP/2 settings" in plain.what
    assert "TLS handshake" in encrypted.what


def test_plaintext_to_a_tls_port(run: Run, tmp_path: Path) -> None:
    async def main() -> errors.ConnectFailed:
        server = await serve("127.0.0.1", 0, echo, tls=self_signed(tmp_path))
        try:
            failed = await fails(server.address)
            await echoes(server.address, ClientTls(verify=False))  # the server lives, and has seen the rest
            return failed
        finally:
            await server.close()

    assert type(run(main())) is errors.PeerSpeaksTls


def test_plaintext_to_a_grpc_tls_port(run: Run, tmp_path: Path) -> None:
    async def main() -> errors.ConnectFailed:
        async with grpcio_server(self_signed(tmp_path)) as address:
            return await fails(address)

    assert type(run(main())) is errors.PeerSpeaksTls


@pytest.mark.parametrize("which", ["ours", "grpcio", "http/1"])
def test_tls_to_a_plaintext_port(run: Run, which: str) -> None:
    async def main() -> errors.ConnectFailed:
        if which == "ours":
            server = await serve("127.0.0.1", 0, echo)
            try:
                return await fails(server.address, ClientTls(verify=False))
            finally:
                await server.close()
        around = grpcio_server(None) if which == "grpcio" else peer(_says(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        async with around as address:
            return await fails(address, ClientTls(verify=False))

    assert type(run(main())) is errors.PeerSpeaksPlaintext


@contextlib.asynccontextmanager
async def grpcio_server(tls: ServerTls | None) -> AsyncIterator[str]:
    async def process(requests: AsyncIterator[ProcessingRequest], _context: object) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    methods = {"Process": grpc.stream_stream_rpc_method_handler(process)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("envoy.service.ext_proc.v3.ExternalProcessor", methods),)
    )
    if tls is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        client_ca = tls.client_ca.read_bytes() if tls.client_ca else None
        credentials = grpc.ssl_server_credentials(
            [(tls.key.read_bytes(), tls.certificate.read_bytes())], client_ca, client_ca is not None
        )
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def own_server(tls: ServerTls | None) -> AsyncIterator[str]:
    server = await serve("127.0.0.1", 0, echo, tls=tls)
    try:
        yield server.address
    finally:
        await server.close()


_SERVERS = pytest.mark.parametrize("around", [own_server, grpcio_server], ids=["ours", "grpcio"])


@_SERVERS
def test_tls_unverified_takes_a_certificate_without_any_name(run: Run, around, tmp_path: Path) -> None:
    nameless = self_signed(tmp_path)

    async def main() -> errors.ConnectFailed:
        async with around(nameless) as address:
            await echoes(address, ClientTls(verify=False), authority="epp.example")
            return await fails(address, ClientTls(ca=nameless.certificate))

    rejected = run(main())
    assert type(rejected) is errors.CertificateRejected


def test_a_certificate_that_has_expired_is_to_be_renewed(run: Run, tmp_path: Path) -> None:
    expired = self_signed(tmp_path, names=("127.0.0.1",), valid=-0.5)

    async def main() -> errors.ConnectFailed:
        async with own_server(expired) as address:
            return await fails(address, ClientTls(ca=expired.certificate))

    rejected = run(main())
    assert "expired" in rejected.what
    assert rejected.hint.startswith("Renew it")


@_SERVERS
def test_tls_verified_by_address_and_by_server_name(run: Run, around, tmp_path: Path) -> None:
    by_address = self_signed(tmp_path, names=("127.0.0.1", "epp.example"))
    ours = ClientTls(ca=by_address.certificate)

    async def main() -> list[errors.ConnectFailed]:
        async with around(by_address) as address:
            await echoes(address, ours)
            await echoes(address, dataclasses.replace(ours, server_name="epp.example"))
            return [
                await fails(address, dataclasses.replace(ours, server_name="other.example")),
                await fails(address, ClientTls()),
            ]

    wrong_name, unknown_root = run(main())
    assert type(wrong_name) is type(unknown_root) is errors.CertificateRejected
    assert "other.example" in wrong_name.what
    assert "self-signed" in unknown_root.what


@_SERVERS
def test_mutual_tls(run: Run, around, tmp_path: Path) -> None:
    client = self_signed(tmp_path, names=("client.example",), stem="client")
    server = dataclasses.replace(self_signed(tmp_path), client_ca=client.certificate)

    async def main() -> errors.ConnectFailed:
        async with around(server) as address:
            await echoes(address, ClientTls(verify=False, certificate=client.certificate, key=client.key))
            return await fails(address, ClientTls(verify=False))

    assert isinstance(run(main()), errors.TlsFailed)


def test_tls_files_that_can_not_be_used(run: Run, tmp_path: Path) -> None:
    missing = run(fails("127.0.0.1:1", ClientTls(ca=tmp_path / "none.pem")))
    (tmp_path / "bad.pem").write_text("no certificate")
    damaged = run(fails("127.0.0.1:1", ClientTls(certificate=tmp_path / "bad.pem")))
    assert type(missing) is type(damaged) is errors.UnusableFiles


def test_a_tls_server_that_speaks_http1(run: Run, tmp_path: Path) -> None:
    async def main() -> errors.ConnectFailed:
        async with peer(_says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), self_signed(tmp_path)) as address:
            return await fails(address, ClientTls(verify=False))

    assert type(run(main())) is errors.NotHttp2


def test_a_peer_that_floods_and_never_reads_is_cut(run: Run) -> None:
    """Answers to its pings pile up: the connection ends instead of growing without bound."""

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.settings(()))
        ping = (frames.frame(frames.PING, 0, 0, bytes(8)) * 500) + frames.headers(1, b"\x88", end=False)
        while True:
            writer.write(ping)
            await writer.drain()

    async def main() -> str | None:
        async with peer(flood) as address:
            transport = await connect(address)
            await asyncio.wait_for(transport.wait_closed(), 20)
            return transport.connection.failure

    assert run(main())


def test_the_certificate_is_for_grpcios_eyes_too(run: Run, tmp_path: Path) -> None:
    """grpcio's client trusts our server with our certificate: ALPN and names are right."""
    identity = self_signed(tmp_path, names=("localhost",))

    async def main() -> bytes:
        server = await serve("127.0.0.1", 0, echo, tls=identity)
        credentials = grpc.ssl_channel_credentials(identity.certificate.read_bytes())
        options = [("grpc.ssl_target_name_override", "localhost")]
        async with grpc.aio.secure_channel(server.address, credentials, options=options) as channel:
            call = channel.stream_stream("/envoy.service.ext_proc.v3.ExternalProcessor/Process")()
            await call.write(ProcessingResponse().SerializeToString())
            await call.write(b"second")
            await call.done_writing()
            answers = [answer async for answer in call]
        await server.close()
        return b"|".join(answers)

    assert run(main()) == b"|second"


@pytest.mark.parametrize("tls", [None, ClientTls(verify=False)], ids=["plaintext", "tls"])
def test_a_connection_that_breaks_as_it_is_made_keeps_no_descriptor(
    run: Run, monkeypatch: pytest.MonkeyPatch, tls: ClientTls | None
) -> None:
    """A socket that does not know that its descriptor is closed would close it again, by when it is another's."""
    sockets: list[socket.socket] = []

    async def attempt() -> None:
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

    connected = dialing._tcp
    run(attempt())
    assert [one.fileno() for one in sockets] == [-1]
