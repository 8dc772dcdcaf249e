"""The record of what happened: immutable events, totally ordered, on one monotonic clock.

Every event is a frozen dataclass with a `kind`. What observes something (the fake proxy, the tap, the scripted EPP)
hands events to a `Recorder`, which gives each its place `seq` and its time `t`. Order comes from the log,
never from comparing times. Events carry bytes as they were on the wire; what they mean is derived when they are read.

Authors are named by protocol role, `data-plane` or `epp`, never "sent" and "received": the same record can be made
on either side of the wire, or in the middle.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Literal

Headers = tuple[tuple[bytes, bytes], ...]
"""Header list in wire order: (name, value) as bytes; repeated names stay separate entries."""


class Author(StrEnum):
    """The protocol role that produced a message."""

    DATA_PLANE = "data-plane"
    EPP = "epp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened. Subclasses add what; `kind` names the subclass in serialised form."""

    kind: ClassVar[str]
    registry: ClassVar[dict[str, type[Event]]] = {}

    exchange: str | None = None
    """The HTTP request this belongs to, unique in the log; None for events of the whole episode."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super(Event, cls).__init_subclass__(**kwargs)
        if "kind" in cls.__dict__:
            Event.registry[cls.kind] = cls

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle: it takes half as long as what a dataclass has for it, and a run has a hundred thousand events."""
        cls: Any = type(self)
        return _made, (cls, *[getattr(self, name) for name in _fields(cls)])


@functools.cache
def _fields(cls: type[Any]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(cls))


def _made(cls: Any, *values: Any) -> Any:
    event = object.__new__(cls)
    for name, value in zip(_fields(cls), values, strict=True):
        object.__setattr__(event, name, value)
    return event


@dataclass(frozen=True, slots=True)
class Entry:
    """An event at its place in the log: `seq` orders, `t` is nanoseconds since the recorder started."""

    seq: int
    t: int
    event: Event

    def __reduce__(self) -> tuple[Any, ...]:
        """See `Event`."""
        return Entry, (self.seq, self.t, self.event)


# -- the exchange and its ext_proc stream ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOpened(Event):
    """A client's HTTP request reached the data plane. `note` holds whatever the stimulus wants a reader to know.

    Where the `body` is recorded, `size` is that of all of it; here as in what follows.
    """

    kind: ClassVar[str] = "exchange-opened"
    method: str
    path: str
    http: Literal[1, 2] = 1
    headers: Headers = ()
    request_body_mode: str = "NONE"
    response_body_mode: str = "NONE"
    ending: str = "envoy"
    note: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpened(Event):
    """An ext_proc `Process` stream was opened on HTTP/2 connection number `connection`.

    `epp` names the EPP that accepted it, where there are several.
    """

    kind: ClassVar[str] = "stream-opened"
    stream: str
    connection: int
    headers: Headers = ()
    epp: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event):
    """One gRPC message: a ProcessingRequest if the data plane is its author, a ProcessingResponse if the EPP is.

    `raw` is the message without its gRPC prefix. Where a recorder keeps less than all of it (size limits of the tap),
    `size` is the length on the wire, and `sha256` is the digest of the whole.
    """

    kind: ClassVar[str] = "message"
    stream: str
    author: Author
    raw: bytes
    size: int | None = None
    sha256: str | None = None

    @property
    def truncated(self) -> bool:
        """True if `raw` is only the beginning of the message."""
        return self.sha256 is not None or (self.size is not None and self.size != len(self.raw))


