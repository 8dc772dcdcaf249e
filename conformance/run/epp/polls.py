"""The exchanges made while a pool settles, until an episode takes them: the rules of streams hold there, too.

Kept are those that came to an end. A poll that was not answered in time says nothing that the scenarios, which know
what they ask and whether the suite itself was late, do not say better.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence

from conformance.scenario.schema import Exchange
from ext_proc.record import Entry, Recorder
from fake_proxy.exchange import ExchangeOutcome

KEPT = 12
"""Polls that one episode takes; a target that is slow to follow is polled hundreds of times."""

GIVEN_UP = 500
"""The status that a client gets where the EPP breaks the protocol, or its stream ends too early."""


class Polls:
    """Those of one runner."""

    def __init__(self, recorder: Recorder) -> None:
        self._open: dict[str, list[Entry]] = {}
        self._kept: list[list[Entry]] = []
        self._numbers = itertools.count(1)
        recorder.listen(self._hear)

    async def ask(self, exchange: Callable[[str], Awaitable[ExchangeOutcome]]) -> ExchangeOutcome:
        """Make a poll: `exchange` gets its name."""
        name, answered = self.begin(), False
        try:
            outcome = await exchange(name)
            ended = outcome.stream
            answered = not outcome.expired and ended is not None and ended.how in ("status", "reset")
        finally:
            self.end(name, answered=answered)
        return outcome

    def begin(self) -> str:
        """The name of the next poll's exchange."""
        name = f"poll.{next(self._numbers)}"
        self._open[name] = []
        return name

    def end(self, name: str, *, answered: bool) -> None:
        """The poll is over."""
        entries = self._open.pop(name)
        if answered and len(self._kept) < KEPT:
            self._kept.append(entries)

    def take(self) -> list[Entry]:
        """The entries of those that no episode has taken yet."""
        kept, self._kept = self._kept, []
        return [entry for entries in kept for entry in entries]

    def _hear(self, entry: Entry) -> None:
        entries = self._open.get(entry.event.exchange or "")
        if entries is not None:
            entries.append(entry)


async def picked(subset: Sequence[str] | None, ask: Callable[[Exchange], Awaitable[ExchangeOutcome]]) -> str | None:
    """The first endpoint that a plain request within `subset` gets, or None.

    Where the data plane gives that request up, `ask` gets one without a body: many that answer bodies wrongly follow
    their pool.
    """
    plain = Exchange(subset=None if subset is None else tuple(subset), ending="envoy")
    outcome = await ask(plain)
    if outcome.status == GIVEN_UP and not outcome.attempts:
        outcome = await ask(plain.model_copy(update={"method": "GET", "body": "none"}))
    return outcome.attempts[0] if outcome.attempts else None
