"""What a bad line does to the bytes of a response, by the names that toxiproxy has for it.

A `Toxics` is what befalls one response; a `Line` carries it out on the connection.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Toxics:
    """What befalls the bytes of one response. Seconds and bytes.

    - `timeout`: after `timeout_bytes` nothing more arrives, and the connection is closed so many seconds later; `inf`:
      when `healed` is set;
    - `reset_peer`: the connection is reset so many seconds after the response was due;
    - `limit_data`: the connection is closed after so many bytes;
    - `bandwidth`: bytes a second; `slices`: sizes of the pieces, one by one, which are `slice_delay` seconds apart;
    - `slow_close`: the connection is closed after the response, so many seconds late.
    """

    timeout: float | None = None
    timeout_bytes: int = 0
    healed: asyncio.Event = field(default_factory=asyncio.Event)
    reset_peer: float | None = None
    limit_data: int | None = None
    bandwidth: float | None = None
    slices: Callable[[], int] | None = None
    slice_delay: float = 0.0
    slow_close: float | None = None


class LineEnded(Exception):  # noqa: N818 - a turn of events, not an error
    """The connection ends here; `reset` says how."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__("reset" if reset else "closed")
        self.reset = reset


class Line:
    """The way of one response to the client, through its toxics. `write` is awaited with what gets through."""

    def __init__(self, toxics: Toxics, write: Callable[[bytes], Awaitable[None]]) -> None:
        self._toxics = toxics
        self._write = write
        self._sent = 0

    @property
    def closes(self) -> bool:
        """Whether the connection ends with this response."""
        return self._toxics.slow_close is not None

    async def send(self, data: bytes) -> None:
        """Send `data`. Raises `LineEnded` where a toxic ends the connection."""
        toxics = self._toxics
        if toxics.reset_peer is not None:
            await asyncio.sleep(toxics.reset_peer)
            raise LineEnded(reset=True)
        if toxics.timeout is not None and self._sent + len(data) > toxics.timeout_bytes:
            await self._pieces(data[: toxics.timeout_bytes - self._sent])
            if toxics.timeout == math.inf:
                await toxics.healed.wait()
            else:
                await asyncio.sleep(toxics.timeout)
            raise LineEnded(reset=False)
        if toxics.limit_data is not None and self._sent + len(data) >= toxics.limit_data:
            await self._pieces(data[: toxics.limit_data - self._sent])
            raise LineEnded(reset=False)
        await self._pieces(data)

    async def before_close(self) -> None:
        """Wait as long as a slow close takes."""
        await asyncio.sleep(self._toxics.slow_close or 0)

    async def _pieces(self, data: bytes) -> None:
        slices = self._toxics.slices
        while data:
            size = len(data) if slices is None else max(1, slices())
            if self._toxics.bandwidth is not None:
                size = min(size, max(1, round(self._toxics.bandwidth / _TICKS)))
            piece, data = data[:size], data[size:]
            await self._write(piece)
            self._sent += len(piece)
            if slices is not None:
                await asyncio.sleep(self._toxics.slice_delay)
            if self._toxics.bandwidth is not None:
                await asyncio.sleep(len(piece) / self._toxics.bandwidth)


_TICKS = 50
"""Writes a second on a line of limited bandwidth."""
