"""Where a process listens, as Linux tells it: for a target that is not where it was looked for."""

from __future__ import annotations

import contextlib
import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""
ACCEPTING = 0x10000
"""The flag of a listening socket in /proc/net/unix."""


def listening(pid: int) -> tuple[str, ...]:
    """`ip:port` and `unix:/path` of each socket on which the process or a child of it listens; () if not known."""
    own = {inode for one in family(pid) for inode in _sockets(one)}
    net = PROC / str(pid) / "net"  # a container's network is not ours
    found = {address for version in ("tcp", "tcp6") for inode, address in _listeners(net / version) if inode in own}
    found |= {f"unix:{path}" for inode, path in _unix_listeners(net / "unix") if inode in own}
    return tuple(sorted(found))


def may_listen(pid: int, address: str) -> bool:
    """Whether the process, or a child of it, listens on the port of `host:port`; True where that can't be known."""
    port = address.rpartition(":")[2]
    known = sys.platform == "linux" and pid != 0 and port.isdigit()
    return not known or any(one.endswith(f":{port}") for one in listening(pid))


def family(pid: int) -> Iterator[int]:
    """The process id, and those of all that descend from it, as far as they are known."""
    yield pid
    for thread in threads(pid):
        with contextlib.suppress(OSError):
            for child in (thread / "children").read_text().split():
                yield from family(int(child))


def threads(pid: int) -> list[Path]:
    """The folder of each of its threads in /proc; [] if it has ended, or no such folder is known."""
    with contextlib.suppress(OSError):
        return list((PROC / str(pid) / "task").iterdir())
    return []


def _sockets(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for link in (PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, rest = str(link.readlink()).partition(":[")
                if kind == "socket":
                    yield rest.removesuffix("]")


def _listeners(table: Path) -> Iterator[tuple[str, str]]:
    """Inode and address of every listening socket."""
    with contextlib.suppress(OSError):
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN:
                host, _, port = fields[1].partition(":")
                yield fields[9], _address(host, int(port, 16))


def _unix_listeners(table: Path) -> Iterator[tuple[str, str]]:
    """Inode and path of every listening Unix socket that has one."""
    with contextlib.suppress(OSError):
        for line in table.read_text().splitlines()[1:]:
            _, _, _, flags, _, _, inode, *path = line.split(maxsplit=7)
            if path and int(flags, 16) & ACCEPTING:
                yield inode, path[0]


def _address(text: str, port: int) -> str:
    """An address as the kernel writes it: groups of four bytes, each in the machine's order (little-endian)."""
    raw = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    host = ipaddress.ip_address(raw)
    if host.version == 6 and host.ipv4_mapped:  # a socket for both versions, such as the JVM opens for 127.0.0.1
        host = host.ipv4_mapped
    return f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
