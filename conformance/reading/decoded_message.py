"""One message of an ext_proc stream, decoded: what it says, and how sure that is.

Nothing is inferred from what could not be read. A message in which some member of the oneof is set that this schema
does not know is `opaque`, never "empty"; one of which the record kept only a part has no `message`.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf
from google.protobuf.unknown_fields import UnknownFieldSet

from ext_proc.headers import value_of
from ext_proc.messages import (
    CommonResponse,
    HeaderMap,
    HeaderMutation,
    HeaderValueOption,
    ProcessingRequest,
    ProcessingResponse,
)
from ext_proc.protocol import DESTINATION
from ext_proc.record import Author, Entry, Message

REQUEST, RESPONSE = "request", "response"
DATA_PLANE, EPP = Author.DATA_PLANE, Author.EPP

_MEMBERS: dict[Author, dict[int, str]] = {
    DATA_PLANE: {f.number: f.name for f in ProcessingRequest.DESCRIPTOR.oneofs_by_name["request"].fields},
    EPP: {f.number: f.name for f in ProcessingResponse.DESCRIPTOR.oneofs_by_name["response"].fields},
}

_PLACES: dict[str | None, tuple[str | None, str | None]] = {
    f"{side}_{part}": (side, part) for side in (REQUEST, RESPONSE) for part in ("headers", "body", "trailers")
}
_NOWHERE: tuple[str | None, str | None] = (None, None)

STREAMED_REPLY = "streamed_immediate_response"
"""The member of the oneof by which an EPP answers itself in several messages."""

REQUEST_AT_FAULT = (3, 5, 6, 7, 9, 11, 12, 16)
"""The gRPC statuses that say that the request is at fault: INVALID_ARGUMENT, NOT_FOUND, ALREADY_EXISTS,
PERMISSION_DENIED, FAILED_PRECONDITION, OUT_OF_RANGE, UNIMPLEMENTED, UNAUTHENTICATED."""

HeaderList = list[tuple[str, bytes]]
"""Names in lower case, in order. Never changed in place."""


class DecodedMessage(NamedTuple):
    """A message with its place in the log. (A named tuple, as there are many and judging is to be fast.)

    `what` is the member of the oneof (`request_headers`, `immediate_response`, …), None if none is set or it can't be
    told. `request` or `response` is the decoded message, by author; both are None if it can't be decoded (`problem`
    says why). `partial`: it was not kept whole; then it is decoded if what was kept is a message by itself, as of one
    that lacks only bytes of body. `opaque`: something is set that the schema does not know.
    """

    entry: Entry
    author: Author
    size: int
    what: str | None = None
    side: str | None = None
    """`request` or `response`, the direction of HTTP that it is about; None where it is about neither."""
    part: str | None = None
    """`headers`, `body` or `trailers`; None where it is none of them."""
    request: ProcessingRequest | None = None
    response: ProcessingResponse | None = None
    problem: str = ""
    partial: bool = False
    opaque: bool = False
    ends: bool = False
    """Whether the data plane says with it that its direction is complete: an end of stream, or trailers."""
    headers: HeaderList | None = None
    """The headers, or trailers, that the data plane sent in it."""
    body: bytes = b""
    """The bytes of body that the data plane sent in it."""
    common: CommonResponse | None = None
    """The `CommonResponse` of an answer to headers or a body."""
    header_mutation: HeaderMutation | None = None
    """What the answer wants changed in headers or trailers, if anything; of an ImmediateResponse, streamed or not, what
    is set in it."""

    @property
    def seq(self) -> int:
        """Its place in the log."""
        return self.entry.seq

    @property
    def reply_part(self) -> str | None:
        """Of a StreamedImmediateResponse: `headers_response`, `body_response` or `trailers_response`."""
        if self.what != STREAMED_REPLY or self.response is None:
            return None
        return self.response.streamed_immediate_response.WhichOneof("response")

    @property
    def ends_reply(self) -> bool:
        """Of a StreamedImmediateResponse: whether it is the last part of the reply."""
        if self.what != STREAMED_REPLY or self.response is None:
            return False
        reply = self.response.streamed_immediate_response
        ends = reply.headers_response.end_of_stream or reply.body_response.end_of_stream
        return ends or self.reply_part == "trailers_response"

    @property
    def grpc_status(self) -> int | None:
        """Of an ImmediateResponse, streamed or not: the gRPC status with which a client of gRPC gets it; None where it
        is left to the data plane. Envoy 1.40 takes a header first."""
        headers = self.header_mutation.set_headers if self.header_mutation is not None else ()
        said = [one.header.raw_value for one in headers if one.header.key.lower() == "grpc-status"]
        if self.response is None or (said and said[-1]):
            return int(said[-1]) if said and len(said[-1]) < 4 and said[-1].isdigit() else None
        immediate = self.response.immediate_response
        return int(immediate.grpc_status.status) if immediate.HasField("grpc_status") else None

    @property
    def only_timeout(self) -> bool:
        """Whether it only asks for more time: Envoy takes nothing else from such a message (ENV-18)."""
        return self.response is not None and self.response.HasField("override_message_timeout")

    @property
    def names_destination(self) -> bool:
        """Whether the answer sets the destination, in the header or wherever in `dynamic_metadata`."""
        mutation = self.header_mutation
        if mutation is not None and any(one.header.key.lower() == DESTINATION for one in mutation.set_headers):
            return True
        fields = self.response.dynamic_metadata.fields if self.response is not None else {}
        return DESTINATION in fields or any(DESTINATION in value.struct_value.fields for value in fields.values())


def decode(entry: Entry, event: Message) -> DecodedMessage:
    """What `event` says. Never raises: bytes that are no message give a `DecodedMessage` with a `problem`."""
    if event.truncated:
        return _partial(entry, event)
    try:
        if event.author is DATA_PLANE:
            request = ProcessingRequest.FromString(event.raw)
            asked: str | None = request.WhichOneof("request")
            return _asked(entry, len(event.raw), request, asked, opaque=asked is None and has_unknown(request))
        response = ProcessingResponse.FromString(event.raw)
        answered: str | None = response.WhichOneof("response")
        opaque = answered is None and has_unknown(response)
        return _answered(entry, len(event.raw), response, answered, opaque=opaque)
    except DecodeError as problem:
        reason = str(problem).rpartition(": ")[2] or "it can't be decoded"
        return DecodedMessage(entry=entry, author=event.author, size=len(event.raw), problem=reason)


def _asked(
    entry: Entry,
    size: int,
    request: ProcessingRequest,
    what: str | None,
    *,
    opaque: bool = False,
    partial: bool = False,
) -> DecodedMessage:
    side, part = _PLACES.get(what, _NOWHERE)
    headers: HeaderList | None = None
    body, ends = b"", part == "trailers"
    if part == "headers" and what is not None:
        message = getattr(request, what)
        headers = _pairs(message.headers)
        ends = message.end_of_stream
    elif part == "body" and what is not None:
        message = getattr(request, what)
        body = message.body
        ends = message.end_of_stream or message.end_of_stream_without_message
    elif part == "trailers" and what is not None:
        headers = _pairs(getattr(request, what).trailers)
    return DecodedMessage(
        entry=entry,
        author=DATA_PLANE,
        size=size,
        what=what,
        side=side,
        part=part,
        request=request,
        partial=partial,
        opaque=opaque,
        ends=ends,
        headers=headers,
        body=body,
    )


def _pairs(headers: HeaderMap) -> HeaderList:
    return [(one.key.lower(), value_of(one)) for one in headers.headers]


def _answered(
    entry: Entry,
    size: int,
    response: ProcessingResponse,
    what: str | None,
    *,
    opaque: bool = False,
    partial: bool = False,
) -> DecodedMessage:
    side, part = _PLACES.get(what, _NOWHERE)
    common: CommonResponse | None = None
    holder: Any = None
    mutation: HeaderMutation | None = None
    if what == STREAMED_REPLY:
        reply = response.streamed_immediate_response
        headers = [*reply.headers_response.headers.headers, *reply.trailers_response.headers]
        mutation = HeaderMutation(set_headers=[HeaderValueOption(header=one) for one in headers])
    elif what == "immediate_response":
        holder, field = response.immediate_response, "headers"
    elif part is not None and what is not None:
        holder, field = getattr(response, what), "header_mutation"
        if part != "trailers":
            holder = common = holder.response
    if holder is not None and holder.HasField(field):
        mutation = getattr(holder, field)
    return DecodedMessage(
        entry=entry,
        author=EPP,
        size=size,
        what=what,
        side=side,
        part=part,
        response=response,
        partial=partial,
        opaque=opaque,
        common=common,
        header_mutation=mutation,
    )


def _partial(entry: Entry, event: Message) -> DecodedMessage:
    """What a message that was not kept whole says: all that is left of it, or at least what it was about."""
    size = event.size if event.size is not None else len(event.raw)
    with contextlib.suppress(DecodeError):
        if event.author is DATA_PLANE:
            request = ProcessingRequest.FromString(event.raw)
            if (asked := request.WhichOneof("request")) is not None:
                return _asked(entry, size, request, asked, partial=True)
        else:
            response = ProcessingResponse.FromString(event.raw)
            if (answered := response.WhichOneof("response")) is not None:
                return _answered(entry, size, response, answered, partial=True)
    what = _first_member(event.raw, _MEMBERS[event.author])
    side, part = _PLACES.get(what, _NOWHERE)
    return DecodedMessage(
        entry=entry,
        author=event.author,
        size=size,
        what=what,
        side=side,
        part=part,
        partial=True,
        opaque=what is None,
    )


def has_unknown(message: Protobuf) -> bool:
    """Whether `message` itself has fields that the schema does not know."""
    return len(UnknownFieldSet(message)) > 0


def _first_member(raw: bytes, members: dict[int, str]) -> str | None:
    """The member of the oneof that the first fields of a cut message show, or None."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire_type = tag >> 3, tag & 7
        if number in members:
            return members[number]
        match wire_type:
            case 0:
                _, at = _varint(raw, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(raw, at)
                at += length
            case 5:
                at += 4
            case _:
                return None
    return None


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(raw) and shift < 64:
        byte = raw[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return number, at
