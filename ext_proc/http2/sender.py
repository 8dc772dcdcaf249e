"""What goes out on a connection: control frames at once, data as windows allow, streams in turn (RFC 9113, 5.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from ext_proc.http2 import frames as f
from ext_proc.http2.fields import FieldEncoder
from ext_proc.http2.frames import ErrorCode, ProtocolError
from ext_proc.http2.streams import Http2Stream
from ext_proc.record import Headers


class Sender:
    """Frames to write. `ended(stream)` is called when the last frame of our side of a stream is among them."""

    def __init__(self, ended: Callable[[Http2Stream], None]) -> None:
        self.frame_size = f.DEFAULT_FRAME_SIZE
        """The largest frame the peer takes."""
        self.stream_window = f.DEFAULT_WINDOW
        """The window with which the peer's streams start."""
        self.sent_data = False
        """True once DATA was sent; its reader sets it back."""
        self.sent = 0
        """Bytes of DATA that were sent in all."""
        self._ended = ended
        self._encoder = FieldEncoder()
        self._out: list[bytes] = []
        self._window = f.DEFAULT_WINDOW
        self._turns: deque[Http2Stream] = deque()  # streams that had data queued and window for it, each once

    def write(self, data: bytes) -> None:
        """Put bytes behind what is there."""
        self._out.append(data)

    def headers(self, stream: Http2Stream, headers: Headers, *, end: bool) -> None:
        """Send a header list; one that ends the stream waits behind its queued data."""
        encoded = f.headers(stream.id, self._encoder.encode(headers), end=end, size=self.frame_size)
        if end and stream.pending:
            stream.local_end, stream.finish = True, encoded
            return
        self._out.append(encoded)
        if end:
            self._end(stream)

    def data(self, stream: Http2Stream, data: bytes, *, end: bool) -> None:
        """Send data, or queue it where it does not fit into one frame and the windows now."""
        size = len(data)
        fits = size <= self._window and size <= stream.window and size <= self.frame_size
        if not stream.pending and (fits or not size):
            self._data_frame(stream, data, end=end)
            if end:
                self._end(stream)
            return
        if size:
            stream.pending.append(memoryview(data))
        if end:
            stream.local_end, stream.finish = True, b""
        self._take_turns(stream)

    def sending(self, stream: Http2Stream) -> int:
        """0 if nothing of a stream waits; else a number that changes as long as what waits comes nearer to leaving:
        with what leaves of any stream, or only of this one if it is the stream's own window that is closed."""
        if not stream.pending:
            return 0
        return self.sent + 1 if stream.window > 0 else -sum(map(len, stream.pending))

    def drop(self, stream: Http2Stream) -> None:
        """Forget what is queued for a stream."""
        stream.finish = None
        stream.pending.clear()

    def widen(self, stream: Http2Stream, change: int) -> None:
        """The peer widened a stream's window. Raises `ProtocolError` if that is too far."""
        stream.window += change
        if stream.window > f.MAX_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, f"the peer widened stream {stream.id}'s window too far")
        self._take_turns(stream)

    def widen_connection(self, change: int) -> None:
        """The peer widened the connection's window. Raises `ProtocolError` if that is too far."""
        self._window += change
        if self._window > f.MAX_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, "the peer widened the connection's window too far")

    def set_stream_window(self, value: int, streams: Iterable[Http2Stream]) -> None:
        """The peer's INITIAL_WINDOW_SIZE: for open streams too, whose windows it may make negative (section 6.9.2)."""
        if value > f.MAX_WINDOW:
            raise ProtocolError(ErrorCode.FLOW_CONTROL_ERROR, f"the peer set INITIAL_WINDOW_SIZE to {value}")
        change, self.stream_window = value - self.stream_window, value
        for stream in streams:
            self.widen(stream, change)

    def has_output(self) -> bool:
        """True if `output` would give something."""
        return bool(self._out) or (bool(self._turns) and self._window > 0)

    def size(self) -> int:
        """Bytes of the frames that wait to be fetched, without queued data."""
        return sum(map(len, self._out))

    def clear(self) -> None:
        """No stream gets a turn any more: the connection is lost."""
        self._turns.clear()

    def output(self, budget: int) -> bytes:
        """All frames, and up to about `budget` bytes of queued data: one frame a stream and turn."""
        while self._turns and budget > 0 and self._window > 0:
            stream = self._turns.popleft()
            stream.in_turn = False
            if not stream.pending:
                continue  # it was dropped
            part = stream.pending[0]
            size = min(len(part), self.frame_size, stream.window, self._window)
            if size <= 0:
                continue  # WINDOW_UPDATE gives it a turn again
            if size == len(part):
                del stream.pending[0]
            else:
                stream.pending[0] = part[size:]
            budget -= size
            end = stream.finish == b"" and not stream.pending
            self._data_frame(stream, bytes(part[:size]), end=end)
            if stream.pending:
                self._take_turns(stream)
            elif stream.finish is not None:
                self._out.append(stream.finish)
                stream.finish = None
                self._end(stream)
        data = b"".join(self._out)
        self._out.clear()
        return data

    def _data_frame(self, stream: Http2Stream, data: bytes, *, end: bool) -> None:
        size = len(data)
        stream.window -= size
        self._window -= size
        self.sent_data = True
        self.sent += size
        self._out.append(f.frame(f.DATA, f.END_STREAM if end else 0, stream.id, data))

    def _end(self, stream: Http2Stream) -> None:
        stream.local_end = True
        self._ended(stream)

    def _take_turns(self, stream: Http2Stream) -> None:
        if stream.pending and stream.window > 0 and not stream.in_turn:
            stream.in_turn = True
            self._turns.append(stream)
