"""Gateways that send a request to two endpoints of a list: at once, which is wrong, or where the first takes long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from reference_gateway.fault import Fault
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import Gateway, PoolOutcome


class _Hedging(Gateway):
    """The first two of a list are tried; the response of the first counts, if there is one."""

    after = 0.0
    """Seconds in which the first has not answered, as far as the gateway is concerned."""

    async def forward(self, request: GatewayRequest, endpoints: Iterator[str], tried: list[str]) -> PoolOutcome:
        first, second = next(endpoints, None), next(endpoints, None)
        if first is None or second is None:
            return await super().forward(request, iter([first] if first is not None else []), tried)
        racing = asyncio.ensure_future(super().forward(request, iter((first,)), tried))
        await asyncio.sleep(self.after)
        other = await super().forward(request, iter((second,)), tried)
        outcome = await racing
        for one in (outcome, other):
            if not one.failed:
                return one
        return await super().forward(request, endpoints, tried)


class _HedgingLate(_Hedging):
    after = 0.25


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="hedges-at-once",
        why="the first two endpoints of a list get the request at the same time",
        breaks="DP-DEST-02",
        gateway=_Hedging,
    ),
)

VARIANTS: tuple[Fault, ...] = (
    Fault(
        name="hedges-late",
        why="the second endpoint of a list gets the request, too, where the first has not answered for 0.25 s",
        gateway=_HedgingLate,
    ),
)
