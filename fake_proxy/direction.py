"""One direction of an exchange (request or response) on its way through the ext_proc filter.

It takes headers, data and trailers from the codec, sends them to the EPP in the order and pace of the body mode, and
passes them on when the EPP's answers allow. The states are Envoy's, so that its quirks come out without being listed:
a body that is lost when the stream closes, headers that can no longer be changed, an answer that is spurious.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from enum import Enum

from ext_proc.messages import BodyResponse, CommonResponse, HeadersResponse, TrailersResponse
from fake_proxy.actions import HeaderList, Side
from fake_proxy.answer_errors import NOT_STREAMED, STREAMED, RejectedError, SpuriousError
from fake_proxy.config import BodyMode, ProxyConfig
from fake_proxy.gate import Gate, Next
from fake_proxy.header_map import REQUEST, RESPONSE, RESPONSE_TRAILERS, get, number, remove
from fake_proxy.mutations import HeaderRules, apply_body, apply_headers
from fake_proxy.processor import Processor
from fake_proxy.writer import body_part, headers_part, trailers_part


class Awaiting(Enum):
    """The answer that a direction waits for."""

    NOTHING = "nothing"
    HEADERS = "headers"
    BUFFERED_BODY = "buffered body"
    STREAMED_BODY = "streamed body"
    TRAILERS = "trailers"


class Direction:
    """The state of one direction. `headers`, `data` and `trailers` come from the codec, `*_answer` from the EPP."""

    def __init__(self, side: Side, config: ProxyConfig, processor: Processor, following: Next) -> None:
        request = side == "request"
        self._side: Side = side
        self._config = config
        self._processor = processor
        self._gate = Gate(following)
        self._header_field = config.header_value_field
        self.mode = config.request_body_mode if request else config.response_body_mode
        self._send_headers = config.send_request_headers if request else config.send_response_headers
        self._send_trailers = config.send_request_trailers if request else config.send_response_trailers
        self._early_body = self.mode is BodyMode.STREAMED and config.send_body_without_waiting
        strips_length = self.mode in (BodyMode.STREAMED, BodyMode.FULL_DUPLEX_STREAMED) or (
            self.mode is BodyMode.BUFFERED and not self._send_headers
        )
        self._rules = HeaderRules(
            max_count=config.max_header_count,
            max_bytes=config.max_header_bytes,
            known=REQUEST if request else RESPONSE,
            keep_content_length=not strips_length,
        )
        self._awaiting = Awaiting.NOTHING
        self._mutable = False  # the headers may still be changed by an answer
        self._trailers_open = False  # the trailers may still be changed by an answer
        self.trailers_sent = False
        """Whether the EPP was asked about trailers."""
        self.finished = False
        """Whether the EPP has given its last answer, as far as Envoy can tell."""
        self._queue: deque[tuple[bytes, bool]] = deque()  # STREAMED: sent, not yet answered
        self._paused = False
        self._stopped = False
        self._body_received = False
        self._body_replaced = False
        self.no_body = False

    # -- from the codec ------------------------------------------------------------------------------------------------

    def headers(self, headers: HeaderList, end: bool) -> None:
        """The message begins."""
        self._gate.complete = end
        self._gate.headers = headers
        asks = self._send_headers and self._processor.processing
        if asks:
            self._mutable, self.no_body, self._paused = True, end, True
            self._ask(Awaiting.HEADERS, "headers", headers_part(self._side, headers, end, self._header_field), end=end)
        if self._processor.processing and not self._rules.keep_content_length:
            remove(headers, b"content-length")
        if not asks:
            self._gate.pass_headers(end)

    def data(self, data: bytes, end: bool) -> None:
        """Body arrives; an empty piece is legal, and usual with `end`."""
        if self._stopped:
            return
        self._body_received = True
        self._gate.complete = self._gate.complete or end
        if self._body_replaced:
            self._gate.pass_body(b"", end)
        elif not self._processor.processing:
            self._gate.pass_body(data, end)
        elif self._awaiting is Awaiting.HEADERS and not (
            self._early_body or self.mode is BodyMode.FULL_DUPLEX_STREAMED
        ):
            self._hold(data)
        elif self.mode is BodyMode.BUFFERED:
            if self._hold(data) and end:
                self._ask_body(Awaiting.BUFFERED_BODY, bytes(self._gate.buffer or b""), end=True)
        elif self.mode is BodyMode.NONE:
            self._gate.pass_body(data, end)
        else:
            self._stream(data, end)

    def trailers(self, trailers: HeaderList) -> None:
        """The message ends with trailers."""
        if self._stopped:
            return
        delivered, self._gate.complete = self._gate.complete, True
        self._gate.trailers = trailers
        if not self._processor.processing:
            self._gate.open()
            return
        self._trailers_open = True
        full_duplex = self.mode is BodyMode.FULL_DUPLEX_STREAMED
        if self._awaiting is not Awaiting.NOTHING and not full_duplex:
            self._paused = True
        elif not delivered and self._gate.buffer is not None and self.mode is BodyMode.BUFFERED:
            self._ask_body(Awaiting.BUFFERED_BODY, bytes(self._gate.buffer), end=False)
        elif not self._send_trailers:
            self._gate.open()
        else:
            self._ask_trailers()

    # -- from the EPP --------------------------------------------------------------------------------------------------

    def headers_answer(self, answer: HeadersResponse) -> None:
        """Apply a HeadersResponse. Raises `SpuriousError` or `RejectedError`."""
        if self._awaiting is not Awaiting.HEADERS:
            raise SpuriousError
        common = answer.response
        replace = common.status == CommonResponse.CONTINUE_AND_REPLACE
        self._mutate(common, replacing=replace)
        then = self._after_headers(replace)
        self._answered(then)
        if replace:
            self._replace(common)
        elif not self.no_body:
            if self._gate.complete and self.mode is not BodyMode.NONE:
                if then is not Awaiting.NOTHING:
                    self._send_held(end=self._gate.trailers is None)
                    return
                if self._gate.buffer is not None:
                    body = bytes(self._gate.buffer)
                    self._ask_body(Awaiting.BUFFERED_BODY, body, end=self._gate.trailers is None)
                    return
            elif self.mode is BodyMode.BUFFERED:
                return
            elif self.mode is not BodyMode.NONE:
                if self.mode is BodyMode.STREAMED:
                    self._send_held(end=False)
                self._resume()
                return
            if self._send_trailers and self._gate.trailers is not None:
                self._ask_trailers()
                return
        self._mutable = False
        self._resume()

    def body_answer(self, answer: BodyResponse) -> None:
        """Apply a BodyResponse. Raises `SpuriousError` or `RejectedError`."""
        common = answer.response
        if self._awaiting is Awaiting.BUFFERED_BODY:
            self._buffered_answer(common)
            finished = True
        elif self._awaiting is Awaiting.STREAMED_BODY:
            finished = self._streamed_answer(common)
        else:
            raise SpuriousError
        self._mutable = False
        if self._gate.trailers is not None and not self._queue:
            if self._send_trailers:
                self._ask_trailers()
            else:
                self._resume()
        elif finished:
            self._resume()

    def trailers_answer(self, answer: TrailersResponse) -> None:
        """Apply a TrailersResponse. Raises `SpuriousError` or `RejectedError`. In full duplex it is never spurious."""
        if self._awaiting is not Awaiting.TRAILERS and self.mode is not BodyMode.FULL_DUPLEX_STREAMED:
            raise SpuriousError
        if self._gate.trailers is not None and self._trailers_open and answer.HasField("header_mutation"):
            known = RESPONSE_TRAILERS if self._side == "response" else frozenset()
            rules = dataclasses.replace(self._rules, known=known)
            apply_headers(answer.header_mutation, self._gate.trailers, rules)
        if self._gate.trailers is None:
            self._gate.leave_open()  # what no trailers end waits for the rest of the body
        self._trailers_open = False
        self._answered(Awaiting.NOTHING)
        self._resume()

    def is_last(self, answer: BodyResponse) -> bool:
        """Whether `answer`, about to be applied, is the last of this direction. BUFFERED never says so."""
        if self.mode is BodyMode.STREAMED:
            return bool(self._queue) and self._queue[0][1]
        if self.mode is BodyMode.FULL_DUPLEX_STREAMED:
            return answer.response.body_mutation.streamed_response.end_of_stream
        return False

    def stop(self) -> None:
        """Nothing is passed on or sent to the EPP any more, whatever comes."""
        self._gate.dead = self._stopped = True

    def shut(self) -> None:
        """The EPP replies to the client: nothing is passed on any more, but the EPP still gets what is for it."""
        self._gate.dead = True
        self.forget()
        if self._send_trailers and not self._stopped:
            self._ask_trailers()

    # -- without the EPP -----------------------------------------------------------------------------------------------

    @property
    def forgiving(self) -> bool:
        """Whether this direction could go on without the EPP: not once a full-duplex body has left for it."""
        return not (self.mode is BodyMode.FULL_DUPLEX_STREAMED and self._body_received)

    @property
    def awaited(self) -> str:
        """The answer that is awaited now, such as `answer to request_body`; empty if none is."""
        # In full duplex trailers end the body: what is missing then is their answer.
        kinds = {Awaiting.HEADERS: "headers", Awaiting.TRAILERS: "trailers"}
        ended_by_trailers = self.trailers_sent and self.mode is BodyMode.FULL_DUPLEX_STREAMED
        kind = kinds.get(self._awaiting, "trailers" if ended_by_trailers else "body")
        return f"answer to {self._side}_{kind}" if self._awaiting is not Awaiting.NOTHING or self._cut_off else ""

    @property
    def _cut_off(self) -> bool:
        """Whether the EPP has given its last answer, and not the end of what it was told."""
        streamed = self.finished and self.mode is BodyMode.FULL_DUPLEX_STREAMED
        return streamed and self._gate.complete and not (self._gate.ended or self._gate.dead)

    @property
    def held(self) -> int:
        """Bytes of body that are held back, or were sent and wait for an answer that may replace them."""
        return len(self._gate.buffer or b"") + sum(len(data) for data, _ in self._queue)

    @property
    def awaits_headers(self) -> bool:
        """Whether the answer to the headers is awaited."""
        return self._awaiting is Awaiting.HEADERS

    @property
    def unprocessed(self) -> bool:
        """Whether nothing of this direction is sent to the EPP by configuration."""
        return not self._send_headers and not self._send_trailers and self.mode is BodyMode.NONE

    @property
    def over(self) -> bool:
        """Whether the EPP has no more to say here. Envoy closes the stream when that holds of both directions."""
        return self.finished or self.unprocessed

    @property
    def header_only(self) -> bool:
        """Whether the answer to the headers is the last of this direction."""
        trailers = self._send_trailers and not (self._gate.complete and self._gate.trailers is None)
        return self.no_body or (self.mode is BodyMode.NONE and not trailers)

    def forget(self) -> None:
        """No answer is awaited any more; what is held back stays."""
        self._answered(Awaiting.NOTHING)

    def go_on(self) -> None:
        """Continue without the EPP: pass on what is there. A full-duplex body is already gone."""
        self.forget()
        data, end = b"".join(piece for piece, _ in self._queue), any(end for _, end in self._queue)
        self._queue.clear()
        if data:
            self._gate.pass_body(data, end)
        if self.mode is BodyMode.FULL_DUPLEX_STREAMED:
            self._gate.leave_open()
        self._resume()

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, awaiting: Awaiting, kind: str, part: bytes, *, end: bool) -> None:
        self._awaiting = awaiting
        if self.mode is not BodyMode.FULL_DUPLEX_STREAMED:
            self._processor.start_timer(self._side)
        self._processor.send(self._side, f"{self._side}_{kind}", part, end=end)

    def _ask_body(self, awaiting: Awaiting, data: bytes, *, end: bool) -> None:
        self._paused = True
        self._send_body(awaiting, data, end)

    def _send_body(self, awaiting: Awaiting, data: bytes, end: bool) -> None:
        self._ask(awaiting, "body", body_part(self._side, data, end), end=end)

    def _ask_trailers(self) -> None:
        if self.trailers_sent or self._gate.trailers is None:
            return
        self.trailers_sent = self._paused = True
        part = trailers_part(self._side, self._gate.trailers, self._header_field)
        waiting = self._awaiting is not Awaiting.NOTHING
        self._ask(self._awaiting if waiting else Awaiting.TRAILERS, "trailers", part, end=True)

    def _stream(self, data: bytes, end: bool) -> None:
        if self.mode is BodyMode.STREAMED:
            self._queue.append((data, end))
        waits = self._awaiting is Awaiting.HEADERS
        self._send_body(Awaiting.HEADERS if waits else Awaiting.STREAMED_BODY, data, end)
        if end or waits:
            self._paused = True
        if end and self._gate.buffer is None:
            self._gate.buffer = bytearray()  # so that the end of the body is passed on as an empty piece

    def _send_held(self, *, end: bool) -> None:
        if self._gate.buffer:
            held = self._gate.take()
            self._queue.append((held, end))
            self._send_body(Awaiting.STREAMED_BODY, held, end)

    def _hold(self, data: bytes) -> bool:
        """Keep `data` back; False if that was too much and the exchange has taken another turn."""
        self._paused = True
        held = self._gate.hold(data)
        if self.mode is BodyMode.BUFFERED and held > self._processor.buffer_limit:
            self._processor.overflow(self._side)
            return False
        return True

    # -- applying ------------------------------------------------------------------------------------------------------

    def _answered(self, then: Awaiting) -> None:
        self._awaiting = then
        if self.mode is not BodyMode.FULL_DUPLEX_STREAMED:
            self._processor.stop_timer(self._side)

    def _after_headers(self, replace: bool) -> Awaiting:
        if replace:
            return Awaiting.NOTHING
        if self._early_body and self._queue:
            return Awaiting.STREAMED_BODY
        if self.mode is BodyMode.FULL_DUPLEX_STREAMED:
            if self._body_received:
                return Awaiting.STREAMED_BODY
            if self._gate.trailers is not None:
                return Awaiting.TRAILERS
        return Awaiting.NOTHING

    def _mutate(self, common: CommonResponse, *, replacing: bool = False) -> None:
        if self._mutable and common.HasField("header_mutation"):
            apply_headers(common.header_mutation, self._gate.headers, self._rules, replacing=replacing)

    def _replace(self, common: CommonResponse) -> None:
        """CONTINUE_AND_REPLACE: the answer holds the whole message, the EPP sees no more of this direction."""
        if common.HasField("body_mutation"):
            remove(self._gate.headers, b"content-length")
            self._body_replaced = True
            self._gate.buffer = bytearray(apply_body(common.body_mutation, bytes(self._gate.buffer or b"")))
        self._queue.clear()
        self.mode = BodyMode.NONE
        self._send_trailers = False

    def _buffered_answer(self, common: CommonResponse) -> None:
        self._mutate(common)
        if common.HasField("body_mutation"):
            length = number(get(self._gate.headers, b"content-length")) if self._mutable else None
            if length is not None and length != len(common.body_mutation.body):
                raise RejectedError("mismatch between content length and the length of the mutated body")
            self._gate.buffer = bytearray(apply_body(common.body_mutation, bytes(self._gate.buffer or b"")))
        self._answered(Awaiting.NOTHING)

    def _streamed_answer(self, common: CommonResponse) -> bool:
        """Apply an answer to one piece of body; True if the body is complete with it."""
        mutation = common.body_mutation if common.HasField("body_mutation") else None
        streamed = mutation is not None and mutation.HasField("streamed_response")
        if self.mode is BodyMode.FULL_DUPLEX_STREAMED:
            if mutation is None or not streamed:
                raise SpuriousError(NOT_STREAMED)
            piece = mutation.streamed_response
            if piece.body:
                self._gate.pass_body(piece.body, piece.end_of_stream)
            self._answered(Awaiting.NOTHING if piece.end_of_stream else Awaiting.STREAMED_BODY)
            return piece.end_of_stream
        if streamed:
            raise SpuriousError(STREAMED)
        data, end = self._queue.popleft()
        if mutation is not None:
            data = apply_body(mutation, data)
        if data:
            self._gate.pass_body(data, end)
        self._answered(Awaiting.STREAMED_BODY if self._queue else Awaiting.NOTHING)
        return end

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self._gate.open()
