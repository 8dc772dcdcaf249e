"""Health checks (section Health Checking): is the process alive, and is it ready?"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc

from ext_proc.messages import HealthCheckRequest, HealthCheckResponse
from reference_epp.endpoints import Pool
from reference_epp.names import EXT_PROC_SERVICE, HEALTH_SERVICE, LIVENESS, READINESS

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """Answers `grpc.health.v1.Health`. Ready means that the source of endpoints has been read; it may be empty."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._changed = asyncio.Event()
        pool.listen(self._wake)

    def status(self, service: str) -> int | None:
        """The serving status of `service`, or None if there is no such service."""
        if service == LIVENESS:
            return SERVING
        if service in ("", READINESS, EXT_PROC_SERVICE):
            return SERVING if self.pool.synced else NOT_SERVING
        return None

    async def check(self, request: HealthCheckRequest, context: grpc.aio.ServicerContext) -> HealthCheckResponse:
        """Answer once; gRPC status NOT_FOUND for a service that there is not."""
        status = self.status(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service is named {request.service!r}")
        return HealthCheckResponse(status=status)

    async def watch(
        self, request: HealthCheckRequest, _context: grpc.aio.ServicerContext
    ) -> AsyncIterator[HealthCheckResponse]:
        """Answer now and after every change."""
        said: int | None = None
        while True:
            changed = self._changed
            status = self.status(request.service)
            status = SERVICE_UNKNOWN if status is None else status
            if status != said:
                said = status
                yield HealthCheckResponse(status=status)
            await changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def handler(self) -> grpc.GenericRpcHandler:
        """What gRPC calls for this service."""
        return grpc.method_handlers_generic_handler(
            HEALTH_SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(
                    self.check, HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
                ),
                "Watch": grpc.unary_stream_rpc_method_handler(
                    self.watch, HealthCheckRequest.FromString, HealthCheckResponse.SerializeToString
                ),
            },
        )
