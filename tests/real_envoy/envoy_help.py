"""What the tests of real Envoy share: whether there is one, and an EPP and model servers of few words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from parity_epp import Talk, picked, right

from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.server import ServedStream

First = Callable[[Talk, ProcessingRequest], ProcessingResponse]


class SmallEpp:
    """Picks `pick`; the requests that it gets are in `messages`. `first` makes the answer to request headers."""

    def __init__(self, pick: str = "", first: First = lambda talk, _: picked(talk)) -> None:
        self.pick = pick
        self.first = first
        self.messages: list[ProcessingRequest] = []
        self.ends: list[str] = []
        self.ended = asyncio.Event()

    async def handle(self, stream: ServedStream) -> None:
        talk = Talk(self.pick)
        while (raw := await stream.recv()) is not None:
            message = ProcessingRequest.FromString(raw)
            self.messages.append(message)
            if message.HasField("protocol_config"):
                talk.full_duplex = message.protocol_config.request_body_mode == 4
                talk.response_full_duplex = message.protocol_config.response_body_mode == 4
            heads = message.WhichOneof("request") == "request_headers"
            for answer in [self.first(talk, message)] if heads else right(talk, message):
                stream.send(answer.SerializeToString())
        async for event in stream:
            self.ends.append(event.kind)
        self.ended.set()

    def metadata(self, kind: str, namespace: str = "envoy.lb") -> dict[str, object]:
        """The metadata of `namespace` on the first message of `kind`."""
        from ext_proc.headers import plain_struct

        message = next(one for one in self.messages if one.WhichOneof("request") == kind)
        return plain_struct(message.metadata_context.filter_metadata[namespace])


@contextlib.asynccontextmanager
async def model_servers(*statuses: int) -> AsyncIterator[tuple[str, ...]]:
    """A model server for each status; its body is its own address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = "{}:{}".format(*writer.get_extra_info("sockname"))
        status = by_address[own]
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            if b"transfer-encoding: chunked" in head:
                await reader.readuntil(b"0\r\n\r\n")
            elif b"content-length: " in head:
                await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
            body = own.encode()
            writer.write(
                b"HTTP/1.1 %d -\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)
            )
            await writer.drain()
        writer.close()

    servers = [await asyncio.start_server(serve, "127.0.0.1", 0) for _ in statuses]
    addresses = tuple("{}:{}".format(*server.sockets[0].getsockname()) for server in servers)
    by_address = dict(zip(addresses, statuses, strict=True))
    try:
        yield addresses
    finally:
        for server in servers:
            server.close()
