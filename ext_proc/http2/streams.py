"""A stream as both ends of a connection see it: its state, and the sink that is told about it."""

from __future__ import annotations

from typing import Literal, Protocol

from ext_proc.record import Headers

CloseKind = Literal["end", "reset", "refused", "lost"]


class Sink(Protocol):
    """Who owns a stream, and is told what the peer does with it."""

    def on_headers(self, headers: Headers, end: bool, /) -> None:
        """A header list arrived: the first is the head, later ones are trailers. `end`: the peer has ended its side."""

    def on_data(self, data: bytes, end: bool, /) -> None:
        """Data arrived."""

    def on_closed(self, kind: CloseKind, code: int, reason: str, /) -> None:
        """The stream is over, said at most once, and never for a reset of our own.

        `end`: both sides ended; `reset`: the peer sent RST_STREAM with `code`; `refused`: the peer did not process it;
        `lost`: the connection broke, `reason` says how. After our own reset, late frames still come to the sink.
        """


class Http2Stream:
    """The state of one stream."""

    __slots__ = ("finish", "held", "id", "in_turn", "local_end", "pending", "received", "remote_end", "sink", "window")

    def __init__(self, stream: int, sink: Sink, window: int) -> None:
        self.id = stream
        self.sink = sink
        self.window = window
        self.received = 0  # bytes that the peer has not been given credit for
        self.held = False  # it gets none now
        self.pending: list[memoryview] = []
        self.in_turn = False  # it is among those whose turn comes: thousands may be, so that none is looked for there
        self.finish: bytes | None = None  # frames that end our side, sent after `pending`; b"" rides on the last DATA
        self.local_end = False
        self.remote_end = False


class _Unwanted:
    """The sink of a stream that has no reader."""

    def on_headers(self, headers: Headers, end: bool, /) -> None: ...

    def on_data(self, data: bytes, end: bool, /) -> None: ...

    def on_closed(self, kind: CloseKind, code: int, reason: str, /) -> None: ...


UNWANTED = _Unwanted()
