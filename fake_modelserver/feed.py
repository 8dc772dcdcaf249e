"""Chunks of a body that is still being made, and filters that change chunks on their way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol


class Feed:
    """Chunks that one side puts as they come, and the other takes. Belongs to one event loop.

    `begin` is called when the first is asked for, `gone` if the taker leaves before the end.
    """

    def __init__(self, begin: Callable[[], object], gone: Callable[[], object]) -> None:
        self._begin: Callable[[], object] | None = begin
        self._gone = gone
        self._waiting: deque[bytes] = deque()
        self._write: Callable[[bytes], object] | None = None
        self._ended = False
        self._more: asyncio.Future[None] | None = None

    def put(self, chunk: bytes) -> None:
        """A further chunk."""
        if self._write is not None:
            self._write(chunk)
        else:
            self._waiting.append(chunk)
            self._wake()

    def end(self) -> None:
        """There are no more."""
        self._ended = True
        self._wake()

    async def play(self, write: Callable[[bytes], object]) -> None:
        """Hand every chunk to `write` the moment it is put; returns at the end."""
        self._write = write
        self._start()
        while not self._ended:
            await self._wait()

    async def next(self) -> bytes | None:
        """The next chunk; None at the end."""
        self._start()
        while not self._waiting:
            if self._ended:
                return None
            await self._wait()
        return self._waiting.popleft()

    def _start(self) -> None:
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def _wait(self) -> None:
        self._more = asyncio.get_running_loop().create_future()
        try:
            await self._more
        except asyncio.CancelledError:
            self._gone()
            raise


class Filter(Protocol):
    """Changes the chunks of one body. `cut` is True once nothing may follow, not even the end of the coding."""

    cut: bool

    def __call__(self, chunk: bytes) -> Iterable[bytes]:
        """What becomes of the next chunk."""

    def end(self) -> Iterable[bytes]:
        """What follows the last chunk."""


class Chain:
    """Several filters, one after the other."""

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = filters

    @property
    def cut(self) -> bool:
        """Whether nothing may follow."""
        return any(one.cut for one in self._filters)

    def __call__(self, chunk: bytes) -> Sequence[bytes]:
        """What becomes of the next chunk."""
        return self._through((chunk,), self._filters) if self._filters else (chunk,)

    def end(self) -> Sequence[bytes]:
        """What follows the last chunk."""
        left: list[bytes] = []
        for index, one in enumerate(self._filters):
            left += self._through(one.end(), self._filters[index + 1 :])
        return left

    @staticmethod
    def _through(chunks: Iterable[bytes], filters: Sequence[Filter]) -> list[bytes]:
        passing = list(chunks)
        for one in filters:
            passing = [piece for chunk in passing for piece in one(chunk)]
        return passing
