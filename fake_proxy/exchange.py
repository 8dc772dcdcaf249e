"""One exchange, driven: the client's request through the machine, over a real ext_proc stream, to a model server.

This module carries out the machine's actions and writes the record; what to do is the machine's. It never hangs: when
the deadline passes, the unmet wait is recorded and the client goes away.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from ext_proc.channel import Channel
from ext_proc.record import ClientAborted, ClientResponse, ExchangeOpened, Recorder, StreamEnded, Wait
from fake_proxy.actions import (
    AbortUpstream,
    Action,
    ClientData,
    ClientHeaders,
    CloseStream,
    Done,
    HeaderList,
    OpenUpstream,
    SendMessage,
    Side,
    StartTimer,
    StopTimer,
    UpstreamData,
    UpstreamTrailers,
)
from fake_proxy.attempts import Attempts
from fake_proxy.callbacks import callback
from fake_proxy.client import (
    AbortPoint,
    Client,
    DataArrives,
    EchoAwaited,
    HeadersArrive,
    HttpRequest,
    Part,
    Pause,
    Received,
    TrailersArrive,
    scripted_arrivals,
)
from fake_proxy.config import BodyMode, ProxyConfig
from fake_proxy.echo import Echoes
from fake_proxy.epp_stream import EppStream
from fake_proxy.flow import Flow, Paced, Unlimited
from fake_proxy.kept_body import KeptBody
from fake_proxy.machine import Machine
from fake_proxy.message_timers import MessageTimers
from fake_proxy.pace import Pace
from fake_proxy.router import Failure
from fake_proxy.stimulus import Stimulus
from fake_proxy.upstream import Upstream

RECORDED = 1024 * 1024
"""Bytes of each body that are recorded of an exchange with a real client, which is not held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeOutcome:
    """A summary of an exchange for its caller; the record has all of it."""

    exchange: str
    status: int | None
    """What the client got; None if nothing."""
    body: bytes
    complete: bool
    details: str
    attempts: tuple[str, ...]
    """The endpoints tried, in order."""
    aborted: bool
    """The client went away as its request said."""
    expired: str
    """The wait that the deadline ended; empty if it was kept."""
    stream: StreamEnded | None
    """How the ext_proc stream ended; None if there was none."""


async def run_exchange(
    channel: Channel,
    request: HttpRequest,
    config: ProxyConfig,
    stimulus: Stimulus,
    upstream: Upstream,
    recorder: Recorder,
    exchange_id: str,
    *,
    pace: Pace | None = None,
    note: Mapping[str, Any] | None = None,
) -> ExchangeOutcome:
    """Run one exchange to its end and record it under `exchange_id`; `note` goes into `ExchangeOpened`.

    Whatever the EPP, the model servers or the network do becomes part of the outcome and the record; only a defect of
    this package raises.
    """
    exchange = ExchangeDriver(
        channel, request, config, stimulus, upstream, recorder, exchange_id, pace or Pace(), note or {}
    )
    return await exchange.run()


