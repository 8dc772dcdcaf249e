"""The connection without I/O: against ourselves, against h2 as a strict peer, and against peers that mean no good."""

from __future__ import annotations

import gc

import h2.config
import h2.connection
import h2.events
import pytest
from hyperframe.frame import Frame
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_proc.http2 import frames
from ext_proc.http2.connection import SERVER_SETTINGS, Http2Connection
from ext_proc.http2.fields import FieldEncoder
from ext_proc.http2.frames import ErrorCode, Setting
from ext_proc.http2.streams import Http2Stream
from ext_proc.record import Headers

REQUEST: Headers = (
    (b":method", b"POST"),
    (b":path", b"/svc/Method"),
    (b":authority", b"epp"),
    (b":scheme", b"http"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)
RESPONSE: Headers = ((b":status", b"200"), (b"content-type", b"application/grpc"))
TRAILERS: Headers = ((b"grpc-status", b"0"),)


class Log:
    """A sink that notes what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def on_headers(self, headers: Headers, end: bool) -> None:
        self.events.append(("headers", headers, end))

    def on_data(self, data: bytes, end: bool) -> None:
        self.events.append(("data", data, end))

    def on_closed(self, kind: str, code: int, reason: str) -> None:
        self.events.append(("closed", kind, code, reason))

    @property
    def closed(self) -> tuple[object, ...] | None:
        return next((one[1:3] for one in self.events if one[0] == "closed"), None)

    @property
    def data(self) -> bytes:
        return b"".join(one[1] for one in self.events if one[0] == "data" and isinstance(one[1], bytes))


class Pair:
    """Our client and our server, joined by bytes cut at any place."""

    def __init__(self, server_settings: frames.Settings = SERVER_SETTINGS, cut: int | None = None, **client) -> None:
        self.client = Http2Connection(**client)
        self.sinks: dict[int, Log] = {}
        self.server = Http2Connection(settings=server_settings, accept=self._accept)
        self.cut = cut
        self.to_server = b""
        self.to_client = b""

    def _accept(self, stream: int, headers: Headers, end: bool) -> Log:
        self.sinks[stream] = Log()
        self.sinks[stream].on_headers(headers, end)
        return self.sinks[stream]

    def settle(self) -> None:
        """Carry bytes until neither side has any."""
        while self.client.has_output() or self.server.has_output():
            for source, target, name in (
                (self.client, self.server, "to_server"),
                (self.server, self.client, "to_client"),
            ):
                data = source.output()
                setattr(self, name, getattr(self, name) + data)
                step = self.cut or max(len(data), 1)
                for at in range(0, len(data), step):
                    target.receive(data[at : at + step])


def hyper(data: bytes) -> list[Frame]:
    found = []
    data = data.removeprefix(frames.PREFACE)
    while data:
        one, length = Frame.parse_frame_header(memoryview(data[:9]), strict=True)
        one.parse_body(memoryview(data[9 : 9 + length]))
        found.append(one)
        data = data[9 + length :]
    return found


def ready_client(extra: bytes = b"") -> Http2Connection:
    """A client that got a server's SETTINGS and has nothing to say."""
    client = Http2Connection()
    client.receive(frames.settings(((Setting.MAX_CONCURRENT_STREAMS, 100),)) + extra)
    client.output()
    return client


# -- the plain course --------------------------------------------------------------------------------------------------


def test_the_preamble_is_envoys() -> None:
    written = Http2Connection().output()
    assert written == (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + bytes.fromhex("00001e 04 00 00000000 0002 00000000 0001 00001000 0008 00000000 0003 00000400 0004 01000000")
        + bytes.fromhex("000004 08 00 00000000 017f0001")
    )


@pytest.mark.parametrize("cut", [1, 7, None])
def test_a_call_in_both_directions(cut: int | None) -> None:
    pair = Pair(cut=cut)
    sink = Log()
    stream = pair.client.open(REQUEST, sink)
    pair.client.send(stream, b"question")
    pair.client.send(stream, b"", end=True)
    pair.settle()
    assert pair.sinks[1].events == [("headers", REQUEST, False), ("data", b"question", False), ("data", b"", True)]
    pair.server.send_headers(1, RESPONSE)
    pair.server.send(1, b"answer")
    pair.server.send_headers(1, TRAILERS, end=True)
    pair.settle()
    assert sink.events == [
        ("headers", RESPONSE, False),
        ("data", b"answer", False),
        ("headers", TRAILERS, True),
        ("closed", "end", 0, ""),
    ]
    assert pair.sinks[1].closed == ("end", 0)
    assert pair.client.open_streams == pair.server.open_streams == 0
    assert hyper(pair.to_server)
    assert hyper(pair.to_client)


def test_large_bodies_keep_the_peers_windows_and_share_the_way() -> None:
    pair = Pair(server_settings=((Setting.INITIAL_WINDOW_SIZE, 70_000),))
    large, small = Log(), Log()
    first = pair.client.open(REQUEST, large)
    second = pair.client.open(REQUEST, small)
    body = bytes(range(256)) * 8000
    pair.client.send(first, body, end=True)
    pair.client.send(second, b"small" * 8000, end=True)
    pair.settle()
    assert pair.sinks[first].data == body
    assert pair.sinks[second].data == b"small" * 8000
    order = [one.stream_id for one in hyper(pair.to_server) if type(one).__name__ == "DataFrame"]
    last_small = max(at for at, stream in enumerate(order) if stream == second)
    assert order[: last_small + 1].count(first) <= order.count(second) + 5, "the small stream waited for the large one"


def test_the_progress_of_waiting_data_is_reported() -> None:
    pair = Pair(server_settings=((Setting.INITIAL_WINDOW_SIZE, 100),))
    pair.settle()
    client = pair.client
    waiting, other = client.open(REQUEST, Log()), client.open(REQUEST, Log())
    client.send(waiting, b"x" * 60)
    assert client.sending(waiting) == 0
    client.send(waiting, b"x" * 60)
    before = client.sending(waiting)
    client.output()
    closed = client.sending(waiting)
    assert 0 != closed != before  # forty have left
    client.send(other, b"y" * 60)
    assert client.sending(waiting) == closed  # it is this stream that the peer takes no more of
    client.receive(frames.window_update(waiting, 100))
    client.output()
    assert client.sending(waiting) == 0 == client.sending(99)


def test_waiting_streams_are_not_searched(monkeypatch) -> None:
    """With 20,000 that wait for the connection's window, each message would take as long as all of them."""
    compared: list[object] = []
    monkeypatch.setattr(Http2Stream, "__eq__", lambda one, other: compared.append(other) or one is other)
    pair = Pair(server_settings=((Setting.INITIAL_WINDOW_SIZE, 1 << 20),))
    pair.settle()
    client = pair.client
    streams = [client.open(REQUEST, Log()) for _ in range(20)]
    for _ in range(2):
        for one in streams:
            client.send(one, b"x" * 20_000)  # more than a frame: it waits for its turn
    for one in streams[::2]:
        client.reset(one)
    pair.settle()
    assert not compared
    assert all(pair.sinks[one].data == b"x" * 40_000 for one in streams[1::2])
    assert not client.has_output()


def test_trailers_wait_behind_queued_data() -> None:
    pair = Pair(settings=((Setting.INITIAL_WINDOW_SIZE, 10),), window=65_535)
    sink = Log()
    pair.client.open(REQUEST, sink, end=True)
    pair.settle()
    pair.server.send_headers(1, RESPONSE)
    pair.server.send(1, b"0123456789abcdef" * 5)
    pair.server.send_headers(1, TRAILERS, end=True)
    pair.settle()
    assert sink.data == b"0123456789abcdef" * 5
    assert sink.events[-2:] == [("headers", TRAILERS, True), ("closed", "end", 0, "")]


def test_a_peers_window_can_shrink_below_zero_and_grow_again() -> None:
    client = ready_client()
    sink = Log()
    stream = client.open(REQUEST, sink)
    client.send(stream, b"x" * 1000)
    client.output()
    client.receive(frames.settings(((Setting.INITIAL_WINDOW_SIZE, 0),)))
    client.send(stream, b"y" * 10, end=True)
    assert [type(one).__name__ for one in hyper(client.output())] == ["SettingsFrame"]
    client.receive(frames.window_update(stream, 1000))
    assert client.output() == b""
    client.receive(frames.window_update(stream, 10))
    (data,) = hyper(client.output())
    assert (data.data, data.flags) == (b"y" * 10, {"END_STREAM"})


def test_an_empty_end_needs_no_window() -> None:
    client = ready_client(frames.settings(((Setting.INITIAL_WINDOW_SIZE, 0),)))
    stream = client.open(REQUEST, Log())
    client.send(stream, b"", end=True)
    assert [type(one).__name__ for one in hyper(client.output())] == ["HeadersFrame", "DataFrame"]


def test_received_bytes_are_all_credited() -> None:
    """Padding and tiny frames count: a peer may send more than the window in total, without end."""
    pair = Pair(settings=((Setting.INITIAL_WINDOW_SIZE, 1000),), window=65_535)
    sink = Log()
    pair.client.open(REQUEST, sink, end=True)
    pair.settle()
    pair.server.output()
    for _ in range(3000):
        pair.client.receive(frames.frame(frames.DATA, frames.PADDED, 1, b"\x09" + b"d" * 90 + b"P" * 9))
        assert pair.client.failure is None
    updates = [one for one in hyper(pair.client.output()) if type(one).__name__ == "WindowUpdateFrame"]
    assert sum(one.window_increment for one in updates if one.stream_id == 1) >= 300_000 - 1000
    assert sum(one.window_increment for one in updates if one.stream_id == 0) >= 300_000 - 65_535


def test_ping_and_settings_are_answered() -> None:
    client = ready_client()
    client.receive(frames.frame(frames.PING, 0, 0, b"12345678") + frames.settings(()))
    ping, acknowledged = hyper(client.output())
    assert (ping.opaque_data, ping.flags, acknowledged.flags) == (b"12345678", {"ACK"}, {"ACK"})
    client.receive(frames.frame(frames.PING, frames.ACK, 0, b"12345678"))
    assert client.output() == b""


def test_unknown_frames_padding_priority_and_continuation_are_read() -> None:
    client = ready_client()
    sink = Log()
    client.open(REQUEST, sink)
    block = FieldEncoder().encode(RESPONSE)
    client.receive(
        frames.frame(0x77, 0xFF, 1, b"whatever")
        + frames.frame(frames.PRIORITY, 0, 1, b"12345")
        + frames.frame(frames.HEADERS, frames.PADDED | frames.PRIORITY_FLAG, 1, b"\x02" + b"12345" + block[:3] + b"PP")
        + frames.frame(frames.CONTINUATION, 0, 1, block[3:5])
        + frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[5:])
        + frames.frame(frames.DATA, frames.PADDED | frames.END_STREAM, 1, b"\x03okPPP")
    )
    assert client.failure is None
    assert sink.events == [("headers", RESPONSE, False), ("data", b"ok", True)]


