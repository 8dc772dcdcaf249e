"""One exchange in the real machine without I/O: what comes goes in as steps, what is to be done comes out as turns.

It does what `fake_proxy.exchange` does around a real stream, in the same order and with the same record, but has no
clock: time is a step like any other (a wait that is over, a deadline that has passed). So the same steps give the same
turns and the same record, which is what the memory of the load path rests on.
"""

from __future__ import annotations

import weakref
from typing import Literal

from conformance.load.model_server import ModelServer
from conformance.load.shape import RequestShape
from conformance.load.steps import EXCHANGE, STREAM, DueStep, Ended, NotAMessage, Step, Turn
from conformance.reading.decoded_message import decode
from conformance.reading.stream_direction import brings_forward
from ext_proc import grpc
from ext_proc.record import (
    DRAINING,
    STILL_OPEN,
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    HalfClosed,
    Malformed,
    Message,
    StreamEnded,
    StreamOpened,
    Wait,
)
from fake_proxy.actions import (
    AbortUpstream,
    Action,
    ClientData,
    ClientHeaders,
    ClientReset,
    ClientTrailers,
    CloseStream,
    Closing,
    Done,
    Layer,
    OpenUpstream,
    SendMessage,
    StartTimer,
    StopTimer,
    UpstreamData,
    UpstreamTrailers,
)
from fake_proxy.client import AbortPoint, DataArrives, HeadersArrive, Received, TrailersArrive, arrivals
from fake_proxy.config import Ending
from fake_proxy.epp_stream import grpc_status
from fake_proxy.machine import Machine


