"""gRPC over HTTP/2: the length prefix of messages, the headers of a call, and how a call's end is read.

https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from ext_proc.record import Headers, header

PROCESS = b"/envoy.service.ext_proc.v3.ExternalProcessor/Process"
HEALTH_CHECK = b"/grpc.health.v1.Health/Check"

OK, UNKNOWN, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 0, 2, 12, 13, 14

MESSAGE_LIMIT = 64 * 1024 * 1024
"""Bytes of the largest message we take. A length prefix above it is a violation at once, not a wait for its bytes."""

_PREFIX = 5


def frame(raw: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """A message with its prefix. A wrong `compressed` flag or `length` can be given on purpose."""
    return bytes((compressed,)) + (len(raw) if length is None else length).to_bytes(4) + raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Bytes that are not a gRPC message: `raw` (at most the first 16 KiB) and why."""

    raw: bytes
    reason: str


_KEPT = 16 * 1024


LEAST = 32
"""Bytes of which a message counts at least as one, where the size of all is limited: kept, a small one costs more than
its bytes."""


class Deframer:
    """Cuts a stream's data into messages. After a violation there is nothing more to read: later data is ignored.

    `limit` is the size of the largest message, `total` that of all messages; `allow` adds to it.
    """

    def __init__(self, limit: int = MESSAGE_LIMIT, *, total: int | None = None) -> None:
        self._limit = limit
        self._total = total
        self._held = bytearray()
        self._needs = 0  # bytes that must be held before it is worth looking again
        self._broken = False

    def allow(self, size: int) -> None:
        """All messages together may have so many bytes more."""
        if self._total is not None:
            self._total += size

    def feed(self, data: bytes) -> Iterator[bytes | Violation]:
        """The messages that `data` completes, at most one violation last."""
        if self._broken:
            return
        held = self._held
        if (
            not held
            and len(data) >= _PREFIX
            and data[0] == 0
            and int.from_bytes(data[1:5]) == len(data) - _PREFIX
            and not self._refuses(0, len(data) - _PREFIX)
        ):
            self.allow(-max(len(data) - _PREFIX, LEAST))
            yield data[_PREFIX:]  # the common case: one whole message in one DATA frame
            return
        held += data
        if len(held) < self._needs:
            return
        at, end = 0, len(held)
        self._needs = 0
        while end - at >= _PREFIX:
            flag, length = held[at], int.from_bytes(held[at + 1 : at + _PREFIX])
            reason = self._refuses(flag, length)
            if reason:
                self._broken = True
                yield Violation(raw=bytes(held[at : at + _KEPT]), reason=reason)
                held.clear()
                return
            stop = at + _PREFIX + length
            if stop > end:
                self._needs = stop - at
                break
            start, at = at + _PREFIX, stop
            self.allow(-max(length, LEAST))
            yield bytes(held[start:stop])
        del held[:at]

    def finish(self) -> Violation | None:
        """The violation of a stream that ends now, if it ends inside a message."""
        if self._broken or not self._held:
            return None
        self._broken = True
        return Violation(
            raw=bytes(self._held[:_KEPT]),
            reason=f"the stream ended inside a message, after {len(self._held)} bytes of it",
        )

    def _refuses(self, flag: int, length: int) -> str:
        if flag:
            return f"the message has the compressed flag {flag}, but no compression was agreed"
        if length > self._limit:
            return f"the message claims {length} bytes, the limit is {self._limit}"
        if self._total is not None and max(length, LEAST) > self._total:
            return f"the message claims {length} bytes, which with those before it are too many for what was sent"
        return ""


def request_headers(
    path: bytes, authority: str, *, scheme: str = "http", metadata: Iterable[tuple[bytes, bytes]] = ()
) -> Headers:
    """The head of a call with the headers that Envoy sends; `metadata` comes last, names in lower case."""
    return (
        (b":method", b"POST"),
        (b":path", path),
        (b":authority", authority.encode()),
        (b":scheme", scheme.encode()),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
        (b"x-envoy-internal", b"true"),
        (b"x-forwarded-for", b"127.0.0.1"),
        *((name.lower(), value) for name, value in metadata),
    )


RESPONSE_HEADERS: Headers = ((b":status", b"200"), (b"content-type", b"application/grpc"))


def trailers(status: int, message: str = "", extra: Iterable[tuple[bytes, bytes]] = ()) -> Headers:
    """A call's trailers; the message is percent-encoded."""
    pairs: list[tuple[bytes, bytes]] = [(b"grpc-status", str(status).encode())]
    if message:
        pairs.append((b"grpc-message", re.sub(rb"[^ -$&-~]", lambda m: b"%%%02X" % m[0][0], message.encode())))
    return (*pairs, *extra)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnd:
    """How a call ended for its client: a gRPC `status`, or None and the reason why there is none in `message`."""

    status: int | None
    message: str


@functools.lru_cache(maxsize=64)
def head_problem(head: Headers) -> str:
    """Why a response head is not that of a gRPC call, or an empty string."""
    status = header(head, b":status")
    if status != b"200":
        return f"the HTTP status is {_text(status)}, not 200"
    kind = header(head, b"content-type")
    if kind is None or not kind.lower().startswith(b"application/grpc"):
        return f"the content type is {_text(kind)}, not application/grpc"
    return ""


@functools.lru_cache(maxsize=64)  # most calls end in the same words
def ending(head: Headers, trailing: Headers | None) -> CallEnd:
    """Read a call's end from its head and its trailers. Without trailers (None) the head may be both: trailers-only."""
    problem = head_problem(head)
    source = head if trailing is None else trailing
    code = header(source, b"grpc-status")
    if code is not None and code.isdigit() and len(code) <= 10 and (not problem or trailing is None):
        return CallEnd(
            status=int(code),
            message=unquote_to_bytes(header(source, b"grpc-message") or b"").decode("utf-8", "replace"),
        )
    if problem:
        return CallEnd(status=None, message=problem)
    if code is None:
        return CallEnd(status=None, message="the stream ended without a grpc-status")
    return CallEnd(status=None, message=f"grpc-status is {_text(code)}, not a number")


def _text(value: bytes | None) -> str:
    return "missing" if value is None else repr(value[:100].decode("latin-1"))
