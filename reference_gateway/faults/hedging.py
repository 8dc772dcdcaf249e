"""Gateways that send a request to two endpoints of a list: at once, which is wrong, or where the first takes long;
or to the second where the first refused it."""
# fmt: off

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator

from reference_gateway.changes import changed
from reference_gateway.fault import fault, variant
from reference_gateway.http import GatewayRequest
from reference_gateway.relay import BUSY, Gateway, PoolOutcome


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


class _HedgingGets(_Hedging):
    """Only requests that change nothing are sent twice."""

    async def forward(self, request: GatewayRequest, endpoints: Iterator[str], tried: list[str]) -> PoolOutcome:
        if request.method == "GET":
            return await super().forward(request, endpoints, tried)
        return await Gateway.forward(self, request, endpoints, tried)


fault("hedges-at-once", "DP-DEST-02",
      "the first two endpoints of a list get the request at the same time", _Hedging)
fault("hedges-gets-at-once", "DP-DEST-02",
      "the first two endpoints of a list get a GET at the same time", _HedgingGets)
variant("hedges-late",
        "the second endpoint of a list gets the request, too, where the first has not answered for 0.25 s",
        changed(_Hedging, after=0.25))


@variant("retries-404", "where an endpoint of a list answers 404, the next is tried")
class RetriesRefusals(Gateway):
    """What one endpoint does not know the next may, as an adapter that is not loaded everywhere."""

    async def forward(self, request: GatewayRequest, endpoints: Iterator[str], tried: list[str]) -> PoolOutcome:
        while True:
            outcome = await super().forward(request, itertools.islice(endpoints, 1), tried)
            more = next(endpoints, None)
            if outcome.response.status not in (404, BUSY) or more is None:
                return outcome
            endpoints = itertools.chain((more,), endpoints)
