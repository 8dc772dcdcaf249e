"""Ports that are free, and stay so until a target listens there: no other run of the suite gets them meanwhile.

A port that is only looked up is free for the next who looks, and two runs that start their targets side by side would
now and then judge the same one. So a name that tells the port is held, as a sign to other runs that it is taken: an
abstract Unix address where there are such (Linux), elsewhere the UDP port of the same number, though a gateway with
HTTP/3 would want it. The kernel lets go of either with the process, and nothing has to be cleared.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections import deque

LOOPBACK = "127.0.0.1"
LINUX = sys.platform == "linux"

KEPT = 48
"""So many of the last ports that this process gave out are held: more than its targets have at a time."""

_kept: deque[int] = deque()


class PortTakenError(Exception):
    """Another run has the port."""


def hold(host: str, port: int) -> int | None:
    """The descriptor of the sign that a run has this port; None where none can be given, as on another machine.

    The sign is up until the descriptor is closed, or the process ends.

    Raises `PortTakenError` if a run has it already, and `OSError` for a host that does not resolve.
    """
    family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    sign_family, name = (socket.AF_UNIX, f"\0epp-conformance {where[0]} {port}") if LINUX else (family, where)
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as own:
            own.bind((where[0], 0, *where[2:]))  # fails where the address is not of this machine
        with socket.socket(sign_family, socket.SOCK_DGRAM) as sign:
            sign.bind(name)
            return sign.detach()
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise PortTakenError from None
        return None


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Ports at `host` on which nothing listens and which no other run was given; they differ."""
    found: list[int] = []
    with contextlib.ExitStack() as looked_at:  # held until the last is found: the kernel offers none of them again
        while len(found) < count:
            one = looked_at.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            one.bind((host, 0))
            port = one.getsockname()[1]
            with contextlib.suppress(PortTakenError):
                sign = hold(host, port)
                found.append(port)
                if sign is not None:
                    _keep(sign)
    return found


def free_port(host: str) -> int:
    """One of `free_ports`."""
    return free_ports(1, host)[0]


def _keep(sign: int) -> None:
    _kept.append(sign)
    if len(_kept) > KEPT:
        os.close(_kept.popleft())
