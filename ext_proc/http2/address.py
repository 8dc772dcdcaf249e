"""Addresses: `host:port`, an IPv6 host in brackets, or `unix:/path` of a Unix socket, as gRPC names them.

`unix:path` is relative to the current folder, and `unix:///path` is the same as `unix:/path`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys
from pathlib import Path

from ext_proc.http2.errors import BadAddress, ConnectFailed, ConnectionRefused

UNIX = "unix:"
LONGEST_PATH = 107 if sys.platform == "linux" else 103
"""Bytes of a Unix socket's path: `sun_path` with the zero at its end takes one more."""


def split_address(address: str) -> tuple[str, int]:
    """`host:port` (an IPv6 host in brackets) as its parts. Raises `BadAddress`."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadAddress(
            address, "not an address", "Write HOST:PORT, for example 127.0.0.1:9002 or [::1]:9002, or unix:/PATH"
        )
    if ":" in host and not address.startswith("["):
        raise BadAddress(address, "an IPv6 host without brackets", "Write [HOST]:PORT, for example [::1]:9002")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """`host:port`, an IPv6 host in brackets; a `host` that is `unix:/path` is the whole address."""
    if host.startswith(UNIX):
        return host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def socket_path(address: str) -> str | None:
    """The path in `unix:path`; None for an address of another kind. Raises `BadAddress` for a path that can't be."""
    if not address.startswith(UNIX):
        return None
    path = address.removeprefix(UNIX)
    path = path.removeprefix("//") if path.startswith("///") else path
    if not path or path.startswith("//") or "\0" in path:
        raise BadAddress(
            address, "not the address of a Unix socket", "Write unix:/PATH, for example unix:/tmp/epp.sock"
        )
    if (size := len(os.fsencode(path))) > LONGEST_PATH:
        raise BadAddress(
            address,
            f"its path has {size} bytes, and that of a Unix socket has at most {LONGEST_PATH}",
            "Choose a shorter path, such as one in /tmp",
        )
    return path


def check_address(address: str) -> None:
    """Raise `BadAddress` unless it can be dialled, as far as its form tells."""
    if socket_path(address) is None:
        split_address(address)


def authority_of(address: str) -> str:
    """The `:authority` of calls to an address; that of a Unix socket is `localhost`, as gRPC has it."""
    return "localhost" if address.startswith(UNIX) else address


def what_is_no_socket(path: str) -> str | None:
    """What there is at `path`, in words, unless it is a socket. Raises `OSError`, also if nothing is there."""
    mode = os.stat(path).st_mode  # noqa: PTH116 - a path with a zero in it is an OSError here
    if stat.S_ISSOCK(mode):
        return None
    return f"there is {'a folder' if stat.S_ISDIR(mode) else 'a file'}, not a socket"


def unix_refusal(address: str, path: str, problem: OSError | None) -> ConnectFailed:
    """Why the socket at `path` can't be connected to."""
    try:
        found = what_is_no_socket(path)
    except FileNotFoundError:
        here = "" if Path(path).parent.is_dir() else f", nor the folder {Path(path).parent}"
        return ConnectionRefused(
            address, f"there is no such socket{here}", "Check that the server is running and makes its socket there"
        )
    except OSError as refused:
        return ConnectionRefused(
            address, str(refused.strerror).lower(), "Check the permissions of the folders above the socket"
        )
    if found:
        return BadAddress(address, found, "Name the socket that the server listens on")
    if isinstance(problem, PermissionError):
        return ConnectionRefused(
            address, "no permission to connect", "Check the owner and the mode of the socket: connecting is writing"
        )
    reason = "no process listens on it" if isinstance(problem, ConnectionRefusedError) else str(problem)
    return ConnectionRefused(
        address, reason, "Check that the server is running: a socket stays where a process that was killed left it"
    )


def make_way(path: str) -> None:
    """Remove the socket that a process left behind at `path`. Raises `OSError` if one listens on it."""
    with contextlib.suppress(FileNotFoundError), socket.socket(socket.AF_UNIX) as one:
        try:
            one.connect(path)
        except ConnectionRefusedError:
            if stat.S_ISSOCK(os.stat(path).st_mode):  # noqa: PTH116 - as above
                Path(path).unlink()
        else:
            raise OSError(errno.EADDRINUSE, "a process listens on it already")
