"""What a data plane told the EPP in one exchange, read once for all that looks at it."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from ext_proc.messages import ProcessingRequest
from ext_proc.record import Author, Entry, Message


class Told:
    """The messages of the data plane in `entries`, but for those that can't be read."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.messages: list[ProcessingRequest] = []
        for entry in entries:
            match entry.event:
                case Message(author=Author.DATA_PLANE, raw=raw):
                    try:
                        self.messages.append(ProcessingRequest.FromString(raw))
                    except DecodeError:  # a scenario may have sent what is none
                        continue

    def of_kind(self, kind: str) -> list[ProcessingRequest]:
        """The messages of a kind, such as `request_headers` or `response_body`."""
        return [one for one in self.messages if one.WhichOneof("request") == kind]
