"""EPPs of the parity matrix: one that keeps the protocol, and variations of it by the kind of message they answer.

In full duplex the EPP answers the request headers only when it has seen the whole request (or, of a paced upload, the
first piece): the data plane does not wait for answers there, so the order would be left to chance otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from google.protobuf.message import Message as ProtoMessage

from ext_proc.headers import to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpBody,
    HttpStatus,
    ImmediateResponse,
    ProcessingMode,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)
from ext_proc.server import ServedStream

KEY = "x-gateway-destination-endpoint"


class End(NamedTuple):
    """End the call with a gRPC status."""

    status: int = 0
    message: str = ""


class Reset(NamedTuple):
    """RST_STREAM."""

    code: int


class Garbage(NamedTuple):
    """A message of bytes that are no ProcessingResponse."""

    raw: bytes


Step = ProtoMessage | End | Reset | Garbage


@dataclass
class Talk:
    """One stream, as the EPP's behaviour sees it."""

    pick: str
    """Value of the destination: `ip:port`, or a comma list."""
    full_duplex: bool = True
    """Whether request bodies are; `response_full_duplex` says it of responses."""
    response_full_duplex: bool = True
    notes: dict[str, bytearray] = field(default_factory=dict)
    """What a behaviour keeps from one message to the next."""
    seen: dict[str, int] = field(default_factory=dict)
    """How many messages of each kind came, this one included."""


Hook = Callable[[Talk, ProcessingRequest], Sequence[Step]]


@dataclass(frozen=True)
class Behaviour:
    """Hooks by kind of message; what has none is answered rightly. `fallback`: the pick may not take effect."""

    name: str
    hooks: dict[str, Hook] = field(default_factory=dict)
    fallback: bool = False
    modes: str = "fds buffered streamed mixed"
    """The body modes in which this differs from the others."""
    late: bool = True
    """In full duplex, wait for the whole request before the first answer."""


async def play(stream: ServedStream, behaviour: Behaviour, pick: str, paced: bool) -> None:
    """Answer `stream` as `behaviour` says, until nothing more comes."""
    talk = Talk(pick)
    waiting: list[ProcessingRequest] = []
    answering = False
    while (raw := await stream.recv()) is not None:
        message = ProcessingRequest.FromString(raw)
        if message.HasField("protocol_config"):
            modes = message.protocol_config
            talk.full_duplex = modes.request_body_mode == ProcessingMode.FULL_DUPLEX_STREAMED
            talk.response_full_duplex = modes.response_body_mode == ProcessingMode.FULL_DUPLEX_STREAMED
        waiting.append(message)
        answering = answering or not talk.full_duplex or _complete(message) or (paced and len(waiting) > 1)
        if not answering:
            continue
        for one in waiting:
            kind = one.WhichOneof("request") or ""
            talk.seen[kind] = talk.seen.get(kind, 0) + 1
            for step in behaviour.hooks.get(kind, right)(talk, one):
                match step:
                    case End(status, text):
                        stream.end(status, text)
                    case Reset(code):
                        stream.reset(code)
                    case Garbage(garbage):
                        stream.send(garbage)
                    case _:
                        stream.send(step.SerializeToString())
        waiting.clear()


def _complete(message: ProcessingRequest) -> bool:
    match message.WhichOneof("request"):
        case "request_headers":
            return message.request_headers.end_of_stream
        case "request_body":
            return message.request_body.end_of_stream
        case _:
            return True


# -- right answers -----------------------------------------------------------------------------------------------------


def right(talk: Talk, message: ProcessingRequest) -> list[ProcessingResponse]:
    """The answer of an EPP that keeps the protocol."""
    match message.WhichOneof("request"):
        case "request_headers":
            return [picked(talk)]
        case "request_body":
            return [ProcessingResponse(request_body=_body(message.request_body, talk.full_duplex))]
        case "request_trailers":
            return [ProcessingResponse(request_trailers=TrailersResponse())]
        case "response_headers":
            return [ProcessingResponse(response_headers=HeadersResponse())]
        case "response_body":
            return [ProcessingResponse(response_body=_body(message.response_body, talk.response_full_duplex))]
        case _:
            return [ProcessingResponse(response_trailers=TrailersResponse())]


def picked(
    talk: Talk,
    *,
    header: str | None = "",
    metadata: object = "",
    common: CommonResponse | None = None,
    namespace: str = "envoy.lb",
) -> ProcessingResponse:
    """The answer to request headers. `header` and `metadata` default to the pick; None leaves them out."""
    common = common or CommonResponse()
    if header is not None:
        set_header(common, KEY, header or talk.pick)
    answer = ProcessingResponse(request_headers=HeadersResponse(response=common))
    if metadata is not None:
        answer.dynamic_metadata.CopyFrom(to_struct({namespace: {KEY: metadata or talk.pick}}))
    return answer


def _body(body: HttpBody, full_duplex: bool) -> BodyResponse:
    return streamed(body.body, end=body.end_of_stream) if full_duplex else BodyResponse()


def streamed(body: bytes, *, end: bool) -> BodyResponse:
    """A full-duplex body answer."""
    piece = StreamedBodyResponse(body=body, end_of_stream=end)
    return BodyResponse(response=CommonResponse(body_mutation=BodyMutation(streamed_response=piece)))


def replaced(body: bytes) -> BodyResponse:
    """A body answer that replaces the piece, for the modes that are not full duplex."""
    return BodyResponse(response=CommonResponse(body_mutation=BodyMutation(body=body)))


def set_header(common: CommonResponse, name: str, value: str | bytes, **option: object) -> CommonResponse:
    """Add one header to the mutation of `common`."""
    raw = value.encode() if isinstance(value, str) else value
    common.header_mutation.set_headers.append(HeaderValueOption(header=HeaderValue(key=name, raw_value=raw), **option))
    return common


def immediate(
    status: int | None, body: bytes = b"", details: str = "", headers: Sequence[tuple[str, bytes]] = ()
) -> Hook:
    """Answer with an ImmediateResponse."""

    def hook(_: Talk, __: ProcessingRequest) -> list[ProcessingResponse]:
        answer = ImmediateResponse(body=body, details=details)
        if status is not None:
            answer.status.CopyFrom(HttpStatus(code=status))
        if headers:
            mutation = CommonResponse()
            for name, value in headers:
                set_header(mutation, name, value)
            answer.headers.CopyFrom(mutation.header_mutation)
        return [ProcessingResponse(immediate_response=answer)]

    return hook