# -- limits, refusals and endings --------------------------------------------------------------------------------------


def test_the_peers_stream_limit_is_kept() -> None:
    pair = Pair(server_settings=((Setting.MAX_CONCURRENT_STREAMS, 2),))
    pair.settle()
    first, _ = pair.client.open(REQUEST, Log()), pair.client.open(REQUEST, Log())
    assert not pair.client.can_open()
    with pytest.raises(RuntimeError, match="can_open"):
        pair.client.open(REQUEST, Log())
    pair.client.reset(first)
    assert pair.client.can_open()


def test_a_stream_above_our_limit_is_refused() -> None:
    pair = Pair(server_settings=((Setting.MAX_CONCURRENT_STREAMS, 1),))
    sinks = [Log(), Log()]  # opened before the limit is known
    for sink in sinks:
        pair.client.open(REQUEST, sink)
    pair.settle()
    assert sinks[1].closed == ("refused", ErrorCode.REFUSED_STREAM)
    assert sinks[0].closed is None


def test_a_graceful_goaway_lets_streams_finish_and_refuses_those_above() -> None:
    pair = Pair()
    kept, refused = Log(), Log()
    pair.client.open(REQUEST, kept, end=True)
    pair.settle()
    pair.server.goaway(last_stream=2**31 - 1)
    pair.settle()
    assert pair.client.going_away
    assert not pair.client.can_open()
    assert kept.closed is None
    client = pair.client
    client.going_away = False  # the stream that crossed the first GOAWAY on its way
    client.open(REQUEST, refused)
    pair.server.goaway(last_stream=1)
    pair.settle()
    assert refused.closed == ("refused", 0)
    pair.server.send_headers(1, RESPONSE)
    pair.server.send(1, b"late but fine")
    pair.server.send_headers(1, TRAILERS, end=True)
    pair.settle()
    assert kept.closed == ("end", 0)
    assert kept.data == b"late but fine"


