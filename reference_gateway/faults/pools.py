"""Faults of a gateway with two pools (version `next`): whose EPP is asked, whose endpoints are used, who is told."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from ext_proc.messages import HttpHeaders
from reference_gateway.epp_client import NAMESPACE, SERVED, Decision, Talk
from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import BackendPool, Gateway, PoolOutcome


class _OutOfOrder(Gateway):
    """The right first endpoint, then the list from its end."""

    def walk(self, decision: Decision, pool: BackendPool) -> Iterator[str]:
        listed = list(super().walk(decision, pool))
        yield from itertools.chain(listed[:1], (one for one in pool.endpoints if one not in listed), listed[1:])


class _SecondUnasked(Gateway):
    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        if before is None:
            return await super().through(pool, talk, request, before=before)
        return await self.forward(request, iter(pool.endpoints), [])


class _OldEndpointsAgain(Gateway):
    async def through(
        self, pool: BackendPool, talk: Talk, request: GatewayRequest, *, before: PoolOutcome | None
    ) -> PoolOutcome:
        if before is None:
            return await super().through(pool, talk, request, before=before)
        decision = await talk.ask(request)
        again = itertools.chain(before.tried, self.walk(decision, pool))
        return await self.forward(request, again, [])


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


class _FirstIsTold(Gateway):
    """The EPP of the first pool learns who served, and that of the second, which served, does not."""

    talk_type = _Told

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


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="pool-out-of-order",
        why="a retry stays in the pool, and leaves its list",
        breaks="DP-SCOPE-01",
        version="next",
        gateway=_OutOfOrder,
        pools=2,
    ),
    Fault(
        name="second-epp-unasked",
        why="the second pool is used without asking its EPP",
        breaks="DP-SCOPE-02",
        version="next",
        gateway=_SecondUnasked,
        pools=2,
    ),
    Fault(
        name="old-endpoints-again",
        why="the second EPP is asked, and endpoints of the first pool are tried again",
        breaks="DP-SCOPE-02",
        version="next",
        gateway=_OldEndpointsAgain,
        pools=2,
    ),
    Fault(
        name="first-epp-is-told",
        why="the endpoint of the second pool that served is reported to the EPP of the first",
        breaks="DP-SCOPE-03",
        version="next",
        gateway=_FirstIsTold,
        pools=2,
    ),
)
