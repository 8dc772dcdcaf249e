"""One of the tap's connections: HTTP/2 whose flow control is that of the other side.

`Http2Connection` gives its peer new credit when data arrives, as an endpoint that consumes everything does. A relay has
consumed data only when it has passed them on, so a leg gives credit when it is told to. What it holds is bounded by the
windows, whichever side is slow.
"""

from __future__ import annotations

from collections.abc import Callable

from ext_proc.http2 import frames as f
from ext_proc.http2.connection import Http2Connection
from ext_proc.http2.frames import ErrorCode, ProtocolError, Setting
from ext_proc.http2.streams import Sink
from ext_proc.record import Headers

STREAM_WINDOW = 512 * 1024
"""Bytes of one stream that may wait in the tap, in each direction."""

CONNECTION_WINDOW = 16 * 1024 * 1024
"""Bytes of all streams of a connection that may wait, in each direction: 32 stalled streams do not stop the others."""

UNSENT_LIMIT = 256 * 1024
"""Bytes written to a leg whose socket takes nothing, above which it wants no more."""

_STREAMS = 1024
"""Streams that the data plane may open before the EPP has said how many it takes."""

_UNLIMITED = 1 << 62

_LEAVING = b"leaving?"
"""The PING after our GOAWAY: who acknowledges it has read both."""

_TO_EPP: f.Settings = ((Setting.ENABLE_PUSH, 0), (Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW))
_TO_DATA_PLANE: f.Settings = (
    (Setting.MAX_CONCURRENT_STREAMS, _STREAMS),
    (Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW),
)


class Credit:
    """A receive window: what arrived, and how much of it was passed on and not yet given back."""

    __slots__ = ("_free", "_limit", "_taken")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = self._free = 0

    def take(self, size: int) -> bool:
        """Bytes arrived. False if the peer had no credit for them."""
        self._taken += size
        return self._taken <= self._limit

    def give(self, size: int) -> int:
        """Bytes are gone: the increment for a WINDOW_UPDATE, 0 while it is not worth one."""
        self._free += size
        if self._free * 2 < self._limit:
            return 0
        increment, self._free = self._free, 0
        self._taken -= increment
        return increment

    @property
    def owed(self) -> int:
        """Bytes that arrived and are not gone."""
        return self._taken - self._free


class Leg(Http2Connection):
    """A connection to the EPP, or (with `accept`) from a data plane.

    `on_goaway(last_stream, code, debug)` is called before the streams that a GOAWAY refuses are closed, `on_room` when
    the socket has taken what was written, `on_told` when the peer knows that we leave.
    """

    def __init__(
        self,
        *,
        accept: Callable[[int, Headers, bool], Sink | None] | None = None,
        on_goaway: Callable[[int, int, bytes], None],
        on_room: Callable[[], None],
        on_told: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            settings=_TO_EPP if accept is None else _TO_DATA_PLANE, window=CONNECTION_WINDOW, accept=accept
        )
        self._windows.connection = self._windows.stream = _UNLIMITED  # credit is given below instead
        self._credit = Credit(CONNECTION_WINDOW)
        self._credits: dict[int, Credit] = {}
        self._on_goaway_said = on_goaway
        self._on_room = on_room
        self._on_told = on_told
        self.told = False
        """The peer has acknowledged that we leave: all streams that it opened before it knew are here."""
        self._unsent = 0
        self._silent = False

    # -- receiving -----------------------------------------------------------------------------------------------------

    def passed_on(self, stream_id: int, size: int) -> None:
        """`size` bytes of a stream have gone: the peer may send as many more."""
        credit = self._credits.get(stream_id)
        if credit is None:
            return  # over: all of it was given back
        increment = credit.give(size)
        if increment:
            self._sender.write(f.window_update(stream_id, increment))
        self._give(size)

    def forget(self, stream_id: int) -> None:
        """A stream is over: what of it was not passed on never will be."""
        credit = self._credits.pop(stream_id, None)
        if credit is not None and credit.owed:
            self._give(credit.owed)

    def allow(self, streams: int) -> None:
        """Tell the data plane that it may have `streams` streams open, as the EPP lets us. `accept` refuses others."""
        self._sender.write(f.settings(((Setting.MAX_CONCURRENT_STREAMS, streams),)))

    def _give(self, size: int) -> None:
        increment = self._credit.give(size)
        if increment:
            self._sender.write(f.window_update(0, increment))

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        if not self._credit.take(size):
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the peer sent more than the connection's window")
        if stream_id not in self._streams:
            self._give(size)
            super()._on_data(flags, stream_id, payload)
            return
        credit = self._credits.get(stream_id)
        if credit is None:
            credit = self._credits[stream_id] = Credit(STREAM_WINDOW)
        if not credit.take(size):
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, f"the peer overran the window of stream {stream_id}")
        padding = size - len(f.unpad(flags & f.PADDED, payload))
        if padding:
            self.passed_on(stream_id, padding)
        super()._on_data(flags, stream_id, payload)

    def _on_goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id and len(payload) >= 8:
            last, code = int.from_bytes(payload[:4]) & f.MAX_STREAM_ID, int.from_bytes(payload[4:8])
            self._on_goaway_said(last, code, payload[8:])
        super()._on_goaway(flags, stream_id, payload)

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        super()._on_ping(flags, stream_id, payload)
        if flags & f.ACK and payload == _LEAVING:
            self.told = True
            self._on_told()

    # -- sending -------------------------------------------------------------------------------------------------------

    def takes(self, stream_id: int) -> bool:
        """Whether more data of a stream may be sent without piling up here."""
        return self._unsent < UNSENT_LIMIT and not self.queued(stream_id)

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        self._unsent += len(data)
        super().send(stream_id, data, end=end)

    def output(self, budget: int = 65_536) -> bytes:
        data = super().output(budget)
        self._unsent = 0
        self._on_room()
        return data

    def leave(self) -> None:
        """Tell the data plane to open its next streams elsewhere. Those that it opens before it knows are taken."""
        if not self._closing:  # else it knows already, up to which stream; a GOAWAY must not name a higher one later
            self.goaway(last_stream=f.MAX_STREAM_ID)
        self._sender.write(f.frame(f.PING, 0, 0, _LEAVING))

    def hush(self) -> None:
        """Say no GOAWAY of our own any more: the other side said none either."""
        self._silent = True

    def goaway(self, code: int = ErrorCode.NO_ERROR, last_stream: int | None = None, debug: bytes = b"") -> None:
        if not self._silent:
            super().goaway(code, last_stream, debug)
