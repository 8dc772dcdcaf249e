"""Who is faster waits for who is slower, in an exchange with a real client, and what lies in between is bounded.

A piece is read of the client or the model server when the pieces before it have left: the EPP took them, and what came
back of it was taken on the other side. An EPP that keeps a body and returns it at once sets its own pace: while its
receiver is behind, its stream gets no more flow-control credit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from fake_proxy.actions import Side
from fake_proxy.attempts import Attempts
from fake_proxy.client import Client
from fake_proxy.config import ProxyConfig
from fake_proxy.epp_stream import EppStream
from fake_proxy.machine import Machine

BEHIND = 256 * 1024
"""Bytes that wait for a receiver from which on it is behind."""


class Flow(Protocol):
    """The flow control of one exchange."""

    async def room(self, side: Side) -> None:
        """Wait until more of this side's message may come."""

    def moved(self) -> None:
        """Something happened: look whether who waits may go on, and whether the EPP is too fast."""

    @property
    def waits_for(self) -> str:
        """The receiver that the EPP is too fast for, in the words of the record; empty if none."""

    def close(self) -> None:
        """The exchange is over."""


class Unlimited:
    """No flow control, for exchanges whose bodies are there from the beginning: others get a turn, and that is all."""

    waits_for = ""

    async def room(self, side: Side) -> None:  # noqa: ARG002
        await asyncio.sleep(0)

    def moved(self) -> None: ...

    def close(self) -> None: ...


class Paced:
    """Flow control between a real client, an EPP and a model server."""

    def __init__(
        self, config: ProxyConfig, machine: Machine, stream: EppStream, attempts: Attempts, client: Client
    ) -> None:
        self._limit = config.buffer_limit
        self._machine = machine
        self._stream = stream
        self._attempts = attempts
        self._client = client
        self._moved = asyncio.Event()
        self._catching_up: asyncio.Task[None] | None = None
        self.waits_for = ""

    async def room(self, side: Side) -> None:
        receiver = self._attempts.drain if side == "request" else self._client.ready
        await asyncio.sleep(0)  # what was sent now leaves at the end of the turn
        await self._stream.drain()
        await receiver()
        while self._machine.held(side) > self._limit and not self._machine.done:
            self._moved.clear()
            await self._moved.wait()

    def moved(self) -> None:
        self._moved.set()
        if self._catching_up is not None:
            return
        if self._attempts.unsent > BEHIND:
            self._hold("room at the model server", self._attempts.drain)
        elif self._client.unsent > BEHIND:
            self._hold("room at the client", self._client.ready)

    def close(self) -> None:
        if self._catching_up is not None:
            self._catching_up.cancel()

    def _hold(self, what: str, receiver: Callable[[], Awaitable[None]]) -> None:
        async def catch_up() -> None:
            self._stream.hold(True)
            await receiver()
            self._stream.hold(False)
            self.waits_for, self._catching_up = "", None
            self.moved()

        self.waits_for = what
        self._catching_up = asyncio.get_running_loop().create_task(catch_up())
