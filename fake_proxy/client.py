"""The HTTP client of an exchange: what it asks, how its bytes arrive at the filter, and when it goes away.

Envoy's codecs leave marks on the messages to an EPP. HTTP/1.1: a body is read in pieces of up to 1 MiB and its end is
a separate empty piece. HTTP/2: pieces are DATA frames of 16 KiB, and the last one carries the end.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from ext_proc.record import Headers, header
from fake_proxy.actions import ClientData, ClientHeaders, ClientReset, ClientTrailers, HeaderList
from fake_proxy.header_map import REQUEST, get, joined, put
from fake_proxy.kept_body import KeptBody

_HTTP1_FIRST_READ = 1_048_285
"""What fits Envoy's first read of 1 MiB beside the request's own headers, as recorded."""
_HTTP1_READ = 1024 * 1024
_HTTP2_FRAME = 16 * 1024
_REMOVED = frozenset({
    b"connection", b"host", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade",
    # what only Envoys may tell Envoys
    b"x-envoy-expected-rq-timeout-ms", b"x-envoy-force-trace", b"x-envoy-hedge-on-per-try-timeout",
    b"x-envoy-internal", b"x-envoy-ip-tags", b"x-envoy-max-retries", b"x-envoy-original-url",
    b"x-envoy-retriable-header-names", b"x-envoy-retriable-status-codes", b"x-envoy-retry-grpc-on",
    b"x-envoy-retry-on", b"x-envoy-upstream-alt-stat-name", b"x-envoy-upstream-rq-per-try-timeout-ms",
    b"x-envoy-upstream-rq-timeout-alt-response", b"x-envoy-upstream-rq-timeout-ms",
    b"x-envoy-upstream-stream-duration-ms", b"x-forwarded-client-cert",
})  # fmt: skip
"""Headers of a client's request that no filter sees."""

