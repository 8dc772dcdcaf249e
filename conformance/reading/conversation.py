"""One exchange as it was carried: its stream's messages decoded in order, and how the stream and its waits ended.

    for conversation in conversations(episode): ...

A view of the log, with facts only; what they amount to is in `conformance.reading.stream_state` (order and phases) and
`conformance.reading.destination` (the destination), and whether that is right is for `conformance.judges`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

from conformance.evidence.episode import Episode, by_kind
from conformance.reading.decoded_message import DATA_PLANE, DecodedMessage, decode
from ext_proc.messages import ProcessingMode
from ext_proc.record import (
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    Malformed,
    Message,
    StreamEnded,
    StreamOpened,
    UpstreamResponse,
    Wait,
)

NONE, BUFFERED, STREAMED, DUPLEX = "NONE", "BUFFERED", "STREAMED", "FULL_DUPLEX_STREAMED"
BUFFERED_MODES = frozenset({BUFFERED, "BUFFERED_PARTIAL"})
MODES = frozenset({NONE, STREAMED, DUPLEX}) | BUFFERED_MODES

E = TypeVar("E", bound=Event)


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One exchange with the stream that carried it.

    `entries` are those of the exchange, without the streams that were refused and opened again. `stream` is None if
    none was opened. `refused` counts the refused ones.
    """

    exchange: str
    entries: tuple[Entry, ...]
    stream: str | None
    connection: int | None = None
    refused: int = 0

    @cached_property
    def _sorted(self) -> Mapping[type[Event], Sequence[Entry]]:
        return by_kind(self.entries)

    def _of(self, kind: type[E]) -> tuple[tuple[Entry, E], ...]:
        found = self._sorted.get(kind)
        return tuple([(entry, cast("E", entry.event)) for entry in found]) if found else ()

    @cached_property
    def opened(self) -> ExchangeOpened | None:
        """The client's request as the data plane got it; None where no HTTP side was observed."""
        found = self._of(ExchangeOpened)
        return found[0][1] if found else None

    @property
    def note(self) -> Mapping[str, Any]:
        """What the stimulus wanted a reader to know."""
        return self.opened.note if self.opened else {}

    @cached_property
    def messages(self) -> tuple[DecodedMessage, ...]:
        """Every message of the stream, both authors, in order."""
        return tuple([decode(entry, message) for entry, message in self._of(Message)])

    @cached_property
    def asked(self) -> tuple[DecodedMessage, ...]:
        """Every message of the data plane, in order."""
        return tuple([message for message in self.messages if message.author is DATA_PLANE])

    @property
    def first(self) -> DecodedMessage | None:
        """The data plane's first message."""
        return self.asked[0] if self.asked else None

    @cached_property
    def malformed(self) -> tuple[tuple[Entry, Malformed], ...]:
        """Bytes on the stream that were no gRPC message."""
        return self._of(Malformed)

    @property
    def end(self) -> tuple[Entry, StreamEnded] | None:
        """How the stream ended; None if the record does not say."""
        found = self._of(StreamEnded)
        return found[-1] if found else None

    @cached_property
    def waits(self) -> tuple[tuple[Entry, Wait], ...]:
        """The waits with a name, in order."""
        return self._of(Wait)

    @property
    def expired(self) -> tuple[tuple[Entry, Wait], ...]:
        """The waits that ran out."""
        return tuple((entry, wait) for entry, wait in self.waits if wait.outcome == "expired")

    @property
    def aborted(self) -> tuple[Entry, ClientAborted] | None:
        """Where the client went away on purpose, if it did."""
        found = self._of(ClientAborted)
        return found[0] if found else None

    @property
    def upstream_responses(self) -> tuple[UpstreamResponse, ...]:
        """How the attempts ended."""
        return tuple(event for _, event in self._of(UpstreamResponse))

    @property
    def client_response(self) -> tuple[Entry, ClientResponse] | None:
        """What the HTTP client got."""
        found = self._of(ClientResponse)
        return found[-1] if found else None

    @property
    def drained(self) -> bool:
        """Whether the stream was read until the EPP ended it or was quiet: only then is absence known."""
        return self.opened is not None and self.opened.ending == "drain"

    @cached_property
    def request_mode(self) -> str | None:
        """The request body mode by name; None if it is not known."""
        return self._mode("request_body_mode")

    @cached_property
    def response_mode(self) -> str | None:
        """The response body mode by name; None if it is not known."""
        return self._mode("response_body_mode")

    def _mode(self, field: str) -> str | None:
        if self.opened is not None:
            return str(getattr(self.opened, field))
        request = self.first.request if self.first else None
        if request is None or not request.HasField("protocol_config"):
            return None
        number: int = getattr(request.protocol_config, field)
        name = ProcessingMode.BodySendMode.Name(number) if number in ProcessingMode.BodySendMode.values() else None
        body = f"{field.partition('_')[0]}_body"
        return None if name == NONE and any(one.what == body for one in self.asked) else name  # it says and does not do

    @cached_property
    def observed_only(self) -> bool:
        """Whether the data plane asked for no answers (observability mode)."""
        return any(message.request is not None and message.request.observability_mode for message in self.asked)

    @property
    def span(self) -> tuple[int, int]:
        """The sequence numbers of its first and last entry."""
        return self.entries[0].seq, self.entries[-1].seq


def conversations(episode: Episode) -> tuple[Conversation, ...]:
    """Every conversation of `episode` in order of opening: one per stream that was not refused, so one per exchange
    but for data planes that ask the EPP again. An exchange of which every stream was refused has one without a stream.
    """
    return tuple(found for name, entries in episode.exchanges.items() for found in _of_exchange(name, entries))


def _of_exchange(name: str, entries: Sequence[Entry]) -> Iterator[Conversation]:
    kinds = {type(entry.event) for entry in entries}
    if not kinds & {StreamOpened, ExchangeOpened, Message}:
        return  # a label of something else, such as a health probe
    streams = [entry.event for entry in entries if isinstance(entry.event, StreamOpened)]
    refused = {e.event.stream for e in entries if isinstance(e.event, StreamEnded) and e.event.how == "refused"}
    kept = {stream.stream: stream.connection for stream in streams if stream.stream not in refused}
    names: list[str | None] = [*kept] or [*_unopened(entries, refused)] or [None]
    for stream in names:
        own = tuple([e for e in entries if getattr(e.event, "stream", stream) == stream])
        if own:
            connection = kept.get(stream) if stream is not None else None
            yield Conversation(exchange=name, entries=own, stream=stream, connection=connection, refused=len(refused))


def _unopened(entries: Sequence[Entry], refused: set[str]) -> list[str]:
    """Streams of which the record has messages but no opening."""
    named = (e.event.stream for e in entries if isinstance(e.event, Message | Malformed | StreamEnded))
    return list(dict.fromkeys(stream for stream in named if stream not in refused))