def test_a_later_goaway_names_no_higher_stream() -> None:
    pair = Pair()
    pair.client.open(REQUEST, Log())
    pair.client.open(REQUEST, Log())
    pair.settle()
    pair.server.goaway(last_stream=1)
    pair.settle()
    pair.server.goaway()
    assert pair.server.output() == frames.goaway(1, 0)


def test_streams_opened_against_our_goaway_take_bounded_memory() -> None:
    pair = Pair()
    pair.settle()
    pair.server.goaway()
    block = FieldEncoder().encode(REQUEST)
    before = streams_in_memory()
    for number in range(1, 20_001, 2):
        pair.server.receive(frames.headers(number, block, end=False))
    assert pair.server.failure is None
    assert streams_in_memory() - before < 2_000


def streams_in_memory() -> int:
    gc.collect()
    return sum(isinstance(one, Http2Stream) for one in gc.get_objects())


def test_a_reset_by_the_peer_reaches_the_sink() -> None:
    pair = Pair()
    sink = Log()
    stream = pair.client.open(REQUEST, sink)
    pair.settle()
    pair.server.reset(stream, ErrorCode.INTERNAL_ERROR)
    pair.settle()
    assert sink.closed == ("reset", ErrorCode.INTERNAL_ERROR)
    assert pair.client.open_streams == pair.server.open_streams == 0
    pair.client.send(stream, b"too late")
    assert not pair.client.has_output()


