"""Envoy towards an EPP, for one HTTP request: events in, actions out; no clock, no I/O.

Each event is a method; it returns the `Action`s to carry out, in order. Two `Direction`s hold the body modes, the
`Router` the attempts; here is what joins them: the ext_proc stream, its errors, local replies and the end.

Violations of the EPP end as in Envoy 1.40: in a 500 with Envoy's details, or forgiven where `failure_mode_allow` says.
Whatever the EPP sends, no method raises.
"""

from __future__ import annotations

from typing import Literal

from google.protobuf.message import DecodeError

from ext_proc.messages import HeaderMutation, ImmediateResponse, ProcessingResponse, StreamedImmediateResponse
from ext_proc.record import RESPONSE_TOO_LARGE
from fake_proxy.actions import Action, CloseStream, Closing, Done, HeaderList, Side, StartTimer, StopTimer
from fake_proxy.answer_errors import RejectedError, SpuriousError
from fake_proxy.attributes import Facts
from fake_proxy.config import ProxyConfig
from fake_proxy.direction import Direction
from fake_proxy.downstream import Downstream
from fake_proxy.header_map import RESPONSE, RESPONSE_TRAILERS, get, joined, put, remove
from fake_proxy.local_reply import local_reply, response_code_details
from fake_proxy.metadata import DynamicMetadata
from fake_proxy.router import Failure, Router
from fake_proxy.stimulus import Stimulus
from fake_proxy.streamed_reply import DETAILS, StreamedReply
from fake_proxy.writer import MessageWriter

_CLUSTER = "pool"
_GRPC_OK, _GRPC_INTERNAL = 0, 13
_OF_A_REPLY = ("streamed_immediate_response", "immediate_response")


