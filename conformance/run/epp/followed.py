"""Whether a target follows a change of its pool, as its picks show."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from conformance.run.epp.until import ENOUGH_POLLS, until

Probe = Callable[[Sequence[str] | None], Awaitable[str | None]]
"""Ask the target for a pick within some endpoints (None: no subset hint); gives its first endpoint, or None."""

AGREEING_POLLS = 8
"""Without a subset hint it shows only by chance that an endpoint has gone; so many picks in a row must agree."""

AT_A_TIME = 6
"""Endpoints that are asked for at a time, once one is followed: of a large pool, each by itself takes too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Endpoints that were `changed`, of a pool in which those of `now` may be picked. Polls are sent over so many
    `connections` in turn."""

    probe: Probe
    changed: Collection[str]
    now: Collection[str]
    connections: int

    async def by(self, deadline: float, *, hints: bool) -> bool:
        """Whether the picks agree with the pool before loop time `deadline`; `hints`: it reads subset hints."""
        if not hints:
            return await until(self._picks_from_the_pool, deadline)
        *others, last = sorted(self.changed)
        # One that is late is not asked for all that it does not know yet.
        for some in (others[:1], *(others[at : at + AT_A_TIME] for at in range(1, len(others), AT_A_TIME))):
            if not all(await asyncio.gather(*(self._agrees(endpoint, 1, deadline) for endpoint in some))):
                return False
        # Connections, which polls take in turn, may lead to workers that each read the pool for themselves.
        if not await self._agrees(last, self.connections, deadline):
            return False
        # What is asked for with a hint may be kept apart from what is picked without one.
        return await until(self._picks_from_the_pool, deadline)

    async def _agrees(self, endpoint: str, polls: int, deadline: float) -> bool:
        """Whether picks within this endpoint alone agree with the pool in time, or can't, as hints are misread."""
        if await until(functools.partial(self._follows, endpoint, polls), deadline):
            return True
        return endpoint in self.now and await self._misread(endpoint)

    async def _follows(self, endpoint: str, polls: int) -> bool:
        for _ in range(polls):
            if (await self.probe([endpoint]) == endpoint) is not (endpoint in self.now):
                return False
        return True

    async def _misread(self, endpoint: str) -> bool:
        """Whether what is wrong is how hints are read: it gives another endpoint where this one is all that may be
        picked, as one that is only behind does not, and picks this one without a hint."""
        others = await self._ever([endpoint], lambda named: named not in (None, endpoint))
        return others and await self._ever(None, lambda named: named == endpoint)

    async def _ever(self, subset: Sequence[str] | None, wanted: Callable[[str | None], bool]) -> bool:
        """Whether one of enough picks in a row, which may be taken in turn, is a wanted one."""
        for _ in range(ENOUGH_POLLS):
            if wanted(await self.probe(subset)):
                return True
        return False

    async def _picks_from_the_pool(self) -> bool:
        allowed: set[str | None] = set(self.now) or {None}
        for _ in range(AGREEING_POLLS if set(self.changed) - allowed else self.connections):
            if await self.probe(None) not in allowed:
                return False
        return True
