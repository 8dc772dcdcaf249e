"""Connect to an HTTP/2 server, and say exactly why when it does not work."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any

from ext_proc.http2.address import authority_of, socket_path, split_address, unix_refusal
from ext_proc.http2.connection import Http2Connection
from ext_proc.http2.errors import (
    BadAddress,
    CertificateRejected,
    ConnectFailed,
    ConnectionRefused,
    ConnectTimedOut,
    NotHttp2,
    PeerSpeaksPlaintext,
    PeerSpeaksTls,
    TlsFailed,
    UnusableFiles,
)
from ext_proc.http2.tls import ClientTls
from ext_proc.http2.transport import Transport

_FAREWELL = 0.1
"""Seconds that closing waits for the other side's TLS farewell; many servers never send one."""

_PROBE = 1.0
"""Seconds given to find out whether a silent peer wanted TLS."""

_REJECTED = {9: "Look whether the clocks of both machines are right", 10: "Renew it"}
"""What to do about a certificate, by OpenSSL's codes: not yet valid, and expired."""

_PLAINTEXT_REASONS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "INVALID_RECORD",
)


async def connect(
    address: str,
    *,
    tls: ClientTls | None = None,
    timeout: float = 5.0,
    number: int = 1,
    connection: Callable[[], Http2Connection] = Http2Connection,
) -> Transport:
    """Connect to `host:port` or `unix:/path` and wait for the server's SETTINGS, within `timeout` seconds.

    `number` names the connection in the record; `connection` makes its state, for a preamble that is not Envoy's.
    Raises a `ConnectFailed`.
    """
    path = socket_path(address)
    host, port = split_address(address) if path is None else (authority_of(address), 0)
    context = _context(address, tls)
    stage = "the connection" if path else "the TCP connection"
    raw: socket.socket | None = None
    transport = Transport(connection(), number=number)
    ready = False
    try:
        async with asyncio.timeout(timeout):
            raw = await (_tcp(address, host, port) if path is None else _unix(address, path))
            if context is None:
                stage = "the server's HTTP/2 settings"
                await _attach(transport, raw)
            else:
                stage = "the TLS handshake"
                name = tls.server_name if tls is not None and tls.server_name else host
                await _attach(transport, raw, context, name)
                stage = "the server's HTTP/2 settings"
            raw = None
            ready = await transport.wait_ready()
    except TimeoutError:
        if stage == "the server's HTTP/2 settings" and context is None and await _speaks_tls(host, port, path):
            raise _wants_tls(address) from None
        raise ConnectTimedOut(
            address,
            f"{stage} did not come within {timeout:g} s",
            "Check that the address is the ext_proc gRPC port, and that the server is not stuck",
            timeout,
        ) from None
    except ssl.SSLCertVerificationError as problem:
        raise CertificateRejected(
            address,
            f"its certificate was rejected: {problem.verify_message}",
            _REJECTED.get(problem.verify_code, "Name its CA, set the server name it was issued for")
            + ", or turn verification off",
        ) from problem
    except (ssl.SSLError, ConnectionError) as problem:
        raise _handshake_failure(address, problem) from problem
    finally:
        if raw is not None:
            raw.close()
        if not ready:
            transport.abort()
    if not ready:
        raise await _not_ready(address, host, port, path, transport, encrypted=context is not None)
    return transport


