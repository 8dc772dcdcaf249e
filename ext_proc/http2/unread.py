"""A client's connection of which nothing is read: the server may send one byte on each stream, and no more."""

from __future__ import annotations

from collections.abc import Callable

from ext_proc.http2.connection import ENVOY_SETTINGS, Http2Connection
from ext_proc.http2.frames import DEFAULT_WINDOW, Setting
from ext_proc.http2.streams import CloseKind, Sink
from ext_proc.record import Headers


class StalledConnection(Http2Connection):
    """Its streams have a window of one byte, which is never given again, as if the reader had stopped long ago.

    `stalled` is called when that byte came: the server has something to say and can't.
    """

    def __init__(self, stalled: Callable[[], object]) -> None:
        settings = tuple((name, 1 if name == Setting.INITIAL_WINDOW_SIZE else value) for name, value in ENVOY_SETTINGS)
        super().__init__(settings=settings, window=DEFAULT_WINDOW)
        self._stalled = stalled

    def open(self, headers: Headers, sink: Sink, *, end: bool = False) -> int:
        """See `Http2Connection`."""
        stream = super().open(headers, _Stalling(sink, self._stalled), end=end)
        self.hold(stream, held=True)
        return stream


class _Stalling:
    """Tells `sink` everything, and calls `stalled` when data comes."""

    def __init__(self, sink: Sink, stalled: Callable[[], object]) -> None:
        self._sink = sink
        self._stalled = stalled

    def on_headers(self, headers: Headers, end: bool, /) -> None:
        self._sink.on_headers(headers, end)

    def on_data(self, data: bytes, end: bool, /) -> None:
        self._sink.on_data(data, end)
        self._stalled()

    def on_closed(self, kind: CloseKind, code: int, reason: str, /) -> None:
        self._sink.on_closed(kind, code, reason)
