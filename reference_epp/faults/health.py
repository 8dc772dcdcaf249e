"""Faults of health checks (section Health Checking, `next`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ext_proc.server import Handler, ServedStream
from reference_epp.deviations import ENDED, NEXT, fault, part_of
from reference_epp.health import NOT_SERVING, SERVING, Health
from reference_epp.names import EXT_PROC_SERVICE, LIVENESS, READINESS
from reference_epp.service import Service

UNAVAILABLE = 14


@fault("no-health-service", breaks="EPP-HLTH-01", why="There is no gRPC health service.", versions=NEXT)
class NoHealthService(Health):
    def methods(self) -> Mapping[bytes, Handler]:
        return {}


@fault(
    "liveness-waits-for-sync",
    breaks="EPP-HLTH-02",
    why="`liveness` is NOT_SERVING until the endpoints have been read, so that the process is restarted without end.",
    versions=NEXT,
)
class LivenessWaitsForSync(Health):
    def status(self, service: str) -> int | None:
        return super().status(READINESS if service == LIVENESS else service)


@fault("liveness-unknown", breaks="EPP-HLTH-02", why="The health service does not know `liveness`.", versions=NEXT)
class LivenessUnknown(Health):
    def status(self, service: str) -> int | None:
        return None if service == LIVENESS else super().status(service)


@fault(
    "ready-before-sync",
    breaks="EPP-HLTH-03",
    why="`readiness` and the service's own name are SERVING before the endpoints have been read.",
    also_breaks={"EPP-HLTH-04": "the same holds for the service's own name"},
    versions=NEXT,
)
class ReadyBeforeSync(Health):
    def status(self, service: str) -> int | None:
        return SERVING if service in (READINESS, EXT_PROC_SERVICE) else super().status(service)


class _Remembering(Health):
    """Remembers whether there ever was an endpoint."""

    filled = False

    def status(self, service: str) -> int | None:
        self.filled = self.filled or bool(self.pool.endpoints)
        return super().status(service)


@fault(
    "ready-with-the-first-pod",
    breaks="EPP-HLTH-03",
    why="`readiness` waits for the first endpoint, so that a pool that is empty at the start is never known.",
    also_breaks={"EPP-HLTH-04": "the same holds for the service's own name"},
    versions=NEXT,
)
class ReadyWithTheFirstPod(_Remembering):
    def status(self, service: str) -> int | None:
        status = super().status(service)
        return status if self.filled or service == LIVENESS else NOT_SERVING


@fault(
    "readiness-follows-pods",
    breaks="EPP-HLTH-03",
    why="`readiness` and the service's own name are NOT_SERVING while the pool is empty.",
    also_breaks={"EPP-HLTH-04": "the same holds for the service's own name"},
    versions=NEXT,
)
class ReadinessFollowsPods(Health):
    def status(self, service: str) -> int | None:
        return super().status(service) if self.pool.endpoints or service == LIVENESS else NOT_SERVING


@fault(
    "readiness-ends-with-the-last-pod",
    breaks="EPP-HLTH-03",
    why="`readiness` and the service's own name are NOT_SERVING when the last of the endpoints was there and is gone.",
    also_breaks={"EPP-HLTH-04": "the same holds for the service's own name"},
    versions=NEXT,
)
class ReadinessEndsWithTheLastPod(_Remembering):
    def status(self, service: str) -> int | None:
        status = super().status(service)
        return NOT_SERVING if self.filled and not self.pool.endpoints and service != LIVENESS else status


@fault(
    "liveness-ends-with-the-pool",
    breaks="EPP-HLTH-02",
    why="`liveness` is NOT_SERVING from when the pool is gone, so that the process is restarted without end.",
    versions=NEXT,
)
class LivenessEndsWithThePool(_Remembering):
    def status(self, service: str) -> int | None:
        status = super().status(service)
        gone = self.filled and not self.pool.endpoints
        return NOT_SERVING if gone and service == LIVENESS else status


@fault(
    "never-ready",
    breaks="EPP-HLTH-03",
    why="`readiness` and the service's own name stay NOT_SERVING without end.",
    also_breaks={"EPP-HLTH-04": "the same holds for the service's own name"},
    versions=NEXT,
)
class NeverReady(Health):
    def status(self, service: str) -> int | None:
        return NOT_SERVING if service in (READINESS, EXT_PROC_SERVICE) else super().status(service)


@fault(
    "service-always-healthy",
    breaks="EPP-HLTH-04",
    why="The service's own name is SERVING while `readiness` is NOT_SERVING.",
    versions=NEXT,
)
class ServiceAlwaysHealthy(Health):
    def status(self, service: str) -> int | None:
        return SERVING if service == EXT_PROC_SERVICE else super().status(service)


@fault(
    "service-unhealthy-with-empty-pool",
    breaks="EPP-HLTH-04",
    why="The service's own name is NOT_SERVING while the pool is empty, although the EPP is ready.",
    versions=NEXT,
)
class ServiceUnhealthyWithEmptyPool(Health):
    def status(self, service: str) -> int | None:
        if service == EXT_PROC_SERVICE and not self.pool.endpoints:
            return NOT_SERVING
        return super().status(service)


@fault(
    "service-misses-a-late-pool",
    breaks="EPP-HLTH-04",
    why="A pool that is first read after a health check changes `readiness` alone: the service's own name stays "
    "NOT_SERVING.",
    versions=NEXT,
)
class ServiceMissesALatePool(Health):
    late: bool | None = None

    def status(self, service: str) -> int | None:
        if self.late is None:
            self.late = not self.pool.synced
        return NOT_SERVING if self.late and service == EXT_PROC_SERVICE else super().status(service)


@fault(
    "ready-but-unavailable",
    breaks="EPP-HLTH-06",
    why="The first stream after a readiness check that said SERVING is refused with a gRPC error.",
    also_breaks=ENDED,
    versions=NEXT,
    effect="warn",
)
class ReadyButUnavailable(Health):
    owed: ClassVar[list[bool]] = []

    def status(self, service: str) -> int | None:
        status = super().status(service)
        if service == READINESS and status == SERVING:
            self.owed[:] = [True]
        return status


@part_of("ready-but-unavailable")
class RefusesAfterCheck(Service):
    async def process(self, stream: ServedStream) -> None:
        if ReadyButUnavailable.owed:
            ReadyButUnavailable.owed.clear()
            stream.end(UNAVAILABLE, "not yet")
        else:
            await super().process(stream)
