"""One HTTP/2 connection without I/O: bytes in, calls to sinks out, bytes to send on request (RFC 9113).

Both roles are here; they differ in who opens streams. Protocol errors of the peer end the connection with a reason,
they are never exceptions for the caller. Three habits are Envoy's: its opening bytes, streams that survive a graceful
GOAWAY, and no answer to frames that arrive after our own reset, which are still decoded, counted and handed on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from ext_proc.http2 import frames as f
from ext_proc.http2.fields import HEADER_LIST_LIMIT, FieldDecoder
from ext_proc.http2.frames import ErrorCode, ProtocolError, Setting
from ext_proc.http2.sender import Sender
from ext_proc.http2.streams import UNWANTED, CloseKind, Http2Stream, Sink
from ext_proc.http2.windows import ReceiveWindows
from ext_proc.record import Headers

ENVOY_SETTINGS: f.Settings = (
    (Setting.ENABLE_PUSH, 0),
    (Setting.HEADER_TABLE_SIZE, 4096),
    (Setting.ENABLE_CONNECT_PROTOCOL, 0),
    (Setting.MAX_CONCURRENT_STREAMS, 1024),
    (Setting.INITIAL_WINDOW_SIZE, 16 * 1024 * 1024),
)
"""What Envoy 1.40 sends to an upstream, in its order."""

ENVOY_CONNECTION_WINDOW = f.DEFAULT_WINDOW + 25_100_289

SERVER_SETTINGS: f.Settings = ((Setting.MAX_CONCURRENT_STREAMS, 1024), (Setting.INITIAL_WINDOW_SIZE, 16 * 1024 * 1024))

_QUIET_FRAMES = 10_000
"""Frames that carry nothing (PING, SETTINGS, RST_STREAM, headers that neither open nor end a stream, …) a peer may send
in a row before we call it a flood."""

_LATE_STREAMS = 1024
"""Streams that we reset or do not take, remembered for the frames that were already on their way."""


class Http2Connection:
    """The state of one connection. `accept(stream, headers, end)` makes the sink of a new stream (server role only)."""

    def __init__(
        self,
        *,
        settings: f.Settings = ENVOY_SETTINGS,
        window: int = ENVOY_CONNECTION_WINDOW,
        accept: Callable[[int, Headers, bool], Sink | None] | None = None,
    ) -> None:
        self.failure: str | None = None
        """Why the connection broke, if it did."""
        self.going_away = False
        """The peer sent GOAWAY: open streams go on, new ones are for another connection."""
        self.ready = False
        """The peer's SETTINGS arrived: it speaks HTTP/2."""
        self.stray = 0
        """DATA and HEADERS that came for streams that were over, or that we had reset."""
        self.max_streams = f.MAX_STREAM_ID
        """How many streams the peer lets us have open."""
        self._accept = accept
        self._awaits_preface = f.PREFACE if accept else b""
        self._streams: dict[int, Http2Stream] = {}
        self._late: OrderedDict[int, Http2Stream] = OrderedDict()  # a dict is slow to forget its oldest
        self._farewell = ""  # what the peer's GOAWAY said, if it was not a plain one
        self._closing = False  # we take no new streams, of our own or of the peer above _accept_up_to
        self._accept_up_to = f.MAX_STREAM_ID
        self._next_id = 1
        self._last_seen = 0  # the highest stream of the peer (server role)
        self._reader = f.FrameReader(dict(settings).get(Setting.MAX_FRAME_SIZE, f.DEFAULT_FRAME_SIZE))
        self._decoder = FieldDecoder()
        self._sender = Sender(self._local_end)
        self._block: tuple[int, int, bytearray] | None = None  # stream, flags, fragments: an unfinished header block
        self._quiet = 0
        stream_window = dict(settings).get(Setting.INITIAL_WINDOW_SIZE, f.DEFAULT_WINDOW)
        self._windows = ReceiveWindows(connection=window, stream=stream_window, write=self._sender.write)
        self._grants_streams = dict(settings).get(Setting.MAX_CONCURRENT_STREAMS, f.MAX_STREAM_ID)
        self._sender.write((b"" if accept else f.PREFACE) + f.settings(settings))
        if window > f.DEFAULT_WINDOW:
            self._sender.write(f.window_update(0, window - f.DEFAULT_WINDOW))
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            f.DATA: self._on_data,
            f.HEADERS: self._on_headers,
            f.RST_STREAM: self._on_rst_stream,
            f.SETTINGS: self._on_settings,
            f.PUSH_PROMISE: self._on_push_promise,
            f.PING: self._on_ping,
            f.GOAWAY: self._on_goaway,
            f.WINDOW_UPDATE: self._on_window_update,
            f.CONTINUATION: self._on_continuation,
        }

    # -- what the owner does -------------------------------------------------------------------------------------------

    @property
    def open_streams(self) -> int:
        """Streams that are not over on both sides."""
        return len(self._streams)

    @property
    def retired(self) -> bool:
        """True if no stream will ever be opened here again; open ones may go on."""
        return self.going_away or self._closing or self.failure is not None or self._next_id > f.MAX_STREAM_ID

    def can_open(self) -> bool:
        """True if a stream may be opened now."""
        return not self.retired and len(self._streams) < self.max_streams

    def open(self, headers: Headers, sink: Sink, *, end: bool = False) -> int:
        """Open a stream (client role) and return its number. Raises `RuntimeError` unless `can_open()`."""
        if not self.can_open():
            raise RuntimeError("this connection takes no new stream; ask can_open() first")
        stream = Http2Stream(self._next_id, sink, self._sender.stream_window)
        self._next_id += 2
        self._streams[stream.id] = stream
        self._sender.headers(stream, headers, end=end)
        return stream.id

    def send(self, stream_id: int, data: bytes, *, end: bool = False) -> None:
        """Queue `data`; what does not fit the windows waits. Silently nothing if the stream is over meanwhile."""
        stream = self._writable(stream_id)
        if stream is not None:
            self._sender.data(stream, data, end=end)

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool = False) -> None:
        """Send a header list (server role: head or trailers); with `end` it waits for queued data."""
        stream = self._writable(stream_id)
        if stream is not None:
            self._sender.headers(stream, headers, end=end)

    def reset(self, stream_id: int, code: int = ErrorCode.CANCEL) -> None:
        """End a stream with RST_STREAM, dropping what is queued. Nothing if it is over already."""
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        self._sender.write(f.rst_stream(stream_id, code))
        self._sender.drop(stream)
        if not stream.remote_end:
            self._keep_late(stream)

    def goaway(self, code: int = ErrorCode.NO_ERROR, last_stream: int | None = None, debug: bytes = b"") -> None:
        """Say GOAWAY; `last_stream` defaults to the highest stream of the peer that we take. Streams up to it go on."""
        self._closing = True
        self._accept_up_to = min(self._last_seen, self._accept_up_to) if last_stream is None else last_stream
        self._sender.write(f.goaway(self._accept_up_to, code, debug))

    def write_raw(self, data: bytes) -> None:
        """Put `data` on the wire as it is: for frames that are wrong on purpose. Opens no new streams afterwards."""
        self._closing = True
        self._sender.write(data)

    def hold(self, stream_id: int, held: bool) -> None:
        """Give the peer no more credit for a stream while it is `held`: it may send what the window still has."""
        if (stream := self._streams.get(stream_id)) is not None:
            stream.held = held
            self._windows.give(stream)

    def queued(self, stream_id: int) -> int:
        """Bytes of a stream that wait for window or for their turn."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else sum(len(part) for part in stream.pending)

    def sending(self, stream_id: int) -> int:
        """What `Sender.sending` says of a stream."""
        stream = self._streams.get(stream_id)
        return 0 if stream is None else self._sender.sending(stream)

    def has_output(self) -> bool:
        """True if `output` would give something."""
        return self._sender.has_output()

    def output(self, budget: int = 65_536) -> bytes:
        """What to write now: all control frames, and up to about `budget` bytes of queued data, fairly shared."""
        return self._sender.output(budget)

    def output_size(self) -> int:
        """Bytes of frames that wait to be fetched, without queued data."""
        return self._sender.size()

    # -- what the peer does --------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take bytes from the peer; sinks are called from here. Afterwards look at `failure`."""
        if self.failure is not None:
            return
        try:
            if self._awaits_preface:
                data = self._preface(data)
            for kind, flags, stream, payload in self._reader.feed(data):
                if not self.ready and kind != f.SETTINGS:
                    raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the peer's first frame was not SETTINGS")
                if self._block is not None and kind != f.CONTINUATION:
                    raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the peer interrupted a header block")
                handler = self._handlers.get(kind)
                self._quiet = 0 if self._sender.sent_data else self._quiet + 1
                self._sender.sent_data = False
                if handler is not None:
                    handler(flags, stream, payload)
                if self._quiet > _QUIET_FRAMES:
                    raise ProtocolError(
                        ErrorCode.ENHANCE_YOUR_CALM, f"the peer sent {self._quiet} frames in a row that carry nothing"
                    )
                if self.failure is not None:
                    return
        except ProtocolError as problem:
            self._sender.write(f.goaway(self._last_seen, problem.code))
            self.lost(str(problem))

    def lost(self, reason: str) -> None:
        """The connection is gone: every open stream ends as `lost`. Idempotent."""
        if self.failure is not None:
            return
        self.failure = reason = reason + self._farewell
        self._sender.clear()
        self._late.clear()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.sink.on_closed("lost", ErrorCode.INTERNAL_ERROR, reason)

    def _preface(self, data: bytes) -> bytes:
        """Strip the client preface from the front of `data`; raises `ProtocolError` if it is something else."""
        expected = self._awaits_preface[: len(data)]
        if not data.startswith(expected):
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the peer did not send the HTTP/2 preface")
        self._awaits_preface = self._awaits_preface[len(expected) :]
        return data[len(expected) :]

    def _on_data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        stream = self._known(stream_id, "DATA")
        self._windows.use(size)
        end = bool(flags & f.END_STREAM)
        if size or end:
            self._quiet = 0
        data = f.unpad(f.PADDED, payload) if flags & f.PADDED else payload
        late = stream_id not in self._streams
        self.stray += late
        if stream is None or stream.remote_end:
            return
        if not end and size and not late:
            self._windows.use_on(stream, size)
        stream.remote_end = end
        stream.sink.on_data(data, end)
        if end:
            self._remote_end(stream)

    def _on_headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        block = f.unpad(flags, payload)
        if flags & f.END_HEADERS:
            self._on_fields(stream_id, flags, block)
        else:
            self._block = (stream_id, flags, bytearray(block))

    def _on_continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != stream_id:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the peer sent CONTINUATION without a header block")
        _, first_flags, block = self._block
        block += payload
        if len(block) > HEADER_LIST_LIMIT:
            raise ProtocolError(ErrorCode.ENHANCE_YOUR_CALM, f"the peer sent over {HEADER_LIST_LIMIT} bytes of headers")
        if flags & f.END_HEADERS:
            self._block = None
            self._on_fields(stream_id, first_flags, bytes(block))

    def _on_fields(self, stream_id: int, flags: int, block: bytes) -> None:
        headers, end = self._decoder.decode(block), bool(flags & f.END_STREAM)
        if self._accept is not None and stream_id > self._last_seen and stream_id % 2:
            self._quiet = 0
            self._open_remote(stream_id, headers, end)
            return
        stream = self._known(stream_id, "HEADERS")
        self.stray += stream_id not in self._streams
        if stream is None or stream.remote_end:
            return
        stream.remote_end = end
        stream.sink.on_headers(headers, end)
        if end:
            self._quiet = 0
            self._remote_end(stream)

    def _open_remote(self, stream_id: int, headers: Headers, end: bool) -> None:
        assert self._accept is not None
        self._last_seen = stream_id
        full = len(self._streams) >= self._grants_streams
        # The sink may answer at once, so the stream must be there before its sink is.
        stream = Http2Stream(stream_id, UNWANTED, self._sender.stream_window)
        stream.remote_end = end
        if stream_id > self._accept_up_to:
            self._keep_late(stream)
            return
        self._streams[stream_id] = stream
        sink = None if full else self._accept(stream_id, headers, end)
        if sink is None:
            self.reset(stream_id, ErrorCode.REFUSED_STREAM)
        else:
            stream.sink = sink

    def _on_rst_stream(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "the peer sent a RST_STREAM of a wrong size")
        self._known(stream_id, "RST_STREAM")
        stream = self._streams.pop(stream_id, None)
        self._late.pop(stream_id, None)
        if stream is None:
            return
        self._sender.drop(stream)
        code = int.from_bytes(payload)
        kind: CloseKind = "refused" if code == ErrorCode.REFUSED_STREAM else "reset"
        stream.sink.on_closed(kind, code, f"RST_STREAM {f.code_name(code)}")

    def _on_settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) % 6 or (flags & f.ACK and payload):
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "the peer sent a malformed SETTINGS frame")
        if flags & f.ACK:
            return
        for at in range(0, len(payload), 6):
            self._on_setting(int.from_bytes(payload[at : at + 2]), int.from_bytes(payload[at + 2 : at + 6]))
        self.ready = True
        self._sender.write(f.frame(f.SETTINGS, f.ACK, 0))

    def _on_setting(self, name: int, value: int) -> None:
        if name == Setting.MAX_CONCURRENT_STREAMS:
            self.max_streams = value
        elif name == Setting.MAX_FRAME_SIZE:
            if not f.DEFAULT_FRAME_SIZE <= value < 2**24:
                raise ProtocolError(ErrorCode.PROTOCOL_ERROR, f"the peer set MAX_FRAME_SIZE to {value}")
            self._sender.frame_size = value
        elif name == Setting.INITIAL_WINDOW_SIZE:
            self._sender.set_stream_window(value, self._streams.values())

    def _on_push_promise(self, _flags: int, _stream_id: int, _payload: bytes) -> None:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the peer sent PUSH_PROMISE")

    def _on_ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) != 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "the peer sent a malformed PING")
        if not flags & f.ACK:
            self._sender.write(f.frame(f.PING, f.ACK, 0, payload))

    def _on_goaway(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) < 8:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "the peer sent a malformed GOAWAY")
        self.going_away = True
        if self._accept is not None:
            return
        last, code = int.from_bytes(payload[:4]) & f.MAX_STREAM_ID, int.from_bytes(payload[4:8])
        if code:
            self._farewell = f", after GOAWAY {f.code_name(code)} {payload[8:208].decode('latin-1')}".rstrip()
        for stream in [one for one in self._streams.values() if one.id > last]:
            self._sender.drop(self._streams.pop(stream.id))
            stream.sink.on_closed("refused", code, f"GOAWAY {f.code_name(code)}, last stream {last}")
        if code and self._closing:  # what we wrote raw ended it, and not every peer closes it then (Node.js)
            self.lost("the peer ended the connection")

    def _on_window_update(self, _flags: int, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "the peer sent a WINDOW_UPDATE of a wrong size")
        increment = int.from_bytes(payload) & f.MAX_WINDOW
        if increment == 0:
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the peer sent a WINDOW_UPDATE of 0")
        if stream_id == 0:
            self._sender.widen_connection(increment)
        else:
            self._known(stream_id, "WINDOW_UPDATE")
            if (stream := self._streams.get(stream_id)) is not None:
                self._sender.widen(stream, increment)

    # -- bookkeeping ---------------------------------------------------------------------------------------------------

    def _known(self, stream_id: int, what: str) -> Http2Stream | None:
        """The stream, open or reset by us; None if it is over. Raises `ProtocolError` if it never was."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            return stream
        never = stream_id >= self._next_id if self._accept is None else stream_id > self._last_seen
        if never or stream_id % 2 == 0:
            problem = f"the peer sent {what} on stream {stream_id}, which is not open"
            raise ProtocolError(ErrorCode.PROTOCOL_ERROR, problem)
        return self._late.get(stream_id)

    def _keep_late(self, stream: Http2Stream) -> None:
        self._late[stream.id] = stream
        if len(self._late) > _LATE_STREAMS:
            self._late.popitem(last=False)

    def _writable(self, stream_id: int) -> Http2Stream | None:
        stream = self._streams.get(stream_id)
        if stream is not None and stream.local_end:
            raise RuntimeError(f"our side of stream {stream_id} is closed already")
        return stream

    def _local_end(self, stream: Http2Stream) -> None:
        if stream.remote_end and self._streams.pop(stream.id, None) is not None:
            stream.sink.on_closed("end", 0, "")

    def _remote_end(self, stream: Http2Stream) -> None:
        self._late.pop(stream.id, None)
        if stream.local_end and not stream.pending and self._streams.pop(stream.id, None) is not None:
            stream.sink.on_closed("end", 0, "")
