"""What a data plane told the EPP in one exchange, read once for all that looks at it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from ext_proc.messages import ProcessingRequest
from ext_proc.record import Author, Entry, Malformed, Message, StreamEnded, StreamOpened


class Told:
    """The messages of the data plane in `entries`, but for those that can't be read.

    They are those of the last stream: our own data plane opens another only where the one before was refused.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        events = [entry.event for entry in entries]
        streams = [event.stream for event in events if isinstance(event, StreamOpened)]
        refused = {event.stream for event in events if isinstance(event, StreamEnded) and event.how == "refused"}
        self.asked_again = not refused.issuperset(streams[:-1])
        """Whether another stream was opened although the one before was not refused."""
        self.sent = [
            event
            for event in events
            if isinstance(event, Message | Malformed)
            and event.author is Author.DATA_PLANE
            and event.stream in streams[-1:]
        ]
        """All that was sent, with what is no message."""
        self._read: dict[int, ProcessingRequest] = {}
        for event in self.sent:
            if isinstance(event, Message):
                with contextlib.suppress(DecodeError):  # a scenario may have sent what is none
                    self._read[id(event)] = ProcessingRequest.FromString(event.raw)
        self.messages = [*self._read.values()]

    def request_in(self, entry: Entry) -> ProcessingRequest | None:
        """The message of an entry; None if it has none of those."""
        return self._read.get(id(entry.event))

    def of_kind(self, kind: str) -> list[ProcessingRequest]:
        """The messages of a kind, such as `request_headers` or `response_body`."""
        return [one for one in self.messages if one.WhichOneof("request") == kind]
