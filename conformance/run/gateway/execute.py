"""Executes one scenario against a gateway: its steps, in order, into an episode."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any

from conformance.errors import ConformanceError
from conformance.evidence.episode import Context, Episode, Expectation, HarnessTrouble, PoolState, Unmet
from conformance.planning.plan import Work
from conformance.run.capture import Capture
from conformance.run.data_plane.replies import model_server_reply
from conformance.scenario import references
from conformance.scenario.schema import Expect, Request, Step
from real_envoy.kept import KeptConnection

if TYPE_CHECKING:
    from conformance.run.gateway.runner import GatewayRunner
    from fake_proxy.client import HttpRequest
    from real_envoy import HttpResponse

LATE = 0.4
"""Seconds that our own loop may be late: a gateway's patience with an EPP may be as short as a second."""

Send = Callable[["HttpRequest", float], Coroutine[Any, Any, "HttpResponse"]]


async def execute(lane: GatewayRunner, work: Work) -> tuple[Episode, Context]:
    """Run the steps. Trouble of the harness ends the episode and is recorded in it; it never raises."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with lane.capture() as capture:
        execution = _Execution(lane, work, capture)
        try:
            await execution.steps()
        except ConformanceError as problem:
            capture.remark(Unmet(what=str(problem)))
        except Exception as problem:  # noqa: BLE001 - a defect of the suite must become `error`, not a finding
            capture.remark(HarnessTrouble(what=f"{type(problem).__name__}: {problem}"))
        late = lane.lag.worst(began)
        if late > LATE:
            capture.remark(HarnessTrouble(what=f"the suite's own event loop was {late:.1f} s late: its EPP was, too"))
        return capture.episode(), execution.context()


class _Execution:
    def __init__(self, lane: GatewayRunner, work: Work, capture: Capture) -> None:
        self._lane = lane
        self._work = work
        self._capture = capture
        self._expectations: dict[str, Expectation] = {}

    def context(self) -> Context:
        """What the judges need beside the log."""
        profile, scenario = self._lane.profile, self._work.instance.scenario
        return Context(
            version=self._lane.version,
            scenario=self._work.id,
            requirements=scenario.requirements,
            stimulus=scenario.stimulus,
            provisional=scenario.provisional,
            destination_namespace=profile.metadata.destination,
            subset_namespace=profile.metadata.subset,
            deadline=profile.timeouts.answer,
            role="data-plane",
            gateway=self._lane.claims,
            expectations=self._expectations,
        )

    async def steps(self) -> None:
        """All of them, one after the other."""
        scenario = self._work.instance.scenario
        await self._lane.pickers.reset()
        facts = await self._lane.pods.cast(scenario.pool)
        self._capture.remark(PoolState(phase="effective", pods=facts))
        for step in scenario.steps:
            if self._lane.target.crashed:
                return  # the crash is in the log; nothing can be sent any more
            await self._step(step)

    async def _step(self, step: Step) -> None:
        if step.request is not None:
            await self._requests(step.request, step.expect)
        for name, conduct in (step.pods or {}).items():
            await self._lane.pods.conduct(name, conduct)
        for epp, state in (step.epps or {}).items():
            await self._lane.pickers.conduct(epp, state)

    async def _requests(self, request: Request, expect: Expect | None) -> None:
        """The repeats of a request, as many at a time as it says."""
        self._lane.pods.reply(model_server_reply(request.reply))
        queue = iter(range(request.repeat))
        async with self._sender(request) as send:
            await asyncio.gather(*(self._some(queue, request, expect, send) for _ in range(request.concurrent)))

    @contextlib.asynccontextmanager
    async def _sender(self, request: Request) -> AsyncIterator[Send]:
        if request.connection == "fresh":
            yield self._lane.send
            return
        async with KeptConnection(self._lane.target.address) as kept:
            yield lambda http, timeout: kept.send(http, timeout=timeout)

    async def _some(self, queue: Iterator[int], request: Request, expect: Expect | None, send: Send) -> None:
        for _ in queue:
            name = self._capture.exchange()
            if expect is not None:
                self._expectations[name] = self._expectation(expect)
            response = await self._lane.exchange(request, name, send)
            if response is not None and response.expired:
                return  # one that was never answered says it all; a hung gateway would make each repeat wait as long

    def _expectation(self, expect: Expect) -> Expectation:
        endpoints = self._lane.pods.pods_of
        return Expectation(
            status=(expect.status,) if isinstance(expect.status, int) else expect.status or (),
            served_by=None if expect.served_by is None else references.resolve(expect.served_by, endpoints),
            requirement=expect.requirement,
        )
