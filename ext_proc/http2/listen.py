"""Listen for connections, on `host:port` or on a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ssl
from collections.abc import Callable
from pathlib import Path

from ext_proc.http2.address import UNIX, make_way, socket_path
from ext_proc.http2.errors import BadAddress
from ext_proc.http2.transport import Transport

_FAREWELL = 0.1
"""Seconds for the TLS farewell, which many clients never send."""


class Listening:
    """A listening socket: `host` and `port` are where; on a Unix socket `host` is `unix:/path` and `port` 0."""

    def __init__(self, server: asyncio.Server, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._server = server
        self._closed = False

    def close(self) -> None:
        """Take no more connections. Idempotent; the file of a Unix socket is removed."""
        if self._closed:
            return  # the file may be another's by now
        self._closed = True
        self._server.close()
        if self.host.startswith(UNIX):
            with contextlib.suppress(OSError):
                Path(self.host.removeprefix(UNIX)).unlink()

    async def wait_closed(self) -> None:
        """Wait until it is closed."""
        await self._server.wait_closed()


async def listen(connection: Callable[[], Transport], host: str, port: int, tls: ssl.SSLContext | None) -> Listening:
    """Bind and listen; port 0 is any free one. Raises `OSError` if the address can't be bound."""
    loop = asyncio.get_running_loop()
    patience = None if tls is None else _FAREWELL
    try:
        path = socket_path(host)
    except BadAddress as problem:
        raise OSError(errno.EINVAL, problem.what) from problem
    if path is not None:
        make_way(path)
        found = await loop.create_unix_server(connection, path, ssl=tls, backlog=1024, ssl_shutdown_timeout=patience)
        return Listening(found, f"{UNIX}{path}", 0)
    found = await loop.create_server(connection, host, port, ssl=tls, backlog=1024, ssl_shutdown_timeout=patience)
    return Listening(found, *found.sockets[0].getsockname()[:2])
