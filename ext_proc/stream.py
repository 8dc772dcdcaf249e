"""The data plane's side of an ext_proc stream.

It writes what happens to a `Recorder` as the events of `ext_proc.record`, raw bytes included. What the EPP does reaches
the owner in one of two ways: as calls of `on_event` (given to `Channel.open`), or by `recv` and iteration.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Literal

from ext_proc import grpc
from ext_proc.http2.errors import ConnectFailed, ConnectTimedOut
from ext_proc.http2.frames import ErrorCode
from ext_proc.http2.streams import CloseKind
from ext_proc.http2.transport import Transport
from ext_proc.inbox import Inbox, Listener, Received
from ext_proc.record import (
    A_CONNECTION,
    Author,
    Event,
    HalfClosed,
    Headers,
    Malformed,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
    Wait,
)

_REOPENED = 8
"""How often a refused stream is opened again."""

_FIRST_PAUSE = 0.005
"""Seconds before the second of these; each later pause is twice as long, 0.6 s in all. grpc-core counts a stream that
has just ended against its limit until it comes to forget it, which on a busy machine outlasts any number of attempts
made at once."""

_REPLAYED = 1024 * 1024
"""Bytes kept for that; a stream that sent more before it was refused stays refused."""

ANSWERS = 4 * 1024 * 1024
"""Bytes by which an EPP's messages may exceed those sent to it. A message beyond that is a violation at once: a target
that sends endless bodies costs no memory."""

LATE = 256
"""Messages of a stream that are looked at after its end. As many may be on their way when a large body is aborted; more
say nothing more, and would cost time and memory without a bound."""

_numbers = itertools.count(1)


def stream_name() -> str:
    """A name for a stream that no other stream of this process has."""
    return f"s{next(_numbers)}"


def record_late_connection(recorder: Recorder, exchange: str | None, problem: ConnectFailed) -> None:
    """Record the wait for a connection, if there is none because it ran out."""
    if isinstance(problem, ConnectTimedOut):
        recorder.emit(Wait(exchange=exchange, what=A_CONNECTION, outcome="expired", seconds=problem.seconds))


def record_unreached(recorder: Recorder, exchange: str | None, problem: ConnectFailed) -> StreamEnded:
    """Record that no stream of an exchange came about, as there is no connection."""
    record_late_connection(recorder, exchange, problem)
    ended = StreamEnded(exchange=exchange, stream="", author=None, how="lost", message=str(problem))
    recorder.emit(ended)
    return ended


class ProcessStream:
    """One ext_proc stream, as its client. Made by `Channel.open`; methods never block unless they are `async`."""

    def __init__(
        self,
        reopen: Callable[[ProcessStream], None],
        exchange: str | None,
        recorder: Recorder | None,
        on_event: Listener | None,
        headers: Headers,
    ) -> None:
        self.name = ""
        """Its name in the record; a stream that was refused and opened again has a new one."""
        self.head: Headers = ()
        """The response head, once it came."""
        self.ended: StreamEnded | None = None
        """How it ended."""
        self._reopen = reopen
        self._exchange = exchange
        self._recorder = recorder
        self._headers = headers
        self._inbox = Inbox(on_event)
        self._transport: Transport | None = None
        self._stream = 0
        self._deframer: grpc.Deframer | None = grpc.Deframer(total=ANSWERS)  # None: nothing more is read
        self._late = 0
        self._half_closed = False
        self._attempts = 0
        self._replay: list[tuple[bytes, bool, bool]] | None = []  # (bytes, is a message, end), until an answer comes
        self._replay_size = 0
        self._over = asyncio.Event()

    # -- what the data plane does --------------------------------------------------------------------------------------

    def send(self, raw: bytes, *, end: bool = False) -> None:
        """Send one message; `end` half-closes with it. Nothing if the stream is over."""
        self._write(raw, True, end)

    def send_data(self, data: bytes, *, end: bool = False) -> None:
        """Send bytes as they are, without a gRPC prefix: for stimuli that are no message. Recorded as `Malformed`."""
        self._write(data, False, end)

    def half_close(self) -> None:
        """End our side. Nothing if that is done already."""
        self._write(b"", False, True)

    def reset(self, code: int = ErrorCode.INTERNAL_ERROR) -> None:
        """End the stream with RST_STREAM, as Envoy does. What still arrives afterwards is recorded, `LATE` of it."""
        if self.ended is not None:
            return
        if self._transport is not None:
            self._transport.reset(self._stream, code)
        self._close(ended := self._ended(Author.DATA_PLANE, "reset", code=code))
        self._inbox.keep(ended)

    def write_raw(self, data: bytes) -> None:
        """Write HTTP/2 bytes as they are to the stream's connection, which then takes no other stream.

        `stream_id` says which frames are for this stream. Recorded as `Malformed`.
        """
        if self._transport is not None:
            self._emit(self._on_purpose(data))
            self._transport.write_raw(data)

    @property
    def stream_id(self) -> int:
        """The stream's number on its connection."""
        return self._stream

    @property
    def transport(self) -> Transport | None:
        """The stream's connection; None while it is being opened again."""
        return self._transport

    def hold(self, held: bool) -> None:
        """Give the EPP no more flow-control credit while it is `held`: who gets its answers is behind."""
        if self._transport is not None and self.ended is None:
            self._transport.hold(self._stream, held)

    @property
    def sending(self) -> int:
        """See `Transport.sending`."""
        return 0 if self._transport is None else self._transport.sending(self._stream)

    async def drain(self) -> None:
        """Wait until all that was sent has left for the socket, or the stream is over."""
        if self._transport is not None:
            await self._transport.drain(self._stream)

    # -- what the EPP does ---------------------------------------------------------------------------------------------

    async def recv(self) -> bytes | None:
        """The next message; None if no more will come (ended, or malformed: iterate, or see `ended`)."""
        return await self._inbox.message()

    def __aiter__(self) -> AsyncIterator[Received]:
        return self._events()

    async def _events(self) -> AsyncIterator[Received]:
        while (event := await self._inbox.next()) is not None:
            yield event

    async def wait_ended(self) -> StreamEnded:
        """Wait for the end of the stream."""
        await self._over.wait()
        assert self.ended is not None
        return self.ended

    @property
    def pause(self) -> float:
        """Seconds to let pass before a refused stream is opened again: none the first time."""
        return 0.0 if self._attempts < 2 else _FIRST_PAUSE * 2 ** (self._attempts - 2)

    # -- the stream's connection (Sink) --------------------------------------------------------------------------------

    def start(self, transport: Transport) -> None:
        """Open the stream on `transport` and send again what was sent before a refusal."""
        if self.ended is not None:
            return
        self._attempts += 1
        self.name = stream_name()
        self._emit(
            StreamOpened(exchange=self._exchange, stream=self.name, connection=transport.number, headers=self._headers)
        )
        self._transport = transport
        self._stream = transport.open(self._headers, self)
        for data, is_message, end in self._replay or ():
            self._put(data, is_message, end)

    def give_up(self, reason: ConnectFailed | str) -> None:
        """The stream was refused and can't be opened again."""
        if self.ended is None:
            if isinstance(reason, ConnectFailed) and self._recorder is not None:
                record_late_connection(self._recorder, self._exchange, reason)
            self._end(self._ended(None, "lost", message=str(reason)))

    def on_headers(self, headers: Headers, end: bool) -> None:
        self._replay = None
        if not self.head:
            self.head = headers
            problem = "" if end else grpc.head_problem(headers)
            if problem:
                self._deframer = None
            if problem and self.ended is None:
                self._end(self._ended(Author.EPP, "malformed", message=problem))
                self._cancel(ErrorCode.CANCEL)
                return
        if end:
            self._remote_end(None if headers is self.head else headers)

    def on_data(self, data: bytes, end: bool) -> None:
        for found in self._deframer.feed(data) if self._deframer is not None else ():
            if isinstance(found, bytes):
                self._received(Message(exchange=self._exchange, stream=self.name, author=Author.EPP, raw=found))
            else:
                self._violated(found)
        if end:
            self._remote_end(None)

    def on_closed(self, kind: CloseKind, code: int, reason: str) -> None:
        if self.ended is not None:
            return
        if kind == "refused" and not self.head:
            refused = self._ended(Author.EPP, "refused", code=code, message=reason)
            self._transport = None
            if self._replay is not None and self._attempts <= _REOPENED:
                self._emit(refused)
                self._reopen(self)
            else:
                self._end(refused)
        elif kind in ("refused", "reset"):  # what was answered in part has been processed
            self._end(self._ended(Author.EPP, "reset", code=code, message=reason))
        else:
            self._end(self._ended(None, "lost", message=reason))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _write(self, data: bytes, is_message: bool, end: bool) -> None:
        if self.ended is not None or self._half_closed:
            return
        self._half_closed = end
        if self._replay is not None:
            self._replay_size += len(data)
            if self._replay_size > _REPLAYED:
                self._replay = None
            else:
                self._replay.append((data, is_message, end))
        if self._transport is not None:
            self._put(data, is_message, end)

    def _put(self, data: bytes, is_message: bool, end: bool) -> None:
        assert self._transport is not None
        author, names = Author.DATA_PLANE, (self._exchange, self.name)
        if is_message:
            self._emit(Message(exchange=names[0], stream=names[1], author=author, raw=data))
        elif data:
            self._emit(self._on_purpose(data))
        if end:
            self._emit(HalfClosed(exchange=names[0], stream=names[1], author=author))
        if self._deframer is not None:
            self._deframer.allow(len(data))
        self._transport.send(self._stream, grpc.frame(data) if is_message else data, end=end)

    def _on_purpose(self, data: bytes) -> Malformed:
        reason = "sent so on purpose"
        return Malformed(exchange=self._exchange, stream=self.name, author=Author.DATA_PLANE, raw=data, reason=reason)

    def _received(self, event: Message | Malformed) -> None:
        if self.ended is None:
            self._emit(event)
            self._inbox.put(event)
        elif self._late < LATE:
            self._late += 1
            self._emit(event)
        else:
            self._deframer = None

    def _violated(self, violation: grpc.Violation) -> None:
        self._received(
            Malformed(
                exchange=self._exchange,
                stream=self.name,
                author=Author.EPP,
                raw=violation.raw,
                reason=violation.reason,
            )
        )

    def _remote_end(self, trailers: Headers | None) -> None:
        violation = self._deframer.finish() if self._deframer is not None else None
        if violation is not None:
            self._violated(violation)
        if self.ended is not None:
            return
        end = grpc.ending(self.head, trailers)
        how: Literal["status", "malformed"] = "malformed" if end.status is None else "status"
        self._end(self._ended(Author.EPP, how, status=end.status, message=end.message, trailers=trailers or ()))
        if not self._half_closed:
            self._cancel(ErrorCode.INTERNAL_ERROR)

    def _cancel(self, code: int) -> None:
        """Reset a stream that ended for us; Envoy does it with INTERNAL_ERROR when the EPP ends first."""
        if self._transport is not None:
            self._transport.reset(self._stream, code)

    def _ended(
        self,
        author: Author | None,
        how: Literal["status", "reset", "refused", "lost", "malformed"],
        *,
        status: int | None = None,
        message: str = "",
        code: int | None = None,
        trailers: Headers = (),
    ) -> StreamEnded:
        return StreamEnded(
            exchange=self._exchange,
            stream=self.name,
            author=author,
            how=how,
            status=status,
            message=message,
            code=code,
            headers=self.head,
            trailers=trailers,
        )

    def _end(self, ended: StreamEnded) -> None:
        self._close(ended)
        self._inbox.put(ended)

    def _close(self, ended: StreamEnded) -> None:
        self.ended = ended
        self._emit(ended)
        self._over.set()

    def _emit(self, event: Event) -> None:
        if self._recorder is not None:
            self._recorder.emit(event)
