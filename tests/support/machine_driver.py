"""Drives a `Machine` by hand: answers built as messages, actions sorted by what they concern."""

from __future__ import annotations

from ext_proc.headers import to_struct
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpStatus,
    ImmediateResponse,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)
from fake_proxy.actions import (
    ClientData,
    ClientHeaders,
    ClientReset,
    ClientTrailers,
    CloseStream,
    Done,
    OpenUpstream,
    SendMessage,
    StartTimer,
    StopTimer,
    UpstreamData,
    UpstreamTrailers,
)
from fake_proxy.client import DataArrives, EchoAwaited, HeadersArrive, HttpRequest, TrailersArrive, arrivals
from fake_proxy.config import ProxyConfig
from fake_proxy.machine import Machine

KEY = "x-gateway-destination-endpoint"
A, B, C = "127.0.0.11:8000", "127.0.0.12:8000", "127.0.0.13:8000"


def set_header(name: str, value: bytes, **option) -> HeaderValueOption:
    return HeaderValueOption(header=HeaderValue(key=name, raw_value=value), **option)


def mutation(*options: HeaderValueOption, remove: tuple[str, ...] = ()) -> HeaderMutation:
    return HeaderMutation(set_headers=options, remove_headers=remove)


def common(headers: HeaderMutation | None = None, body: BodyMutation | None = None, status: int = 0) -> CommonResponse:
    return CommonResponse(header_mutation=headers, body_mutation=body, status=status)


def request_headers(response: CommonResponse | None = None, metadata: dict | None = None) -> bytes:
    return ProcessingResponse(
        request_headers=HeadersResponse(response=response or CommonResponse()),
        dynamic_metadata=to_struct(metadata) if metadata is not None else None,
    ).SerializeToString()


def pick(endpoint: str, *, header: bool = True, metadata: bool = True) -> bytes:
    """An answer to request_headers that names `endpoint`."""
    return request_headers(
        common(mutation(set_header(KEY, endpoint.encode()))) if header else None,
        {"envoy.lb": {KEY: endpoint}} if metadata else None,
    )


def streamed(body: bytes, end: bool = False) -> BodyMutation:
    return BodyMutation(streamed_response=StreamedBodyResponse(body=body, end_of_stream=end))


def request_body(body: BodyMutation | None = None, headers: HeaderMutation | None = None) -> bytes:
    return ProcessingResponse(request_body=BodyResponse(response=common(headers, body))).SerializeToString()


def response_body(body: BodyMutation | None = None) -> bytes:
    return ProcessingResponse(response_body=BodyResponse(response=common(None, body))).SerializeToString()


def response_headers(headers: HeaderMutation | None = None) -> bytes:
    return ProcessingResponse(response_headers=HeadersResponse(response=common(headers))).SerializeToString()


def request_trailers(headers: HeaderMutation | None = None) -> bytes:
    return ProcessingResponse(request_trailers=TrailersResponse(header_mutation=headers)).SerializeToString()


def response_trailers() -> bytes:
    return ProcessingResponse(response_trailers=TrailersResponse()).SerializeToString()


def immediate(code: int | None = None, body: bytes = b"", details: str = "", headers=None, grpc=None) -> bytes:
    return ProcessingResponse(
        immediate_response=ImmediateResponse(
            status=HttpStatus(code=code) if code is not None else None,
            body=body,
            details=details,
            headers=headers,
            grpc_status=grpc,
        )
    ).SerializeToString()


class Driven:
    """A machine, and what it has done so far."""

    def __init__(self, config: ProxyConfig, stimulus=None) -> None:
        self.machine = Machine(config, stimulus)
        self.sent: list[tuple[str, bytes]] = []
        self.attempts: list[OpenUpstream] = []
        self.upstream = bytearray()
        self.upstream_ended = False
        self.upstream_trailers = None
        self.status: int | None = None
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.trailers = None
        self.reset = False
        self.closings: list = []
        self.timers: set[str] = set()
        self.ends = 0

    def do(self, actions) -> Driven:
        for action in actions:
            assert not self.machine.done or not isinstance(action, OpenUpstream)
            match action:
                case SendMessage(kind, raw):
                    assert not self.closings, "a message after the stream was closed"
                    self.sent.append((kind, raw))
                case OpenUpstream():
                    self.attempts.append(action)
                    self.upstream = bytearray(action.body)
                    self.upstream_ended = action.end
                    self.upstream_trailers = action.trailers
                case UpstreamData(data, end):
                    assert not self.upstream_ended
                    self.upstream += data
                    self.upstream_ended = end
                case UpstreamTrailers(trailers):
                    assert not self.upstream_ended
                    self.upstream_trailers, self.upstream_ended = trailers, True
                case ClientHeaders(headers, _):
                    assert self.status is None
                    self.headers = dict(headers)
                    self.status = int(self.headers[b":status"])
                case ClientData(data, _):
                    assert self.status is not None
                    self.body += data
                case ClientTrailers(trailers):
                    self.trailers = trailers
                case ClientReset():
                    self.reset = True
                case CloseStream(closing):
                    self.closings.append(closing)
                case StartTimer(side, _):
                    self.timers.add(side)
                case StopTimer(side):
                    self.timers.discard(side)
                case Done():
                    self.ends += 1
        return self

    def request(self, request: HttpRequest) -> Driven:
        for arrival in arrivals(request):
            match arrival:
                case HeadersArrive(headers, end):
                    self.do(self.machine.request_headers(headers, end))
                case DataArrives(data, end, _):
                    self.do(self.machine.request_data(data, end))
                case TrailersArrive(trailers):
                    self.do(self.machine.request_trailers(trailers))
                case EchoAwaited():
                    pass
        return self

    def epp(self, *answers: bytes) -> Driven:
        for answer in answers:
            self.do(self.machine.epp_message(answer))
        return self

    def respond(self, status: int = 200, *pieces: bytes, headers=(), trailers=None, end: bool = True) -> Driven:
        attempt = self.machine._router.attempt
        listed = [(b":status", b"%d" % status), *headers]
        self.do(self.machine.upstream_headers(attempt, listed, end and not pieces and trailers is None))
        for piece in pieces:
            self.do(self.machine.upstream_data(attempt, piece, False))
        if trailers is not None:
            self.do(self.machine.upstream_trailers(attempt, trailers))
        elif end and pieces:
            self.do(self.machine.upstream_data(attempt, b"", True))
        return self

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.sent]

    @property
    def messages(self) -> list[ProcessingRequest]:
        return [ProcessingRequest.FromString(raw) for _, raw in self.sent]

    @property
    def upstream_headers(self) -> dict[bytes, bytes]:
        return dict(self.attempts[-1].headers)

    @property
    def details(self) -> str:
        return self.machine.details
