"""What scenarios put into messages beyond the ordinary, by its names, and bytes between them that are no message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ext_proc.headers import to_value
from ext_proc.http2 import frames
from ext_proc.messages import Any as TypedAny
from ext_proc.messages import Metadata, ProcessingRequest, Struct
from fake_proxy.stimulus import Injection

UNKNOWN_FIELD = bytes.fromhex("c23e0373616d")
"""Field 1000, a string: legal for any protobuf peer, known to none."""

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


def injected(names: Iterable[str]) -> tuple[bytes, tuple[Injection, ...]]:
    """What is added to every message, and what is sent between them. A last message that is sent twice is neither."""
    append = b""
    inject: list[Injection] = []
    for one in names:
        match one:
            case "unknown-field":
                append += UNKNOWN_FIELD
            case "typed-metadata":
                typed = {"example.typed": TypedAny(type_url="type.googleapis.com/google.protobuf.Empty")}
                append += ProcessingRequest(metadata_context=Metadata(typed_filter_metadata=typed)).SerializeToString()
            case "attributes":
                attributes = Struct(fields={"request.path": to_value("/v1"), "request.size": to_value(12)})
                request = ProcessingRequest(attributes={"envoy.filters.http.ext_proc": attributes})
                append += request.SerializeToString()
            case "unknown-message":
                inject.append(Injection(after="request_headers", raw=UNKNOWN_FIELD))
            case "duplicate-end":
                pass
            case spoilt:
                inject.append(MALFORMED[spoilt])
    return append, tuple(inject)