def test_frames_after_our_reset_are_seen_counted_and_not_answered() -> None:
    pair = Pair()
    sink = Log()
    stream = pair.client.open(REQUEST, sink)
    pair.settle()
    pair.client.reset(stream, ErrorCode.INTERNAL_ERROR)
    pair.server.send_headers(stream, RESPONSE)
    pair.server.send(stream, b"was on its way")
    pair.server.send_headers(stream, TRAILERS, end=True)
    pair.client.receive(pair.server.output())
    sent = [type(one).__name__ for one in hyper(pair.client.output())]
    assert sent == ["RstStreamFrame"]
    assert [one[0] for one in sink.events] == ["headers", "data", "headers"]
    assert pair.client.stray == 3
    again = Log()
    pair.client.open(REQUEST, again, end=True)
    pair.settle()
    assert pair.client.failure is None


def test_a_reset_drops_what_is_queued() -> None:
    client = ready_client(frames.settings(((Setting.INITIAL_WINDOW_SIZE, 5),)))
    stream = client.open(REQUEST, Log())
    client.send(stream, b"0123456789")
    client.output()
    client.reset(stream)
    client.receive(frames.window_update(stream, 100))
    assert [type(one).__name__ for one in hyper(client.output())] == ["RstStreamFrame"]


def test_streams_are_lost_with_the_connection() -> None:
    client = ready_client()
    sinks = [Log() for _ in range(3)]
    for sink in sinks:
        client.open(REQUEST, sink)
    client.lost("cable cut")
    client.lost("again")
    assert [sink.events for sink in sinks] == [[("closed", "lost", ErrorCode.INTERNAL_ERROR, "cable cut")]] * 3
    assert not client.can_open()


# -- h2 as a strict peer -----------------------------------------------------------------------------------------------


def strict(client_side: bool) -> h2.connection.H2Connection:
    config = h2.config.H2Configuration(client_side=client_side, header_encoding=None)
    peer = h2.connection.H2Connection(config=config)
    peer.initiate_connection()
    return peer


def test_h2_accepts_our_client() -> None:
    client, peer = Http2Connection(), strict(client_side=False)
    sink = Log()
    client.receive(peer.data_to_send())
    stream = client.open(REQUEST, sink)
    body = b"q" * 200_000
    client.send(stream, body, end=True)
    received = b""
    for _ in range(100):
        for event in peer.receive_data(client.output()):
            if isinstance(event, h2.events.RequestReceived):
                assert tuple(tuple(pair) for pair in event.headers) == REQUEST
            elif isinstance(event, h2.events.DataReceived):
                received += event.data
                peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                peer.send_headers(stream, RESPONSE)
                peer.send_data(stream, b"a" * 10_000)
                peer.send_headers(stream, TRAILERS, end_stream=True)
        client.receive(peer.data_to_send())
        if sink.closed:
            break
    assert received == body
    assert sink.data == b"a" * 10_000
    assert sink.closed == ("end", 0)


