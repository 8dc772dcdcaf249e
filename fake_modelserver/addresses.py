"""Addresses for pods: every pod its own loopback address on one port, as in a real pool.

A process claims a whole block 127.x.y.0/24 by binding 127.x.y.254 on the fleet's port without listening: two
processes can never hold the same block, and the kernel gives the claim back when the process dies. Where the system
has only 127.0.0.1 (macOS), and for IPv6 (`::1`), pods share one address and have a port each.
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fake_modelserver.errors import AddressTakenError, AddressUnavailableError, endpoint

PORT = 8000
"""The port that pods serve on unless told otherwise, as vLLM does."""

_OTHER_PORTS = (18000, 28000)
_BACKLOG = 2048
_CLAIM_HOST = 254
_AS_LONG_AS_ANOTHER = 100
"""Hosts from here on are handed out first: a file of endpoints keeps its length when one is replaced."""
_BLOCKS = 254 * 254
_NEIGHBOURS = 64
_MOST_TRIES = 4 * _NEIGHBOURS


@dataclass(frozen=True, slots=True)
class Address:
    """Where a pod listens, or could: `str(address)` is the endpoint as the protocol writes it."""

    host: str
    port: int

    def __str__(self) -> str:
        return endpoint(self.host, self.port)


def bind(host: str, port: int) -> socket.socket:
    """A listening, non-blocking TCP socket on `host`:`port` (port 0: the system chooses).

    Raises `AddressTakenError` or `AddressUnavailableError`.
    """
    sock = None
    try:
        sock = socket.socket(_family(host), socket.SOCK_STREAM)
        # Connections that we closed leave TIME_WAIT behind; a pod that comes back must get its address again.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        # With SO_REUSEADDR two binds may both succeed; then it is listen() that finds the address taken.
        sock.listen(_BACKLOG)
    except (OSError, OverflowError) as problem:
        if sock is not None:
            sock.close()
        if isinstance(problem, OSError) and problem.errno == errno.EADDRINUSE:
            raise AddressTakenError(host, port) from problem
        raise AddressUnavailableError(host, port, getattr(problem, "strerror", None) or str(problem)) from problem
    sock.setblocking(False)
    return sock


def has_loopback_block() -> bool:
    """True if any address of 127.0.0.0/8 can be bound (Linux), not only 127.0.0.1 (macOS)."""
    return _can_bind("127.1.0.1")


def has_ipv6_loopback() -> bool:
    """True if `::1` can be bound."""
    return _can_bind("::1")


class Addresses:
    """Hands out addresses for pods; `close()` gives the claimed blocks back.

    `mode` is `own` (127.x.y.z, one port for all), `shared` (127.0.0.1, a port each), `ipv6` (`::1`, a port each) or
    `auto`: `own` where the system can, else `shared`. `port` is for `own`; None takes 8000, or another port if
    something on this machine listens on 8000 of every address. `hosts` are addresses of this machine to hand out
    instead of loopback ones: a single one is shared; the last of several is the claim.
    """

    def __init__(
        self,
        *,
        mode: Literal["auto", "own", "shared", "ipv6"] = "auto",
        port: int | None = None,
        hosts: Sequence[str] = (),
    ) -> None:
        if mode == "auto":
            mode = "own" if len(hosts) > 1 or (not hosts and has_loopback_block()) else "shared"
        self.mode: Literal["own", "shared", "ipv6"] = mode
        self._ports: tuple[int, ...] = (PORT, *_OTHER_PORTS) if port is None else (port,)
        self._hosts = tuple(hosts)
        self._next_block = os.getpid() % _BLOCKS
        self._claims: list[socket.socket] = []
        self._reserved: dict[Address, socket.socket] = {}
        self._fresh: deque[str] = deque()
        self._freed: deque[str] = deque()

    def take(self) -> Address:
        """An address that no one listens on and that no other process will take.

        In `own` mode an address given back is used again only when the block has no fresh one left, so that a
        late message for an old pod does not reach a new one.
        """
        if self.mode != "own":
            return self._reserve("::1" if self.mode == "ipv6" else (*self._hosts, "127.0.0.1")[0])
        if not self._fresh and not self._freed:
            if self._hosts:
                self._claim_hosts()
            else:
                self._claim_block()
        return Address((self._fresh or self._freed).popleft(), self._ports[0])

    def occupied(self, address: Address) -> None:
        """The pod on `address` is about to listen: end the reservation that kept its port."""
        if holder := self._reserved.pop(address, None):
            holder.close()

    def give_back(self, address: Address) -> None:
        """`address`, which came from `take`, is free again."""
        self.occupied(address)
        if self.mode == "own":
            self._freed.append(address.host)

    def close(self) -> None:
        """Release every claim. Idempotent."""
        for sock in (*self._claims, *self._reserved.values()):
            sock.close()
        self._claims.clear()
        self._reserved.clear()
        self._fresh.clear()
        self._freed.clear()

    def _reserve(self, host: str) -> Address:
        # Bound, not listening: refuses connections, and the system gives the port to no one else.
        holder = socket.socket(_family(host), socket.SOCK_STREAM)
        try:
            holder.bind((host, 0))
        except OSError as problem:
            holder.close()
            raise AddressUnavailableError(host, 0, problem.strerror or str(problem)) from problem
        address = Address(host, holder.getsockname()[1])
        self._reserved[address] = holder
        return address

    def _claim_block(self) -> None:
        for tried in range(1, _MOST_TRIES + 1):
            number, self._next_block = self._next_block, (self._next_block + 1) % _BLOCKS
            block = f"127.{1 + number // 254}.{1 + number % 254}."
            if self._claim(f"{block}{_CLAIM_HOST}"):
                hosts = (*range(_AS_LONG_AS_ANOTHER, _CLAIM_HOST), *range(1, _AS_LONG_AS_ANOTHER))
                self._fresh.extend(f"{block}{host}" for host in hosts)
                return
            # Many neighbours in a row means a listener on 0.0.0.0: it takes the port of every address.
            if tried % _NEIGHBOURS == 0 and len(self._ports) > 1 and not self._claims:
                self._ports = self._ports[1:]
        raise AddressTakenError(f"{block}{_CLAIM_HOST}", self._ports[0])

    def _claim_hosts(self) -> None:
        *hosts, last = self._hosts
        if self._claims:
            raise AddressUnavailableError(last, self._ports[0], f"all {len(hosts)} addresses are in use")
        while not self._claim(last):
            if len(self._ports) == 1:
                raise AddressTakenError(last, self._ports[0])
            self._ports = self._ports[1:]
        self._fresh.extend(hosts)

    def _claim(self, host: str) -> bool:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            sock.bind((host, self._ports[0]))
        except OSError as problem:
            sock.close()
            if problem.errno == errno.EADDRINUSE:
                return False
            raise AddressUnavailableError(host, self._ports[0], problem.strerror or str(problem)) from problem
        self._claims.append(sock)
        return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _can_bind(host: str) -> bool:
    try:
        with socket.socket(_family(host), socket.SOCK_STREAM) as sock:
            sock.bind((host, 0))
    except OSError:
        return False
    return True
