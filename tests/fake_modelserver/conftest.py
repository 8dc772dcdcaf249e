"""Helpers for the fleet's tests: run a coroutine on either event loop, and a bare HTTP/1.1 client."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
import uvloop

LIMIT = 20.0
"""Seconds that anything may take before a test fails."""


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Run a coroutine to its end, on asyncio's own loop and on uvloop."""
    runner = asyncio.run if request.param == "asyncio" else uvloop.run

    async def limited(coroutine):
        # What fails in a callback has no caller to tell: the loop's handler hears of it.
        failed = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        async with asyncio.timeout(LIMIT):
            found = await coroutine
        assert not failed
        return found

    return lambda coroutine: runner(limited(coroutine))


@dataclass
class Raw:
    """A connection that shows bytes as they are on the wire."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> bytes:
        return await self.reader.readuntil(b"\r\n\r\n")

    async def chunk(self) -> bytes:
        """The next chunk of the chunked coding; empty for the last one, whose trailers are left to `rest`."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2] if size else b""

    async def body(self, head: bytes) -> bytes:
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return await self.reader.readexactly(length)

    async def rest(self) -> bytes:
        return await self.reader.read()

    def close(self) -> None:
        self.writer.close()


@pytest.fixture
def connect():
    async def connect(pod) -> Raw:
        address = pod.addresses[0]
        return Raw(*await asyncio.open_connection(address.host, address.port))

    return connect