def _context(address: str, tls: ClientTls | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    try:
        return tls.context()
    except (OSError, ssl.SSLError) as problem:
        raise UnusableFiles(
            address, f"the TLS files can't be used: {problem}", "Check the CA, certificate and key files"
        ) from problem


async def _tcp(address: str, host: str, port: int) -> socket.socket:
    """A connected socket; every resolved address is tried."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise BadAddress(
            address, f"the name {host} does not resolve", "Check the spelling, or use an IP address"
        ) from problem
    failure: OSError | None = None
    for family, kind, protocol, _, target in found:
        one = socket.socket(family, kind, protocol)
        try:
            one.setblocking(False)
            await loop.sock_connect(one, target)
        except OSError as problem:
            one.close()
            failure = problem
        except BaseException:
            one.close()
            raise
        else:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return one
    reason = "connection refused" if isinstance(failure, ConnectionRefusedError) else str(failure)
    raise ConnectionRefused(
        address, reason, "Check that the server is running and listens on this address and port"
    ) from failure


async def _unix(address: str, path: str) -> socket.socket:
    one = socket.socket(socket.AF_UNIX)
    try:
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, path)
    except OSError as problem:
        one.close()
        raise unix_refusal(address, path, problem) from problem
    except BaseException:
        one.close()
        raise
    return one


async def _attach(
    transport: Transport, raw: socket.socket, context: ssl.SSLContext | None = None, name: str | None = None
) -> None:
    loop = asyncio.get_running_loop()
    create = loop.create_unix_connection if raw.family == socket.AF_UNIX else loop.create_connection
    tls: dict[str, Any] = {}
    if context is not None:
        tls = {"ssl": context, "server_hostname": name, "ssl_shutdown_timeout": _FAREWELL}
    try:
        await create(lambda: transport, sock=raw, **tls)
    finally:
        if not isinstance(loop, asyncio.BaseEventLoop):
            # uvloop owns the descriptor from here on. Where the connection breaks as it is made, it closes it without
            # telling the socket, which would close it again, when the number may be another's.
            raw.detach()


def _handshake_failure(address: str, problem: Exception) -> ConnectFailed:
    reason = getattr(problem, "reason", None) or type(problem).__name__
    if isinstance(problem, ssl.SSLError) and any(known in str(reason) for known in _PLAINTEXT_REASONS):
        return PeerSpeaksPlaintext(
            address, "the server does not speak TLS", "Connect without TLS, or use the server's TLS port"
        )
    return TlsFailed(
        address,
        f"the TLS handshake failed: {reason}",
        "Check that the port speaks TLS with HTTP/2, and whether it asks for a client certificate",
    )


def _wants_tls(address: str) -> PeerSpeaksTls:
    return PeerSpeaksTls(
        address,
        "the server expects TLS and was spoken to in plaintext",
        "Turn TLS on (without verification if self-signed)",
    )


async def _not_ready(
    address: str, host: str, port: int, path: str | None, transport: Transport, *, encrypted: bool
) -> ConnectFailed:
    """The connection ended before SETTINGS: find out what the peer is."""
    said = transport.first_bytes
    if said.startswith(b"HTTP/"):
        line = said.split(b"\r\n")[0].decode("ascii", "replace")
        return NotHttp2(
            address, f"an HTTP/1 server answers ({line})", "Use the ext_proc gRPC port, not the HTTP or metrics port"
        )
    if encrypted and not said:
        # TLS 1.3 servers judge the client's certificate only after the client has seen the handshake succeed.
        return TlsFailed(
            address,
            "the server ended the connection right after the TLS handshake",
            "Check whether it asks for a client certificate, and whether the port speaks HTTP/2",
        )
    if said[:2] == b"\x15\x03" or (not said and await _speaks_tls(host, port, path)):
        return _wants_tls(address)
    what = f"it answered {said[:24]!r}" if said else "it closed the connection without a word"
    return NotHttp2(address, f"not an HTTP/2 server: {what}", "Check that the address is the ext_proc gRPC port")


async def _speaks_tls(host: str, port: int, path: str | None) -> bool:
    """True if a TLS handshake gets anywhere."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with contextlib.suppress(OSError, TimeoutError, ssl.SSLError):
        async with asyncio.timeout(_PROBE):
            how: dict[str, Any] = {"ssl": context, "server_hostname": host, "ssl_shutdown_timeout": _FAREWELL}
            _, writer = await (
                asyncio.open_connection(host, port, **how)
                if path is None
                else asyncio.open_unix_connection(path, **how)
            )
            writer.transport.abort()
            return True
    return False
