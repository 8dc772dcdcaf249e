"""Requests and responses of a pod, as values."""

from __future__ import annotations

import http
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from fake_modelserver.feed import Feed, Filter
from fake_modelserver.record import Headers
from fake_modelserver.toxics import Toxics


@dataclass(frozen=True, kw_only=True)
class Request:
    """A whole request. `target` is the request target as sent, `path` the part before any `?`."""

    method: str
    target: str
    headers: Headers
    body: bytes = b""
    trailers: Headers = ()
    keep_alive: bool = True
    http_1_0: bool = False

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @cached_property
    def json(self) -> Any:
        """The body as a JSON value. Raises `ValueError` if it is none."""
        try:
            return json.loads(self.body)
        except RecursionError as problem:
            raise ValueError("nested too deeply") from problem

    def header(self, name: bytes) -> bytes | None:
        """The first value of `name` (lower case), or None."""
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass(frozen=True, kw_only=True)
class Response:
    """What to answer, and how: a value that the connection plays.

    `chunks` are sent one by one, each a chunk of the chunked coding, unless `headers` has a content-length: then they
    are pieces of that body. `body` (when `chunks` is None) is sent with its length, or chunked if there are
    `trailers`. `delay` seconds pass before the head, `gap` seconds between chunks; `paced` is awaited before each chunk
    but the first, with the bytes of body sent so far. The connection is reset after
    `reset_after` chunks (a `body` counts as one), or with `reset` before anything is sent; with `cut` it is closed
    after the last of the `chunks`, without the end of the chunked coding. Framing headers that are given are sent as
    they are; where the body does not fit them, the connection is closed after it.

    With `later` the rest is not known yet: it is awaited for the response to play (`status` is that which it will
    have). `feed` stands for chunks that are still to come. `filters` change the chunks on their way, `toxics` the bytes
    on the line.
    """

    status: int = 200
    headers: Headers = ()
    body: bytes = b""
    chunks: Iterable[bytes] | None = None
    trailers: Headers = ()
    delay: float = 0.0
    gap: float = 0.0
    paced: Callable[[int], Awaitable[None]] | None = None
    reset_after: int | None = None
    reset: bool = False
    cut: bool = False
    later: Callable[[], Awaitable[Response]] | None = None
    feed: Feed | None = None
    filters: tuple[Filter, ...] = ()
    toxics: Toxics | None = None

    def then(self, change: Callable[[Response], Response]) -> Response:
        """`change` of this response, or of that which it will become."""
        later = self.later
        if later is None:
            return change(self)

        async def changed() -> Response:
            return change(await later())

        return replace(self, later=changed)

    @cached_property
    def plain(self) -> bool:
        """True if the answer is one write, at once, to a client that keeps the connection open."""
        if self.chunks is not None or self.trailers or self.delay or self.reset or self.reset_after is not None:
            return False
        if self.later is not None or self.feed is not None or self.toxics is not None:
            return False
        framing = Framing.of(self, keep_alive=True, http_1_0=False)
        return not framing.close and not framing.chunked

    @property
    def bodiless(self) -> bool:
        """True if HTTP gives this status no body."""
        return self.status in (204, 304)

    @cached_property
    def wire(self) -> tuple[bytes, ...]:
        """Head and body of a `plain` response on a connection that stays open, to write at once; made once."""
        head = self.head(Framing.of(self, keep_alive=True, http_1_0=False))
        if self.bodiless:
            return (head,)
        # A large body is not copied: a fleet holds many.
        return (head + self.body,) if len(self.body) < _JOINED else (head, self.body)

    def whole(self, method: str) -> bytes | None:
        """The body that goes out to a request of this method; None if that is not known yet, or not all of it goes."""
        if self.later is not None or self.feed is not None or self.filters or self.toxics is not None or self.reset:
            return None
        if method == "HEAD" or self.bodiless:
            return b""
        if self.reset_after is not None or not isinstance(self.chunks, Sequence | None):
            return None
        return self.body if self.chunks is None else b"".join(self.chunks)

    def length(self) -> int:
        """Bytes of the body."""
        return len(self.body) if self.chunks is None else sum(len(chunk) for chunk in self.chunks)

    def head(self, framing: Framing) -> bytes:
        """Status line and headers."""
        lines = [_STATUS_LINES.get(self.status) or b"HTTP/1.1 %d Unknown" % self.status]
        lines += [b"%s: %s" % pair for pair in self.headers]
        lines += [b"%s: %s" % pair for pair in framing.headers]
        return b"\r\n".join(lines) + b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Framing:
    """How a body is delimited: what we add to the headers, and what follows from it."""

    headers: Headers
    chunked: bool
    close: bool

    @classmethod
    def of(cls, response: Response, *, keep_alive: bool, http_1_0: bool) -> Framing:
        """The framing of `response` for a client of that HTTP version that does or does not keep the connection."""
        given = {name.lower(): value.lower() for name, value in response.headers}
        added: list[tuple[bytes, bytes]] = []
        close = not keep_alive or given.get(b"connection") == b"close"
        chunked = b"chunked" in given.get(b"transfer-encoding", b"")
        if b"content-length" in given:
            close = close or given[b"content-length"] != b"%d" % response.length()
        elif not response.bodiless and b"transfer-encoding" not in given:
            if response.chunks is None and response.feed is None and not response.trailers:
                added.append((b"content-length", b"%d" % len(response.body)))
            elif http_1_0:
                close = True
            else:
                chunked = True
                added.append((b"transfer-encoding", b"chunked"))
        if close and b"connection" not in given:
            added.append((b"connection", b"close"))
        return cls(tuple(added), chunked, close)


def json_response(status: int, value: Any, headers: Headers = ()) -> Response:
    """`value` as an application/json response."""
    return Response(status=status, headers=((b"content-type", b"application/json"), *headers), body=dumped(value))


_compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode  # made once: `dumps` makes one per call


def dumped(value: Any) -> bytes:
    """`value` as compact JSON in UTF-8. What is no text becomes an escape."""
    try:
        return _compact(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


ErrorShape = Literal["nested", "flat", "text"]
"""An error body: `{"error": {…}}`, `{"object": "error", …}`, or `{"error": "…"}`."""


def error_response(
    status: int,
    message: str,
    *,
    kind: str = "BadRequestError",
    param: str | None = None,
    headers: Headers = (),
    shape: ErrorShape = "nested",
) -> Response:
    """An error in one of the forms that servers of the OpenAI API have for it."""
    if shape == "text":
        return json_response(status, {"error": message}, headers)
    error = {"message": message, "type": kind, "param": param, "code": status}
    return json_response(status, {"error": error} if shape == "nested" else {"object": "error", **error}, headers)


_JOINED = 16384
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in http.HTTPStatus}
