"""Gateways that no suite should trip over: `python gateways.py HOW PORT ENDPOINTS`.

`unasked` sends requests to the first endpoint without a word to an EPP; `garbage` answers with bytes that are no HTTP;
`closes` ends each connection; `hangs` answers nothing; `dies` ends with the first request; `deaf` never listens;
`exits` ends at once.
"""

from __future__ import annotations

import asyncio
import os
import sys


async def _unasked(endpoint: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request, passed on as it is; the response, until the model server is done."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    body = await reader.readexactly(int(length or 0))
    host, _, port = endpoint.rpartition(":")
    upstream, to = await asyncio.open_connection(host, int(port))
    to.write(head.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n", 1) + body)
    writer.write(await upstream.read())
    await writer.drain()
    to.close()


async def main(how: str, port: int, endpoints: list[str]) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match how:
            case "unasked":
                await _unasked(endpoints[0], reader, writer)
            case "garbage":
                writer.write(b"\x00\x01 what is this? \xff\r\n\r\n")
            case "hangs":
                await asyncio.sleep(3600)
            case "dies":
                if await reader.read(1):
                    print("I can't go on", flush=True)
                    os._exit(7)
        writer.close()

    if how == "exits":
        print("no configuration", flush=True)
        sys.exit(3)
    if how == "deaf":
        await asyncio.sleep(3600)
    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3].split(",")))
