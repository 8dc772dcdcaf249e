"""A reply scripted by the request: the header `x-fake-modelserver-reply` holds what the pod is to answer.

The one who forwards a request to a pod (the fake proxy, a test) adds the header, and the pod answers anything:

    x-fake-modelserver-reply: {"status": 503, "headers": [["retry-after", "1"]], "body": "busy"}
    x-fake-modelserver-reply: {"sse": true, "chunks": ["{\\"n\\": 1}", "[DONE]"], "gap": 0.01, "reset_after": 1}
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from fake_modelserver.messages import Request, Response, json_response
from fake_modelserver.record import Headers

HEADER = b"x-fake-modelserver-reply"
"""The request header that scripts the reply."""

MAX_SIZE = 256 << 20
"""The largest generated body, in bytes."""

_PIECE = 64 << 10
_PATTERN = (b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-\n" * (_PIECE // 64 + 1))[:_PIECE]
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SOURCES = ("body", "chunks", "size", "echo")


class BadReplyError(ValueError):
    """A scripted reply that cannot be played; the message says which field, and what it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A scripted reply. At most one of `body`, `chunks`, `size` and `echo` says where the body comes from.

    With none of them, and no `status`, the pod gives its own answer, changed by the rest (`headers` are added).

    - `status`: 200 to 599; `headers`, `trailers`: pairs, sent as given;
    - `body`: sent with its length; `chunks`: sent one by one; `size`: a generated body of so many bytes;
      `echo`: the request as the pod saw it, as JSON;
    - `sse`: each chunk is wrapped as a server-sent event, content-type text/event-stream;
    - `gzip`: the body is compressed (each chunk flushed by itself), content-encoding gzip;
    - `delay`: seconds before the head; `gap`: seconds between chunks;
    - `reset_after`: RST after so many chunks (0: after the head); `reset`: RST instead of an answer;
      `cut`: the connection is closed after the chunks, without the end that is due.
    """

    status: int | None = None
    headers: Headers = ()
    trailers: Headers = ()
    body: bytes | None = None
    chunks: tuple[bytes, ...] | None = None
    size: int | None = None
    echo: bool = False
    sse: bool = False
    gzip: bool = False
    delay: float = 0.0
    gap: float = 0.0
    reset_after: int | None = None
    reset: bool = False
    cut: bool = False

    def __post_init__(self) -> None:
        given = [name for name in _SOURCES if getattr(self, name) not in (None, False)]
        if len(given) > 1:
            raise BadReplyError(f"{' and '.join(given)} are given; a reply has one body")
        if self.sse and self.chunks is None:
            raise BadReplyError("sse is given without chunks; each chunk is one event")
        if self.gzip and not given:
            raise BadReplyError("gzip is given without a body to compress")
        if self.cut and self.chunks is None:
            raise BadReplyError("cut is given without chunks; the connection ends after the last")

    @classmethod
    def parse(cls, value: bytes) -> Reply:
        """The reply in the header's `value`, a JSON object. Raises `BadReplyError`.

        In JSON, `body_base64` is the other form of `body`, and a chunk is a string or `{"base64": "…"}`.
        """
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as problem:
            raise BadReplyError(f"not JSON: {problem}") from problem
        if not isinstance(found, dict):
            raise BadReplyError("not a JSON object")
        if unknown := sorted(set(found) - set(_FIELDS)):
            raise BadReplyError(f"unknown field {unknown[0]!r}; known: {', '.join(_FIELDS)}")
        if "body" in found and "body_base64" in found:
            raise BadReplyError("body and body_base64 are given; a reply has one body")
        return cls(
            **{
                "body" if name == "body_base64" else name: _FIELDS[name](name, value)
                for name, value in found.items()
                if value is not None
            }
        )

    def to_header(self) -> tuple[bytes, bytes]:
        """Name and value of the header that `parse` reads: one line of ASCII."""
        script: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value == field.default:
                continue
            if field.name == "body":
                script["body_base64"] = _base64(value)
            elif field.name == "chunks":
                script["chunks"] = [{"base64": _base64(chunk)} for chunk in value]
            elif field.name in ("headers", "trailers"):
                script[field.name] = [[name.decode("latin-1"), text.decode("latin-1")] for name, text in value]
            else:
                script[field.name] = value
        return HEADER, json.dumps(script, separators=(",", ":")).encode()

    def response(self, request: Request, pod: str, own: Callable[[], Response]) -> Response:
        """What `pod` answers to `request`; `own` gives the answer it would give by itself."""
        manner = {name: getattr(self, name) for name in ("delay", "gap", "reset_after", "reset", "cut")}
        if self.status is None and all(getattr(self, name) in (None, False) for name in _SOURCES):
            return own().then(self._changed)
        body, chunks, kind = self._content(request, pod)
        headers = list(self.headers)
        names = {name.lower() for name, _ in headers}
        if self.gzip:
            chunks, body = (_gzip(chunks), b"") if chunks is not None else (None, b"".join(_gzip((body,))))
            if b"content-encoding" not in names:
                headers.insert(0, (b"content-encoding", b"gzip"))
        if kind and b"content-type" not in names:
            headers.insert(0, (b"content-type", kind))
        # A generated body is sent in pieces but has a known length.
        if self.size is not None and not self.gzip and not names & {b"content-length", b"transfer-encoding"}:
            headers.append((b"content-length", b"%d" % self.size))
        return Response(
            status=self.status or 200,
            headers=tuple(headers),
            body=body,
            chunks=chunks,
            trailers=self.trailers,
            **manner,
        )

    def _changed(self, answer: Response) -> Response:
        return replace(
            answer,
            headers=(*answer.headers, *self.headers),
            trailers=self.trailers or answer.trailers,
            delay=self.delay,
            gap=self.gap,
            reset_after=self.reset_after,
            reset=self.reset,
        )

    def _content(self, request: Request, pod: str) -> tuple[bytes, Sequence[bytes] | None, bytes]:
        if self.chunks is not None:
            if self.sse:
                return b"", [event(chunk) for chunk in self.chunks], b"text/event-stream"
            return b"", self.chunks, b"text/plain; charset=utf-8"
        if self.size is not None:
            return b"", _generated(self.size), b"text/plain; charset=utf-8"
        if self.echo:
            return json_response(200, as_seen(request, pod)).body, None, b"application/json"
        if self.body is None:
            return b"", None, b""
        return self.body, None, b"text/plain; charset=utf-8"


def event(data: bytes) -> bytes:
    """`data` as one server-sent event; a line break in it begins a further `data:` line."""
    return b"".join([b"data: %s\n" % line for line in data.split(b"\n")]) + b"\n"


def as_seen(request: Request, pod: str) -> dict[str, Any]:
    """`request` as JSON values: what `echo` returns."""
    return {
        "pod": pod,
        "method": request.method,
        "path": request.target,
        "headers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.headers],
        "trailers": [[name.decode("latin-1"), value.decode("latin-1")] for name, value in request.trailers],
        "body_base64": _base64(request.body),
        "body_size": len(request.body),
    }


def _generated(size: int) -> Sequence[bytes]:
    whole, rest = divmod(size, len(_PATTERN))
    return [_PATTERN] * whole + ([_PATTERN[:rest]] if rest else [])


def _gzip(chunks: Sequence[bytes]) -> Sequence[bytes]:
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(chunk) + packer.flush(zlib.Z_SYNC_FLUSH) for chunk in chunks] or [b""]
    # The end of the stream belongs to the last chunk: compression does not change how many there are.
    packed[-1] += packer.flush()
    return packed


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


# -- parsing, one function per kind of field ---------------------------------------------------------------------------


def _integer(least: int, most: int) -> Callable[[str, Any], int]:
    def parse(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise BadReplyError(f"{name} is {value!r}; it is a whole number from {least} to {most}")
        return value

    return parse


def _seconds(name: str, value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 3600:
        raise BadReplyError(f"{name} is {value!r}; it is a number of seconds from 0 to 3600")
    return float(value)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadReplyError(f"{name} is {value!r}; it is true or false")
    return value


def _text(name: str, value: Any) -> bytes:
    if not isinstance(value, str):
        raise BadReplyError(f"{name} is {type(value).__name__}; it is a string")
    try:
        return value.encode()
    except UnicodeEncodeError as problem:
        raise BadReplyError(f"{name} is not text: {problem.reason}; bytes go into base64") from problem


def _decoded(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(_text(name, value), validate=True)
    except binascii.Error as problem:
        raise BadReplyError(f"{name} is not base64: {problem}") from problem


def _chunks(name: str, value: Any) -> tuple[bytes, ...]:
    if not isinstance(value, list):
        raise BadReplyError(f'{name} is {type(value).__name__}; it is a list of strings or {{"base64": …}}')
    return tuple(
        _decoded(f"{name}[{index}].base64", chunk["base64"])
        if isinstance(chunk, Mapping) and set(chunk) == {"base64"}
        else _text(f"{name}[{index}]", chunk)
        for index, chunk in enumerate(value)
    )


def _pairs(name: str, value: Any) -> Headers:
    if not isinstance(value, list):
        raise BadReplyError(f"{name} is {type(value).__name__}; it is a list of [name, value] pairs")
    found = []
    for index, pair in enumerate(value):
        match pair:
            case [str(key), str(text)] if _NAME.fullmatch(key) and not re.search(r"[\r\n\0]", text):
                try:
                    found.append((key.encode(), text.encode("latin-1")))
                except UnicodeEncodeError as problem:
                    raise BadReplyError(f"{name}[{index}] has a value that is not Latin-1") from problem
            case _:
                raise BadReplyError(f"{name}[{index}] is {pair!r}; it is a pair [name, value] that HTTP allows")
    return tuple(found)


_FIELDS: dict[str, Callable[[str, Any], Any]] = {
    "status": _integer(200, 599),
    "headers": _pairs,
    "trailers": _pairs,
    "body": _text,
    "body_base64": _decoded,
    "chunks": _chunks,
    "size": _integer(0, MAX_SIZE),
    "echo": _flag,
    "sse": _flag,
    "gzip": _flag,
    "delay": _seconds,
    "gap": _seconds,
    "reset_after": _integer(0, 1_000_000),
    "reset": _flag,
    "cut": _flag,
}
