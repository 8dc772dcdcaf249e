"""Faults of a gateway with two pools (version `next`): whose EPP is asked, whose endpoints are used, who is told."""
# fmt: off

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from functools import partial
from typing import Any

from ext_proc.messages import HttpHeaders
from reference_gateway.changes import changed, walking
from reference_gateway.epp_client import NAMESPACE, SERVED, Talk
from reference_gateway.fault import fault
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome

pool_fault = partial(fault, version="next", pools=2)


def _out_of_order(listed: list[str], _: Any, pool: Any) -> list[str]:
    return [*listed[:1], *(one for one in pool.endpoints if one not in listed), *listed[1:]]


def _second(endpoints: Any) -> type[Gateway]:
    """Sends a request to `endpoints(gateway, pool, talk, request, before)` of the second pool."""
    async def act(up: Any, gateway: Any, pool: Any, talk: Any, request: Any, *, before: Any) -> Any:
        if before is None:
            return await up(pool, talk, request, before=before)
        return await gateway.forward(request, iter(await endpoints(gateway, pool, talk, request, before)), [])

    return changed(Gateway, through=act)


async def _unasked(_: Any, pool: Any, *__: Any) -> Any:
    return pool.endpoints


async def _old_ones_too(gateway: Any, pool: Any, talk: Any, request: Any, before: Any) -> Any:
    decision = await talk.ask(request)
    return itertools.chain(before.tried, gateway.walk(decision, pool))


pool_fault("pool-out-of-order", "DP-SCOPE-01",
           "a retry stays in the pool, and leaves its list", walking(_out_of_order))
pool_fault("second-epp-unasked", "DP-SCOPE-02",
           "the second pool is used without asking its EPP", _second(_unasked))
pool_fault("old-endpoints-again", "DP-SCOPE-02",
           "the second EPP is asked, and endpoints of the first pool are tried again", _second(_old_ones_too))


class _Told(Talk):
    """A conversation that is not over when its pool has failed: its EPP learns what became of the request elsewhere."""

    quiet = False
    kept = False

    def report(self, endpoint: str, tried: list[str]) -> dict[str, Any]:
        return {} if self.quiet else super().report(endpoint, tried)

    def close(self) -> None:
        """Not yet, if another pool is to be heard of."""
        if not self.kept:
            super().close()

    async def learn(self, status: int, endpoint: str | None) -> None:
        """The response of another pool, and then the end."""
        if self._stream is not None and self._stream.ended is None and endpoint is not None:
            self._metadata[NAMESPACE] = {SERVED: endpoint}
            head = HttpHeaders(end_of_stream=True)
            head.headers.headers.add(key=":status", raw_value=b"%d" % status)
            self._send("response_headers", head)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._stream.recv()
        super().close()


@dataclasses.dataclass(slots=True, kw_only=True)
class _FirstFailed(PoolOutcome):
    first: _Told


@pool_fault("first-epp-is-told", "DP-SCOPE-03",
            "the endpoint of the second pool that served is reported to the EPP of the first", _Told)
class FirstIsTold(Gateway):
    def open(self, pool: BackendPool, subset: list[str] | None, *, before: PoolOutcome | None) -> Talk:
        talk = super().open(pool, subset, before=before)
        assert isinstance(talk, _Told)
        talk.quiet = before is not None
        return talk

    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        outcome = await super().through(pool, talk, request, before=before)
        assert isinstance(talk, _Told)
        if isinstance(before, _FirstFailed):
            await before.first.learn(outcome.response.status, outcome.endpoint)
        elif outcome.failed:
            talk.kept = True
            return _FirstFailed(response=outcome.response, endpoint=outcome.endpoint, tried=outcome.tried, first=talk)
        return outcome
