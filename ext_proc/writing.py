"""Writing to a connection that the peer may have broken."""

from __future__ import annotations

from typing import Protocol


class Writer(Protocol):
    """An `asyncio.StreamWriter`, or a transport."""

    def is_closing(self) -> bool: ...

    def write(self, data: bytes, /) -> None: ...


def write_if_open(writer: Writer, data: bytes) -> None:
    """Write `data`, or nothing where the connection has ended, of which the reader tells.

    asyncio's own loop takes what is written then; uvloop raises `RuntimeError`, also right after it has connected.
    """
    if not writer.is_closing():
        writer.write(data)
