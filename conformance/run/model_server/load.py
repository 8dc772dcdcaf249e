"""The load of a scenario: so many requests in flight together, and what is known of them while metrics are read."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from conformance.evidence.model_server import ServerAnswered
from conformance.reading.server_answer import MESSAGE, ServerAnswer
from conformance.reading.server_metrics import ERROR_EVENT
from conformance.run.model_server.client import ServerClient
from conformance.run.model_server.requests import ServerRequest
from conformance.scenario.server_stimulus import HIDDEN


@dataclass(eq=False, slots=True)
class InFlight:
    """One request of the load. `begun`: its first token came."""

    begun: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """The requests in flight at one instant, those of them that had begun, and how many were sent until then."""

    flying: frozenset[InFlight]
    begun: frozenset[InFlight]
    sent: int


class ServerLoad:
    """Keeps `level` requests in flight, one in each of as many places, until it is released or aborted.

    `make` makes a request of its place and of its number, both from 0.
    """

    def __init__(self, client: ServerClient, make: Callable[[int, int], ServerRequest]) -> None:
        self.finished = 0
        self.refused: Counter[str] = Counter()
        """By status or failure, how many were not served."""
        self.message = ""
        """The server's own text with the last of these."""
        self._client = client
        self._make = make
        self._level = 0
        self._sent = 0
        self._flying: set[InFlight] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._over = False

    @property
    def ended(self) -> int:
        """How many requests came to an end, served or not."""
        return self.finished + self.refused.total()

    def raise_to(self, level: int) -> None:
        """From now on so many at a time."""
        self._workers += [asyncio.create_task(self._keep_asking(place)) for place in range(self._level, level)]
        self._level = max(level, self._level)

    def snapshot(self) -> Flight:
        """What is in flight now."""
        return Flight(
            flying=frozenset(self._flying),
            begun=frozenset(one for one in self._flying if one.begun),
            sent=self._sent,
        )

    async def release(self, patience: float) -> bool:
        """Send no more, and wait for what is in flight; after `patience` seconds the rest is broken off: False."""
        self._over = True
        if self._workers:
            await asyncio.wait(self._workers, timeout=patience)
        ended = not self._flying
        await self.abort()
        return ended

    async def abort(self) -> None:
        """Break off all that is in flight. Idempotent."""
        self._over = True
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.cancel()
        for worker in workers:
            with contextlib.suppress(asyncio.CancelledError):
                await worker
        self._level = 0

    async def _keep_asking(self, place: int) -> None:
        while not self._over:
            one = InFlight()
            number, self._sent = self._sent, self._sent + 1
            self._flying.add(one)

            def seen(chunk: bytes, one: InFlight = one) -> None:
                one.begun = one.begun or b"data:" in chunk

            request = self._make(place, number)
            try:
                got = await self._client.ask(request, seen=seen)
            finally:
                self._flying.discard(one)
            answer = ServerAnswer(event=ServerAnswered(status=got.status, headers=got.headers, body=got.body))
            if got.outcome == "response" and got.status == 200 and not answer.error:
                self.finished += 1
            else:
                status = ERROR_EVENT if got.status == 200 else str(got.status)
                self.refused[status if got.outcome == "response" else got.outcome] += 1
                self.message = answer.error.replace(request.prompt, HIDDEN)[:MESSAGE] or self.message
                await asyncio.sleep(0.2)  # a server that refuses is not asked as fast as it can refuse
