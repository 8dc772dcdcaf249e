"""A log written by hand: the pool, the exchanges, the messages, and how streams ended."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from conformance.evidence.episode import (
    Episode,
    EppConduct,
    GaugesShown,
    HealthProbe,
    PodConduct,
    PodFact,
    PoolState,
    ProcessExited,
)
from conformance.reading.conversation import DUPLEX
from ext_proc.headers import header_map, to_struct
from ext_proc.messages import (
    HttpBody,
    HttpHeaders,
    HttpTrailers,
    Metadata,
    ProcessingMode,
    ProcessingRequest,
    ProtocolConfiguration,
)
from ext_proc.protocol import SERVED, SUBSET, SUBSET_NAMESPACE
from ext_proc.record import (
    DRAINING,
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    HalfClosed,
    Headers,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
    UpstreamRequest,
    UpstreamResponse,
    Wait,
)
from scripted.answers import NAMESPACE, Answer, Side, pieces

BODY = b'{"model": "m", "prompt": "hello", "max_tokens": 16}'
"""An ordinary request body."""


class Script:
    """An episode in the making. `pool`: endpoint(s) of each pod, all ready; None leaves the pool unobserved."""

    def __init__(self, pool: Mapping[str, str | tuple[str, ...]] | None = None) -> None:
        self._now = 0
        self._recorder = Recorder(clock=self._tick)
        self._entries: list[Entry] = []
        self._recorder.listen(self._entries.append)
        self._numbers = itertools.count(1)
        if pool is not None:
            self.pool(*(pod(name, *_tuple(endpoints)) for name, endpoints in pool.items()))

    def _tick(self) -> int:
        self._now += 1000
        return self._now

    def pass_time(self, seconds: float) -> Script:
        """Nothing happens for so long; between events a microsecond passes."""
        self._now += int(seconds * 1e9)
        return self

    def emit(self, *events: Event) -> Script:
        """Append events."""
        for event in events:
            self._recorder.emit(event)
        return self

    def pool(self, *pods: PodFact, phases: Iterable[str] = ("asked", "delivered", "effective")) -> Script:
        """The pool becomes `pods`."""
        return self.emit(*(PoolState(phase=phase, pods=pods) for phase in phases))  # type: ignore[arg-type]

    def gauges(self, pod_name: str, **values: Any) -> Script:
        """A pod's metrics show `values` from here on."""
        return self.emit(GaugesShown(pod=pod_name, values=values))

    def probe(self, service: str, serving: str | None, *, synced: bool | None = None, status: int = 0) -> Script:
        """One health check."""
        probe = HealthProbe(
            exchange=f"probe-{next(self._numbers)}",
            service=service,
            serving=serving,
            grpc_status=status,
            pool_synced=synced,
        )
        return self.emit(probe)

    def conduct(self, **pods: Any) -> Script:
        """How pods take requests from here on: `serves`, `refuses`, `resets`, `503`."""
        return self.emit(*(PodConduct(pod=name, conduct=conduct) for name, conduct in pods.items()))

    def epps(self, **epps: bool) -> Script:
        """Which scripted EPPs listen from here on."""
        return self.emit(*(EppConduct(epp=name, up=up) for name, up in epps.items()))

    def crashed(self, code: int = -11, output: str = "") -> Script:
        """The target's process ends by itself."""
        return self.emit(ProcessExited(pid=1, code=code, asked=False, output=output))

    def exchange(self, **opened: Any) -> ScriptedExchange:
        """A request reaches the data plane; the arguments are those of `ScriptedExchange`."""
        return ScriptedExchange(self, f"x{next(self._numbers)}", **opened)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The log so far."""
        return tuple(self._entries)

    @property
    def episode(self) -> Episode:
        """The log as an episode."""
        return Episode(id="scripted", entries=self.entries)


class ScriptedExchange:
    """One exchange of a script. Every method appends to the log and returns the exchange, for chaining.

    `body` is what the client sent, if that is recorded. `subset` is the hint as plain data, on the messages that
    `hint_on` says; `metadata` further filter metadata.
    """

    def __init__(
        self,
        script: Script,
        name: str,
        *,
        method: str = "POST",
        path: str = "/v1/completions",
        headers: Headers = (),
        mode: str = DUPLEX,
        response_mode: str | None = None,
        ending: str = "drain",
        connection: int = 1,
        note: Mapping[str, Any] | None = None,
        subset: Any = ...,
        hint_on: Literal["every", "headers", "body"] = "every",
        metadata: Mapping[str, Mapping[str, Any]] | None = None,
        protocol_config: bool = True,
        waits: bool = True,
        opened: bool = True,
        stream: bool = True,
        epp: str = "",
        body: bytes | None = None,
        http: Literal[1, 2] = 1,
    ) -> None:
        self.script, self.name, self.stream = script, name, f"{name}-stream"
        self._method, self._path, self._headers = method, path, headers
        self._mode, self._response_mode = mode, response_mode or mode
        self._metadata = {space: dict(values) for space, values in (metadata or {}).items()}
        self._subset, self._hint_on = subset, hint_on
        self._config, self._waits = protocol_config, waits
        self._served: Any = ...
        if opened:
            event = ExchangeOpened(
                exchange=name,
                method=method,
                path=path,
                http=http,
                headers=headers,
                request_body_mode=self._mode,
                response_body_mode=self._response_mode,
                ending=ending,
                note=note or {},
                body=body or b"",
                size=None if body is None else len(body),
            )
            script.emit(event)
        if stream:
            script.emit(StreamOpened(exchange=name, stream=self.stream, connection=connection, epp=epp))

    # -- the data plane ------------------------------------------------------------------------------------------------

    def asks(self, epp: str) -> ScriptedExchange:
        """A further stream, to the EPP of this name; what follows is on it."""
        self.stream = f"{self.name}-{epp}"
        return self.emit(StreamOpened(exchange=self.name, stream=self.stream, connection=1, epp=epp))

    def request(self, body: bytes | None = BODY, *, chunks: int = 1, trailers: bool = False) -> ScriptedExchange:
        """The whole request: headers, and the body in so many chunks with an empty last one, or ended by trailers.

        `body` None: a request without one.
        """
        self.request_headers(end=body is None)
        if body is not None and self._mode != "NONE":
            self.body(body, chunks=chunks, trailers=trailers)
        return self

    def request_headers(self, *, end: bool = False, value_field: str = "raw_value") -> ScriptedExchange:
        """The headers message of the request."""
        pairs = [
            (b":authority", b"gateway.example"),
            (b":path", self._path.encode()),
            (b":method", self._method.encode()),
            (b":scheme", b"http"),
            (b"content-type", b"application/json"),
            *((name.lower(), value) for name, value in self._headers),
        ]
        return self.say(request_headers=HttpHeaders(headers=_map(pairs, value_field), end_of_stream=end))

    def response_headers(
        self,
        *,
        status: int = 200,
        content_type: str = "application/json",
        headers: Headers = (),
        end: bool = False,
        served: Any = ...,
        value_field: str = "raw_value",
    ) -> ScriptedExchange:
        """The headers message of the response; `served` is what it says about the endpoint that served."""
        self._served = served
        pairs = [(b":status", str(status).encode()), (b"content-type", content_type.encode()), *headers]
        return self.say(response_headers=HttpHeaders(headers=_map(pairs, value_field), end_of_stream=end))

    def body(
        self, body: bytes, *, side: Side = "request", chunks: int = 1, trailers: bool = False, end: bool = True
    ) -> ScriptedExchange:
        """Body messages, ended as an HTTP/1 client's: by an empty one, in BUFFERED mode by the flag; or by trailers."""
        buffered = (self._mode if side == "request" else self._response_mode) == "BUFFERED"
        for piece in pieces(body, chunks):
            self.chunk(piece, side=side, end=buffered and end and not trailers)
        if trailers:
            self.trailers(side=side)
        elif end and not buffered:
            self.chunk(b"", side=side, end=True)
        return self

    def chunk(self, body: bytes, *, side: Side = "request", end: bool = False) -> ScriptedExchange:
        """One body message."""
        return self.say(**{f"{side}_body": HttpBody(body=body, end_of_stream=end)})

    def trailers(self, *, side: Side = "request") -> ScriptedExchange:
        """The trailers message."""
        return self.say(**{f"{side}_trailers": HttpTrailers(trailers=header_map([(b"x-end", b"1")]))})

    def say(self, **fields: Any) -> ScriptedExchange:
        """Any message of the data plane, with the metadata that Envoy adds."""
        first = not any(isinstance(e.event, Message) and e.event.stream == self.stream for e in self._log)
        metadata = {space: dict(values) for space, values in self._metadata.items()}
        on_headers = "request_headers" in fields
        if self._subset is not ... and self._hint_on in ("every", "headers" if on_headers else "body"):
            metadata.setdefault(SUBSET_NAMESPACE, {})[SUBSET] = self._subset
        if self._served is not ... and any(name.startswith("response") for name in fields):
            metadata.setdefault(NAMESPACE, {})[SERVED] = self._served
        context = Metadata(filter_metadata={space: to_struct(values) for space, values in metadata.items()})
        request = ProcessingRequest(metadata_context=context, **fields)
        if first and self._config:
            modes = ProcessingMode.BodySendMode
            request.protocol_config.CopyFrom(
                ProtocolConfiguration(
                    request_body_mode=modes.Value(self._mode),
                    response_body_mode=modes.Value(self._response_mode),
                    send_body_without_waiting_for_header_response=not self._waits,
                )
            )
        return self.raw(request.SerializeToString(), Author.DATA_PLANE)

    # -- the EPP -------------------------------------------------------------------------------------------------------

    def answers(self, *answers: Answer) -> ScriptedExchange:
        """Messages of the EPP, in order."""
        for answer in answers:
            self.raw(answer if isinstance(answer, bytes) else answer.SerializeToString(), Author.EPP)
        return self

    def raw(self, raw: bytes, author: Author, **more: Any) -> ScriptedExchange:
        """Bytes of a message."""
        return self.emit(Message(exchange=self.name, stream=self.stream, author=author, raw=raw, **more))

    # -- how it ends ---------------------------------------------------------------------------------------------------

    def drained(self, status: int = 0) -> ScriptedExchange:
        """The data plane half-closes; the EPP ends the stream."""
        return self.emit(
            HalfClosed(exchange=self.name, stream=self.stream, author=Author.DATA_PLANE),
            Wait(exchange=self.name, what=DRAINING, outcome="met"),
        ).closed(status)

    def closed(self, status: int = 0, message: str = "") -> ScriptedExchange:
        """The EPP ends the stream with a gRPC status."""
        return self._ended(author=Author.EPP, how="status", status=status, message=message)

    def reset(self, author: Author = Author.DATA_PLANE, code: int = 2) -> ScriptedExchange:
        """The stream is reset, as Envoy does when it has what it needs."""
        return self._ended(author=author, how="reset", code=code)

    def lost(self) -> ScriptedExchange:
        """The connection breaks."""
        return self._ended(author=None, how="lost")

    def refused(self) -> ScriptedExchange:
        """The stream is refused."""
        return self._ended(author=Author.EPP, how="refused")

    def aborted(self, point: str = "request-body") -> ScriptedExchange:
        """The client goes away; the data plane resets the stream."""
        return self.emit(ClientAborted(exchange=self.name, point=point)).reset()

    def hang(self, what: str, *, quiet: float = 10.0) -> ScriptedExchange:
        """The deadline of 10 s ends the wait for `what` (`answer to request_headers`), and the data plane the stream.

        `quiet`: seconds in which nothing came.
        """
        self.script.pass_time(quiet)
        return self.emit(Wait(exchange=self.name, what=what, outcome="expired", seconds=10.0)).reset()

    def waited(self, what: str, outcome: Literal["met", "expired"] = "met", seconds: float = 0.0) -> ScriptedExchange:
        """Any other wait."""
        return self.emit(Wait(exchange=self.name, what=what, outcome=outcome, seconds=seconds))

    def upstream(
        self,
        endpoint: str,
        status: int | None = 200,
        *,
        body: bytes = b"",
        outcome: Literal["response", "connect-failed", "reset"] = "response",
        answer: bytes | None = None,
        headers: Headers = (),
        replied: Headers = (),
        cut: bool = False,
        delay: float = 0.0,
    ) -> ScriptedExchange:
        """A model server is asked, and answers with `status` and the headers `replied`, or not (`outcome`), after
        `delay` seconds. `answer`: bodies are recorded. One that is `cut` has no end."""
        number = 1 + sum(isinstance(e.event, UpstreamRequest) and e.event.exchange == self.name for e in self._log)
        got = status if outcome == "response" else None
        return self.emit(
            UpstreamRequest(
                exchange=self.name,
                attempt=number,
                endpoint=endpoint,
                headers=headers,
                body=body,
                size=None if answer is None else len(body),
            ),
            UpstreamResponse(
                exchange=self.name,
                attempt=number,
                endpoint=endpoint,
                outcome="reset" if cut else outcome,
                status=got,
                headers=replied,
                body=answer or b"",
                size=None if answer is None else len(answer),
                delay=delay,
            ),
        )

    def client(
        self, status: int | None = 200, body: bytes = b"", headers: Headers = (), details: str = ""
    ) -> ScriptedExchange:
        """What the client gets in the end."""
        answer = {"status": status, "headers": headers, "body": body, "size": len(body), "details": details}
        return self.emit(ClientResponse(exchange=self.name, **answer))

    def emit(self, *events: Event) -> ScriptedExchange:
        """Any events."""
        self.script.emit(*events)
        return self

    @property
    def _log(self) -> tuple[Entry, ...]:
        return self.script.entries

    def _ended(self, **how: Any) -> ScriptedExchange:
        return self.emit(StreamEnded(exchange=self.name, stream=self.stream, **how))


def pod(name: str, *endpoints: str, ready: bool = True, terminating: bool = False, selected: bool = True) -> PodFact:
    """What is true of a pod."""
    return PodFact(name=name, endpoints=endpoints, ready=ready, terminating=terminating, selected=selected)


def _map(pairs: Iterable[tuple[bytes, bytes]], value_field: str) -> Any:
    found = header_map(pairs)
    if value_field == "value":
        for one in found.headers:
            one.value, one.raw_value = one.raw_value.decode(), b""
    return found


def _tuple(endpoints: str | tuple[str, ...]) -> tuple[str, ...]:
    return (endpoints,) if isinstance(endpoints, str) else endpoints
