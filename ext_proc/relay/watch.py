"""What the tap writes into the record of one stream: the events of `ext_proc.record`, as the EPP's connection saw them.

Recording is the tap's side job. A watch holds a bounded part of a stream, gives up rather than hold more, and swallows
its own failures: the stream it watches never notices.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast

from ext_proc import grpc
from ext_proc.record import (
    Author,
    Event,
    HalfClosed,
    Headers,
    Malformed,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
)
from ext_proc.relay.counts import Counts
from ext_proc.stream import stream_name

F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingEnded(Event):
    """The tap records no more of this exchange, for `reason`; the stream itself went on."""

    kind: ClassVar[str] = "recording-ended"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLimits:
    """How much is recorded, in bytes: of one message, of one exchange (and its events), and held in unfinished messages
    of all streams together. What exceeds a limit ends the recording of its exchange."""

    message: int = 4 * 1024 * 1024
    exchange: int = 16 * 1024 * 1024
    events: int = 10_000
    unfinished: int = 64 * 1024 * 1024


def _as_it_is(event: Event) -> Event:
    return event


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What becomes of the record.

    `capture` is applied to every event before it is kept anywhere: the place for redaction and size limits. Every
    `every`th stream is recorded, if `admit()` says so: the reader of the record declines while it is behind.
    """

    recorder: Recorder
    capture: Callable[[Event], Event] = _as_it_is
    every: int = 1
    admit: Callable[[], bool] = _always
    limits: RecordingLimits = field(default_factory=RecordingLimits)
    name: str = "tap"
    """Exchanges are named `tap-1`, `tap-2`, …"""
    named_by: bytes = b""
    """A header of the stream's head that names its exchange instead. It is meant for the tap, and not passed on."""


def _guarded(method: F) -> F:
    """A method whose failure ends the recording, and nothing else."""

    @functools.wraps(method)
    def guarded(self: StreamWatch, *arguments: Any, **options: Any) -> None:
        if self.over:
            return
        try:
            method(self, *arguments, **options)
        except Exception as problem:  # noqa: BLE001 - whatever it is, relaying goes on
            self.fail(problem)

    return cast("F", guarded)


class StreamWatch:
    """The witness of one stream. Made by the tap; `over` once nothing more will be recorded."""

    def __init__(
        self,
        exchange: str,
        connection: int,
        headers: Headers,
        recording: Recording,
        counts: Counts,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.over = False
        self._names: Any = {"exchange": exchange, "stream": stream_name()}
        self._recording = recording
        self._counts = counts
        self._on_failure = on_failure
        self._head: Headers = ()
        self._request_head = headers
        self._readers = {author: grpc.Deframer(recording.limits.message) for author in Author}
        self._held = dict.fromkeys(Author, 0)
        self._events = self._bytes = 0
        self.opened(connection, headers)

    @_guarded
    def opened(self, connection: int, headers: Headers) -> None:
        """The stream is open at the EPP."""
        self._emit(StreamOpened(**self._names, connection=connection, headers=headers))

    @_guarded
    def headers(self, author: Author, headers: Headers, end: bool) -> None:
        """A header list was passed on."""
        if author is Author.DATA_PLANE:
            if end:
                self._emit(HalfClosed(**self._names, author=author))
            return
        first, self._head = not self._head, self._head or headers
        if end:
            self._end_of_answers(None if first else headers)
        elif first and (problem := grpc.head_problem(headers)):
            self._end(Author.EPP, "malformed", message=problem)

    @_guarded
    def data(self, author: Author, data: bytes, end: bool) -> None:
        """Bytes were passed on."""
        self._hold(author, len(data))
        for found in self._readers[author].feed(data):
            if isinstance(found, bytes):
                self._hold(author, -len(found) - 5)
                self._bytes += len(found)
                self._emit(Message(**self._names, author=author, raw=found))
            else:
                self._violated(author, found)
            if self.over:
                return
        limits = self._recording.limits
        if self._counts.unfinished > limits.unfinished:
            self._stop(f"more than {limits.unfinished} bytes of unfinished messages on all streams")
        elif end and author is Author.EPP:
            self._end_of_answers(None)
        elif end:
            self._finish(author)
            self._emit(HalfClosed(**self._names, author=author))

    @_guarded
    def reset(self, author: Author, code: int, reason: str, *, refused: bool) -> None:
        """The stream was reset."""
        how: Literal["refused", "reset"] = "refused" if refused and not self._head else "reset"
        self._end(author, how, code=code, message=reason)

    @_guarded
    def lost(self, reason: str) -> None:
        """The EPP's connection broke."""
        self._end(None, "lost", message=reason)

    # -- inside --------------------------------------------------------------------------------------------------------

    def fail(self, problem: Exception) -> None:
        """Recording failed: give this stream up, so that what was not recorded is not taken for silence."""
        self._counts.failures += 1
        self._release()
        self._on_failure(problem)
        with contextlib.suppress(Exception):
            self._tell_end("recording it failed")

    def _end_of_answers(self, trailers: Headers | None) -> None:
        self._finish(Author.EPP)
        if self.over:
            return
        end = grpc.ending(self._head, trailers)
        how: Literal["status", "malformed"] = "malformed" if end.status is None else "status"
        self._end(Author.EPP, how, status=end.status, message=end.message, trailers=trailers or ())

    def _finish(self, author: Author) -> None:
        violation = self._readers[author].finish()
        if violation is not None:
            self._violated(author, violation)

    def _violated(self, author: Author, violation: grpc.Violation) -> None:
        length, limit = int.from_bytes(violation.raw[1:5]), self._recording.limits.message
        if not violation.raw[0] and length > limit:
            self._stop(f"a message of {length} bytes, more than {limit}")
        elif violation.raw[0] == 1 and self._compressed(author):
            self._stop("a compressed message, as its side had said")
        else:
            self._emit(Malformed(**self._names, author=author, raw=violation.raw, reason=violation.reason))

    def _compressed(self, author: Author) -> bool:
        """Whether that side said that it compresses messages (gRPC's `grpc-encoding`): its contents are not known."""
        head = self._request_head if author is Author.DATA_PLANE else self._head
        return any(name == b"grpc-encoding" and value != b"identity" for name, value in head)

    def _end(
        self,
        author: Author | None,
        how: Literal["status", "reset", "refused", "lost", "malformed"],
        *,
        status: int | None = None,
        message: str = "",
        code: int | None = None,
        trailers: Headers = (),
    ) -> None:
        ended = StreamEnded(
            **self._names,
            author=author,
            how=how,
            status=status,
            message=message,
            code=code,
            headers=self._head,
            trailers=trailers,
        )
        self._emit(ended)
        self._release()

    def _emit(self, event: Event) -> None:
        limits = self._recording.limits
        self._events += 1
        if self._events > limits.events:
            self._stop(f"more than {limits.events} events")
        elif self._bytes > limits.exchange:
            self._stop(f"more than {limits.exchange} bytes of messages")
        else:
            self._recording.recorder.emit(self._recording.capture(event))

    def _stop(self, reason: str) -> None:
        if not self.over:
            self._release()
            self._counts.ended_early += 1
            self._tell_end(reason)

    def _tell_end(self, reason: str) -> None:
        self._recording.recorder.emit(RecordingEnded(exchange=self._names["exchange"], reason=reason))

    def _hold(self, author: Author, size: int) -> None:
        self._held[author] += size
        self._counts.unfinished += size

    def _release(self) -> None:
        """Forget what is held of the stream."""
        self.over = True
        for author, size in self._held.items():
            self._hold(author, -size)
        self._readers.clear()
