"""One message of an ext_proc stream, decoded: what was said, and how sure we are of it.

Nothing is inferred from what could not be read. A message in which some member of the oneof is set that this schema
does not know is `opaque`, never "empty"; one of which the record kept only a part has no `message`.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf
from google.protobuf.unknown_fields import UnknownFieldSet

from ext_proc.messages import CommonResponse, HeaderMutation, ProcessingRequest, ProcessingResponse
from ext_proc.record import Author, Entry, Message

REQUEST, RESPONSE = "request", "response"

_MEMBERS: dict[Author, dict[int, str]] = {
    Author.DATA_PLANE: {f.number: f.name for f in ProcessingRequest.DESCRIPTOR.oneofs_by_name["request"].fields},
    Author.EPP: {f.number: f.name for f in ProcessingResponse.DESCRIPTOR.oneofs_by_name["response"].fields},
}

_PLACES: dict[str | None, tuple[str | None, str | None]] = {
    f"{side}_{part}": (side, part) for side in (REQUEST, RESPONSE) for part in ("headers", "body", "trailers")
}
_NOWHERE: tuple[str | None, str | None] = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A message with its place in the log.

    `what` is the member of the oneof (`request_headers`, `immediate_response`, …), None if none is set or it can't be
    told. `request` or `response` is the decoded message, by author; both are None if it can't be decoded (`problem`
    says why). `partial`: it was not kept whole; then it is decoded if what was kept is a message by itself, as of one
    that lacks only bytes of body. `opaque`: something is set that the schema does not know.
    """

    entry: Entry
    author: Author
    size: int
    what: str | None = None
    request: ProcessingRequest | None = None
    response: ProcessingResponse | None = None
    problem: str = ""
    partial: bool = False
    opaque: bool = False

    @property
    def seq(self) -> int:
        """Its place in the log."""
        return self.entry.seq

    @property
    def side(self) -> str | None:
        """`request` or `response`, whichever direction of HTTP it is about; None for everything else."""
        return _PLACES.get(self.what, _NOWHERE)[0]

    @property
    def part(self) -> str | None:
        """`headers`, `body` or `trailers`; None for everything else."""
        return _PLACES.get(self.what, _NOWHERE)[1]

    @property
    def ends(self) -> bool:
        """Whether the data plane says with it that its direction is complete: an end of stream, or trailers."""
        match self.request, self.part:
            case None, _:
                return False
            case message, "headers":
                return bool(getattr(message, self.what or "").end_of_stream)
            case message, "body":
                body = getattr(message, self.what or "")
                return bool(body.end_of_stream or body.end_of_stream_without_message)
            case _:
                return self.part == "trailers"

    @property
    def body(self) -> bytes:
        """The bytes of body that the data plane sent in it."""
        if self.request is None or self.what is None or self.part != "body":
            return b""
        return bytes(getattr(self.request, self.what).body)

    @property
    def common(self) -> CommonResponse | None:
        """The `CommonResponse` of an answer to headers or a body."""
        if self.response is None or self.what is None or self.part not in ("headers", "body"):
            return None
        common: CommonResponse = getattr(self.response, self.what).response
        return common

    @property
    def header_mutation(self) -> HeaderMutation | None:
        """What the answer wants changed in headers or trailers (of the ImmediateResponse: set in it), if anything."""
        if self.response is None or self.what is None:
            return None
        if self.what == "immediate_response":
            immediate = self.response.immediate_response
            return immediate.headers if immediate.HasField("headers") else None
        if self.part == "trailers":
            trailers = getattr(self.response, self.what)
            return trailers.header_mutation if trailers.HasField("header_mutation") else None
        common = self.common
        return common.header_mutation if common is not None and common.HasField("header_mutation") else None

    @property
    def only_timeout(self) -> bool:
        """Whether it only asks for more time: Envoy takes nothing else from such a message (ENV-18)."""
        return self.response is not None and self.response.HasField("override_message_timeout")


def decode(entry: Entry, event: Message) -> Said:
    """What `event` says. Never raises: bytes that are no message give a `Said` with a `problem`."""
    size = event.size if event.size is not None else len(event.raw)
    if event.truncated:
        return _partial(entry, event, size)
    try:
        if event.author is Author.DATA_PLANE:
            request = ProcessingRequest.FromString(event.raw)
            asked: str | None = request.WhichOneof("request")
            opaque = asked is None and has_unknown(request)
            return Said(entry=entry, author=event.author, size=size, what=asked, request=request, opaque=opaque)
        response = ProcessingResponse.FromString(event.raw)
        answered: str | None = response.WhichOneof("response")
        opaque = answered == "streamed_immediate_response" or (answered is None and has_unknown(response))
        return Said(entry=entry, author=event.author, size=size, what=answered, response=response, opaque=opaque)
    except DecodeError as problem:
        reason = str(problem).rpartition(": ")[2] or "it can't be decoded"
        return Said(entry=entry, author=event.author, size=size, problem=reason)


def _partial(entry: Entry, event: Message, size: int) -> Said:
    """What a message that was not kept whole says: all that is left of it, or at least what it was about."""
    request, response = None, None
    what: str | None = None
    try:
        if event.author is Author.DATA_PLANE:
            request = ProcessingRequest.FromString(event.raw)
            what = request.WhichOneof("request")
        else:
            response = ProcessingResponse.FromString(event.raw)
            what = response.WhichOneof("response")
    except DecodeError:
        pass
    if what is None:
        request = response = None
        what = _first_member(event.raw, _MEMBERS[event.author])
    return Said(
        entry=entry,
        author=event.author,
        size=size,
        what=what,
        request=request,
        response=response,
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
