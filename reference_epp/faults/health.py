"""Faults of health checks (section Health Checking, `next`)."""
# fmt: off

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from ext_proc.server import ServedStream
from reference_epp.changes import changed
from reference_epp.deviations import ENDED, NEXT, fault
from reference_epp.health import NOT_SERVING, SERVING, Health
from reference_epp.names import EXT_PROC_SERVICE, LIVENESS, READINESS
from reference_epp.service import Service

UNAVAILABLE = 14
SERVICE_TOO = {"EPP-HLTH-04": "the same holds for the service's own name"}

health_fault = partial(fault, versions=NEXT)


class _Remembering(Health):
    """Remembers whether there ever was an endpoint, and whether the pool was read late."""

    filled = False
    late: bool | None = None

    def status(self, service: str) -> int | None:
        self.filled = self.filled or bool(self.pool.endpoints)
        self.late = not self.pool.synced if self.late is None else self.late
        return super().status(service)


def _status(status: int | None, when: Callable[[Any, str], object]) -> type[Health]:
    """Has this status for services for which `when(health, service)` is true."""
    def act(up: Any, health: Any, service: str) -> int | None:
        right: int | None = up(service)
        return status if when(health, service) else right

    return changed(_Remembering, status=act)


health_fault("no-health-service", "EPP-HLTH-01",
             "There is no gRPC health service.", changed(Health, methods=lambda *_: {}))
health_fault("liveness-waits-for-sync", "EPP-HLTH-02",
             "`liveness` is NOT_SERVING until the endpoints have been read: restarts without end.",
             changed(Health, status=lambda up, _, service: up(READINESS if service == LIVENESS else service)))
health_fault("liveness-unknown", "EPP-HLTH-02",
             "The health service does not know `liveness`.", _status(None, lambda _, service: service == LIVENESS))
health_fault("liveness-ends-with-the-pool", "EPP-HLTH-02",
             "`liveness` is NOT_SERVING from when the pool is gone: restarts without end.",
             _status(NOT_SERVING, lambda h, service: h.filled and not h.pool.endpoints and service == LIVENESS))
health_fault("ready-before-sync", "EPP-HLTH-03",
             "`readiness` and the service's own name are SERVING before the endpoints have been read.",
             _status(SERVING, lambda _, service: service in (READINESS, EXT_PROC_SERVICE)), also=SERVICE_TOO)
health_fault("ready-with-the-first-pod", "EPP-HLTH-03",
             "`readiness` waits for the first endpoint: a pool that is empty at the start is never known.",
             _status(NOT_SERVING, lambda h, service: not h.filled and service != LIVENESS), also=SERVICE_TOO)
health_fault("readiness-follows-pods", "EPP-HLTH-03",
             "`readiness` and the service's own name are NOT_SERVING while the pool is empty.",
             _status(NOT_SERVING, lambda h, service: not h.pool.endpoints and service != LIVENESS), also=SERVICE_TOO)
health_fault("readiness-ends-with-the-last-pod", "EPP-HLTH-03",
             "`readiness` and the service's own name are NOT_SERVING when the last endpoint is gone.",
             _status(NOT_SERVING, lambda h, service: h.filled and not h.pool.endpoints and service != LIVENESS),
             also=SERVICE_TOO)
health_fault("never-ready", "EPP-HLTH-03",
             "`readiness` and the service's own name stay NOT_SERVING without end.",
             _status(NOT_SERVING, lambda _, service: service in (READINESS, EXT_PROC_SERVICE)), also=SERVICE_TOO)
health_fault("service-always-healthy", "EPP-HLTH-04",
             "The service's own name is SERVING while `readiness` is NOT_SERVING.",
             _status(SERVING, lambda _, service: service == EXT_PROC_SERVICE))
health_fault("service-unhealthy-with-empty-pool", "EPP-HLTH-04",
             "The service's own name is NOT_SERVING while the pool is empty, although the EPP is ready.",
             _status(NOT_SERVING, lambda h, service: service == EXT_PROC_SERVICE and not h.pool.endpoints))
health_fault("service-misses-a-late-pool", "EPP-HLTH-04",
             "The service's own name stays NOT_SERVING if the pool is first read after a health check.",
             _status(NOT_SERVING, lambda h, service: h.late and service == EXT_PROC_SERVICE))


class _RefusesAfterCheck(Service):
    owed: ClassVar[list[bool]] = []

    async def process(self, stream: ServedStream) -> None:
        if self.owed:
            self.owed.clear()
            stream.end(UNAVAILABLE, "not yet")
        else:
            await super().process(stream)


@health_fault("ready-but-unavailable", "EPP-HLTH-06",
              "The first stream after a readiness check that said SERVING is refused with a gRPC error.",
              _RefusesAfterCheck, also=ENDED, effect="warn")
class ReadyButUnavailable(Health):
    def status(self, service: str) -> int | None:
        status = super().status(service)
        if service == READINESS and status == SERVING:
            _RefusesAfterCheck.owed[:] = [True]
        return status
