"""An address that a profile fixes is for one run at a time, and for nothing but its target.

Otherwise a run would judge the target of another, or a server that was there before.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

from conformance.errors import UsageError
from conformance.targets.ports import PortTakenError, hold
from ext_proc.http2.address import split_address
from ext_proc.http2.errors import BadAddress

_HINT = "use {port} in the profile's address and in its command: each run then takes a free one"
_held: dict[str, int] = {}


async def claim(address: str) -> None:
    """Take `host:port` for this process, before the first target is started there; again it does nothing.

    Raises `UsageError` if another run has it, or if something listens there.
    """
    if address in _held:
        return
    try:
        host, port = split_address(address)
        sign = hold(host, port)
    except PortTakenError:
        raise UsageError(f"{address} is in use by another run", hint=f"wait for its end, or {_HINT}") from None
    except (BadAddress, OSError):
        return  # what it is good for is said when it is dialled
    if sign is None:
        return  # no address of this machine
    if await _answers(host, port):
        os.close(sign)
        raise UsageError(f"something listens on {address} before the target is started", hint=f"end it, or {_HINT}")
    _held[address] = sign


async def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError):  # TimeoutError is an OSError
        async with asyncio.timeout(1):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        return True
    return False
