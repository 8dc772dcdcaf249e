"""An address that a profile fixes is for one run at a time, and for nothing but its target.

Otherwise a run would judge the target of another, or a server that was there before. As a sign that an address is
taken the UDP port of the same number is held: the kernel lets go of it with the process, and nothing has to be cleared.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket

from conformance.errors import UsageError
from ext_proc.http2.address import split_address
from ext_proc.http2.errors import BadAddress

_HINT = "use {port} in the profile's address and in its command: each run then takes a free one"
_held: dict[str, socket.socket] = {}


async def claim(address: str) -> None:
    """Take `host:port` for this process, before the first target is started there; again it does nothing.

    Raises `UsageError` if another run has it, or if something listens there.
    """
    if address in _held:
        return
    try:
        host, port = split_address(address)
        family, *_, where = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    except (BadAddress, OSError):
        return  # what it is good for is said when it is dialled
    sign = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sign.bind(where)
    except OSError as problem:
        sign.close()
        if problem.errno == errno.EADDRINUSE:
            raise UsageError(f"{address} is in use by another run", hint=f"wait for its end, or {_HINT}") from None
        return  # no address of this machine, or a port that is not for every user
    if await _answers(host, port):
        sign.close()
        raise UsageError(f"something listens on {address} before the target is started", hint=f"end it, or {_HINT}")
    _held[address] = sign


async def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError):  # TimeoutError is an OSError
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False