def shortened(message: Message, keep: int) -> Message:
    """`message` with only the first `keep` bytes kept, and the length and digest of the whole."""
    digest = hashlib.sha256(message.raw).hexdigest()
    return dataclasses.replace(message, raw=message.raw[:keep], size=len(message.raw), sha256=digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Malformed(Event):
    """Bytes on the stream that are not a gRPC message (truncated, compressed without agreement, over the limit)."""

    kind: ClassVar[str] = "malformed"
    stream: str
    author: Author
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfClosed(Event):
    """An author ended its side of the stream (END_STREAM) without resetting it."""

    kind: ClassVar[str] = "half-closed"
    stream: str
    author: Author


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded(Event):
    """The stream is over.

    `how`: `status` (gRPC trailers arrived, `status` is the code), `reset` (RST_STREAM by `author`, `code` is the
    HTTP/2 error code), `refused` (REFUSED_STREAM or above the last stream of a GOAWAY, before any answer: not
    processed), `lost` (the connection broke), `malformed` (HTTP answer that is not gRPC; see `headers`).
    """

    kind: ClassVar[str] = "stream-ended"
    stream: str
    author: Author | None
    how: Literal["status", "reset", "refused", "lost", "malformed"]
    status: int | None = None
    message: str = ""
    code: int | None = None
    headers: Headers = ()
    trailers: Headers = ()


# -- the HTTP sides of the exchange ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRequest(Event):
    """The data plane sent attempt number `attempt` (from 1) to `endpoint` (`ip:port`).

    Here as in what follows, a `body` of which only the beginning was kept has `size` and `sha256` of the whole.
    """

    kind: ClassVar[str] = "upstream-request"
    attempt: int
    endpoint: str
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers = ()
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamResponse(Event):
    """How an attempt ended: `outcome` is `response`, `connect-failed` or `reset`.

    What a model server answers is known when the request arrives; nothing of it is sent before `delay` seconds.
    """

    kind: ClassVar[str] = "upstream-response"
    attempt: int
    endpoint: str
    outcome: Literal["response", "connect-failed", "reset"]
    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers = ()
    size: int | None = None
    sha256: str | None = None
    delay: float = 0.0


UNROUTED = "unrouted"
"""The details of a response that a data plane gave itself, having no way to what the EPP chose."""

UNCONNECTED = "the connection failed"
"""How the details of a response begin that there was not, as the client got no connection."""

RESPONSE_TOO_LARGE = "response_payload_too_large"
"""Those of the 500 that takes the place of a response too large to be collected for a BUFFERED answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientResponse(Event):
    """What the HTTP client got. `complete` is False when the response was cut; `details` says why, in Envoy's words."""

    kind: ClassVar[str] = "client-response"
    status: int | None
    headers: Headers = ()
    body: bytes = b""
    trailers: Headers = ()
    complete: bool = True
    details: str = ""
    size: int | None = None
    sha256: str | None = None


def whole_body(event: ExchangeOpened | UpstreamRequest | UpstreamResponse | ClientResponse) -> bytes | None:
    """The body; None unless it is sure that all of it is in the record."""
    return event.body if event.size == len(event.body) else None


def body_length(event: UpstreamRequest | UpstreamResponse | ClientResponse) -> int:
    """Bytes of the whole body."""
    return len(event.body) if event.size is None else event.size


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAborted(Event):
    """The HTTP client went away on purpose at `point` of the exchange."""

    kind: ClassVar[str] = "client-aborted"
    point: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Event):
    """A wait with a name and its end: causality is in the log, not in timing."""

    kind: ClassVar[str] = "wait"
    what: str
    outcome: Literal["met", "expired"]
    seconds: float = 0.0


STILL_OPEN = "end of stream after half-close"
"""The name of the wait for the EPP's status once the data plane has said all it had to say."""

DRAINING = "end of stream while draining"
"""That of a wait which ends when nothing more comes: its end without a status says nothing of the EPP."""

A_CONNECTION = "a connection"
"""The wait for one to the EPP, or to the gateway."""

STREAMS_END = "the ext_proc streams end"
"""That of the wait for a gateway's streams to its EPP once the client has its response."""


# -- recording ---------------------------------------------------------------------------------------------------------


class Recorder:
    """Gives events their place. One recorder, one clock, one total order; not thread-safe (one event loop owns it).

    Listeners are called with each entry as it is made, in order of registration. `redact` sees every event before
    anything else does: a secret is gone before it can be kept, cut or digested.
    """

    def __init__(
        self, clock: Callable[[], int] = time.monotonic_ns, *, redact: Callable[[Event], Event] | None = None
    ) -> None:
        self._clock = clock
        self._redact = redact
        self._start = clock()
        self._next = itertools.count(1)
        self._listeners: list[Callable[[Entry], None]] = []

    def listen(self, listener: Callable[[Entry], None]) -> Callable[[], None]:
        """Call `listener` with every later entry; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def stamp(self, event: Event) -> Entry:
        """Give `event` the next place in the log, without telling any listener: for one listener's own remarks."""
        if self._redact is not None:
            event = self._redact(event)
        since = (self._clock() - self._start) // 1000 * 1000  # no rule asks for more, and digits of chance don't pack
        return Entry(next(self._next), since, event)

    def age(self, entry: Entry) -> float:
        """Seconds since `entry` was made."""
        return (self._clock() - self._start - entry.t) / 1e9

    def emit(self, event: Event) -> Entry:
        """Append `event` to the log now."""
        entry = self.stamp(event)
        for listener in tuple(self._listeners):
            listener(entry)
        return entry


# -- headers -----------------------------------------------------------------------------------------------------------


def header(headers: Headers, name: bytes) -> bytes | None:
    """The last value of `name` (lower case) in `headers`, or None."""
    return next((value for key, value in reversed(headers) if key.lower() == name), None)


def values(headers: Headers, name: bytes) -> Iterator[bytes]:
    """Every value of `name` (lower case) in `headers`, in order."""
    return (value for key, value in headers if key.lower() == name)
