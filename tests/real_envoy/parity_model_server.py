"""Model servers that play a `UpstreamReply` over real HTTP/1.1 and note what reaches them, for fake and real Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import h11

from fake_proxy.scripted import UpstreamReply

Paced = Callable[[int], Awaitable[None]]
"""Waits until that many bytes of response body have arrived where the case says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw(UpstreamReply):
    """Bytes in place of a response, and how the connection ends after them: not at all, with FIN, or with RST. An
    `early` one begins with `raw`, and its `body` follows when the request is complete."""

    raw: bytes = b""
    end: Literal["stays", "closes", "resets"] = "closes"


@dataclass
class Received:
    """One request as it arrived at an endpoint."""

    endpoint: str
    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytearray = field(default_factory=bytearray)
    trailers: list[tuple[bytes, bytes]] = field(default_factory=list)
    complete: bool = False


class ModelServers:
    """Endpoints `a`, `b` and `c`, and `dead`, where nothing listens. One exchange at a time."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}
        self.replies: Mapping[str, UpstreamReply] = {}
        self.paced: Paced | None = None
        self.received: list[Received] = []
        self.changed = asyncio.Condition()
        self._servers: list[asyncio.Server] = []
        self._dead = socket.socket()
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._busy = 0

    async def start(self) -> None:
        for name in ("a", "b", "c"):
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self._servers.append(server)
            self.addresses[name] = "{}:{}".format(*server.sockets[0].getsockname())
        self._dead.bind(("127.0.0.1", 0))  # holds the port, refuses connections
        self.addresses["dead"] = "{}:{}".format(*self._dead.getsockname())

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._dead.close()

    def play(self, replies: Mapping[str, UpstreamReply], paced: Paced | None) -> None:
        """From now on, answer with `replies` (by name of the endpoint)."""
        self.replies, self.paced, self.received = replies, paced, []

    async def hang_up(self) -> None:
        """End the connections that a data plane keeps, and wait until it has let go of them: so that no exchange
        depends on the one before."""
        tasks = tuple(self._tasks)
        for writer in self._writers:
            with contextlib.suppress(OSError):
                writer.write_eof()
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    async def idle(self) -> None:
        """Wait until no request is under way."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0), self.changed:
                await self.changed.wait_for(lambda: not self._busy)

    async def body_reached(self, through: int) -> None:
        """Wait until `through` bytes of body have arrived at the latest request; bounded."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0), self.changed:
                await self.changed.wait_for(lambda: bool(self.received) and len(self.received[-1].body) >= through)

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        address = "{}:{}".format(*writer.get_extra_info("sockname"))
        name = next(key for key, value in self.addresses.items() if value == address)
        try:
            while await self._exchange(name, reader, writer):
                pass
        except (OSError, h11.RemoteProtocolError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _exchange(self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; False if the connection is of no more use."""
        parser = h11.Connection(h11.SERVER)
        head = await self._next(parser, reader)
        if not isinstance(head, h11.Request):
            return False
        got = Received(name, head.method.decode(), head.target.decode(), list(head.headers))
        self.received.append(got)
        reply = self.replies.get(name, UpstreamReply(body=(b"unexpected endpoint",)))
        self._busy += 1
        try:
            if reply.early and isinstance(reply, Raw):
                writer.write(reply.raw)
                await self._body(got, parser, reader)
                writer.write(b"".join(reply.body))
                return True
            if reply.early:
                await self._reply(reply, writer, head=False)
                await reader.read()  # nothing that was on its way, then the end
                return False
            await self._body(got, parser, reader)
            if isinstance(reply, Raw):
                return await self._raw(reply, writer)
            if reply.fail == "reset":
                writer.transport.abort()
                return False
            if reply.fail == "never":
                await reader.read()
                return False
            return await self._reply(reply, writer, head=got.method == "HEAD")
        finally:
            self._busy -= 1
            await self._notify()

    async def _body(self, got: Received, parser: h11.Connection, reader: asyncio.StreamReader) -> None:
        while not got.complete:
            match await self._next(parser, reader):
                case h11.Data(data=data):
                    got.body += data
                case h11.EndOfMessage(headers=trailers):
                    got.trailers, got.complete = list(trailers), True
                case _:
                    raise ConnectionResetError
            await self._notify()

    async def _next(self, parser: h11.Connection, reader: asyncio.StreamReader) -> object:
        while (event := parser.next_event()) is h11.NEED_DATA:
            parser.receive_data(await reader.read(64 * 1024))
        return event

    async def _reply(self, reply: UpstreamReply, writer: asyncio.StreamWriter, *, head: bool) -> bool:
        """Send the response: its head with the first piece, each further piece when the one before has arrived."""
        no_length = reply.status in (204, 304)
        headers = [pair for pair in reply.header_list[1:] if not (no_length and pair[0] == b"content-length")]
        chunked = (b"transfer-encoding", b"chunked") in headers
        lines = [b"HTTP/1.1 %d -" % reply.status, *(name + b": " + value for name, value in headers)]
        writer.write(b"\r\n".join(lines) + b"\r\n\r\n")
        if no_length or head:
            return True
        sent = 0
        for number, piece in enumerate(reply.body):
            if number == reply.reset_after or number:
                await self._arrived(sent)
            if number == reply.reset_after:
                break
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
            sent += len(piece)
        if reply.reset_after is not None:
            await writer.drain()
            writer.transport.abort()
            return False
        if len(reply.body) > 1:
            await self._arrived(sent)
        if chunked:
            trailers = b"".join(name + b": " + value + b"\r\n" for name, value in reply.trailers)
            writer.write(b"0\r\n" + trailers + b"\r\n")
        await writer.drain()
        return True

    async def _raw(self, reply: Raw, writer: asyncio.StreamWriter) -> bool:
        writer.write(reply.raw)
        await writer.drain()
        if reply.end == "resets":
            if reply.raw:  # else there is nothing to arrive
                await self._arrived(1)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return reply.end == "stays"

    async def _arrived(self, through: int) -> None:
        if self.paced is not None:
            await self.paced(through)
