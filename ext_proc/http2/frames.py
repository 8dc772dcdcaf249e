"""HTTP/2 frames (RFC 9113, sections 4 and 6): names, how to write one, and how to cut a byte stream into them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_SIZE = 9
_HEADER = struct.Struct(">HBBBI")  # the length takes the first two fields
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_SIZE = 16_384
MAX_WINDOW = 2**31 - 1
MAX_STREAM_ID = 2**31 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)

END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITY_FLAG = 0x20


class ErrorCode(IntEnum):
    """RFC 9113, section 7."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


_NAMES = {code.value: code.name for code in ErrorCode}


class Setting(IntEnum):
    """RFC 9113, section 6.5.2, and RFC 8441."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6
    ENABLE_CONNECT_PROTOCOL = 8


Settings = tuple[tuple[int, int], ...]
"""(identifier, value) in the order in which they are sent."""


class ProtocolError(Exception):
    """The peer broke HTTP/2 in a way that ends the connection; `code` is what our GOAWAY says."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(f"{reason} ({code.name})")
        self.code = code


def code_name(code: int) -> str:
    """The name of an error code, or its number where it has none."""
    return _NAMES.get(code, f"0x{code:x}")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame as bytes. Nothing is checked: negative tests need illegal frames too."""
    size = len(payload)
    return _HEADER.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings(pairs: Iterable[tuple[int, int]]) -> bytes:
    """A SETTINGS frame."""
    payload = b"".join(name.to_bytes(2) + value.to_bytes(4) for name, value in pairs)
    return frame(SETTINGS, 0, 0, payload)


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame; stream 0 is the connection."""
    return frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4))


def rst_stream(stream: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4))


def goaway(last_stream: int, code: int, debug: bytes = b"") -> bytes:
    """A GOAWAY frame."""
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4) + code.to_bytes(4) + debug)


def headers(stream: int, block: bytes, *, end: bool, size: int = DEFAULT_FRAME_SIZE) -> bytes:
    """A header block as one HEADERS frame and as many CONTINUATION frames as `size` demands."""
    flags = END_STREAM if end else 0
    if len(block) <= size:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + size] for at in range(0, len(block), size)]
    frames = [frame(HEADERS, flags, stream, parts[0])]
    frames += [frame(CONTINUATION, 0, stream, part) for part in parts[1:-1]]
    frames.append(frame(CONTINUATION, END_HEADERS, stream, parts[-1]))
    return b"".join(frames)


Frame = tuple[int, int, int, bytes]
"""(type, flags, stream, payload)"""


class FrameReader:
    """Cuts received bytes into frames; holds back at most one incomplete frame."""

    def __init__(self, limit: int = DEFAULT_FRAME_SIZE) -> None:
        self._limit = limit
        self._held = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes. Raises `ProtocolError` at a frame longer than the limit."""
        if self._held:
            data, self._held = self._held + data, b""
        at, end = 0, len(data)
        try:
            while end - at >= HEADER_SIZE:
                high, low, kind, flags, stream = _HEADER.unpack_from(data, at)
                length = high << 8 | low
                if length > self._limit:
                    raise ProtocolError(
                        ErrorCode.FRAME_SIZE_ERROR,
                        f"the peer sent a frame of {length} bytes, the limit is {self._limit}",
                    )
                stop = at + HEADER_SIZE + length
                if stop > end:
                    break
                start, at = at, stop
                yield kind, flags, stream & MAX_STREAM_ID, data[start + HEADER_SIZE : stop]
        finally:
            self._held = data[at:]


def unpad(flags: int, payload: bytes) -> bytes:
    """The content of a DATA or HEADERS payload without padding and priority. Raises `ProtocolError`."""
    start, stop = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ProtocolError(ErrorCode.FRAME_SIZE_ERROR, "the peer sent a padded frame without a pad length")
        start, stop = 1, stop - payload[0]
    if flags & PRIORITY_FLAG:
        start += 5
    if stop < start:
        raise ProtocolError(ErrorCode.PROTOCOL_ERROR, "the peer sent a frame with more padding than content")
    return payload[start:stop]
