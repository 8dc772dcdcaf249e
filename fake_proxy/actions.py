"""What the machine asks its driver to do, in order. Tuples, because the load path makes many of them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

HeaderList: TypeAlias = list[tuple[bytes, bytes]]
"""Headers in order, names in lower case, pseudo-headers first."""

Side: TypeAlias = Literal["request", "response"]

Layer: TypeAlias = Literal["message", "grpc", "http2"]
"""What bytes are sent as: a message, bytes of the stream without gRPC's prefix, or bytes of the connection."""


class Closing(StrEnum):
    """Why the data plane is done with the ext_proc stream; Envoy's frames differ (see `exchange`).

    `ANSWERED`: the EPP's last message made it so. `OWN`: the data plane's own reason (client gone, time-out, no
    response phase). `EPP_FIRST`: the EPP ended the stream.
    """

    ANSWERED = "answered"
    OWN = "own"
    EPP_FIRST = "epp-first"


class SendMessage(NamedTuple):
    """Send `raw`, a ProcessingRequest whose oneof is `kind` (`injected` for bytes of a stimulus). Opens the stream."""

    kind: str
    raw: bytes
    layer: Layer = "message"


class CloseStream(NamedTuple):
    """End the stream in the configured way. Comes at most once, after the last `SendMessage`."""

    closing: Closing


class StartTimer(NamedTuple):
    """(Re)start the message timer of this side."""

    side: Side
    seconds: float


class StopTimer(NamedTuple):
    """Stop the message timer of this side."""

    side: Side


class OpenUpstream(NamedTuple):
    """Start attempt `attempt` at `endpoint` with what is known of the request; more comes unless `end`."""

    attempt: int
    endpoint: str
    headers: HeaderList
    body: bytes
    trailers: HeaderList | None
    end: bool


class UpstreamData(NamedTuple):
    """More request body for the attempt under way."""

    data: bytes
    end: bool


class UpstreamTrailers(NamedTuple):
    """The request's trailers and end, for the attempt under way."""

    trailers: HeaderList


class AbortUpstream(NamedTuple):
    """Drop the attempt under way; its events no longer matter."""


class ClientHeaders(NamedTuple):
    """The response begins."""

    headers: HeaderList
    end: bool


class ClientData(NamedTuple):
    """More response body."""

    data: bytes
    end: bool


class ClientTrailers(NamedTuple):
    """The response's trailers and end."""

    trailers: HeaderList


class ClientReset(NamedTuple):
    """Cut the response: it has begun and can't be completed."""


class Done(NamedTuple):
    """The exchange is over for the client."""


Action: TypeAlias = (
    SendMessage
    | CloseStream
    | StartTimer
    | StopTimer
    | OpenUpstream
    | UpstreamData
    | UpstreamTrailers
    | AbortUpstream
    | ClientHeaders
    | ClientData
    | ClientTrailers
    | ClientReset
    | Done
)