AbortPoint: TypeAlias = Literal[
    "request-headers", "request-body", "request", "destination", "response-headers", "response-body"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Bytes that the client flushes at once, so many seconds `after` what came before.

    Then it may wait until all sent so far have passed the EPP.
    """

    data: bytes
    after: float = 0.0
    await_echo: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Abort:
    """The client goes away right after `at`: its request headers, its `after`th body chunk, its whole request, the
    choice of an endpoint, the response headers, or the `after`th piece of response body it got."""

    at: AbortPoint
    after: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request. `headers` come without pseudo-headers and, unless you mean it, without content-length."""

    method: str = "POST"
    path: str = "/v1/chat/completions"
    authority: str = "gateway.example"
    scheme: str = "http"
    headers: Headers = ()
    body: bytes | tuple[Chunk, ...] = b""
    trailers: Headers = ()
    http: Literal[1, 2] = 1
    coalesced: bool = False
    """HTTP/2: the frames of a chunk arrive as one piece, as they do when Envoy had stopped reading for a while."""
    chunked: bool = False
    """Send the body without announcing its length; implied by trailers under HTTP/1.1."""
    written: Literal["ordinary", "absolute-form", "http-1.0"] = "ordinary"
    """How a client of HTTP/1 writes the first line: with the path, with the whole URL, or in version 1.0."""
    request_id: str | None = None
    """The `x-request-id` that the data plane adds (default: a new UUID); `""` adds none."""
    source: str = "192.0.2.1:50000"
    abort: Abort | None = None

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The body as flushed pieces."""
        if isinstance(self.body, bytes):
            return (Chunk(data=self.body),) if self.body else ()
        return self.body

    @property
    def unannounced(self) -> bool:
        """Whether it has a body, or the form of one, whose length is not told before."""
        return self.chunked or (bool(self.trailers) and self.http == 1)

    @property
    def pauses(self) -> float:
        """Seconds for which the client does nothing."""
        return sum(chunk.after for chunk in self.chunks)


class HeadersArrive(NamedTuple):
    """The request begins."""

    headers: HeaderList
    end: bool


class DataArrives(NamedTuple):
    """A piece of body; `chunk` counts the client's finished chunks from 1, 0 inside of one."""

    data: bytes
    end: bool
    chunk: int


class TrailersArrive(NamedTuple):
    """The request ends."""

    trailers: HeaderList


class EchoAwaited(NamedTuple):
    """Go on only when `through` bytes of body have passed the EPP."""

    through: int


class Pause(NamedTuple):
    """Nothing comes for so many seconds."""

    seconds: float


Arrival: TypeAlias = HeadersArrive | DataArrives | TrailersArrive | EchoAwaited | Pause


Part: TypeAlias = ClientHeaders | ClientData | ClientTrailers | ClientReset
"""What a client gets."""


class Client(Protocol):
    """A client that is really there: its request comes when it sends it, and it gets the response as it comes."""

    def arrivals(self) -> AsyncGenerator[Arrival, None]:
        """The request, piece by piece."""

    def got(self, part: Part) -> None:
        """A part of the response."""

    async def ready(self) -> None:
        """Wait until the client takes more of the response."""

    @property
    def unsent(self) -> int:
        """Bytes of the response that the client has not taken."""

    def finished(self) -> None:
        """The exchange is over, with a response or without: `arrivals` ends."""


@dataclass(slots=True)
class Received:
    """What a client has got so far."""

    headers: HeaderList | None = None
    body: KeptBody = field(default_factory=KeptBody)
    trailers: HeaderList = field(default_factory=list)
    pieces: int = 0
    cut: bool = False

    @property
    def status(self) -> int | None:
        """The status; None before the response, 0 if the EPP has set it to what is no number."""
        value = header(tuple(self.headers or ()), b":status")
        return None if value is None else int(value) if value.isdigit() else 0

    def take(self, part: Part) -> None:
        """Another part."""
        match part:
            case ClientHeaders(headers, _):
                self.headers = headers
            case ClientData(data, _):
                self.body.add(data)
                self.pieces += 1
            case ClientTrailers(trailers):
                self.trailers = trailers
            case ClientReset():
                self.cut = True


async def scripted_arrivals(request: HttpRequest) -> AsyncGenerator[Arrival, None]:
    """`arrivals`, for who waits for them as for those of a real client."""
    for arrival in arrivals(request):
        yield arrival


def head_arrives(request: HttpRequest, *, end: bool) -> HeadersArrive:
    """The head of a request whose body comes by itself, with the length that its own headers announce, if any."""
    return HeadersArrive(_header_list(request, announce=False), end)


def arrivals(request: HttpRequest) -> Iterator[Arrival]:
    """`request` as the ext_proc filter gets it, piece by piece."""
    chunks, trailers = request.chunks, _lower(request.trailers)
    bodyless = not chunks and not request.unannounced and not trailers
    yield HeadersArrive(_header_list(request, announce=not request.unannounced), bodyless)
    if bodyless:
        return
    end_on_data = request.http == 2 and not trailers
    sent = 0
    for index, chunk in enumerate(chunks):
        if chunk.after:
            yield Pause(chunk.after)
        whole = request.coalesced and request.http == 2
        pieces = [chunk.data] if whole else list(_pieces(chunk.data, request.http, first=index == 0))
        for number, piece in enumerate(pieces, 1):
            finished = number == len(pieces)
            last = finished and index == len(chunks) - 1
            yield DataArrives(piece, last and end_on_data, index + 1 if finished else 0)
        sent += len(chunk.data)
        if chunk.await_echo:
            yield EchoAwaited(sent)
    if trailers:
        yield TrailersArrive(trailers)
    elif not chunks or not end_on_data:
        yield DataArrives(b"", True, 0)


def _header_list(request: HttpRequest, *, announce: bool) -> HeaderList:
    """The headers as Envoy's connection manager hands them to its filters."""
    sent = _lower(request.headers)
    nominated = (name.strip() for key, value in sent if key == b"connection" for name in value.lower().split(b","))
    removed = _REMOVED.union(nominated)
    plain = [(name, value) for name, value in sent if name not in removed]
    body = bool(request.chunks) or request.method in ("POST", "PUT", "PATCH")
    if announce and body and all(name != b"content-length" for name, _ in plain):
        plain.append((b"content-length", b"%d" % sum(len(chunk.data) for chunk in request.chunks)))
    plain = [*_mended(joined(plain, REQUEST), request.http)]
    scheme = request.scheme.encode()
    forwarded = get(plain, b"x-forwarded-proto")
    if forwarded is None:
        plain.append((b"x-forwarded-proto", scheme))
    elif request.http == 1 and forwarded in (b"http", b"https"):
        scheme = forwarded
    if request.request_id != "" and not get(plain, b"x-request-id"):
        put(plain, b"x-request-id", (request.request_id or str(uuid.uuid4())).encode())
    method, path = (b":method", request.method.encode()), (b":path", request.path.encode())
    authority = (b":authority", request.authority.encode())
    if request.http == 2:
        return [method, path, (b":scheme", scheme), authority, *plain]
    return [authority, path, method, (b":scheme", scheme), *plain]


def _mended(headers: HeaderList, http: Literal[1, 2]) -> Iterator[tuple[bytes, bytes]]:
    """What Envoy does to single headers: of `te` only trailers are left, of `expect` all but 100-continue, and the
    cookies of HTTP/2 become one."""
    for name, value in headers:
        if name == b"te":
            if b"trailers" in [token.strip() for token in value.split(b",")]:
                yield name, b"trailers"
        elif not (name == b"expect" and value.lower() == b"100-continue") and not (name == b"cookie" and http == 2):
            yield name, value
    cookies = b""
    for name, value in headers:
        if name == b"cookie":
            cookies += b"; " + value if cookies else value
    if cookies and http == 2:
        yield b"cookie", cookies


def _pieces(data: bytes, http: Literal[1, 2], *, first: bool) -> Iterator[bytes]:
    size = _HTTP2_FRAME if http == 2 else _HTTP1_READ
    at = _HTTP1_FIRST_READ if first and http == 1 else size
    yield data[:at]
    while at < len(data):
        yield data[at : at + size]
        at += size


def _lower(headers: Headers) -> HeaderList:
    return [(name.lower(), value) for name, value in headers]
