"""Where the endpoints come from: a file with one `ip:port` a line, read again whenever its content changes."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reference_epp.ticks import until_turn

LOG = logging.getLogger(__name__)

POLL_SECONDS = 0.05
"""Time between two looks at the file."""

CONFIRM_SECONDS = 0.005
"""Time between a look that sees a change and the next one."""


class Endpoint(NamedTuple):
    """A model server's address in canonical form; `str()` gives `ip:port`, with brackets around IPv6.

    A tuple, because each pick looks each endpoint up several times, and tuples are hashed fastest.
    """

    ip: str
    port: int
    text: str

    def __str__(self) -> str:
        return self.text


def parse_endpoint(text: str) -> Endpoint:
    """Read `ip:port` or `[ipv6]:port`, surrounding white space allowed.

    Raises `ValueError`, whose message says what is wrong, for anything else: host names, missing ports, zones.
    """
    host, colon, port_text = text.strip().rpartition(":")
    if not colon:
        raise ValueError(f"{text.strip()!r} has no port; write ip:port")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise ValueError(f"{host!r} is not an IP address; write ip:port or [ipv6]:port") from None
    if (address.version == 6) != bracketed or "%" in host:
        raise ValueError(f"{host!r}: write IPv6 addresses in brackets, IPv4 addresses without, and no zone")
    if not (port_text.isascii() and port_text.isdigit() and 1 <= len(port_text) <= 5 and 0 < int(port_text) < 65536):
        raise ValueError(f"{port_text!r} is not a port from 1 to 65535")
    ip, port = str(address), int(port_text)
    return Endpoint(ip, port, f"[{ip}]:{port}" if bracketed else f"{ip}:{port}")


def parse_endpoints(content: str) -> tuple[tuple[Endpoint, ...], list[str]]:
    """The endpoints in a file's content, in its order and without repetitions, and what is wrong with other lines.

    `#` begins a comment; empty lines mean nothing; an invalid line is skipped.
    """
    endpoints: dict[Endpoint, None] = {}
    problems: list[str] = []
    for number, line in enumerate(content.splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        try:
            endpoints[parse_endpoint(text)] = None
        except ValueError as problem:
            problems.append(f"line {number}: {problem}")
    return tuple(endpoints), problems


class Pool:
    """The endpoints that are ready now, and whether their source has been read at all."""

    def __init__(self) -> None:
        self.endpoints: tuple[Endpoint, ...] = ()
        self.synced = False
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change."""
        self._listeners.append(listener)

    def update(self, endpoints: tuple[Endpoint, ...], *, synced: bool) -> None:
        """Replace what the pool holds."""
        self.endpoints, self.synced = endpoints, synced
        for listener in self._listeners:
            listener()


class EndpointsFile:
    """Keeps a `Pool` equal to a file.

    A changed content counts when two looks in a row see the same, so that a file that is being truncated and written
    again is not read half. The first look counts at once. Without the file the pool is empty and not synced.
    """

    def __init__(self, path: Path, pool: Pool) -> None:
        self._path = path
        self._pool = pool
        self._applied: bytes | None = None
        self._candidate: bytes | None = None

    def start(self) -> None:
        """Read the file now."""
        self._candidate = self._look()
        self._apply(self._candidate)

    def poll(self) -> None:
        """Look again."""
        seen = self._look()
        if seen != self._applied and seen == self._candidate:
            self._apply(seen)
        self._candidate = seen

    async def watch(self) -> None:
        """Look again without end."""
        while True:
            if self._candidate == self._applied:
                await until_turn(time.monotonic(), POLL_SECONDS)
            else:
                await asyncio.sleep(CONFIRM_SECONDS)
            self.poll()

    def _look(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except OSError:
            return None

    def _apply(self, content: bytes | None) -> None:
        self._applied = content
        if content is None:
            LOG.warning("endpoints file can't be read: pool is empty", extra={"path": str(self._path)})
            self._pool.update((), synced=False)
            return
        endpoints, problems = parse_endpoints(content.decode("utf-8", "replace"))
        for problem in problems:
            LOG.warning("endpoints file: skipped %s", problem, extra={"path": str(self._path)})
        LOG.info("pool changed", extra={"endpoints": [endpoint.text for endpoint in endpoints]})
        self._pool.update(endpoints, synced=True)
