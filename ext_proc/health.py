"""The client of gRPC health checking: one unary call on a channel's connections.

https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from ext_proc import grpc
from ext_proc.channel import Channel
from ext_proc.http2.frames import ErrorCode
from ext_proc.http2.streams import CloseKind
from ext_proc.messages import HealthCheckRequest, HealthCheckResponse
from ext_proc.record import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """An answer to `Check`: the serving `status` (a `HealthCheckResponse.ServingStatus`), None if no message came.

    `grpc_status` is the call's own status, None if the call had no proper end; `message` says more.
    """

    status: int | None
    grpc_status: int | None
    message: str


async def health_check(channel: Channel, service: str = "", *, timeout: float = 5.0) -> Health:
    """Ask whether `service` ("" is the whole server) is serving.

    Raises a `ConnectFailed`, and `TimeoutError` if there is no answer within `timeout` seconds.
    """
    async with asyncio.timeout(timeout):
        transport = await channel.transport()
        call = _UnaryCall()
        stream = transport.open(channel.headers(grpc.HEALTH_CHECK), call)
        request = HealthCheckRequest(service=service).SerializeToString()
        transport.send(stream, grpc.frame(request), end=True)
        try:
            await call.done
        except BaseException:
            transport.reset(stream, ErrorCode.CANCEL)
            raise
    return call.answer()


class _UnaryCall:
    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head: Headers = ()
        self._trailers: Headers | None = None
        self._found: list[bytes | grpc.Violation] = []
        self._deframer = grpc.Deframer()
        self._broken = ""

    def on_headers(self, headers: Headers, _end: bool) -> None:
        if not self._head:
            self._head = headers
        else:
            self._trailers = headers

    def on_data(self, data: bytes, _end: bool) -> None:
        self._found += self._deframer.feed(data)

    def on_closed(self, kind: CloseKind, _code: int, reason: str) -> None:
        self._broken = "" if kind == "end" else reason
        if not self.done.done():
            self.done.set_result(None)

    def answer(self) -> Health:
        """What the finished call says."""
        if self._broken and not self._head:
            return Health(status=None, grpc_status=None, message=self._broken)
        end = grpc.ending(self._head, self._trailers)
        status, message = None, end.message
        if self._found:
            try:
                first = self._found[0]
                status = HealthCheckResponse.FromString(first).status if isinstance(first, bytes) else None
            except DecodeError as problem:
                message = f"the answer is no HealthCheckResponse: {problem}"
        return Health(status=status, grpc_status=end.status, message=message)
