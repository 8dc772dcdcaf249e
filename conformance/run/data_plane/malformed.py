"""Bytes that no data plane sends: messages, gRPC framing and HTTP/2 frames that are none, by their names."""

from __future__ import annotations

from collections.abc import Mapping

from ext_proc.http2 import frames
from fake_proxy.stimulus import Injection

_IDLE_STREAM = 2**31 - 1


def _http2(raw: bytes) -> Injection:
    return Injection(after="request_headers", raw=raw, layer="http2")


MALFORMED: Mapping[str, Injection] = {
    # request_headers with a length that its bytes don't have
    "malformed-message": Injection(after="request_headers", raw=b"\x12\xff\x01\x0a"),
    # the prefix says compressed, without an encoding having been agreed on
    "malformed-grpc": Injection(after="request_headers", raw=b"\x01\x00\x00\x00\x02\x1a\x00", layer="grpc"),
    "http2-unknown-frame": _http2(frames.frame(0x77, 0xFF, 0, b"legal, and to be ignored")),
    "http2-data-on-connection": _http2(frames.frame(frames.DATA, 0, 0, b"data belongs to a stream")),
    "http2-short-settings": _http2(frames.frame(frames.SETTINGS, 0, 0, b"five!")),
    "http2-zero-window": _http2(frames.window_update(0, 0)),
    "http2-bad-headers": _http2(frames.frame(frames.HEADERS, 0x5, _IDLE_STREAM, b"\xff\xff\xff\xff\xff\xff")),
    # read as a frame it ends with what follows: an HTTP/2 implementation may wait for the whole of a frame
    "http2-garbage": _http2(bytes(range(256))),
}
