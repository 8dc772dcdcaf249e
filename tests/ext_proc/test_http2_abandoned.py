"""A connection that its loop closed without a word, because nothing waited for it any more."""

from __future__ import annotations

import asyncio

from ext_proc.http2.connection import Http2Connection
from ext_proc.http2.transport import Transport


class Abandoned(asyncio.Transport):
    """uvloop's transport after the task that connected was cancelled: closed, and it says so when written to."""

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        raise RuntimeError("unable to perform operation on a closed transport; the handler is closed")


async def test_it_is_lost_and_nothing_is_raised() -> None:
    told: list[str] = []
    transport = Transport(Http2Connection())
    transport.on_lost(lambda: told.append("lost"))
    transport.connection_made(Abandoned())
    assert transport.closed
    assert told == ["lost"]
    await transport.wait_closed()
