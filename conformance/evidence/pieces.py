"""The bodies of ext_proc streams in the pieces in which they were said, so that what is cut between two can be seen."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.record import Author, Entry, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyPiece:
    """A message of the log with a piece of a body in it."""

    entry: Entry
    data: bytes
    _message: Any
    _holder: Any

    def message_with(self, data: bytes) -> bytes:
        """The message with `data` in place of what it has."""
        self._holder.body = data
        return bytes(self._message.SerializeToString(deterministic=True))


def bodies_of(entries: Iterable[Entry]) -> Collection[list[BodyPiece]]:
    """Of each stream's author and direction the pieces in order. Messages that can't be read whole have none."""
    found: dict[tuple[str, Author, str], list[BodyPiece]] = {}
    for entry in entries:
        event = entry.event
        if not isinstance(event, Message) or event.truncated:
            continue
        message = (ProcessingRequest if event.author is Author.DATA_PLANE else ProcessingResponse)()
        try:
            message.ParseFromString(event.raw)
        except DecodeError:
            continue
        kind, holder = _held(message)
        if holder is not None:
            piece = BodyPiece(entry=entry, data=holder.body, _message=message, _holder=holder)
            found.setdefault((event.stream, event.author, kind), []).append(piece)
    return found.values()


def _held(message: Any) -> tuple[str, Any]:
    """The direction of a body's piece, and what holds it; None if the message has none."""
    kind = message.WhichOneof("request" if isinstance(message, ProcessingRequest) else "response") or ""
    if kind not in ("request_body", "response_body"):
        return kind, None
    part = getattr(message, kind)
    if isinstance(message, ProcessingRequest):
        return kind, part
    mutation = part.response.body_mutation
    match mutation.WhichOneof("mutation"):
        case "body":
            return kind, mutation
        case "streamed_response":
            return kind, mutation.streamed_response
        case _:
            return kind, None
