"""Gateways that leave out pods which failed, until they know better: after failed requests, or by health checks."""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator

from fake_proxy.client import HttpRequest
from real_envoy.http_client import send_request
from real_envoy.http_response import HttpResponse
from reference_gateway.epp_client import Decision
from reference_gateway.fault import variant
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import BackendPool, Gateway, Settings

EJECTED = 1.0
"""Seconds for which a pod is left out after a request failed there."""
INTERVAL = 0.1
"""Seconds between health checks."""
RISE = 3
"""Health checks in a row after which a pod that failed one is used again."""


class _Selective(Gateway, ABC):
    """Passes over pods that are out at the moment at which it is their turn."""

    @abstractmethod
    def is_out(self, endpoint: str) -> bool:
        """Whether a pod is left out now."""

    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        """See `Gateway`."""
        return (one for one in super().walk(decision, pool) if not self.is_out(one))


class _Ejecting(_Selective):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._until: dict[str, float] = {}

    def is_out(self, endpoint: str) -> bool:
        return time.monotonic() < self._until.get(endpoint, 0.0)

    async def attempt(self, endpoint: str, request: GatewayRequest) -> HttpResponse | None:
        got = await super().attempt(endpoint, request)
        if got is None or (got.status or 0) >= 500:
            self._until[endpoint] = time.monotonic() + EJECTED
        return got


class _Checking(_Selective):
    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._owed: Counter[str] = Counter()
        self._checks = [
            asyncio.get_running_loop().create_task(self._check(endpoint))
            for pool in settings.pools
            for endpoint in pool.endpoints
        ]

    async def close(self) -> None:
        for check in self._checks:
            check.cancel()
        await super().close()

    def is_out(self, endpoint: str) -> bool:
        return self._owed[endpoint] > 0

    async def _check(self, endpoint: str) -> None:
        health = HttpRequest(method="GET", path="/health", authority=endpoint, request_id="")
        while True:
            status = None
            with contextlib.suppress(OSError):
                status = (await send_request(endpoint, health, timeout=4.0)).status
            self._owed[endpoint] = max(self._owed[endpoint] - 1, 0) if status == 200 else RISE
            await asyncio.sleep(INTERVAL)


variant("ejects", "a pod at which a request failed is left out for a second", _Ejecting)
variant("checks-health", "a pod that fails a health check is left out until it passes three", _Checking)
