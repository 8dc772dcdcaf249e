"""The reference EPP, but for what it does with streams of which nothing is read. A program for the tests.

Arguments: port, endpoints file, and how such a stream is treated.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ext_proc.server import ServedStream
from reference_epp.server import Parts, serve
from reference_epp.service import Service
from reference_epp.settings import Settings


async def silent(stream: ServedStream) -> None:
    async for _ in stream:
        pass


async def resets(stream: ServedStream) -> None:
    stream.reset()


async def refuses(stream: ServedStream) -> None:
    stream.end(8, "nothing is read")


async def closes(stream: ServedStream) -> None:
    stream.transport.close()


class Otherwise(Service):
    async def process(self, stream: ServedStream) -> None:
        if stream.transport.connection._sender.stream_window > 1:
            await super().process(stream)
        else:
            await stream.recv()
            await globals()[sys.argv[3]](stream)


if __name__ == "__main__":
    settings = Settings(listen=("127.0.0.1", int(sys.argv[1])), endpoints_file=Path(sys.argv[2]))
    asyncio.run(serve(settings, Parts().exchange(Otherwise)))
