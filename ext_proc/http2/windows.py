"""What the peer may still send: flow control of what comes in (RFC 9113, section 5.2)."""

from __future__ import annotations

from collections.abc import Callable

from ext_proc.http2 import frames as f
from ext_proc.http2.frames import ErrorCode, ProtocolError
from ext_proc.http2.streams import Http2Stream


class ReceiveWindows:
    """Gives the peer credit again when half of a window is used; the windows are in bytes.

    `write` gets the frames.
    """

    def __init__(self, *, connection: int, stream: int, write: Callable[[bytes], object]) -> None:
        self.connection = connection
        self.stream = stream
        self._write = write
        self._received = 0

    def use(self, size: int) -> None:
        """Bytes came on the connection. Raises `ProtocolError` if the peer had no credit for them."""
        self._received += size
        if self._received > self.connection:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the peer sent more than the connection's window")
        if self._received * 2 > self.connection:
            self._write(f.window_update(0, self._received))
            self._received = 0

    def use_on(self, stream: Http2Stream, size: int) -> None:
        """Bytes came on a stream that goes on. Raises `ProtocolError` if the peer had no credit for them."""
        stream.received += size
        if stream.received > self.stream:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, f"the peer overran the window of stream {stream.id}")
        self.give(stream)

    def give(self, stream: Http2Stream) -> None:
        """Give a stream credit for what it has used, unless it is held or the peer has ended it."""
        if stream.received * 2 > self.stream and not (stream.held or stream.remote_end):
            self._write(f.window_update(stream.id, stream.received))
            stream.received = 0