class Rehearsal:
    """The exchange of `shape` with the id `own`. `ending_timeout`: seconds that the end of a half-closed stream is
    awaited. Call `begin` once, then `step`; `events` is the record so far."""

    def __init__(self, shape: RequestShape, own: bytes, *, ending_timeout: float = 1.0) -> None:
        self._shape = shape
        self._request = shape.request_of(own)
        self._config = shape.config
        self._quiet = shape.config.quiet_window if shape.config.ending is Ending.DRAIN else ending_timeout
        self._machine = Machine(shape.config, shape.stimulus, source=self._request.source, http=self._request.http)
        self.events: list[Event] = []
        self._unsent: list[tuple[bytes, Layer]] = []
        self._sends: list[bytes] = []
        self._closing: list[Literal["half-close", "reset"]] = []
        self._opened = self._half_closed = self._ended = self._over = False
        self._received = Received()
        # no circle: see `dissolve` of machines
        self._server = ModelServer(shape, own, self._machine, weakref.proxy(self))
        self._decided = False
        self._abort_due: AbortPoint | None = None
        self._aborted = self._expired = self._forward = False
        self.silent = 1.0
        """See `DueStep`."""

    def __del__(self) -> None:
        self._machine.dissolve()

    # -- from outside --------------------------------------------------------------------------------------------------

    def begin(self) -> Turn:
        """The client's request arrives, all at once."""
        request, config = self._request, self._config
        self.emit(
            ExchangeOpened(
                exchange=EXCHANGE,
                method=request.method,
                path=request.path,
                http=request.http,
                headers=request.headers,
                request_body_mode=config.request_body_mode.name,
                response_body_mode=config.response_body_mode.name,
                ending=config.ending,
                note=self._shape.note,
            )
        )
        for arrival in arrivals(request):
            if self._machine.done:
                break
            match arrival:
                case HeadersArrive(headers, end):
                    self.feed(self._machine.request_headers(headers, end))
                    self._abort_at("request-headers")
                case DataArrives(data, end, chunk):
                    self.feed(self._machine.request_data(data, end))
                    self._abort_at("request-body", chunk)
                case TrailersArrive(trailers):
                    self.feed(self._machine.request_trailers(trailers))
        self._abort_at("request")
        return self._turn()

    def step(self, step: Step) -> Turn:
        """Something happens."""
        self._forward = False
        match step:
            case bytes():
                self.emit(message := Message(exchange=EXCHANGE, stream=STREAM, author=Author.EPP, raw=step))
                self._forward = brings_forward(decode(Entry(0, 0, message), message))
                if not self._ended:
                    self.feed(self._machine.epp_message(step))
            case NotAMessage(raw, reason):
                self.emit(Malformed(exchange=EXCHANGE, stream=STREAM, author=Author.EPP, raw=raw, reason=reason))
                if not self._ended:
                    self.feed(self._machine.epp_closed(13, "malformed"))
            case Ended():
                self._end(step)
            case DueStep("upstream"):
                self._server.waiting = False
                self._server.answer()
            case DueStep("deadline", seconds, silent):
                self.silent = silent
                self._deadline(seconds)
            case DueStep(_):
                if not self._ended:
                    self._record_wait("expired")
                    self._reset()
        return self._turn()

    # -- the turn ------------------------------------------------------------------------------------------------------

    def _turn(self) -> Turn:
        self._flush()
        sends, closing = tuple(self._sends), tuple(self._closing)
        self._sends.clear()
        self._closing.clear()
        stream_over = self._ended or not self._opened
        leaving = self._over and not stream_over
        return Turn(
            sends=sends,
            closing=closing,
            finished=self._over and stream_over,
            decided=self._decided,
            responding=self._received.headers is not None,
            upstream=self._server.wait,
            upstream_in=self._shape.service_time if self._server.waiting else 0.0,
            quiet=self._quiet if leaving else 0.0,
            forward=self._forward,
        )

    def emit(self, event: Event) -> None:
        """Record it."""
        self.events.append(event)

    # -- the machine's actions -----------------------------------------------------------------------------------------

    def feed(self, actions: list[Action]) -> None:
        """Carry out what the machine does."""
        for action in actions:
            self._perform(action)
        if self._abort_due is not None and not self._machine.done:
            self._aborted = True
            self._flush()
            self.emit(ClientAborted(exchange=EXCHANGE, point=self._abort_due))
            self._abort_due = None
            self.feed(self._machine.client_gone())
        self._flush()
        self._server.answer()

    def _perform(self, action: Action) -> None:
        match action:
            case SendMessage(_, raw, layer):
                self._open()
                self._unsent.append((raw, layer))
            case StartTimer() | StopTimer():
                pass  # the exchange's deadline comes first
            case CloseStream(closing):
                self._close(closing)
            case OpenUpstream():
                self._decided = True
                self._server.open(action)
                self._abort_at_due("destination", 1)
            case UpstreamData(data, end):
                self._server.send(data=data, end=end)
            case UpstreamTrailers(trailers):
                self._server.send(trailers=trailers, end=True)
            case AbortUpstream():
                self._server.drop()
            case Done():
                self._finish()
            case part:
                self._respond(part)

    def _respond(self, part: ClientHeaders | ClientData | ClientTrailers | ClientReset) -> None:
        self._decided = True
        self._received.take(part)
        match part:
            case ClientHeaders():
                self._abort_at_due("response-headers", 1)
            case ClientData():
                self._abort_at_due("response-body", self._received.pieces)

    def _abort_at(self, point: AbortPoint, count: int = 1) -> None:
        self._abort_at_due(point, count)
        self.feed([])

    def _abort_at_due(self, point: AbortPoint, count: int) -> None:
        abort = self._request.abort
        if abort is not None and abort.at == point and abort.after == count:
            self._abort_due = point

    def _deadline(self, seconds: float) -> None:
        if self._machine.done:
            return
        self._expired = True
        self.emit(Wait(exchange=EXCHANGE, what=self._machine.awaiting, outcome="expired", seconds=seconds))
        self.feed(self._machine.client_gone())

    def _finish(self) -> None:
        self._server.drop()
        self._over = True
        got = self._received
        if not self._aborted or got.headers is not None:
            self.emit(
                ClientResponse(
                    exchange=EXCHANGE,
                    status=got.status,
                    headers=tuple(got.headers or ()),
                    body=bytes(got.body.kept),
                    trailers=tuple(got.trailers),
                    complete=got.headers is not None and not (got.cut or self._aborted or self._expired),
                    details=self._machine.details,
                )
            )

    # -- the stream ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self.emit(StreamOpened(exchange=EXCHANGE, stream=STREAM, connection=1))

    def _flush(self) -> None:
        """What was sent in this turn leaves, unless the stream was reset in it."""
        for raw, layer in () if self._ended or self._half_closed else self._unsent:
            if layer == "message":
                self.emit(Message(exchange=EXCHANGE, stream=STREAM, author=Author.DATA_PLANE, raw=raw))
            else:
                reason = "sent so on purpose"
                self.emit(Malformed(exchange=EXCHANGE, stream=STREAM, author=Author.DATA_PLANE, raw=raw, reason=reason))
            self._sends.append(grpc.frame(raw) if layer == "message" else raw)
        self._unsent.clear()

    def _close(self, closing: Closing) -> None:
        if closing is Closing.EPP_FIRST:
            self._reset()
        elif self._config.ending is not Ending.ENVOY:
            self._half_close()
        else:
            if closing is Closing.OWN:
                self._half_close()
            self._reset()

    def _half_close(self) -> None:
        self._flush()
        if not self._ended and not self._half_closed:
            self._half_closed = True
            self._closing.append("half-close")
            self.emit(HalfClosed(exchange=EXCHANGE, stream=STREAM, author=Author.DATA_PLANE))

    def _reset(self) -> None:
        if not self._ended:
            self._ended = True
            self._closing.append("reset")
            self.emit(StreamEnded(exchange=EXCHANGE, stream=STREAM, author=Author.DATA_PLANE, how="reset", code=2))

    def _end(self, end: Ended) -> None:
        """The EPP, or the connection, ended the stream."""
        if self._ended:
            return
        self._ended = True
        author = None if end.how == "lost" else Author.EPP
        ended = StreamEnded(
            exchange=EXCHANGE,
            stream=STREAM if end.opened else "",
            author=author,
            how=end.how,
            status=end.status,
            message=end.message,
            code=end.code,
            headers=end.headers,
        )
        if not end.opened:  # the stream was not opened after all, and nothing was sent
            self.events = [event for event in self.events if not isinstance(event, StreamOpened | Message)]
        self.emit(ended)
        if self._over:
            self._record_wait("met")
        self.feed(self._machine.epp_closed(*(grpc_status(ended) if end.opened else (14, "connect_failed"))))

    def _record_wait(self, outcome: Literal["met", "expired"]) -> None:
        what = DRAINING if self._config.ending is Ending.DRAIN else STILL_OPEN
        self.emit(Wait(exchange=EXCHANGE, what=what, outcome=outcome, seconds=self._quiet))
