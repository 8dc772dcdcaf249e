"""Connections to one endpoint picker, and the streams opened on them in turn."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Iterable

from ext_proc import grpc
from ext_proc.http2.address import authority_of
from ext_proc.http2.connection import Http2Connection
from ext_proc.http2.dial import connect
from ext_proc.http2.errors import ConnectFailed
from ext_proc.http2.tls import ClientTls
from ext_proc.http2.transport import Transport
from ext_proc.inbox import Listener
from ext_proc.record import Headers, Recorder
from ext_proc.stream import ProcessStream


async def dial(
    address: str,
    *,
    tls: ClientTls | None = None,
    authority: str | None = None,
    metadata: Iterable[tuple[bytes, bytes]] = (),
    connections: int = 1,
    timeout: float = 5.0,
    connection: Callable[[], Http2Connection] = Http2Connection,
) -> Channel:
    """Connect to the EPP at `host:port` or `unix:/path` with `connections` connections, used in turn.

    `authority` is the `:authority` of every stream (default: the address, or `localhost`), `metadata` is gRPC metadata
    for each, `timeout` is in seconds for each connection, `connection` makes the state of each. Raises a
    `ConnectFailed`.
    """
    channel = Channel(
        address,
        tls=tls,
        authority=authority,
        metadata=metadata,
        connections=connections,
        timeout=timeout,
        connection=connection,
    )
    try:
        for slot in range(connections):
            await channel.connect(slot)
    except BaseException:
        await channel.close()
        raise
    return channel


class Channel:
    """Connections to one EPP. A connection that broke or says GOAWAY is replaced when its turn comes."""

    def __init__(
        self,
        address: str,
        *,
        tls: ClientTls | None = None,
        authority: str | None = None,
        metadata: Iterable[tuple[bytes, bytes]] = (),
        connections: int = 1,
        timeout: float = 5.0,
        connection: Callable[[], Http2Connection] = Http2Connection,
    ) -> None:
        self.address = address
        self.authority = authority or authority_of(address)
        self.timeout = timeout
        self._tls = tls
        self._connection = connection
        self._metadata = tuple(metadata)
        self._slots: list[Transport | None] = [None] * connections
        self._open: set[Transport] = set()  # those in the slots, and those replaced that still have streams
        self._turn = 0
        self._made = itertools.count(1)
        self._dialling = asyncio.Lock()
        self._reopening: dict[asyncio.Task[None], ProcessStream] = {}
        self._process_headers = self.headers(grpc.PROCESS)

    def headers(self, path: bytes, metadata: Iterable[tuple[bytes, bytes]] = ()) -> Headers:
        """The head of a call on this channel."""
        scheme = "https" if self._tls is not None else "http"
        return grpc.request_headers(path, self.authority, scheme=scheme, metadata=(*self._metadata, *metadata))

    async def open(
        self,
        exchange: str | None = None,
        recorder: Recorder | None = None,
        *,
        on_event: Listener | None = None,
        metadata: Iterable[tuple[bytes, bytes]] = (),
    ) -> ProcessStream:
        """Open a `Process` stream, when the connections' limits allow it.

        Events go to `recorder` (None: not recorded). `on_event` gets what the EPP does, at once, and must not raise;
        without it, read with `recv` or iterate. Raises a `ConnectFailed` if a connection is needed and can't be made.
        """
        extra = tuple(metadata)
        stream = ProcessStream(
            self.reopen,
            exchange,
            recorder,
            on_event,
            self.headers(grpc.PROCESS, extra) if extra else self._process_headers,
        )
        stream.start(await self.transport())
        return stream

    def ready(self) -> Transport | None:
        """The next connection in turn that takes a stream now; None if one has to be waited for: ask `transport`."""
        for _ in self._slots:
            found = self._slots[self._turn]
            if found is None or found.retired:
                return None  # it is to be made again, and has its turn then
            self._turn = (self._turn + 1) % len(self._slots)
            if found.can_open():
                return found
        return None

    async def transport(self) -> Transport:
        """The next connection in turn that takes a stream now; waits if all are at their limit."""
        while True:
            for _ in self._slots:
                slot, self._turn = self._turn, (self._turn + 1) % len(self._slots)
                found = self._slots[slot]
                if found is None or found.retired:
                    found = await self.connect(slot)
                if found.can_open():
                    return found
            waits = [asyncio.ensure_future(one.wait_open()) for one in self._slots if one is not None]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def connect(self, slot: int) -> Transport:
        """The connection in `slot`, connected again unless it is usable. Raises a `ConnectFailed`."""
        async with self._dialling:
            found = self._slots[slot]
            if found is None or found.retired:
                found = await connect(
                    self.address,
                    tls=self._tls,
                    timeout=self.timeout,
                    number=next(self._made),
                    connection=self._connection,
                )
                self._slots[slot] = found
                self._open.add(found)
                found.on_lost(functools.partial(self._open.discard, found))
            return found

    def reopen(self, stream: ProcessStream) -> None:
        """Open a refused stream again, in the background."""

        async def again() -> None:
            await asyncio.sleep(stream.pause)
            try:
                stream.start(await self.transport())
            except ConnectFailed as problem:
                stream.give_up(problem)
            except Exception as problem:  # noqa: BLE001 - only the stream waits for it
                told = {"message": "a refused stream can't be opened again", "exception": problem}
                asyncio.get_running_loop().call_exception_handler(told)
                stream.give_up(f"our own trouble: {problem}")

        task = asyncio.get_running_loop().create_task(again())
        self._reopening[task] = stream
        task.add_done_callback(self._reopening.pop)

    async def close(self) -> None:
        """Close all connections; open streams end as `lost`."""
        for task, stream in self._reopening.items():
            task.cancel()
            stream.give_up("the connections were closed")
        self._slots = [None] * len(self._slots)
        for one in (still_open := tuple(self._open)):
            one.close()
        for one in still_open:
            await one.wait_closed()