def test_h2_accepts_our_server() -> None:
    sinks: list[Log] = []

    def accept(stream: int, headers: Headers, end: bool) -> Log:
        assert headers == REQUEST
        sinks.append(Log())
        return sinks[-1]

    server, peer = Http2Connection(settings=SERVER_SETTINGS, accept=accept), strict(client_side=True)
    peer.send_headers(1, REQUEST)
    peer.send_data(1, b"hello", end_stream=True)
    server.receive(peer.data_to_send())
    body = b"r" * 300_000
    server.send_headers(1, RESPONSE)
    server.send(1, body)
    server.send_headers(1, TRAILERS, end=True)
    received, ended = b"", False
    while not ended:
        for event in peer.receive_data(server.output()):
            if isinstance(event, h2.events.DataReceived):
                received += event.data
                peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            ended = ended or isinstance(event, h2.events.StreamEnded)
        server.receive(peer.data_to_send())
    assert (received, sinks[0].data, sinks[0].closed) == (body, b"hello", ("end", 0))


def test_h2_accepts_envoys_ending() -> None:
    client, peer = Http2Connection(), strict(client_side=False)
    client.receive(peer.data_to_send())
    stream = client.open(REQUEST, Log())
    client.send(stream, b"m", end=True)
    client.reset(stream, ErrorCode.INTERNAL_ERROR)
    events = [type(one).__name__ for one in peer.receive_data(client.output())]
    assert events[-3:] == ["DataReceived", "StreamEnded", "StreamReset"]


# -- peers that mean no good -------------------------------------------------------------------------------------------

_HOSTILE: dict[str, tuple[bytes, str]] = {
    "frame too long": ((20_000).to_bytes(3) + bytes((0, 0)) + (1).to_bytes(4), "FRAME_SIZE_ERROR"),
    "bad hpack": (frames.headers(1, b"\xff\xff\xff\xff\xff", end=False), "COMPRESSION_ERROR"),
    "hpack index out of range": (frames.headers(1, b"\xfe", end=False), "COMPRESSION_ERROR"),
    "data on stream 0": (frames.frame(frames.DATA, 0, 0, b"x"), "PROTOCOL_ERROR"),
    "data on a stream that never was": (frames.frame(frames.DATA, 0, 99, b"x"), "PROTOCOL_ERROR"),
    "headers on an even stream": (frames.headers(2, b"\x88", end=False), "PROTOCOL_ERROR"),
    "push promise": (frames.frame(frames.PUSH_PROMISE, 4, 1, bytes(4)), "PROTOCOL_ERROR"),
    "short ping": (frames.frame(frames.PING, 0, 0, b"1"), "FRAME_SIZE_ERROR"),
    "short goaway": (frames.frame(frames.GOAWAY, 0, 0, b"1"), "FRAME_SIZE_ERROR"),
    "short rst": (frames.frame(frames.RST_STREAM, 0, 1, b"1"), "FRAME_SIZE_ERROR"),
    "rst on stream 0": (frames.rst_stream(0, 1), "PROTOCOL_ERROR"),
    "odd settings": (frames.frame(frames.SETTINGS, 0, 0, b"12345"), "FRAME_SIZE_ERROR"),
    "frame size setting too small": (frames.settings(((5, 100),)), "PROTOCOL_ERROR"),
    "window setting too large": (frames.settings(((4, 2**31),)), "FLOW_CONTROL_ERROR"),
    "window update of 0": (frames.window_update(1, 0), "PROTOCOL_ERROR"),
    "short window update": (frames.frame(frames.WINDOW_UPDATE, 0, 0, b"12"), "FRAME_SIZE_ERROR"),
    "connection window overflow": (frames.window_update(0, 2**31 - 1), "FLOW_CONTROL_ERROR"),
    "stream window overflow": (frames.window_update(1, 2**31 - 1), "FLOW_CONTROL_ERROR"),
    "stray continuation": (frames.frame(frames.CONTINUATION, 4, 1, b"\x88"), "PROTOCOL_ERROR"),
    "interrupted header block": (
        frames.frame(frames.HEADERS, 0, 1, b"\x88") + frames.frame(frames.PING, 0, 0, bytes(8)),
        "PROTOCOL_ERROR",
    ),
    "endless header block": (
        frames.frame(frames.HEADERS, 0, 1, b"") + frames.frame(frames.CONTINUATION, 0, 1, bytes(16_000)) * 20,
        "ENHANCE_YOUR_CALM",
    ),
    "more padding than frame": (frames.frame(frames.DATA, frames.PADDED, 1, b"\x09ab"), "PROTOCOL_ERROR"),
    "ping flood": (frames.frame(frames.PING, 0, 0, bytes(8)) * 10_001, "ENHANCE_YOUR_CALM"),
    "settings flood": (frames.settings(()) * 10_001, "ENHANCE_YOUR_CALM"),
    "empty data flood": (frames.frame(frames.DATA, 0, 1) * 10_001, "ENHANCE_YOUR_CALM"),
    "informational head flood": (frames.headers(1, b"\x08\x03100", end=False) * 10_001, "ENHANCE_YOUR_CALM"),
    "unknown frame flood": (frames.frame(0x99, 0, 0) * 10_001, "ENHANCE_YOUR_CALM"),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_hostile_server_ends_the_connection_with_a_reason(name: str) -> None:
    wire, code = _HOSTILE[name]
    client = ready_client()
    sink = Log()
    client.open(REQUEST, sink)
    client.output()
    client.receive(wire)
    assert client.failure.endswith(f"({code})")
    assert sink.closed == ("lost", ErrorCode.INTERNAL_ERROR)
    *_, last = hyper(client.output())
    assert (type(last).__name__, last.error_code) == ("GoAwayFrame", ErrorCode[code])
    client.receive(b"deaf now")


@pytest.mark.parametrize("frame", [frames.rst_stream(1, 0), frames.headers(1, b"\x88", end=False)])
def test_a_flood_on_a_closed_stream_ends_the_connection(frame: bytes) -> None:
    client = ready_client()
    client.reset(client.open(REQUEST, Log()))
    client.receive(frame * 10_001)
    assert client.failure is not None


def test_a_peer_that_ignores_our_windows_is_cut() -> None:
    def fill(client: Http2Connection) -> None:
        client.open(REQUEST, Log())
        for _ in range(5):
            client.receive(frames.frame(frames.DATA, 0, 1, b"x" * 600))
            if client.failure:
                return

    client = Http2Connection(settings=((Setting.INITIAL_WINDOW_SIZE, 500),))
    client.receive(frames.settings(()))
    fill(client)
    assert "overran the window of stream 1" in (client.failure or "")


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n" * 2, bytes(64), b"\x15\x03\x03\x00\x02\x02\x28"],
)
def test_other_protocols_are_not_taken_for_http2(said: bytes) -> None:
    client = Http2Connection()
    client.receive(said)
    assert not client.ready


