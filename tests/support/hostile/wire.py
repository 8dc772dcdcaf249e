"""Bytes on an HTTP/2 connection that no server should send, by name: functions of the stream that is open."""

from __future__ import annotations

from collections.abc import Callable

import hpack

from ext_proc.http2 import frames


def _block(name: str, value: str) -> bytes:
    return hpack.Encoder().encode([(name, value)], huffman=False)


def _fragments(stream: int) -> bytes:
    return frames.frame(frames.CONTINUATION, 0, stream) * 100_000


def _bomb(stream: int) -> bytes:
    """A large field is put into the decoder's table; each further byte names it again."""
    return frames.headers(stream, _block("x", "y" * 3900) + b"\xbe" * 12_000, end=False)


WIRES: dict[str, Callable[[int], bytes]] = {
    "rst-flood": lambda stream: frames.rst_stream(stream, 0) * 50_000,
    "ping-flood": lambda _: frames.frame(frames.PING, 0, 0, bytes(8)) * 50_000,
    "settings-flood": lambda _: frames.settings(()) * 50_000,
    "unknown-frames": lambda _: frames.frame(0x99, 0, 0, bytes(100)) * 50_000,
    "empty-data": lambda stream: frames.frame(frames.DATA, 0, stream) * 50_000,
    "goaway-calm": lambda _: frames.goaway(0, 11, b"<b>too many\x1b[2J</b>"),
    "garbage": lambda _: bytes(range(256)) * 100,
    "hpack-garbage": lambda stream: frames.headers(stream, b"\xff\xff\xff\xff\xff", end=False),
    "hpack-bomb": _bomb,
    "endless-continuation": lambda stream: frames.frame(frames.HEADERS, 0, stream) + _fragments(stream),
    "giant-headers": lambda stream: frames.headers(stream, _block("x", "y" * 4_000_000), end=False),
    "endless-1xx": lambda stream: frames.headers(stream, _block(":status", "100"), end=False) * 50_000,
    "zero-window": lambda _: frames.settings(((4, 0),)),
    "window-too-large": lambda _: frames.window_update(0, 2**31 - 1),
    "window-of-zero": lambda _: frames.window_update(0, 0),
    "push-promise": lambda stream: frames.frame(frames.PUSH_PROMISE, 4, stream, bytes(4)),
    "frame-too-long": lambda stream: (2**24 - 1).to_bytes(3) + bytes((0, 0)) + stream.to_bytes(4),
    "no-streams": lambda _: frames.settings(((3, 0),)),
    "stream-that-never-was": lambda _: frames.frame(frames.DATA, 0, 99_999, b"x"),
}