class Machine:
    """The exchange of one HTTP request of a client at `source` (`ip:port`, for attributes), over HTTP/`http`."""

    def __init__(
        self,
        config: ProxyConfig,
        stimulus: Stimulus | None = None,
        *,
        source: str = "192.0.2.1:50000",
        http: Literal[1, 2] = 1,
    ) -> None:
        self._config = config
        self._http = http
        self.buffer_limit = config.buffer_of(http)
        """Bytes of a body that may be held back."""
        self._stimulus = stimulus or Stimulus()
        self._metadata = DynamicMetadata(self._stimulus.metadata, config.forwarding_namespaces)
        self._out: list[Action] = []
        self._router = Router(
            config, self._metadata, self._out.append, self._selected, self._local_reply, self.buffer_limit
        )
        self._request = Direction("request", config, self, self._router)
        self._client = Downstream(self._out.append, self._finish)
        self._response = Direction("response", config, self, self._client)
        self._reply = StreamedReply(self._client, config)
        self._facts = Facts(source=source, cluster=_CLUSTER, protocol="HTTP/2" if http == 2 else "HTTP/1.1", request=[])
        self._writer = MessageWriter(config, self._stimulus, self._metadata, self._facts)
        self._stream_open = False
        self._stream_closed = False
        self._answering = False  # inside a message of the EPP
        self._response_begun = False  # upstream's or a local response has come
        self.processing = True
        """False once the EPP plays no further part."""
        self.done = False
        """Whether the exchange is over for the client."""
        self.details = ""
        """Why the response is what it is, in Envoy's words (RESPONSE_CODE_DETAILS)."""
        self.endpoint: str | None = None
        """The endpoint of the latest attempt."""

    def dissolve(self) -> None:
        """Let go of its parts, which know it: as a circle they would wait for the garbage collector."""
        del self._request, self._response, self._reply, self._router, self._client

    @property
    def awaiting(self) -> str:
        """What the exchange waits for now, in the words of the record."""
        awaited = self._request.awaited or self._response.awaited
        return awaited or ("response of the model server" if self._router.open else "rest of the request")

    def held(self, side: Side) -> int:
        """Bytes of a body that are held back now, or that the EPP has and has not answered yet."""
        return (self._request if side == "request" else self._response).held

    # -- the client ----------------------------------------------------------------------------------------------------

    def request_headers(self, headers: HeaderList, end: bool) -> list[Action]:
        """The request begins: all headers as the filter sees them, pseudo-headers included."""
        self._facts.request = list(headers)
        if self._config.refused_with is None:
            self._request.headers(headers, end)
        else:
            self._local_reply(self._config.refused_with, b"fault filter abort", "fault_filter_abort")
        return self._actions()

    def request_data(self, data: bytes, end: bool) -> list[Action]:
        """Request body, as read from the client."""
        self._request.data(data, end)
        return self._actions()

    def request_trailers(self, trailers: HeaderList) -> list[Action]:
        """The request ends with trailers."""
        self._request.trailers(trailers)
        return self._actions()

    def client_gone(self) -> list[Action]:
        """The client went away before the response was complete."""
        if not self.done:
            self.details = "downstream_remote_disconnect"
            self._finish()
        return self._actions()

    # -- the EPP -------------------------------------------------------------------------------------------------------

    def epp_message(self, raw: bytes) -> list[Action]:
        """A message of the EPP, as bytes. Ignored once the EPP plays no part any more."""
        if self.processing and not self.done:
            self._answering = True
            try:
                answer = ProcessingResponse.FromString(raw)
            except DecodeError:
                self._grpc_error(_GRPC_INTERNAL, "via_upstream")
            else:
                self._answer(answer)
            self._answering = False
        return self._actions()

    def epp_closed(self, status: int, message: str = "") -> list[Action]:
        """The EPP (or the connection to it) ended the stream with gRPC `status`."""
        if not self._stream_closed and self._stream_open:
            self._stream_closed = True
            self._out.append(CloseStream(Closing.EPP_FIRST))
        if self.processing and not self.done:
            if status != _GRPC_OK:
                self._grpc_error(status, message)
            elif not self._reply.begun:  # the rest of a reply is waited for as long as the client likes
                self._without_epp()
        return self._actions()

    def timer_fired(self) -> list[Action]:
        """A message timer ran out (either: there is one reaction)."""
        if self.processing and not self.done:
            if self._forgiving():
                self._close(Closing.OWN)
                self._without_epp()
            else:
                self._fail(504, "ext_proc_error_per-message_timeout_exceeded", Closing.OWN)
        return self._actions()

    # -- the upstream --------------------------------------------------------------------------------------------------

    def upstream_headers(self, attempt: int, headers: HeaderList, end: bool, service_ms: int = 0) -> list[Action]:
        """The response of `attempt` begins: `:status` and headers as upstream wrote them, after `service_ms`."""
        if self._current(attempt) and self._router.responded(int(get(headers, b":status") or 0)):
            self.details = "via_upstream"
            if self._config.original_destination:
                self._report_served()
            headers = joined(headers, RESPONSE)
            if self._http == 1:
                remove(headers, b"keep-alive")  # from an HTTP/2 client's response it goes behind the filters
            if self._router.sent:
                put(headers, b"x-envoy-upstream-service-time", b"%d" % service_ms)
            if end:
                self._router.completed()
            self._respond(headers, end)
        return self._actions()

    def upstream_data(self, attempt: int, data: bytes, end: bool) -> list[Action]:
        """Response body of `attempt`."""
        if self._current(attempt):
            if end:
                self._router.completed()
            self._response.data(data, end)
        return self._actions()

    def upstream_trailers(self, attempt: int, trailers: HeaderList) -> list[Action]:
        """The response of `attempt` ends with trailers."""
        if self._current(attempt):
            self._router.completed()
            self._response.trailers(joined(trailers, RESPONSE_TRAILERS))
        return self._actions()

    def upstream_failed(self, attempt: int, how: Failure) -> list[Action]:
        """`attempt` broke: the connection could not be made, or was lost before the response was complete."""
        if self._current(attempt):
            if self._response_begun:
                self._router.completed()
                self._local_reply(*self._router.broken(how, "after"))
            else:
                self._router.failed(how)
        return self._actions()

    def _current(self, attempt: int) -> bool:
        return self._router.open and attempt == self._router.attempt and not self.done

    # -- messages to the EPP (Processor of the directions) -------------------------------------------------------------

    def send(self, side: Side, kind: str, part: bytes, *, end: bool) -> None:
        """Complete and send a message whose oneof `part` is."""
        self._stream_open = True
        self._out += self._writer.write(side, kind, part, end=end)

    def start_timer(self, side: Side) -> None:
        """An answer is awaited."""
        self._out.append(StartTimer(side, self._config.message_timeout))

    def stop_timer(self, side: Side) -> None:
        """No answer is awaited."""
        self._out.append(StopTimer(side))

    def overflow(self, side: Side) -> None:
        """A BUFFERED body is too large: 413 for a request, 500 for a response."""
        if side == "request":
            self._local_reply(413, b"Payload Too Large", "request_payload_too_large")
        else:
            self._local_reply(500, b"Internal Server Error", RESPONSE_TOO_LARGE)

    # -- answers of the EPP --------------------------------------------------------------------------------------------

    def _answer(self, answer: ProcessingResponse) -> None:
        if answer.HasField("override_message_timeout"):
            return  # Envoy reads nothing else of such a message; without max_message_timeout it has no effect
        kind = answer.WhichOneof("response")
        last = False
        try:
            if self._reply.begun and kind not in _OF_A_REPLY:
                raise SpuriousError
            if answer.HasField("dynamic_metadata") and kind is not None:
                self._metadata.merge(answer.dynamic_metadata, self._config.receiving_namespaces)
            match kind:
                case "request_headers":
                    self._request.headers_answer(answer.request_headers)
                    last = self._request.header_only
                case "request_body":
                    last = self._request.is_last(answer.request_body)
                    self._request.body_answer(answer.request_body)
                case "request_trailers":
                    self._request.trailers_answer(answer.request_trailers)
                    last = True
                case "response_headers":
                    self._response.headers_answer(answer.response_headers)
                    last = self._response.header_only
                case "response_body":
                    last = self._response.is_last(answer.response_body)
                    self._response.body_answer(answer.response_body)
                case "response_trailers":
                    self._response.trailers_answer(answer.response_trailers)
                    last = True
                case "immediate_response":
                    self._immediate(answer.immediate_response)
                case "streamed_immediate_response":
                    self._streamed_reply(answer.streamed_immediate_response)
                case _:
                    raise SpuriousError("unhandled message")
        except SpuriousError as violation:
            if self._forgiving():
                self._close(Closing.ANSWERED)
                self._without_epp()
            else:
                self._fail(self._config.status_on_error, violation.details)
        except RejectedError as violation:
            self._fail(violation.status or self._config.status_on_error, violation.details, body=violation.body)
        if last and self.processing:
            (self._request if str(kind).startswith("request") else self._response).finished = True
            if self._request.over and self._response.over:
                self.processing = False
                self._close(Closing.ANSWERED)

    def _streamed_reply(self, part: StreamedImmediateResponse) -> None:
        self._reply.take(part, due=self._request.awaits_headers)
        self.details = DETAILS
        self._request.shut()

    def _immediate(self, answer: ImmediateResponse) -> None:
        self._leave_processing(Closing.ANSWERED)
        code = answer.status.code if answer.HasField("status") else 200
        self._local_reply(
            max(code, 200),
            answer.body,
            answer.details,
            mutation=answer.headers if answer.HasField("headers") else None,
            grpc_status=answer.grpc_status.status if answer.HasField("grpc_status") else None,
        )

    def _grpc_error(self, status: int, message: str) -> None:
        if self._forgiving():
            self._close(Closing.ANSWERED)
            self._without_epp()
        else:
            self._fail(self._config.status_on_error, f"ext_proc_error_gRPC_error_{status}{{{message}}}")

    def _forgiving(self) -> bool:
        """`failure_mode_allow`, which does not apply once a full-duplex body is with the EPP, or a reply has begun."""
        possible = self._request.forgiving and self._response.forgiving and not self._reply.begun
        return self._config.failure_mode_allow and possible

    def _fail(self, status: int, details: str, closing: Closing = Closing.ANSWERED, *, body: bytes = b"") -> None:
        self._leave_processing(closing)
        self._local_reply(status, body, details)

    def _leave_processing(self, closing: Closing) -> None:
        self.processing = False
        self._request.forget()
        self._response.forget()
        self._close(closing)

    def _without_epp(self) -> None:
        self.processing = False
        self._request.go_on()
        self._response.go_on()

    # -- local replies and the response --------------------------------------------------------------------------------

    def _local_reply(
        self,
        status: int,
        body: bytes,
        details: str,
        *,
        mutation: HeaderMutation | None = None,
        grpc_status: int | None = None,
    ) -> None:
        """Answer the client ourselves.

        Before any response this one goes through the response direction, so the EPP sees it unless processing is over.
        A response that is still held back is replaced; one that has begun is cut.
        """
        self.details = response_code_details(details)
        self._request.stop()
        self._router.abort()
        if self._client.begun:
            self._client.cut()
            return
        headers, text = local_reply(
            self._facts.request, status, body, self._config, mutation=mutation, grpc_status=grpc_status
        )
        if self._response_begun:
            self._response.stop()
            self._client.headers(headers, not text)
            if text:
                self._client.data(text, True)
            return
        self._respond(headers, not text)
        if text:
            self._response.data(text, True)

    def _respond(self, headers: HeaderList, end: bool) -> None:
        self._response_begun = True
        self._facts.response = list(headers)
        self._facts.details = self.details
        self._response.headers(headers, end)
        if self._response.unprocessed and self._request.over:
            self._close(Closing.OWN)
            self.processing = False

    # -- the end -------------------------------------------------------------------------------------------------------

    def _finish(self) -> None:
        if self.done:
            return
        self.done = True
        self._request.stop()
        self._response.stop()
        self._router.abort()
        if self.processing:
            self._leave_processing(Closing.ANSWERED if self._answering else Closing.OWN)
        self._out.append(Done())

    def _close(self, closing: Closing) -> None:
        if self._stream_open and not self._stream_closed:
            self._stream_closed = True
            self._out.append(CloseStream(closing))

    # ------------------------------------------------------------------------------------------------------------------

    def _selected(self, endpoint: str) -> None:
        """An endpoint was chosen for an attempt."""
        self.endpoint = self._facts.endpoint = endpoint
        if not self._config.original_destination:
            self._report_served()

    def _report_served(self) -> None:
        """Note the endpoint in the metadata of later messages."""
        value = self._stimulus.report(self.endpoint) if self._config.report_served else None
        if value is not None:
            self._metadata.put(self._config.destination_namespace, self._config.served_key, value)

    def _actions(self) -> list[Action]:
        out = self._out[:]
        self._out.clear()
        return out
