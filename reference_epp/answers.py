"""Build the messages that an external processor answers with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from ext_proc.messages import ProcessingResponse

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse, HeaderMutation

Direction = Literal["request", "response"]

CHUNK_LIMIT = 62_000
"""Bytes of body in one answer; Envoy recommends no more than 64 KiB."""

OVERWRITE = 2
"""`OVERWRITE_IF_EXISTS_OR_ADD`. Said aloud, because left out it means overwriting to Envoy and appending to others."""


def headers_answer(direction: Direction) -> tuple[ProcessingResponse, CommonResponse]:
    """An answer to headers that changes nothing yet, and the part of it that can say more."""
    answer = ProcessingResponse()
    headers = answer.request_headers if direction == "request" else answer.response_headers
    headers.SetInParent()
    return answer, headers.response


def body_answer(direction: Direction) -> tuple[ProcessingResponse, CommonResponse]:
    """An answer to a body that changes nothing, for every body mode but full duplex; and the part that can say more."""
    answer = ProcessingResponse()
    body = answer.request_body if direction == "request" else answer.response_body
    body.SetInParent()
    return answer, body.response


def streamed_answer(direction: Direction, body: bytes, *, end_of_stream: bool) -> ProcessingResponse:
    """A piece of body for full duplex, where the data plane forwards only what it is given."""
    answer, common = body_answer(direction)
    streamed = common.body_mutation.streamed_response
    streamed.SetInParent()
    streamed.body = body
    streamed.end_of_stream = end_of_stream
    return answer


def trailers_answer(direction: Direction) -> ProcessingResponse:
    """An answer to trailers that changes nothing."""
    answer = ProcessingResponse()
    (answer.request_trailers if direction == "request" else answer.response_trailers).SetInParent()
    return answer


def immediate_response(code: int, text: str) -> ProcessingResponse:
    """End the exchange with HTTP status `code` and `text` as its body."""
    answer = ProcessingResponse()
    immediate = answer.immediate_response
    immediate.status.code = code
    set_header(immediate.headers, "content-type", b"text/plain")
    immediate.body = text.encode()
    immediate.details = "endpoint_picker"
    return answer


def set_header(mutation: HeaderMutation, key: str, value: bytes) -> None:
    """Set header `key` to `value`, whatever there is. The value goes into `raw_value`: Envoy drops `value`."""
    option = mutation.set_headers.add()
    option.header.key = key
    option.header.raw_value = value
    option.append_action = OVERWRITE


def pieces(body: bytes, limit: int = CHUNK_LIMIT) -> Iterator[bytes]:
    """`body` in pieces of at most `limit` bytes; none if it is empty."""
    return (body[at : at + limit] for at in range(0, len(body), limit))
