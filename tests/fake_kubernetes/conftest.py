"""Helpers of the emulator's tests: an emulator with a client, and a watch that is read event by event."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from fake_kubernetes import Emulator

DEADLINE = 10.0


class WatchReader:
    """The events of one watch answer, as a client reads them."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self._lines = answer.aiter_lines()

    async def next(self) -> dict[str, Any]:
        """Return the next event; fails when none comes in time, raises StopAsyncIteration at the end."""
        return json.loads(await asyncio.wait_for(anext(self._lines), DEADLINE))

    async def rest(self) -> list[dict[str, Any]]:
        """Return all events until the server ends the watch."""
        events = []
        with contextlib.suppress(StopAsyncIteration):
            while True:
                events.append(await self.next())
        return events


@contextlib.asynccontextmanager
async def _serving(**options: Any) -> AsyncIterator[tuple[Emulator, httpx.AsyncClient]]:
    async with (
        Emulator(**options) as emulator,
        httpx.AsyncClient(base_url=emulator.url, timeout=DEADLINE, trust_env=False) as client,
    ):
        yield emulator, client


@contextlib.asynccontextmanager
async def _watching(client: httpx.AsyncClient, path: str, **query: Any) -> AsyncIterator[WatchReader]:
    parameters = {"watch": "true", **{name: str(value) for name, value in query.items()}}
    async with client.stream("GET", path, params=parameters) as answer:
        yield WatchReader(answer)


@pytest.fixture
def serving():
    """`async with serving(**options) as (emulator, client)`."""
    return _serving


@pytest.fixture
def watching():
    """`async with watching(client, path, **query) as watch`."""
    return _watching
