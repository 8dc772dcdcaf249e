"""A connection to the target of which nothing is read, with one request on it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from random import Random

from conformance.evidence.episode import UnreadConnection
from conformance.run.data_plane.replies import upstream_for
from conformance.run.epp.runner import EppRunner
from conformance.scenario.schema import BodyMode, BodySpec, Exchange
from conformance.scenario.unread_connection import UnreadConnectionStep
from ext_proc.http2.unread import StalledConnection
from ext_proc.record import Recorder
from fake_proxy.exchange import ExchangeOutcome, run_exchange
from fake_proxy.pace import Pace

_LONG = 3600.0
"""Seconds that the request may take: it is ended with the connection."""


@contextlib.asynccontextmanager
async def unread_connection(
    runner: EppRunner, step: UnreadConnectionStep, mode: BodyMode, rng: Random
) -> AsyncIterator[UnreadConnection]:
    """Keep one open within the context, which begins when the target has used up the window of the stream.

    A target that says nothing, or ends the stream, may do so: then it begins without. What happens on the connection is
    not recorded. Raises a `ConnectFailed`.
    """
    exchange = Exchange(body=BodySpec(size=step.size), ending="envoy")
    prepared = runner.prepared(exchange, 0, mode, rng)
    stalled = asyncio.Event()
    async with runner.throttle, contextlib.AsyncExitStack() as stack:
        channel = await runner.target.fresh_channel(lambda: StalledConnection(stalled.set))
        stack.push_async_callback(channel.close)
        request = asyncio.ensure_future(
            run_exchange(
                channel,
                prepared.request,
                dataclasses.replace(prepared.config, message_timeout=_LONG),
                prepared.stimulus,
                upstream_for(prepared.reply, 0, lambda _: False),
                Recorder(),
                "unread",
                pace=Pace(deadline=_LONG),
            )
        )
        stack.push_async_callback(_ended, request)
        seen = asyncio.ensure_future(stalled.wait())
        stack.callback(seen.cancel)
        limit = runner.profile.timeouts.answer
        await asyncio.wait({request, seen}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        yield UnreadConnection(stalled=stalled.is_set())


async def _ended(request: asyncio.Task[ExchangeOutcome]) -> None:
    request.cancel()
    await asyncio.wait({request})
    if not request.cancelled():
        request.result()  # raises for a defect of the harness only
