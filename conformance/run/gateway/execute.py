"""The steps of scenarios for a gateway."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Literal

from conformance.evidence.episode import Context, PoolState
from conformance.planning.epp_scripts import LATE, in_turn
from conformance.planning.plan import Work
from conformance.run.capture import Capture
from conformance.run.data_plane.replies import model_server_reply
from conformance.run.execution import Action, Execution
from conformance.run.gateway.runner import GatewayRunner, Send
from conformance.scenario.expect import Expect
from conformance.scenario.schema import Conduct, Request
from real_envoy.kept import KeptConnection


class GatewayExecution(Execution):
    """One piece of work on a gateway."""

    doubtful_lateness = 0.1
    """Half of Envoy's default time for an answer of an EPP (0.2 s): lateness is measured in part."""

    def __init__(self, runner: GatewayRunner, work: Work, capture: Capture) -> None:
        super().__init__(runner, work, capture)
        self._gateway = runner

    @property
    def actions(self) -> Mapping[str, Action]:
        """See `Execution`."""
        return {"request": self._requests, "pods": self._pods, "epps": self._epps}

    @property
    def endpoints(self) -> Mapping[str, tuple[str, ...]]:
        """See `Execution`."""
        return self._gateway.pods.pods_of

    def context(self) -> Context:
        """See `Execution`."""
        return dataclasses.replace(super().context(), role="data-plane", gateway=self._gateway.claims)

    def spoilt(self, late: float) -> str:
        """Whatever was late here was late for the gateway, too."""
        return f"the suite's own event loop was {late:.1f} s late: its EPP was, too" if late > LATE else ""

    async def begin(self) -> None:
        """All EPPs listen, and the pods have the scenario's names."""
        await self._gateway.pickers.reset()
        facts = await self._gateway.pods.cast(self._work.instance.scenario.pool)
        await self._gateway.recover()
        self._capture.remark(PoolState(phase="effective", pods=facts))

    async def end(self) -> None:
        """What the scenario left down listens again, so that the next one finds a gateway that knows."""
        for name in self._gateway.pickers.down:
            await self._gateway.pickers.conduct(name, "up", self._gateway.found)

    async def _pods(self, pods: Mapping[str, Conduct], _: Expect | None) -> None:
        for name, conduct in pods.items():
            await self._gateway.pods.conduct(name, conduct)

    async def _epps(self, epps: Mapping[str, Literal["up", "down"]], _: Expect | None) -> None:
        for name, state in epps.items():
            await self._gateway.pickers.conduct(name, state, self._gateway.found)

    async def _requests(self, request: Request, expect: Expect | None) -> None:
        await self._gateway.recover()
        self._gateway.pods.reply(model_server_reply(request.reply))
        async with self._sender(request) as sender:

            async def send(index: int, name: str, rng: Random) -> bool:
                response = await self._gateway.exchange(in_turn(request, index), name, sender, rng)
                return response is None or not response.expired

            await self.repeat(request, expect, send)

    @contextlib.asynccontextmanager
    async def _sender(self, request: Request) -> AsyncIterator[Send]:
        if request.connection == "fresh":
            yield self._gateway.send
            return
        async with KeptConnection(self._gateway.target.address) as kept:
            yield lambda http, timeout: kept.send(http, timeout=timeout)