class ExchangeDriver:
    """The driver of one `Machine`: its clock, stream, attempts and record. A `client` sends the body itself."""

    def __init__(
        self,
        channel: Channel,
        request: HttpRequest,
        config: ProxyConfig,
        stimulus: Stimulus,
        upstream: Upstream,
        recorder: Recorder,
        exchange_id: str,
        pace: Pace,
        note: Mapping[str, Any],
        client: Client | None = None,
    ) -> None:
        self._request = request
        self._client = client
        self._config = config
        self._recorder = recorder
        self._id = exchange_id
        self._pace = pace
        self._lock_step = pace.lock_step
        self._note = note
        self._machine = Machine(config, stimulus, source=request.source, http=request.http)
        self._loop = asyncio.get_running_loop()
        self._began = self._progress = self._loop.time()
        self._stream = EppStream(channel, config, recorder, exchange_id, heard=self._heard, closed=self._ended)
        self._timers = MessageTimers(pace, lambda: self._stream.sending, self._unanswered)
        keep = None if client is None else RECORDED
        self._attempts = Attempts(upstream, self, recorder, exchange_id, self._loop.time, keep)
        self._response = Received(body=KeptBody(keep))
        self._echoes = Echoes(exchange_id, pace.echo_timeout, counts=client is None or pace.lock_step)
        self._flow: Flow = Unlimited()
        if client is not None:
            self._flow = Paced(config, self._machine, self._stream, self._attempts, client)
        self._over = asyncio.Event()
        self._abort_due: AbortPoint | None = None
        self._aborted, self._expired, self._sending = False, "", 0
        self._defect: Exception | None = None

    async def run(self) -> ExchangeOutcome:
        """The exchange from its first byte to the end of its stream."""
        request, config = self._request, self._config
        self._recorder.emit(
            ExchangeOpened(
                exchange=self._id,
                method=request.method,
                path=request.path,
                http=request.http,
                headers=request.headers,
                request_body_mode=config.request_body_mode.name,
                response_body_mode=config.response_body_mode.name,
                ending=config.ending,
                note=self._note,
            )
        )
        self._deadline = self._loop.call_at(self._began + self._pace.deadline, self._expire)
        try:
            await self._send_request()
            await self._over.wait()
        finally:
            self._deadline.cancel()
            self._flow.close()
            self._feed(self._machine.client_gone())  # only a cancelled exchange is not over yet
            await self._attempts.close()
            self._timers.close()
        await self._stream.leave(self._pace)
        if self._defect is not None:
            raise self._defect
        outcome = self._outcome()
        self._machine.dissolve()
        del self._stream, self._attempts, self._flow, self._timers  # they know us, too
        return outcome

    # -- the client ----------------------------------------------------------------------------------------------------

    @callback
    def client_gone(self, point: AbortPoint) -> None:
        """A real client went away, at `point` of the exchange."""
        if not self._machine.done:
            self._abort_due = point
            self._feed([])

    async def _send_request(self) -> None:
        coming = scripted_arrivals(self._request) if self._client is None else self._client.arrivals()
        async with aclosing(coming):
            async for arrival in coming:
                if self._machine.done:
                    return
                match arrival:
                    case HeadersArrive(headers, end):
                        self._feed(self._machine.request_headers(headers, end))
                        await self._stream.opened()
                        self._abort_at("request-headers")
                    case DataArrives(data, end, chunk):
                        self._echoes.request.sent(data)
                        self._feed(self._machine.request_data(data, end))
                        self._abort_at("request-body", chunk)
                        if chunk == 1 and self._pace.hold is not None:
                            await self._held(self._pace.hold)
                    case TrailersArrive(trailers):
                        self._feed(self._machine.request_trailers(trailers))
                    case EchoAwaited(through):
                        await self._await_echo("request", through)
                    case Pause(seconds):
                        await asyncio.sleep(seconds)
                await self._flow.room("request")  # Envoy too lets the EPP's answers in between two reads
        self._abort_at("request")

    async def _held(self, hold: Callable[[], Awaitable[None]]) -> None:
        """Wait for others, which counts as no delay of the EPP."""
        self._deadline.cancel()
        await hold()
        self._progress = self._loop.time()
        self._deadline = self._loop.call_at(self._progress + self._pace.deadline, self._expire)

    def _abort_at(self, point: AbortPoint, count: int = 1) -> None:
        """The exchange reached `point` for the `count`th time: the client goes away if its request says so."""
        self._abort_at_due(point, count)
        self._feed([])

    @callback
    def _expire(self) -> None:
        now = self._loop.time()
        if (sending := self._stream.sending) != self._sending:
            self._progress, self._sending = now, sending  # what has not left yet can't be answered
        if (left := self._pace.left(self._began, self._progress, now)) > 0:
            self._deadline = self._loop.call_later(left, self._expire)
        elif not self._machine.done:
            self._expired = self._flow.waits_for or self._machine.awaiting
            self._waited_in_vain(self._expired, self._pace.waited(self._progress, now))
            self._stream.give_up()
            self._feed(self._machine.client_gone())

    @callback
    def _unanswered(self, seconds: float) -> None:
        if self._machine.processing and not self._machine.done:
            self._waited_in_vain(self._machine.awaiting, seconds)
        self._feed(self._machine.timer_fired())

    def _waited_in_vain(self, what: str, seconds: float) -> None:
        self._recorder.emit(Wait(exchange=self._id, what=what, outcome="expired", seconds=seconds))

    async def _await_echo(self, side: Side, through: int) -> bool:
        """Wait until the EPP has let body through. Nothing to wait for without an EPP."""
        if not self._machine.processing:
            return True
        wait = await self._echoes.wait(side, through)
        if wait.outcome == "met" or not self._machine.done:
            self._recorder.emit(wait)
        return wait.outcome == "met"

    # -- the EPP -------------------------------------------------------------------------------------------------------

    @callback
    def _heard(self, raw: bytes) -> None:
        self._progress = self._loop.time()
        self._feed(self._machine.epp_message(raw))

    @callback
    def _ended(self, status: int, message: str) -> None:
        self._feed(self._machine.epp_closed(status, message))

    # -- the upstream --------------------------------------------------------------------------------------------------

    async def headers(self, attempt: int, headers: HeaderList, end: bool) -> None:
        """An attempt is answered."""
        self._feed(self._machine.upstream_headers(attempt, headers, end, self._attempts.service_ms))

    async def data(self, attempt: int, data: bytes, end: bool) -> None:
        """Response body; in lock-step the call returns when the piece came back."""
        self._echoes.response.sent(data)
        self._feed(self._machine.upstream_data(attempt, data, end))
        streams = self._config.response_body_mode not in (BodyMode.NONE, BodyMode.BUFFERED)
        if self._lock_step and streams and data:
            # One echo that does not come says it: waiting for the others would end in the deadline, as if it hung.
            self._lock_step = await self._await_echo("response", self._echoes.response.total)
        else:
            await self._flow.room("response")

    async def trailers(self, attempt: int, trailers: HeaderList) -> None:
        """The response is complete."""
        self._feed(self._machine.upstream_trailers(attempt, trailers))

    async def failed(self, attempt: int, how: Failure) -> None:
        """An attempt broke."""
        self._feed(self._machine.upstream_failed(attempt, how))

    def defect(self, problem: Exception) -> None:
        """The harness failed: raised where the exchange is awaited."""
        self._defect = self._defect or problem
        self._let_go()

    # -- the machine's actions -----------------------------------------------------------------------------------------

    def _feed(self, actions: list[Action]) -> None:
        """Carry out `actions`; then the client goes away if they brought it to where it should."""
        for action in actions:
            self._perform(action)
        if self._abort_due is not None and not self._machine.done:
            self._aborted = True
            self._stream.flush()
            self._recorder.emit(ClientAborted(exchange=self._id, point=self._abort_due))
            self._abort_due = None
            self._feed(self._machine.client_gone())
        self._flow.moved()

    def _perform(self, action: Action) -> None:
        match action:
            case SendMessage(_, raw, layer):
                self._progress = self._loop.time()
                self._stream.send(raw, layer)
            case StartTimer(side, seconds):
                self._timers.start(side, seconds)
            case StopTimer(side):
                self._timers.stop(side)
            case CloseStream(closing):
                self._stream.close(closing)
            case OpenUpstream():
                self._echoes.request.came(action.body, again=True)
                self._attempts.open(action)
                self._abort_at_due("destination", 1)
            case UpstreamData(data, end):
                self._echoes.request.came(data)
                self._attempts.send_data(data, end)
            case UpstreamTrailers(trailers):
                self._attempts.send_trailers(trailers)
            case AbortUpstream():
                self._attempts.abort()
            case Done():
                self._finish()
            case part:
                self._respond(part)

    def _respond(self, part: Part) -> None:
        """A part of the response reaches the client."""
        self._response.take(part)
        if self._client is not None:
            self._client.got(part)
        match part:
            case ClientHeaders():
                self._abort_at_due("response-headers", 1)
            case ClientData(data, _):
                self._echoes.response.came(data)
                self._abort_at_due("response-body", self._response.pieces)

    def _abort_at_due(self, point: AbortPoint, count: int) -> None:
        abort = self._request.abort
        if abort is not None and abort.at == point and abort.after == count:
            self._abort_due = point

    # -- the end -------------------------------------------------------------------------------------------------------

    def _let_go(self) -> None:
        self._over.set()
        self._echoes.stop()
        if self._client is not None:
            self._client.finished()
        self._attempts.abort()

    def _finish(self) -> None:
        self._let_go()
        response = self._response
        if not self._aborted or response.headers is not None:
            self._recorder.emit(
                ClientResponse(
                    exchange=self._id,
                    status=response.status,
                    headers=tuple(response.headers or ()),
                    trailers=tuple(response.trailers),
                    complete=self._complete,
                    details=self._machine.details,
                    **response.body.recorded,
                )
            )

    @property
    def _complete(self) -> bool:
        """Whether the client got all of a response."""
        return self._response.headers is not None and not (self._response.cut or self._aborted or self._expired)

    def _outcome(self) -> ExchangeOutcome:
        return ExchangeOutcome(
            exchange=self._id,
            status=self._response.status,
            body=bytes(self._response.body.kept),
            complete=self._complete,
            details=self._machine.details,
            attempts=self._attempts.endpoints,
            aborted=self._aborted,
            expired=self._expired,
            stream=self._stream.ended,
        )
