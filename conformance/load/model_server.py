"""The model server of an exchange in rehearsal: it answers as the shape says, and both sides are recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from conformance.load.shape import RequestShape
from conformance.load.steps import EXCHANGE
from ext_proc.record import Event, UpstreamRequest, UpstreamResponse
from fake_proxy.actions import Action, HeaderList, OpenUpstream
from fake_proxy.header_map import get
from fake_proxy.machine import Machine
from fake_proxy.scripted import UpstreamReply


@dataclass(slots=True)
class _Attempt:
    """The attempt under way: what was sent, and what the model server has still to say."""

    opening: OpenUpstream
    reply: UpstreamReply
    body: bytearray
    trailers: HeaderList
    complete: bool
    headers: HeaderList = field(default_factory=list)
    response: bytearray = field(default_factory=bytearray)
    response_trailers: HeaderList = field(default_factory=list)
    begun: bool = False
    recorded: bool = False


class RehearsedExchange(Protocol):
    """The exchange whose model server it is."""

    def feed(self, actions: list[Action]) -> None:
        """Carry out what the machine does."""

    def emit(self, event: Event) -> None:
        """Record it."""


class ModelServer:
    """Plays `shape`'s replies to the exchange with the id `own` to `machine` for `client`."""

    def __init__(self, shape: RequestShape, own: bytes, machine: Machine, client: RehearsedExchange) -> None:
        self._shape = shape
        self._own = own
        self._machine = machine
        self._client = client
        self._current: _Attempt | None = None
        self._waited = 0
        """The last attempt that its time was waited for."""
        self.waiting = False
        """Whether that time has still to pass."""

    @property
    def wait(self) -> int:
        """The number of the wait that runs; 0 if none does."""
        return self._waited if self.waiting else 0

    def open(self, action: OpenUpstream) -> None:
        """An attempt begins."""
        self._current = _Attempt(
            opening=action,
            reply=self._shape.reply_to(action.attempt, self._own),
            body=bytearray(action.body),
            trailers=action.trailers or [],
            complete=action.end,
        )
        if action.end:
            self._record_request(self._current)

    def send(self, *, data: bytes = b"", trailers: HeaderList | None = None, end: bool) -> None:
        """More of the request."""
        attempt = self._current
        if attempt is not None:
            attempt.body += data
            attempt.trailers = trailers or attempt.trailers
            attempt.complete = attempt.complete or end
            if end:
                self._record_request(attempt)

    def answer(self) -> None:
        """What the model server has to say now, piece by piece, as long as the machine wants it."""
        attempt = self._current
        if attempt is None or attempt.begun or self.waiting or self._machine.done:
            return
        machine, reply, number = self._machine, attempt.reply, attempt.opening.attempt
        if reply.fail == "connect-failed":
            self._failed(attempt, "connect-failed")
            return
        if not (attempt.complete or reply.early) or reply.fail == "never":
            return
        if self._shape.service_time and self._waited < number:
            self._waited = number
            self.waiting = True
            return
        attempt.begun = True
        if reply.fail == "reset":
            self._failed(attempt, "reset")
            return
        attempt.headers = reply.header_list
        head = (b":method", b"HEAD") in attempt.opening.headers
        bodyless = head or reply.bodyless
        if bodyless:
            self._record_response(attempt, "response")
        self._client.feed(machine.upstream_headers(number, list(attempt.headers), bodyless))
        if bodyless:
            return
        for piece, end in reply.pieces:
            self._data(attempt, piece, end=end)
        if self._current is not attempt:
            return
        if reply.reset_after is not None:
            self._failed(attempt, "protocol-error")
        elif reply.trailers:
            attempt.response_trailers = [(name.lower(), value) for name, value in reply.trailers]
            self._record_response(attempt, "response")
            self._client.feed(machine.upstream_trailers(number, list(attempt.response_trailers)))

    def _data(self, attempt: _Attempt, piece: bytes, *, end: bool) -> None:
        if self._current is attempt:
            attempt.response += piece
            if end:
                self._record_response(attempt, "response")
            self._client.feed(self._machine.upstream_data(attempt.opening.attempt, piece, end))

    def _failed(self, attempt: _Attempt, how: Literal["connect-failed", "reset", "protocol-error"]) -> None:
        self._record_response(attempt, "connect-failed" if how == "connect-failed" else "reset")
        self._client.feed(self._machine.upstream_failed(attempt.opening.attempt, how))

    def drop(self) -> None:
        """The attempt under way is given up, if there is one."""
        attempt = self._current
        if attempt is not None:
            self._record_response(attempt, "response" if attempt.headers else "reset")
        self.waiting = False

    def _record_request(self, attempt: _Attempt) -> None:
        if not attempt.recorded:
            attempt.recorded = True
            self._client.emit(
                UpstreamRequest(
                    exchange=EXCHANGE,
                    attempt=attempt.opening.attempt,
                    endpoint=attempt.opening.endpoint,
                    headers=tuple(attempt.opening.headers),
                    body=bytes(attempt.body),
                    trailers=tuple(attempt.trailers),
                )
            )

    def _record_response(self, attempt: _Attempt, outcome: Literal["response", "connect-failed", "reset"]) -> None:
        self._current = None
        self._record_request(attempt)
        status = get(attempt.headers, b":status")
        self._client.emit(
            UpstreamResponse(
                exchange=EXCHANGE,
                attempt=attempt.opening.attempt,
                endpoint=attempt.opening.endpoint,
                outcome=outcome,
                status=int(status) if status is not None else None,
                headers=tuple(attempt.headers),
                body=bytes(attempt.response),
                trailers=tuple(attempt.response_trailers),
            )
        )
