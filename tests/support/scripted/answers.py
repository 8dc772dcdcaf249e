"""Answers of an EPP, made by hand: right ones by default, and as wrong as the arguments say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from ext_proc.headers import to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpStatus,
    ImmediateResponse,
    ProcessingResponse,
    StreamedBodyResponse,
    Struct,
    TrailersResponse,
)
from ext_proc.protocol import DESTINATION
from ext_proc.protocol import DESTINATION_NAMESPACE as NAMESPACE

AS_DESTINATION: Any = object()
"""Stands for the destination where header and metadata are the same."""

Side = Literal["request", "response"]
Answer = ProcessingResponse | bytes


def headers_answer(
    destination: str | None = None,
    *,
    side: Side = "request",
    header: str | None = AS_DESTINATION,
    metadata: Struct | Mapping[str, Any] | str | None = AS_DESTINATION,
    options: Iterable[HeaderValueOption] = (),
    remove: Iterable[str] = (),
    **more: Any,
) -> ProcessingResponse:
    """An answer to headers with the destination in both places, or as `header` and `metadata` say.

    `metadata`: a string in the standard namespace, or everything as a mapping. `options` are further header entries.
    """
    header = destination if header is AS_DESTINATION else header
    metadata = destination if metadata is AS_DESTINATION else metadata
    entries = [] if header is None else [option(DESTINATION, header)]
    mutation = HeaderMutation(set_headers=[*entries, *options], remove_headers=list(remove))
    common = CommonResponse(header_mutation=mutation, clear_route_cache=header is not None)
    return with_metadata(_answer(f"{side}_headers", HeadersResponse(response=common), **more), metadata)


def with_metadata(
    response: ProcessingResponse, metadata: Struct | Mapping[str, Any] | str | None
) -> ProcessingResponse:
    """`response` with `dynamic_metadata`: a string is the destination in the standard namespace."""
    if isinstance(metadata, str):
        metadata = {NAMESPACE: {DESTINATION: metadata}}
    if metadata is not None:
        response.dynamic_metadata.CopyFrom(metadata if isinstance(metadata, Struct) else to_struct(metadata))
    return response


def option(name: str, value: str | bytes, *, field: str = "raw_value", **flags: Any) -> HeaderValueOption:
    """One entry of `set_headers`; `field` is where its value goes, `flags` are those of HeaderValueOption."""
    if field == "raw_value":
        header = HeaderValue(key=name, raw_value=value.encode() if isinstance(value, str) else value)
    else:
        header = HeaderValue(key=name, value=value if isinstance(value, str) else value.decode())
    return HeaderValueOption(header=header, **flags)


def streamed(body: bytes, *, side: Side = "request", end: bool = False) -> ProcessingResponse:
    """A full-duplex answer to a body."""
    mutation = BodyMutation(streamed_response=StreamedBodyResponse(body=body, end_of_stream=end))
    return body_answer(side=side, body_mutation=mutation)


def echo(body: bytes, *, side: Side = "request", chunks: int = 1, end: bool = True) -> tuple[ProcessingResponse, ...]:
    """Full-duplex answers that give a body back, the last of them with the end of stream."""
    parts = list(pieces(body, chunks)) or [b""]
    return tuple(streamed(part, side=side, end=end and index == len(parts) - 1) for index, part in enumerate(parts))


def body_answer(*, side: Side = "request", **common: Any) -> ProcessingResponse:
    """An answer to a body; the arguments are those of CommonResponse."""
    return _answer(f"{side}_body", BodyResponse(response=CommonResponse(**common)))


def trailers_answer(*, side: Side = "request") -> ProcessingResponse:
    """An answer to trailers."""
    return _answer(f"{side}_trailers", TrailersResponse())


def immediate(code: int | None, **more: Any) -> ProcessingResponse:
    """An ImmediateResponse; None leaves its status out."""
    response = ImmediateResponse(status=HttpStatus(code=code) if code is not None else None, **more)
    return ProcessingResponse(immediate_response=response)


def _answer(member: str, value: Any, **more: Any) -> ProcessingResponse:
    fields: dict[str, Any] = {member: value, **more}
    return ProcessingResponse(**fields)


def pieces(body: bytes, chunks: int) -> Iterable[bytes]:
    """`body` in so many pieces of about the same size, none of them empty."""
    size = -(-len(body) // chunks) if body else 1
    return (body[at : at + size] for at in range(0, len(body), size))
