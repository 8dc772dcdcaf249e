"""How much of a body has come back from the EPP, to pace what is sent next."""

from __future__ import annotations

import asyncio

from ext_proc.record import Wait
from fake_proxy.actions import Side


def echo_of(side: Side, through: int | None) -> str:
    """The name of the wait for it; None: how all of that side begin."""
    return f"echo of {side} body through byte {'' if through is None else through}"


class Echo:
    """The bytes sent to the EPP and those it let through.

    An EPP may rewrite bodies. From the first byte that differs, counting says nothing, and anything that comes through
    after a piece was sent is taken as the echo of that piece.
    """

    def __init__(self, *, counts: bool = True) -> None:
        self._counts = counts
        self._sent = bytearray()
        self._came = 0
        self._same = True
        self._since = 0  # bytes that came since the latest piece was sent
        self._changed = asyncio.Event()
        self._stopped = False

    @property
    def total(self) -> int:
        """How many bytes were sent."""
        return len(self._sent)

    def sent(self, data: bytes) -> None:
        """A piece goes to the EPP."""
        if not self._counts:
            return
        self._sent += data
        self._since = 0

    def came(self, data: bytes, *, again: bool = False) -> None:
        """The EPP let bytes through; `again`: from the beginning, as on a retry."""
        if again:
            self._came, self._same = 0, True
        at, self._came = self._came, self._came + len(data)
        self._same = self._same and self._sent[at : self._came] == data
        self._since += len(data)
        self._changed.set()

    def stop(self) -> None:
        """Nothing will come any more: no wait is worth it."""
        self._stopped = True
        self._changed.set()

    async def reached(self, through: int) -> None:
        """Wait until the echo of the first `through` bytes is there, or nothing will come any more."""
        while not (self._stopped or self._came >= through or (not self._same and self._since)):
            self._changed.clear()
            await self._changed.wait()


class Echoes:
    """The echoes of both bodies of one exchange. Unless it `counts`, no body is kept, and none can be waited for."""

    def __init__(self, exchange: str, timeout: float, *, counts: bool = True) -> None:
        self.request = Echo(counts=counts)
        self.response = Echo(counts=counts)
        self._exchange = exchange
        self._timeout = timeout

    async def wait(self, side: Side, through: int) -> Wait:
        """Wait for the echo of the first `through` bytes, within the time limit; how it went, for the record."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        met = True
        try:
            async with asyncio.timeout(self._timeout):
                await (self.request if side == "request" else self.response).reached(through)
        except TimeoutError:
            met = False
        return Wait(
            exchange=self._exchange,
            what=echo_of(side, through),
            outcome="met" if met else "expired",
            seconds=loop.time() - began,
        )

    def stop(self) -> None:
        """Nothing will come any more."""
        self.request.stop()
        self.response.stop()
