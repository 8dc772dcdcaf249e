"""Answers as messages: what a message asks for, with the changes that an `Answer` wants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ext_proc.headers import to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    Duration,
    GrpcStatus,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpStatus,
    ImmediateResponse,
    ProcessingMode,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)
from fake_epp.acts import Answer, Immediate, Pick, SetHeader

CHUNK = 64 * 1024
"""Bytes of body in one answer in full duplex, as Envoy recommends."""


def answer(kind: str, said: Answer, *, body: bytes | None, ends: bool, duplex: bool, pick: Pick | None) -> list[bytes]:
    """The messages that answer one of `kind`.

    In full duplex `body` is what comes back, None outside of a body; it is cut into chunks, of which the last `ends`.
    """
    kind = said.to or kind
    if not kind.endswith("_body") or not duplex or said.form not in (None, "streamed"):
        return [_message(kind, said, _body(said, body if duplex else None), pick)]
    content = said.body if said.body is not None else body or b""
    ends = said.ends if said.ends is not None else ends
    pieces = [content[at : at + CHUNK] for at in range(0, len(content), CHUNK)] or [b""]
    last = len(pieces) - 1
    return [
        _message(kind, said, _streamed(piece, ends=ends and index == last), pick if not index else None)
        for index, piece in enumerate(pieces)
    ]


def _message(kind: str, said: Answer, body: BodyMutation | None, pick: Pick | None) -> bytes:
    response = ProcessingResponse(**{kind: _part(kind, said, body, pick)})
    metadata: dict[str, Any] = {name: dict(value) for name, value in said.metadata.items()}
    if pick is not None and pick.metadata is not False:
        text = pick.text if pick.metadata is True else pick.metadata
        metadata.setdefault(pick.namespace, {})[pick.key] = text
    if metadata:
        response.dynamic_metadata.CopyFrom(to_struct(metadata))
    if said.mode_override is not None:
        response.mode_override.CopyFrom(ProcessingMode(**said.mode_override))
    if said.override_timeout is not None:
        seconds = int(said.override_timeout)
        nanos = int((said.override_timeout - seconds) * 1e9)
        response.override_message_timeout.CopyFrom(Duration(seconds=seconds, nanos=nanos))
    return response.SerializeToString() + said.extra


def _part(kind: str, said: Answer, body: BodyMutation | None, pick: Pick | None) -> Any:
    headers = list(said.set_headers)
    if pick is not None and pick.header is not False:
        text = pick.text if pick.header is True else pick.header
        headers.append(SetHeader(name=pick.header_name, value=text.encode(), action=pick.action))
    mutation = HeaderMutation(set_headers=_options(headers), remove_headers=said.remove_headers)
    changes = bool(headers or said.remove_headers)
    if kind.endswith("_trailers"):
        return TrailersResponse(header_mutation=mutation) if changes else TrailersResponse()
    common = CommonResponse(
        status=CommonResponse.CONTINUE_AND_REPLACE if said.replaces else CommonResponse.CONTINUE,
        clear_route_cache=said.clear_route_cache,
    )
    if changes:
        common.header_mutation.CopyFrom(mutation)
    if body is not None:
        common.body_mutation.CopyFrom(body)
    wrapper = BodyResponse if kind.endswith("_body") else HeadersResponse
    if not changes and body is None and not said.replaces and not said.clear_route_cache:
        return wrapper()
    return wrapper(response=common)


def _body(said: Answer, own: bytes | None) -> BodyMutation | None:
    """The mutation of an answer that is one message; `own` is the body at hand in full duplex."""
    match said.form:
        case "none":
            return None
        case "clear":
            return BodyMutation(clear_body=True)
        case "streamed":
            return _streamed(said.body if said.body is not None else own or b"", ends=bool(said.ends))
        case "body":
            return BodyMutation(body=said.body if said.body is not None else own or b"")
        case _:
            return None if said.body is None else BodyMutation(body=said.body)


def _streamed(body: bytes, *, ends: bool) -> BodyMutation:
    return BodyMutation(streamed_response=StreamedBodyResponse(body=body, end_of_stream=ends))


def immediate(said: Immediate) -> bytes:
    """An ImmediateResponse."""
    message = ImmediateResponse(body=said.body, details=said.details)
    if said.code is not None:
        message.status.CopyFrom(HttpStatus(code=said.code))
    if said.headers:
        message.headers.CopyFrom(HeaderMutation(set_headers=_options(said.headers)))
    if said.grpc_status is not None:
        message.grpc_status.CopyFrom(GrpcStatus(status=said.grpc_status))
    return ProcessingResponse(immediate_response=message).SerializeToString()


def _options(headers: Iterable[SetHeader]) -> list[HeaderValueOption]:
    return [HeaderValueOption(header=_value(one), append_action=one.action) for one in headers]


def _value(one: SetHeader) -> HeaderValue:
    if one.said_in == "value":
        return HeaderValue(key=one.name, value=one.value.decode())
    return HeaderValue(key=one.name, raw_value=one.value)
