"""What an EPP may do at one moment of a stream, as plain values; `answers` and `player` put them on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from ext_proc.messages import HeaderValueOption
from ext_proc.protocol import DESTINATION, DESTINATION_NAMESPACE
from ext_proc.record import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A destination: a list of endpoints in order of preference, said in the header and in dynamic metadata.

    `header` and `metadata` off leave one out; a string there is said instead of the list.
    """

    endpoints: tuple[str, ...]
    header: bool | str = True
    metadata: bool | str = True
    header_name: str = DESTINATION
    namespace: str = DESTINATION_NAMESPACE
    key: str = DESTINATION
    action: int | None = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD

    @property
    def text(self) -> str:
        """The list as it is written."""
        return ",".join(self.endpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHeader:
    """A header to be set. `action` is a `HeaderAppendAction`, None leaves it out; data planes read `raw_value` first,
    older EPPs say `value`."""

    name: str
    value: bytes
    action: int | None = HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
    said_in: Literal["raw_value", "value"] = "raw_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer that the message asks for, changed as said here; as it is, the right one.

    `to` answers another kind of message than the one at hand (`response_headers`). `picks` is whether it has the
    script's destination: by itself, the answer that decides about the request has it. `body` replaces the body, `form`
    is how it is said (`streamed`, `body`, `clear`, or `none`: no mutation), `ends` whether it ends the stream of full
    duplex. `replaces` is the status CONTINUE_AND_REPLACE. `metadata` comes beside the pick's. `mode_override` is by
    field of `ProcessingMode`; `extra` are serialised fields put behind the message.
    """

    to: str | None = None
    picks: bool | Pick | None = None
    set_headers: tuple[SetHeader, ...] = ()
    remove_headers: tuple[str, ...] = ()
    body: bytes | None = None
    form: Literal["streamed", "body", "clear", "none"] | None = None
    ends: bool | None = None
    replaces: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    mode_override: Mapping[str, int] | None = None
    clear_route_cache: bool = False
    override_timeout: float | None = None
    """Seconds; such a message says nothing else to Envoy."""
    extra: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Immediate:
    """An ImmediateResponse. `code` None leaves its status out."""

    code: int | None = 503
    body: bytes = b""
    headers: tuple[SetHeader, ...] = ()
    details: str = ""
    grpc_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """A message of these bytes, whatever they are."""

    message: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes:
    """Bytes on the stream that are no gRPC message."""

    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """End the call: status 0 closes it."""

    status: int = 0
    message: str = ""
    metadata: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndWithoutTrailers:
    """End the stream with a bare END_STREAM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """RST_STREAM with an HTTP/2 error code; 7 refuses the stream."""

    code: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer of an HTTP server that knows no gRPC."""

    status: int = 502
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoAway:
    """A GOAWAY on the stream's connection, which goes on for the streams up to it."""

    code: int = 0
    debug: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakConnection:
    """Cut the stream's connection without a word."""


Act: TypeAlias = (
    Answer | Immediate | Raw | Bytes | Delay | End | EndWithoutTrailers | Reset | HttpAnswer | GoAway | BreakConnection
)
"""No act at all is silence."""
