"""One exchange through a real Envoy: a real HTTP request, recorded from all sides that can be seen.

The tap names its events by the exchange's header, the pods by the same header; both come to `heard` through the log. As
with the fake, nothing is inferred from time but that nothing came for too long.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conformance.evidence.episode import HarnessTrouble
from conformance.reading.conversation import Conversation
from conformance.reading.decoded_message import RESPONSE, DecodedMessage, decode
from conformance.reading.stream_state import AWAITED_ANSWER, follow
from conformance.run.data_plane.replies import response_for
from conformance.run.data_plane.stimuli import Prepared
from conformance.run.served import attempt
from ext_proc.http2.errors import ConnectFailed
from ext_proc.protocol import SUBSET
from ext_proc.record import (
    RESPONSE_TOO_LARGE,
    STILL_OPEN,
    UNROUTED,
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
    Wait,
)
from ext_proc.relay import RecordingEnded
from ext_proc.stream import record_unreached
from fake_modelserver import Served
from fake_modelserver.messages import Request, Response
from fake_proxy.client import AbortPoint, HttpRequest
from fake_proxy.config import BodyMode, Ending, ProxyConfig
from fake_proxy.exchange import ExchangeOutcome
from fake_proxy.pace import PATIENCE, Pace
from real_envoy import HttpResponse, send_request, subset_header_value
from real_envoy.settings import SUBSET_HEADER

EXCHANGE_HEADER = b"x-epp-conformance-exchange"

APART = 0.25
"""Seconds that the next chunk of a request waits for the one before to be on its way to the target: sent at once, they
would arrive as one."""

LATE = 0.1
"""Seconds by which our own loop may wake late from a wait. It carries what is waited for, so the wait begins again."""

CHANCES = 3
"""So many times."""

CLOSING = 2.0
"""Seconds that Envoy has to end a stream that it is done with."""

_STREAMING = (BodyMode.STREAMED, BodyMode.FULL_DUPLEX_STREAMED)


class EnvoyExchange:
    """Made for one request; `run` carries it out. `unreached` grows whenever the tap can't reach the target: by why."""

    def __init__(
        self,
        prepared: Prepared,
        config: ProxyConfig,
        recorder: Recorder,
        name: str,
        *,
        pace: Pace,
        unreached: Sequence[ConnectFailed],
    ) -> None:
        self._prepared = prepared
        self._config = config
        self._recorder = recorder
        self._name = name
        self._pace = pace
        self._unreached = unreached
        self._entries: list[Entry] = []
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._progress = self._loop.time()
        self._stream: StreamOpened | None = None
        self._ended: StreamEnded | None = None
        self._sent = 0  # bytes of request body on their way to the target
        self._asked: list[int] = []  # sizes of the pieces of response body that the target was given
        self._came = 0  # bytes of response body that the target has passed on
        self._lock_step = pace.lock_step and config.response_body_mode in _STREAMING
        self._attempts: list[str] = []
        self._refused = False  # by the target
        self._response = response_for(prepared.reply)

    # -- the record ----------------------------------------------------------------------------------------------------

    def heard(self, entry: Entry) -> None:
        """An entry of this exchange."""
        self._progress = self._loop.time()
        self._entries.append(entry)
        match entry.event:
            case Message() as message:
                self._said(decode(entry, message))
            case StreamOpened() as opened:
                self._stream = opened
            case StreamEnded() as ended:
                self._ended = ended
            case RecordingEnded(reason=reason):
                self._emit(HarnessTrouble(exchange=self._name, what=f"the tap recorded a part only: {reason}"))
        self._changed.set()

    def _said(self, said: DecodedMessage) -> None:
        self._refused = self._refused or said.what == "immediate_response"
        if said.part != "body":
            return
        if said.author is Author.DATA_PLANE:
            if said.side == RESPONSE:
                self._asked.append(len(said.body))
            else:
                self._sent += len(said.body)
        elif said.side == RESPONSE:
            mutation = said.common.body_mutation if said.common is not None else None
            if mutation is not None and mutation.HasField("streamed_response"):
                self._came += len(mutation.streamed_response.body)
            elif self._asked:
                self._came += self._asked.pop(0)

    def _emit(self, event: Event) -> None:
        self._recorder.emit(event)

    async def _until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Wait until `reached()`, at most so many seconds, and no longer than the stream lasts."""
        for _ in range(CHANCES):
            due = self._loop.time() + seconds
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    while not reached() and self._ended is None:
                        self._changed.clear()
                        await self._changed.wait()
            if reached() or self._ended is not None or self._loop.time() < due + LATE:
                break
        return reached()

    # -- the model server ----------------------------------------------------------------------------------------------

    def answer(self, _: Request) -> Response | None:
        """What a pod answers to the next attempt; None: what it would by itself."""
        if len(self._attempts) < self._prepared.fail_first:
            return Response(status=503)
        if self._response is None or not self._lock_step:
            return self._response
        return dataclasses.replace(self._response, paced=self._in_step)

    def served(self, served: Served) -> None:
        """An attempt has arrived at a pod, which is about to answer."""
        self._attempts.append(served.endpoint)
        for event in attempt(served, self._name, len(self._attempts), without=EXCHANGE_HEADER):
            self._emit(event)

    async def _in_step(self, through: int) -> None:
        """The next piece of the response waits until the one before has come back from the target."""
        if not self._lock_step or self._ended is not None:
            return
        began = self._loop.time()
        met = await self._until(lambda: self._came >= through, self._pace.echo_timeout)
        if met or self._ended is None:
            what = f"echo of response body through byte {through}"
            self._emit(self._wait(what, began, met=met))
        self._lock_step = met  # one echo that does not come says it

    def _wait(self, what: str, began: float, *, met: bool) -> Wait:
        seconds = self._loop.time() - began
        return Wait(exchange=self._name, what=what, outcome="met" if met else "expired", seconds=seconds)

    # -- the exchange --------------------------------------------------------------------------------------------------

    async def run(self, address: str, note: Mapping[str, Any]) -> ExchangeOutcome:
        """Send the request to the Envoy at `address`, and see the exchange to its end.

        Raises `OSError` if Envoy can't be reached; what target, pods and Envoy do is in the log.
        """
        request, config = self._prepared.request, self._config
        before = len(self._unreached)
        self._emit(
            ExchangeOpened(
                exchange=self._name,
                method=request.method,
                path=request.path,
                http=request.http,
                headers=request.headers,
                request_body_mode=config.request_body_mode.name,
                response_body_mode=config.response_body_mode.name,
                ending=config.ending,
                note=note,
            )
        )
        got, expired = await self._sent_to(address)
        details = self._details(got)
        if not got.aborted or got.status is not None:
            self._emit(_client_response(self._name, got, details))
        await self._close()
        if self._stream is None and not got.aborted:
            self._no_stream(got, self._unreached[before:])
        return ExchangeOutcome(
            exchange=self._name,
            status=got.status,
            body=got.body,
            complete=got.complete,
            details=details,
            attempts=tuple(self._attempts),
            aborted=got.aborted,
            expired=expired,
            stream=self._ended,
        )

    async def _sent_to(self, address: str) -> tuple[HttpResponse, str]:
        """What the client got, and the wait that took too long, if one did."""
        deadline, began = self._pace.deadline, self._loop.time()
        self._progress = began
        sending = asyncio.ensure_future(
            send_request(
                address,
                self._request(),
                echo=self._on_its_way,
                leaving=self._seen,
                gone=self._gone,
                timeout=2 * PATIENCE * deadline,
            )
        )
        chances = CHANCES
        try:
            while not sending.done():
                left = self._pace.left(began, self._progress, self._loop.time())
                if left <= -LATE and chances:
                    chances -= 1
                    self._progress = self._loop.time()
                    continue
                if left <= 0:
                    expired, seconds = self._awaited(), self._pace.waited(self._progress, self._loop.time())
                    self._emit(Wait(exchange=self._name, what=expired, outcome="expired", seconds=seconds))
                    return HttpResponse(expired=True), expired
                await asyncio.wait([sending], timeout=left)
            return sending.result(), ""
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await sending

    def _request(self) -> HttpRequest:
        """The request with what Envoy is to make of it: its name, and the subset hint."""
        request, stimulus = self._prepared.request, self._prepared.stimulus
        own = [(EXCHANGE_HEADER, self._name.encode())]
        hint = stimulus.metadata.get(self._config.subset_namespace, {})
        if SUBSET in hint:
            own.append((SUBSET_HEADER.encode(), subset_header_value(hint[SUBSET])))
        body = request.body
        if self._config.request_body_mode in _STREAMING and isinstance(body, tuple):
            body = tuple(dataclasses.replace(chunk, await_echo=True) for chunk in body[:-1]) + body[-1:]
        return dataclasses.replace(request, headers=(*request.headers, *own), body=body)

    async def _on_its_way(self, through: int) -> None:
        await self._until(lambda: self._sent >= through, APART)

    async def _seen(self) -> None:
        """The client goes away in the midst of its request: only when the target knows of it."""
        await self._until(lambda: any(isinstance(one.event, Message) for one in self._entries), self._pace.echo_timeout)

    def _gone(self, point: AbortPoint) -> None:
        self._emit(ClientAborted(exchange=self._name, point=point))

    def _awaited(self) -> str:
        stream = self._stream.stream if self._stream is not None else None
        missing = follow(Conversation(exchange=self._name, entries=tuple(self._entries), stream=stream)).missing
        if missing is not None and self._ended is None:
            side, part = missing
            return f"{AWAITED_ANSWER}{side}_{part}"
        return "response of the model server" if self._attempts else "rest of the request"

    # -- the end -------------------------------------------------------------------------------------------------------

    async def _close(self) -> None:
        """Envoy ends the stream by itself."""
        if self._stream is None or self._ended is not None:
            return
        began = self._loop.time()
        graceful = self._config.ending is Ending.HALF_CLOSE
        await self._until(lambda: self._ended is not None, self._pace.ending_timeout if graceful else CLOSING)
        if graceful:
            self._emit(self._wait(STILL_OPEN, began, met=self._ended is not None))

    def _details(self, got: HttpResponse) -> str:
        """Why Envoy answered itself, as far as the answer tells; those to ext_proc's own errors have no body."""
        if self._stream is not None and got.status == 503 and not (self._attempts or self._refused):
            return UNROUTED  # an ORIGINAL_DST cluster that is given a list, for example
        buffered = self._config.response_body_mode is BodyMode.BUFFERED
        if buffered and self._attempts and (got.status, got.body) == (500, b"Internal Server Error"):
            return RESPONSE_TOO_LARGE
        return "deadline" if got.expired else ""

    def _no_stream(self, got: HttpResponse, why: Sequence[ConnectFailed]) -> None:
        if why:
            self._ended = record_unreached(self._recorder, self._name, why[-1])
            return
        what = f"Envoy answered HTTP {got.status} by itself: {got.body[:200].decode('utf-8', 'replace')!r}"
        if got.status is None:
            what = "Envoy took the request and asked no one"
        self._emit(HarnessTrouble(exchange=self._name, what=what))


def _client_response(exchange: str, got: HttpResponse, details: str) -> ClientResponse:
    status = () if got.status is None else ((b":status", b"%d" % got.status),)
    return ClientResponse(
        exchange=exchange,
        status=got.status,
        headers=(*status, *got.headers),
        body=got.body,
        trailers=got.trailers,
        complete=got.complete,
        details=details,
    )
