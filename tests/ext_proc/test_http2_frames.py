"""Frames and header blocks, checked against hyperframe and hpack."""

from __future__ import annotations

import contextlib
import itertools

import hpack
import pytest
from hyperframe.frame import Frame
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.http2 import frames
from ext_proc.http2.fields import HEADER_LIST_LIMIT, FieldDecoder, FieldEncoder
from ext_proc.http2.frames import ErrorCode, FrameReader, ProtocolError


def reparse(data: bytes) -> list[Frame]:
    """`data` as hyperframe reads it; every byte must belong to a frame."""
    found = []
    while data:
        one, length = Frame.parse_frame_header(memoryview(data[:9]), strict=True)
        assert len(data) >= 9 + length
        one.parse_body(memoryview(data[9 : 9 + length]))
        found.append(one)
        data = data[9 + length :]
    return found


def test_frames_read_by_hyperframe() -> None:
    written = b"".join(
        (
            frames.settings(((3, 100), (4, 65_536))),
            frames.frame(frames.SETTINGS, frames.ACK, 0),
            frames.window_update(0, 1000),
            frames.headers(1, b"x" * 40_000, end=True),
            frames.frame(frames.DATA, frames.END_STREAM, 1, b"body"),
            frames.frame(frames.PING, 0, 0, b"12345678"),
            frames.rst_stream(1, ErrorCode.CANCEL),
            frames.goaway(7, ErrorCode.NO_ERROR, b"bye"),
        )
    )
    kinds = [type(one).__name__ for one in reparse(written)]
    assert kinds == [
        "SettingsFrame",
        "SettingsFrame",
        "WindowUpdateFrame",
        "HeadersFrame",
        "ContinuationFrame",
        "ContinuationFrame",
        "DataFrame",
        "PingFrame",
        "RstStreamFrame",
        "GoAwayFrame",
    ]
    head, *rest = reparse(frames.headers(1, b"x" * 40_000, end=True))
    assert head.flags == {"END_STREAM"}
    assert [one.flags for one in rest] == [set(), {"END_HEADERS"}]


_FRAME = st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=80))


@given(st.lists(_FRAME, max_size=8), st.lists(st.integers(0, 600), max_size=8))
def test_any_split_gives_the_same_frames(sent: list[tuple[int, int, int, bytes]], cuts: list[int]) -> None:
    wire = b"".join(frames.frame(*one) for one in sent)
    reader, got = FrameReader(), []
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    for start, stop in itertools.pairwise(edges):
        got += reader.feed(wire[start:stop])
    assert got == sent


def test_a_frame_over_the_limit_is_refused_at_its_header() -> None:
    reader = FrameReader(limit=16_384)
    assert [one[3] for one in reader.feed(frames.frame(0, 0, 1, b"x" * 16_384))] == [b"x" * 16_384]
    ok_then_too_long = frames.frame(6, 0, 0, b"12345678") + (16_385).to_bytes(3) + bytes(6)
    found = reader.feed(ok_then_too_long)
    assert next(found)[0] == frames.PING
    with pytest.raises(ProtocolError, match="16385 bytes") as refused:
        next(found)
    assert refused.value.code == ErrorCode.FRAME_SIZE_ERROR


def test_padding_and_priority_are_taken_off() -> None:
    assert frames.unpad(frames.PADDED, b"\x02abPP") == b"ab"
    assert frames.unpad(frames.PRIORITY_FLAG, b"12345abc") == b"abc"
    assert frames.unpad(frames.PADDED | frames.PRIORITY_FLAG, b"\x0112345abcP") == b"abc"


@pytest.mark.parametrize("payload", [b"", b"\x03ab", b"\xff"])
def test_more_padding_than_content_is_refused(payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        frames.unpad(frames.PADDED, payload)


_NAME = st.sampled_from([b":status", b"content-type", b"grpc-status", b"x-a", b"x-b", b"grpc-message"])
_HEADERS = st.lists(st.tuples(_NAME, st.binary(max_size=300)), max_size=6).map(tuple)


@given(st.lists(_HEADERS, max_size=6))
def test_hpack_reads_what_we_encode(lists: list[tuple[tuple[bytes, bytes], ...]]) -> None:
    encoder, decoder = FieldEncoder(), hpack.Decoder()
    decoder.max_allowed_table_size = 0  # the strictest peer: no dynamic table at all
    for headers in [*lists, *lists]:
        assert tuple(decoder.decode(encoder.encode(headers), raw=True)) == headers


@given(st.lists(st.tuples(_HEADERS, st.booleans()), max_size=25), st.integers(0, 400))
def test_the_decoders_memory_is_exact(lists: list[tuple[tuple[tuple[bytes, bytes], ...], bool]], size: int) -> None:
    """Blocks of an indexing encoder with a table small enough to evict: the same as hpack without a memory."""
    encoder, plain, ours = hpack.Encoder(), hpack.Decoder(), FieldDecoder()
    for headers, resize in lists:
        if resize:
            encoder.header_table_size = size if encoder.header_table_size == 4096 else 4096
        block = encoder.encode(headers)
        expected = tuple((bytes(n), bytes(v)) for n, v in plain.decode(block, raw=True))
        assert ours.decode(block) == expected


@given(st.binary(max_size=60))
def test_damaged_blocks_never_raise_anything_else(block: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        FieldDecoder().decode(block)


def test_a_header_bomb_is_refused() -> None:
    encoder = hpack.Encoder()
    bomb = encoder.encode([(b"x-a", b"y" * 4000)]) + b"\xbe" * 1000  # one indexed field, a thousand times
    assert len(bomb) < HEADER_LIST_LIMIT
    with pytest.raises(ProtocolError, match="larger"):
        FieldDecoder().decode(bomb)
