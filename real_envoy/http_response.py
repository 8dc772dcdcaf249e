"""What a client got from a gateway, whole and as it comes in."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

from ext_proc.record import Headers
from fake_proxy.client import Abort, AbortPoint

MOST = 64 * 1024 * 1024
"""Bytes of a body, at most: the largest that a scenario sends."""

KEPT = 1024 * 1024
"""Bytes that are kept of a body that did not end: enough to show what came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """What a client got. `status` is None if nothing came; `complete` is False if the response was cut or never ended.

    `headers` are without pseudo-headers. `pieces` are the body as it arrived: chunks of HTTP/1.1, DATA of HTTP/2.
    """

    status: int | None = None
    headers: Headers = ()
    pieces: tuple[bytes, ...] = ()
    trailers: Headers = ()
    complete: bool = False
    expired: bool = False
    """The time was over before the response was complete."""
    endless: bool = False
    """The body was larger than `MOST`. Of it, and of one that had not ended in time, at most `KEPT` bytes are here."""
    aborted: bool = False
    """The client went away as its request said."""

    @property
    def body(self) -> bytes:
        """The pieces put together."""
        return b"".join(self.pieces)


@dataclass(slots=True)
class ResponseParts:
    """The response as it comes in, and the end of waiting for it."""

    abort: Abort | None
    gone: Callable[[AbortPoint], None] | None = None
    status: int | None = None
    headers: Headers = ()
    pieces: list[bytes] = field(default_factory=list)
    trailers: Headers = ()
    complete: bool = False
    expired: bool = False
    endless: bool = False
    aborted: bool = False
    size: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start `work`; an error that it ends with ends the waiting, and is raised where the task is awaited."""

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                self.over.set()

        task = asyncio.ensure_future(work)
        task.add_done_callback(ended)
        return task

    def reached(self, point: AbortPoint, count: int = 1) -> bool:
        """Note that the exchange is at `point` for the `count`th time; True if the client goes away here."""
        if self.due(point, count) and not self.over.is_set():
            self.aborted = True
            if self.gone is not None:
                self.gone(point)
            self.over.set()
        return self.aborted

    def due(self, point: AbortPoint, count: int = 1) -> bool:
        """Whether the client goes away at `point`, the `count`th time."""
        return self.abort is not None and self.abort.at == point and self.abort.after == count

    def head(self, status: int, headers: Headers) -> None:
        """The response begins."""
        self.status, self.headers = status, headers
        self.reached("response-headers")

    def data(self, piece: bytes) -> None:
        """Body."""
        if piece and not self.aborted:
            self.pieces.append(piece)
            self.size += len(piece)
            self.reached("response-body", len(self.pieces))
            if self.size > MOST:
                self.endless = True
                self.end(complete=False)

    def end(self, *, complete: bool) -> None:
        """Nothing comes any more."""
        if not self.over.is_set():
            self.complete = complete
            self.over.set()

    def result(self) -> HttpResponse:
        """What was got."""
        return HttpResponse(
            status=self.status,
            headers=self.headers,
            pieces=tuple(self._beginning() if self.expired or self.endless else self.pieces),
            trailers=self.trailers,
            complete=self.complete,
            expired=self.expired,
            endless=self.endless,
            aborted=self.aborted,
        )

    def _beginning(self) -> Iterator[bytes]:
        ends = itertools.accumulate(map(len, self.pieces))
        return (piece for piece, end in zip(self.pieces, ends, strict=True) if end <= KEPT)
