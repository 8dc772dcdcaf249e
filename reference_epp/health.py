"""Health checks (section Health Checking): is the process alive, and is it ready?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from google.protobuf.message import DecodeError

from ext_proc.messages import HealthCheckRequest, HealthCheckResponse
from ext_proc.server import Handler, ServedStream
from reference_epp.endpoints import Pool
from reference_epp.names import EXT_PROC_SERVICE, HEALTH_SERVICE, LIVENESS, READINESS

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN

NOT_FOUND, INTERNAL = 5, 13


class Health:
    """Answers `grpc.health.v1.Health`. Ready means that the source of endpoints has been read; it may be empty."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.stopping = False
        self._changed = asyncio.Event()
        pool.listen(self._wake)

    def status(self, service: str) -> int | None:
        """The serving status of `service`, or None if there is no such service."""
        if service == LIVENESS:
            return SERVING
        if service in ("", READINESS, EXT_PROC_SERVICE):
            return SERVING if self.pool.synced and not self.stopping else NOT_SERVING
        return None

    def stop(self) -> None:
        """The EPP takes no more requests: say so, and let those who watch go."""
        self.stopping = True
        self._wake()

    async def check(self, stream: ServedStream) -> None:
        """Answer once; gRPC status NOT_FOUND for a service that there is not."""
        if (service := await self._service(stream)) is None:
            return
        status = self.status(service)
        if status is None:
            stream.end(NOT_FOUND, f"no service is named {service!r}")
        else:
            stream.send(HealthCheckResponse(status=status).SerializeToString())

    async def watch(self, stream: ServedStream) -> None:
        """Answer now and after every change, until the client leaves or the EPP stops."""
        if (service := await self._service(stream)) is None:
            return
        gone = asyncio.ensure_future(_end_of(stream))
        gone.add_done_callback(lambda _: self._wake())
        said: int | None = None
        try:
            while stream.ended is None:
                changed = self._changed
                status = self.status(service)
                status = SERVICE_UNKNOWN if status is None else status
                if status != said:
                    said = status
                    stream.send(HealthCheckResponse(status=status).SerializeToString())
                if self.stopping:
                    break
                await changed.wait()
        finally:
            gone.cancel()

    def methods(self) -> Mapping[bytes, Handler]:
        """What serves this service, by path."""
        return {f"/{HEALTH_SERVICE}/Check".encode(): self.check, f"/{HEALTH_SERVICE}/Watch".encode(): self.watch}

    async def _service(self, stream: ServedStream) -> str | None:
        """The service that is asked for; None if the request can't be read, and the stream has ended."""
        try:
            return HealthCheckRequest.FromString(await stream.recv() or b"").service
        except DecodeError as problem:
            stream.end(INTERNAL, f"not a HealthCheckRequest: {problem}")
            return None

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


async def _end_of(stream: ServedStream) -> None:
    async for _ in stream:
        pass