def test_a_client_without_the_preface_is_refused() -> None:
    server = Http2Connection(settings=SERVER_SETTINGS, accept=lambda *_: Log())
    server.receive(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert "preface" in (server.failure or "")


@settings(max_examples=200)
@given(st.lists(st.binary(max_size=200), max_size=6), st.booleans())
def test_garbage_never_raises(chunks: list[bytes], as_server: bool) -> None:
    connection = Http2Connection(settings=SERVER_SETTINGS, accept=lambda *_: Log()) if as_server else Http2Connection()
    if as_server:
        connection.receive(frames.PREFACE)
    connection.receive(frames.settings(()))
    if not as_server:
        connection.open(REQUEST, Log())
    for chunk in chunks:
        connection.receive(chunk)
    connection.output()


_KIND = st.integers(0, 10)
_SOME_FRAME = st.builds(
    frames.frame, _KIND, st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 5]), st.binary(max_size=24)
)


@settings(max_examples=300)
@given(st.lists(_SOME_FRAME, max_size=12), st.booleans())
def test_any_sequence_of_frames_is_survived(wire: list[bytes], as_server: bool) -> None:
    logs: list[Log] = [Log(), Log()]

    def new(*_: object) -> Log:
        logs.append(Log())
        return logs[-1]

    connection = Http2Connection(settings=SERVER_SETTINGS, accept=new) if as_server else Http2Connection()
    connection.receive((frames.PREFACE if as_server else b"") + frames.settings(()))
    if not as_server:
        connection.open(REQUEST, logs[0])
        connection.reset(connection.open(REQUEST, logs[1]))
    connection.receive(b"".join(wire))
    hyper(connection.output())
    connection.lost("over")
    for log in logs:
        assert sum(one[0] == "closed" for one in log.events) <= 1
        after = [at for at, one in enumerate(log.events) if one[0] == "closed"]
        assert not after or after[0] == len(log.events) - 1, "something came after the end"
