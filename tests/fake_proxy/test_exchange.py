"""Exchanges over real sockets: a grpc.aio EPP, HTTP/1.1 model servers, and the record of what happened."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import AsyncMock, call

import grpc
import h11
import pytest
import uvloop
from machine_driver import common, immediate, mutation, request_headers, set_header
from wire import acting, grpcio_server, until

from ext_proc.channel import Channel, dial
from ext_proc.http2.connection import SERVER_SETTINGS
from ext_proc.http2.frames import Setting, Settings
from ext_proc.messages import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeadersResponse,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)
from ext_proc.record import (
    STILL_OPEN,
    Author,
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    HalfClosed,
    Message,
    Recorder,
    StreamEnded,
    StreamOpened,
    UpstreamRequest,
    UpstreamResponse,
    Wait,
)
from ext_proc.record_json import from_json, to_json
from ext_proc.server import serve
from ext_proc.stream import LATE
from fake_proxy.actions import OpenUpstream
from fake_proxy.client import Abort, Chunk, HttpRequest
from fake_proxy.config import BodyMode, Ending, ProxyConfig
from fake_proxy.exchange import ExchangeOutcome, run_exchange
from fake_proxy.machine import Machine
from fake_proxy.pace import Pace
from fake_proxy.scripted import ScriptedUpstream, UpstreamReply, json_reply, sse_reply
from fake_proxy.stimulus import Stimulus, subset_hint
from fake_proxy.upstream import HttpUpstream, Upstream

KEY = "x-gateway-destination-endpoint"
POST = HttpRequest(body=b'{"model":"m"}', headers=((b"content-type", b"application/json"),))
OK = ScriptedUpstream(json_reply({"ok": True}))
FDS, BUFFERED, STREAMED = (
    ProxyConfig(),
    ProxyConfig().with_modes(BodyMode.BUFFERED),
    ProxyConfig().with_modes(BodyMode.STREAMED),
)
each_mode = pytest.mark.parametrize("config", [FDS, BUFFERED, STREAMED], ids=["fds", "buffered", "streamed"])
each_ending = pytest.mark.parametrize("ending", list(Ending))


# -- endpoint pickers --------------------------------------------------------------------------------------------------


class Plain:
    """What a right EPP answers on one stream: it names `endpoint` and changes nothing else."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.modes = {"request_body": 0, "response_body": 0}

    def __call__(self, message: ProcessingRequest) -> ProcessingResponse:
        kind = message.WhichOneof("request")
        if message.HasField("protocol_config"):
            self.modes["request_body"] = message.protocol_config.request_body_mode
            self.modes["response_body"] = message.protocol_config.response_body_mode
        if kind == "request_headers":
            headers = mutation(set_header(KEY, self.endpoint.encode()))
            named = {"envoy.lb": {KEY: self.endpoint}}
            return ProcessingResponse.FromString(request_headers(common(headers), named))
        if kind == "response_headers":
            return ProcessingResponse(response_headers=HeadersResponse())
        if kind.endswith("_trailers"):
            return ProcessingResponse(**{kind: TrailersResponse()})
        part = getattr(message, kind)
        response = CommonResponse()
        if self.modes[kind] == BodyMode.FULL_DUPLEX_STREAMED:
            body = StreamedBodyResponse(body=part.body, end_of_stream=part.end_of_stream)
            response = CommonResponse(body_mutation=BodyMutation(streamed_response=body))
        return ProcessingResponse(**{kind: BodyResponse(response=response)})


Twist = Callable[[ProcessingRequest, Plain], ProcessingResponse | None]
"""Answers a message in its own way, with the plain answer at hand."""


@contextlib.asynccontextmanager
async def grpc_epp(endpoint: str, twist: Twist | None = None) -> AsyncIterator[str]:
    """A grpc.aio server that picks `endpoint`; its address."""

    async def process(requests: AsyncIterator[ProcessingRequest], context: grpc.aio.ServicerContext):
        plain = Plain(endpoint)
        async for message in requests:
            found = twist(message, plain) if twist is not None else plain(message)
            if found is not None:
                yield found

    codec = (ProcessingRequest.FromString, ProcessingResponse.SerializeToString)
    async with grpcio_server(process=process, codec=codec) as (address, _):
        yield address


@contextlib.asynccontextmanager
async def own_epp(handler, settings: Settings = SERVER_SETTINGS) -> AsyncIterator[str]:
    """Our own server with a hand-written handler; its address."""
    server = await serve("127.0.0.1", 0, handler, settings=settings)
    try:
        yield server.address
    finally:
        await server.close()


@each_ending
async def test_an_epp_that_goes_on_without_end_is_reset_and_no_more_of_it_recorded(ending: Ending) -> None:
    async def endless(stream) -> None:
        await stream.recv()
        while True:
            for _ in range(LATE):
                stream.send(immediate(503, b"no"))
            await asyncio.sleep(0)
            await stream.drain()

    async with own_epp(endless) as epp:
        pace = Pace(deadline=600, ending_timeout=600)  # neither of them is what ends it
        ran = await exchange(epp, POST, replace(FDS, ending=ending, quiet_window=600), pace=pace)
        assert (ran.outcome.status, ran.outcome.body) == (503, b"no")
        assert len([event for event in ran.of(Message) if event.author is Author.EPP]) <= 2 * LATE + 1
        assert ran.of(StreamEnded)[0].author is Author.DATA_PLANE
        assert STILL_OPEN not in [wait.what for wait in ran.of(Wait)]


# -- model servers -----------------------------------------------------------------------------------------------------


def address_of(server: asyncio.Server) -> str:
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def nobody() -> str:
    """An address where nothing listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = address_of(server)
    server.close()
    await server.wait_closed()
    return address


@dataclass
class ModelServer:
    """An HTTP/1.1 server that remembers its requests and answers with `respond`."""

    respond: Callable[[h11.Connection, asyncio.StreamWriter], Awaitable[None]]
    requests: list[tuple[dict[bytes, bytes], bytes, list]] = field(default_factory=list)
    address: str = ""
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> ModelServer:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = address_of(self.server)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        body = bytearray()
        try:
            while True:
                match http.next_event():
                    case h11.NEED_DATA:
                        http.receive_data(await reader.read(65536))
                    case h11.Request(headers=headers, method=method, target=target):
                        found = {b":method": method, b":path": target, **dict(headers)}
                    case h11.Data(data=data):
                        body += data
                    case h11.EndOfMessage(headers=trailers):
                        self.requests.append((found, bytes(body), list(trailers)))
                        await self.respond(http, writer)
                        break
                    case h11.ConnectionClosed():
                        break
        except (h11.RemoteProtocolError, OSError):
            pass
        finally:
            self.done.set()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def plain(status: int = 200, body: bytes = b"fine") -> ModelServer:
    async def respond(http: h11.Connection, writer: asyncio.StreamWriter) -> None:
        length = [("content-length", str(len(body)))]
        for event in (h11.Response(status_code=status, headers=length), h11.Data(data=body), h11.EndOfMessage()):
            writer.write(http.send(event))

    return ModelServer(respond)


def events(*pieces: bytes, trailers=(), then: Callable[[int], Awaitable[None]] | None = None) -> ModelServer:
    async def respond(http: h11.Connection, writer: asyncio.StreamWriter) -> None:
        head = [("content-type", "text/event-stream"), ("transfer-encoding", "chunked")]
        writer.write(http.send(h11.Response(status_code=200, headers=head)))
        for index, piece in enumerate(pieces):
            writer.write(http.send(h11.Data(data=piece)))
            await writer.drain()
            if then is not None:
                await then(index)
        writer.write(http.send(h11.EndOfMessage(headers=list(trailers))))

    return ModelServer(respond)


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass
class Ran:
    outcome: ExchangeOutcome
    log: list[Event]

    def of(self, kind: type[Event]) -> list:
        return [event for event in self.log if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        """The data plane's messages."""
        sent = [event for event in self.of(Message) if event.author is Author.DATA_PLANE]
        return [str(ProcessingRequest.FromString(event.raw).WhichOneof("request")) for event in sent]


async def exchange(
    address: str | Channel,
    request: HttpRequest = POST,
    config: ProxyConfig = FDS,
    upstream: Upstream = OK,
    *,
    stimulus: Stimulus | None = None,
    pace: Pace | None = None,
) -> Ran:
    log: list[Event] = []
    recorder = Recorder()
    recorder.listen(lambda entry: log.append(from_json(to_json(entry)).event))
    channel = Channel(address) if isinstance(address, str) else address
    try:
        outcome = await run_exchange(
            channel, request, config, stimulus or Stimulus(), upstream, recorder, "x1", pace=pace, note={"n": 1}
        )
    finally:
        if isinstance(address, str):
            await channel.close()
    assert all(event.exchange == "x1" for event in log)
    assert len([event for event in log if isinstance(event, ExchangeOpened)]) == 1
    return Ran(outcome, log)


# -- the plain case, in every mode and with every ending ---------------------------------------------------------------


@each_ending
@each_mode
async def test_a_request_goes_to_the_endpoint_that_the_epp_picked(config: ProxyConfig, ending: Ending) -> None:
    async with plain() as model, grpc_epp(model.address) as epp:
        ran = await exchange(epp, POST, replace(config, ending=ending), HttpUpstream())
        assert (ran.outcome.status, ran.outcome.body, ran.outcome.complete) == (200, b"fine", True)
        assert ran.outcome.attempts == (model.address,)
        (headers, body, _) = model.requests[0]
        assert body == POST.body
        assert headers[KEY.encode()] == model.address.encode()
        assert headers[b"host"] == b"gateway.example"
        assert (b"content-length" in headers) is (config is BUFFERED)
        (opened,) = ran.of(ExchangeOpened)
        assert (opened.request_body_mode, opened.ending, opened.note) == (
            config.request_body_mode.name,
            ending.value,
            {"n": 1},
        )
        (asked,), (answered,) = ran.of(UpstreamRequest), ran.of(UpstreamResponse)
        assert (asked.endpoint, asked.body, asked.attempt) == (model.address, POST.body, 1)
        assert (answered.outcome, answered.status, answered.body) == ("response", 200, b"fine")
        (got,) = ran.of(ClientResponse)
        assert (got.status, got.body, got.details, got.complete) == (200, b"fine", "via_upstream", True)
        (ended,) = ran.of(StreamEnded)
        if ending is Ending.ENVOY:
            assert (ended.how, ended.author, ended.code) == ("reset", Author.DATA_PLANE, 2)
            assert not ran.of(HalfClosed)
        else:
            assert (ended.how, ended.status) == ("status", 0)
            (closed,) = ran.of(HalfClosed)
            assert closed.author is Author.DATA_PLANE
            assert {wait.outcome for wait in ran.of(Wait)} <= {"met"}  # none if the EPP ends before the wait begins


async def test_an_epp_that_does_not_end_is_left_after_the_quiet_window() -> None:
    async def silent_at_the_end(stream) -> None:
        answer = Plain("127.0.0.1:9")
        while (raw := await stream.recv()) is not None:
            stream.send(answer(ProcessingRequest.FromString(raw)).SerializeToString())
        await asyncio.Event().wait()

    async with own_epp(silent_at_the_end) as epp:
        for ending in (Ending.DRAIN, Ending.HALF_CLOSE):
            config = replace(FDS, ending=ending, quiet_window=0.02)
            ran = await exchange(epp, POST, config, pace=Pace(ending_timeout=0.02))
            (wait,) = ran.of(Wait)
            assert wait.outcome == "expired"
            assert ran.of(StreamEnded)[0].how == "reset"


async def test_a_drained_stream_shows_what_comes_after_the_end() -> None:
    async with own_epp(acting(*[lambda s: s.send(immediate(503, b"no"))] * 2)) as epp:
        ran = await exchange(epp, POST, replace(FDS, ending=Ending.DRAIN))
        assert (ran.outcome.status, ran.outcome.body) == (503, b"no")
        assert len([event for event in ran.of(Message) if event.author is Author.EPP]) == 2


# -- model servers -----------------------------------------------------------------------------------------------------


@each_mode
async def test_trailers_travel_both_ways(config: ProxyConfig) -> None:
    async with events(b"one", trailers=((b"x-tr", b"yes"),)) as model, grpc_epp(model.address) as epp:
        ran = await exchange(epp, replace(POST, trailers=((b"x-rt", b"1"),)), config, HttpUpstream())
        assert model.requests[0][2] == [(b"x-rt", b"1")]
        assert ran.of(UpstreamRequest)[0].trailers == ((b"x-rt", b"1"),)
        assert ran.of(ClientResponse)[0].trailers == ((b"x-tr", b"yes"),)
        assert "request_trailers" in ran.kinds
        assert ran.kinds[-1] == "response_trailers"


@pytest.mark.parametrize("config", [FDS, STREAMED], ids=["fds", "streamed"])
async def test_events_stream_through_the_epp_one_by_one(config: ProxyConfig) -> None:
    """In lock-step the next event leaves only when the last has come back: the server writes all at once."""
    pieces = (b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n")
    async with events(*pieces) as model, grpc_epp(model.address) as epp:
        ran = await exchange(epp, POST, config, HttpUpstream(), pace=Pace(lock_step=True))
        assert ran.outcome.body == b"".join(pieces)
        waits = [(wait.what, wait.outcome) for wait in ran.of(Wait)]
        assert waits == [(f"echo of response body through byte {through}", "met") for through in (9, 18, 32)]
        sent = [e for e in ran.log if isinstance(e, Message) and e.author is Author.DATA_PLANE]
        bodies = [ProcessingRequest.FromString(event.raw).response_body.body for event in sent]
        assert [body for body in bodies if body] == list(pieces)


async def test_an_epp_that_holds_events_back_makes_the_waits_expire() -> None:
    held: list[ProcessingRequest] = []

    def holding(message: ProcessingRequest, answer: Plain) -> ProcessingResponse | None:
        if message.WhichOneof("request") != "response_body":
            return answer(message)
        held.append(message)
        if not message.response_body.end_of_stream:
            return None
        body = b"".join(one.response_body.body for one in held)
        whole = ProcessingRequest()
        whole.response_body.body, whole.response_body.end_of_stream = body, True
        return answer(whole)

    async with grpc_epp("127.0.0.1:9", holding) as epp:
        pace = Pace(lock_step=True, echo_timeout=0.02)
        ran = await exchange(epp, POST, FDS, ScriptedUpstream(sse_reply(b"1", b"2")), pace=pace)
        assert ran.outcome.body == b"data: 1\n\ndata: 2\n\n"
        assert [wait.outcome for wait in ran.of(Wait)] == ["expired"]  # the first says it; no other is waited for


async def test_an_epp_that_rewrites_events_meets_the_waits() -> None:
    def rewriting(message: ProcessingRequest, answer: Plain) -> ProcessingResponse | None:
        if message.WhichOneof("request") == "response_body":
            message.response_body.body = message.response_body.body.replace(b"long", b"s")
        return answer(message)

    async with grpc_epp("127.0.0.1:9", rewriting) as epp:
        upstream = ScriptedUpstream(sse_reply(b"long 1", b"long 2"))
        ran = await exchange(epp, POST, FDS, upstream, pace=Pace(lock_step=True))
        assert ran.outcome.body == b"data: s 1\n\ndata: s 2\n\n"
        assert [wait.outcome for wait in ran.of(Wait)] == ["met", "met"]


async def test_a_connection_that_stands_is_not_given_up_for_a_timer_that_ran_first() -> None:
    """As after a standstill of our process: here the time is over at once, and the peer is there."""

    async with plain() as model, grpc_epp(model.address) as epp:
        ran = await exchange(epp, POST, FDS, HttpUpstream(connect_timeout=0))
    assert (ran.outcome.status, ran.outcome.body) == (200, b"fine")


async def test_a_connection_that_comes_to_stand_when_the_attempt_is_given_up_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writers: list[asyncio.StreamWriter] = []

    async def connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await connect(host, port)
        writers.append(writer)
        attempt.abort()
        return reader, writer

    connect = asyncio.open_connection
    monkeypatch.setattr(asyncio, "open_connection", connected)
    async with plain() as model:
        attempt = HttpUpstream().open(OpenUpstream(1, model.address, [], b"", None, end=True), AsyncMock())
        await attempt.wait_closed()
        assert [writer.is_closing() for writer in writers] == [True]


@each_mode
async def test_the_list_is_walked_on_refusal_and_503(config: ProxyConfig) -> None:
    dead = await nobody()
    async with plain(503, b"busy") as busy, plain() as model:
        async with grpc_epp(f"{dead},{busy.address},{model.address}") as epp:
            ran = await exchange(epp, POST, config, HttpUpstream())
        assert ran.outcome.attempts == (dead, busy.address, model.address)
        assert (ran.outcome.status, ran.outcome.body) == (200, b"fine")
        outcomes = [(one.outcome, one.status) for one in ran.of(UpstreamResponse)]
        assert outcomes == [("connect-failed", None), ("response", 503), ("response", 200)]
        assert ran.of(UpstreamRequest)[-1].body == POST.body
        last = [e for e in ran.of(Message) if e.author is Author.DATA_PLANE][-1]
        fields = ProcessingRequest.FromString(last.raw).metadata_context.filter_metadata["envoy.lb"].fields
        assert fields["x-gateway-destination-endpoint-served"].string_value == model.address


async def test_a_model_server_that_hangs_up_is_a_reset() -> None:
    async def hang_up(http: h11.Connection, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with ModelServer(hang_up) as model, grpc_epp(model.address) as epp:
        ran = await exchange(epp, POST, replace(FDS, num_retries=1), HttpUpstream())
        assert (ran.outcome.status, len(ran.outcome.attempts)) == (503, 2)
        assert {one.outcome for one in ran.of(UpstreamResponse)} == {"reset"}


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_a_connection_that_is_reset_as_it_is_made_is_a_reset(
    monkeypatch: pytest.MonkeyPatch, loop: Callable[[Coroutine[Any, Any, None]], None]
) -> None:
    def reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async def connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As where our task gets its turn only after the reset has arrived."""
        reader, writer = await connect(host, port)
        await until(writer.is_closing)
        return reader, writer

    async def run() -> None:
        async with await asyncio.start_server(reset, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            seen = AsyncMock()
            await HttpUpstream().open(OpenUpstream(1, f"{host}:{port}", [], b"", None, end=True), seen).wait_closed()
            assert seen.mock_calls == [call.failed(1, "reset")]

    connect = asyncio.open_connection
    monkeypatch.setattr(asyncio, "open_connection", connected)
    loop(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("upstream", [HttpUpstream(), OK])
async def test_an_error_of_ours_in_an_attempt_is_raised_and_is_no_model_server_that_hangs(
    monkeypatch: pytest.MonkeyPatch, upstream: Upstream
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(Machine, "upstream_headers", fails)
    async with plain() as model, grpc_epp(model.address) as epp:
        with pytest.raises(RuntimeError, match="ours"):
            await exchange(epp, POST, FDS, upstream, pace=Pace(deadline=60))


@pytest.mark.parametrize("pace", [Pace(deadline=0.1), Pace(deadline=60)], ids=["deadline", "message-timeout"])
async def test_an_error_of_ours_as_a_wait_runs_out_is_raised_and_no_exchange_without_end(pace: Pace) -> None:
    def fails(entry: Entry) -> None:
        if isinstance(entry.event, Wait):
            raise RuntimeError("ours")

    async def silent(stream) -> None:
        while await stream.recv() is not None:
            pass

    recorder = Recorder()
    recorder.listen(fails)
    async with own_epp(silent) as epp:
        channel, config = Channel(epp), replace(BUFFERED, message_timeout=0.1 if pace.deadline > 1 else 60)
        try:
            with pytest.raises(RuntimeError, match="ours"):
                await run_exchange(channel, POST, config, Stimulus(), OK, recorder, "x1", pace=pace)
        finally:
            await channel.close()


@pytest.mark.parametrize("length", [b"3", b"99"])
async def test_a_wrong_content_length_of_the_epp_reaches_the_model_server(length: bytes) -> None:
    def lying(message: ProcessingRequest, answer: Plain) -> ProcessingResponse | None:
        found = answer(message)
        if found is not None and found.HasField("request_headers"):
            headers = found.request_headers.response.header_mutation.set_headers
            headers.append(set_header("content-length", length))
        return found

    async with plain() as model, grpc_epp(model.address, lying) as epp:
        pace = Pace(deadline=0.3 if length == b"99" else 10)
        ran = await exchange(epp, POST, replace(BUFFERED, num_retries=0), HttpUpstream(), pace=pace)
        if length == b"3":
            assert (ran.outcome.status, model.requests[0][1]) == (200, b'{"m')
        else:
            assert (ran.outcome.status, model.requests) == (None, [])
            assert ran.outcome.expired == "response of the model server"


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
async def test_requests_without_a_body(method: str) -> None:
    async def head(http: h11.Connection, writer: asyncio.StreamWriter) -> None:
        writer.write(http.send(h11.Response(status_code=200, headers=[("content-length", "4")])))
        if method != "HEAD":
            writer.write(http.send(h11.Data(data=b"fine")))
        writer.write(http.send(h11.EndOfMessage()))

    async with ModelServer(head) as model, grpc_epp(model.address) as epp:
        ran = await exchange(epp, HttpRequest(method=method), FDS, HttpUpstream())
        assert ran.outcome.body == (b"" if method == "HEAD" else b"fine")
        assert ran.kinds[:2] == ["request_headers", "response_headers"]
        assert (len(ran.kinds) == 2) is (method == "HEAD")
        assert model.requests[0][0].get(b"content-length") == (b"0" if method == "POST" else None)


# -- scripted model servers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "status", "outcomes"),
    [
        (UpstreamReply(fail="connect-failed"), 503, ["connect-failed"] * 4),
        (UpstreamReply(fail="reset"), 503, ["reset"] * 4),
        (UpstreamReply(status=503), 503, ["response"] * 4),
        (UpstreamReply(status=204), 204, ["response"]),
        (UpstreamReply(body=(b"a", b"b"), reset_after=1), 200, ["reset"]),
        (UpstreamReply(body=(b"a",), reset_after=1), 200, ["reset"]),
    ],
)
async def test_failures_of_scripted_model_servers(reply: UpstreamReply, status: int, outcomes: list[str]) -> None:
    async with grpc_epp("127.0.0.1:9") as epp:
        config = replace(FDS, pool=("127.0.0.1:9",))
        ran = await exchange(epp, POST, config, ScriptedUpstream(reply), pace=Pace(lock_step=True))
        assert ran.outcome.status == status
        assert [one.outcome for one in ran.of(UpstreamResponse)] == outcomes
        assert ran.outcome.complete is (reply.reset_after is None)


@pytest.mark.parametrize(
    ("reply", "framing", "told"),
    [
        (UpstreamReply(), (b"content-length", b"0"), []),
        (UpstreamReply(body=(b"",)), (b"transfer-encoding", b"chunked"), [(b"", True)]),
        (UpstreamReply(body=(b"a",)), (b"content-length", b"1"), [(b"a", False), (b"", True)]),
        (UpstreamReply(body=(b"a",), coalesced=True), (b"content-length", b"1"), [(b"a", True)]),
        (UpstreamReply(body=(b"a", b"b"), coalesced=True), (b":status", b"200"), [(b"a", False), (b"b", True)]),
    ],
    ids=["no body", "no byte", "a piece", "a piece with the end", "a last piece with the end"],
)
async def test_how_a_scripted_response_ends(
    reply: UpstreamReply, framing: tuple[bytes, bytes], told: list[tuple[bytes, bool]]
) -> None:
    seen: list[tuple[bytes, bool]] = []
    ended: list[bool] = []

    def listening(message: ProcessingRequest, plain: Plain) -> ProcessingResponse:
        if message.HasField("response_headers"):
            ended.append(message.response_headers.end_of_stream)
        if message.HasField("response_body"):
            seen.append((message.response_body.body, message.response_body.end_of_stream))
        return plain(message)

    async with grpc_epp("127.0.0.1:9", listening) as epp:
        ran = await exchange(epp, POST, FDS, ScriptedUpstream(reply))
        assert (ended, seen) == ([not told], told)
        assert framing in reply.header_list
        assert ran.outcome.complete


async def test_a_response_before_the_request_is_complete() -> None:
    async with grpc_epp("127.0.0.1:9") as epp:
        request = replace(POST, body=(Chunk(data=b"one", await_echo=True), Chunk(data=b"two", await_echo=True)))
        early = ScriptedUpstream(replace(json_reply({"error": "too long"}, status=413), early=True))
        ran = await exchange(epp, request, FDS, early)
        assert (ran.outcome.status, ran.outcome.body) == (413, b'{"error": "too long"}')
        assert b"two" not in ran.of(UpstreamRequest)[0].body


async def test_request_chunks_wait_for_their_echo() -> None:
    async with grpc_epp("127.0.0.1:9") as epp:
        request = replace(POST, body=(Chunk(data=b"one", await_echo=True), Chunk(data=b"two")), http=2)
        ran = await exchange(epp, request)
        (wait,) = ran.of(Wait)
        assert (wait.what, wait.outcome) == ("echo of request body through byte 3", "met")
        order = [type(event).__name__ for event in ran.log]
        messages = [i for i, e in enumerate(ran.log) if isinstance(e, Message) and e.author is Author.DATA_PLANE]
        assert messages[1] < order.index("Wait") < messages[2]


async def test_subset_hint_and_replies_by_endpoint() -> None:
    async with grpc_epp("127.0.0.2:9") as epp:
        stimulus = Stimulus(metadata=subset_hint(FDS, ["127.0.0.2:9"]))
        upstream = ScriptedUpstream({"127.0.0.2:9": json_reply({"pod": 2})})
        ran = await exchange(epp, POST, FDS, upstream, stimulus=stimulus)
        assert ran.outcome.body == b'{"pod": 2}'
        first = ProcessingRequest.FromString(ran.of(Message)[0].raw)
        assert "envoy.lb.subset_hint" in first.metadata_context.filter_metadata


# -- errors of the EPP -------------------------------------------------------------------------------------------------


@each_ending
@each_mode
async def test_an_immediate_response_is_what_the_client_gets(config: ProxyConfig, ending: Ending) -> None:
    def refusing(message: ProcessingRequest, answer: Plain) -> ProcessingResponse | None:
        if message.WhichOneof("request") == "request_headers":
            return ProcessingResponse.FromString(immediate(429, b"slow down", "shed"))
        return None

    async with grpc_epp("", refusing) as epp:
        ran = await exchange(epp, POST, replace(config, ending=ending))
        assert (ran.outcome.status, ran.outcome.body, ran.outcome.details) == (429, b"slow down", "shed")
        assert not ran.of(UpstreamRequest)


async def test_a_body_above_the_buffer_is_a_413_that_the_epp_sees() -> None:
    async with grpc_epp("127.0.0.1:9") as epp:
        ran = await exchange(epp, HttpRequest(body=b"x" * 1_100_000), BUFFERED)
        assert (ran.outcome.status, ran.outcome.body) == (413, b"Payload Too Large")
        assert ran.kinds == ["request_headers", "response_headers", "response_body"]


@pytest.mark.parametrize("http", [1, 2])
async def test_a_large_body_passes_whole(http: int) -> None:
    body = bytes(range(256)) * 10_000
    async with plain() as model, grpc_epp(model.address) as epp:
        ran = await exchange(epp, HttpRequest(body=body, http=http), FDS, HttpUpstream())
        assert ran.outcome.status == 200
        assert model.requests[0][1] == body
        assert len(ran.kinds) > (100 if http == 2 else 4)


@pytest.mark.parametrize(
    ("end", "details"),
    [
        (lambda stream: stream.end(14, "gone"), "ext_proc_error_gRPC_error_14{gone}"),
        (lambda stream: stream.reset(8), "ext_proc_error_gRPC_error_13{reset}"),
        (lambda stream: stream.respond_http(404), "ext_proc_error_gRPC_error_12{malformed}"),
        (lambda stream: stream.send(b"\xff\xff"), "ext_proc_error_gRPC_error_13{via_upstream}"),
        (lambda stream: stream.send_data(b"\x07\0\0\0\x01x"), "ext_proc_error_gRPC_error_13{malformed}"),
    ],
    ids=["status", "reset", "not grpc", "not protobuf", "not framed"],
)
async def test_a_broken_stream_is_a_500(end, details: str) -> None:
    async def breaking(stream) -> None:
        await stream.recv()
        end(stream)
        await asyncio.Event().wait()

    async with own_epp(breaking) as epp:
        ran = await exchange(epp)
        assert (ran.outcome.status, ran.outcome.details) == (500, details)
        assert ran.outcome.stream is not None
        assert ran.of(StreamEnded)


async def test_an_unreachable_epp_is_a_500() -> None:
    address = await nobody()
    ran = await exchange(address)
    assert (ran.outcome.status, ran.outcome.details) == (500, "ext_proc_error_gRPC_error_14{connect_failed}")
    assert ran.of(StreamEnded)[0].how == "lost"
    assert not ran.of(StreamOpened)
    allowing = await exchange(address, POST, replace(BUFFERED, failure_mode_allow=True, pool=("127.0.0.1:9",)))
    assert allowing.outcome.status == 200


async def test_message_timeout_is_a_504_in_lock_step_modes() -> None:
    async def mute(stream) -> None:
        await stream.recv()
        await asyncio.Event().wait()

    async with own_epp(mute) as epp:
        ran = await exchange(epp, POST, replace(BUFFERED, message_timeout=0.02))
        assert (ran.outcome.status, ran.outcome.expired) == (504, "")
        ended = ran.of(StreamEnded)[0]
        assert (ended.how, len(ran.of(HalfClosed))) == ("reset", 1)


@pytest.mark.parametrize("silent_from", ["request_headers", "request_body"])
async def test_an_answer_that_never_comes_expires(silent_from: str) -> None:
    async def mute(stream) -> None:
        answer = Plain("127.0.0.1:9")
        while (raw := await stream.recv()) is not None:
            message = ProcessingRequest.FromString(raw)
            if message.WhichOneof("request") != silent_from and silent_from != "request_headers":
                stream.send(answer(message).SerializeToString())

    async with own_epp(mute) as epp:
        ran = await exchange(epp, pace=Pace(deadline=0.5))
        (wait,) = ran.of(Wait)
        assert (wait.what, wait.outcome, wait.seconds) == (f"answer to {silent_from}", "expired", 0.5)
        assert (ran.outcome.expired, ran.outcome.status) == (f"answer to {silent_from}", None)
        (got,) = ran.of(ClientResponse)
        assert (got.status, got.complete) == (None, False)


async def test_unsent_bytes_put_off_the_deadline() -> None:
    """The EPP's flow control lets in 64 KiB each time that the deadline comes, and it answers when it has the body."""
    give: list[Callable[[], None]] = []

    class Looked(Pace):
        def left(self, began: float, progress: float, now: float) -> float:
            give[0]()
            return Pace.left(self, began, progress, now)

    async def takes_pieces(stream) -> None:
        def more() -> None:
            stream.transport.hold(stream.stream_id, False)
            stream.transport.hold(stream.stream_id, True)

        give.append(more)
        stream.transport.hold(stream.stream_id, True)
        taken = []
        while not taken or not taken[-1].request_body.end_of_stream:
            taken.append(ProcessingRequest.FromString(await stream.recv()))
        stream.send(immediate(503, b"no"))

    async with own_epp(takes_pieces, ((Setting.INITIAL_WINDOW_SIZE, 65_535),)) as epp:
        ran = await exchange(epp, replace(POST, body=b"x" * 150_000), pace=Looked(deadline=0.2))
        assert (ran.outcome.expired, ran.outcome.status) == ("", 503)


async def test_a_peer_that_makes_no_progress_expires() -> None:
    async def takes_one_window(stream) -> None:
        stream.transport.hold(stream.stream_id, True)
        while await stream.recv() is not None:
            pass

    pace = Pace(deadline=0.1)
    async with own_epp(takes_one_window, ((Setting.INITIAL_WINDOW_SIZE, 65_535),)) as epp:
        ran = await exchange(epp, replace(POST, body=b"x" * 150_000), pace=pace)
        assert ran.outcome.expired == "answer to request_headers"
    async with grpc_epp("127.0.0.1:9") as epp:
        ran = await exchange(epp, POST, FDS, ScriptedUpstream(UpstreamReply(fail="never")), pace=pace)
        assert ran.outcome.expired == "response of the model server"


async def test_no_deadline_runs_while_the_request_is_held() -> None:
    async with grpc_epp("127.0.0.1:9") as epp:
        deadline = 0.5
        held = asyncio.Event()

        async def hold() -> None:
            asyncio.get_running_loop().call_later(1.2 * deadline, held.set)
            await held.wait()

        request = replace(POST, body=(Chunk(data=b"one"), Chunk(data=b"two")))
        ran = await exchange(epp, request, FDS, pace=Pace(deadline=deadline, hold=hold))
        assert (ran.outcome.expired, ran.outcome.status) == ("", 200)
        assert held.is_set()


# -- the client goes away ----------------------------------------------------------------------------------------------


@each_ending
@pytest.mark.parametrize(
    "abort",
    [
        Abort(at="request-headers"),
        Abort(at="request-body", after=1),
        Abort(at="request"),
        Abort(at="destination"),
        Abort(at="response-headers"),
        Abort(at="response-body", after=2),
    ],
    ids=lambda abort: abort.at,
)
async def test_a_client_can_go_at_any_point(abort: Abort, ending: Ending) -> None:
    async with grpc_epp("127.0.0.1:9") as epp:
        request = replace(POST, body=(Chunk(data=b"one"), Chunk(data=b"two")), abort=abort)
        upstream = ScriptedUpstream(sse_reply(b"1", b"2", b"3"))
        ran = await exchange(epp, request, replace(FDS, ending=ending), upstream, pace=Pace(lock_step=True))
        assert ran.outcome.aborted
        assert not ran.outcome.complete
        (aborted,) = ran.of(ClientAborted)
        assert aborted.point == abort.at
        at = ran.log.index(aborted)
        assert not [e for e in ran.log[at:] if isinstance(e, Message) and e.author is Author.DATA_PLANE]
        assert [e.author for e in ran.of(HalfClosed)] == [Author.DATA_PLANE]
        assert ran.of(StreamEnded)
        began = abort.at.startswith("response")
        assert [(one.status, one.complete) for one in ran.of(ClientResponse)] == [(200, False)] * began
        if abort.at == "request-headers":
            assert ran.kinds == ["request_headers"]


async def test_a_client_that_goes_leaves_no_connection_to_the_model_server() -> None:
    async def forever(_: int) -> None:
        await hold.wait()

    hold = asyncio.Event()
    async with events(b"data: 1\n\n", then=forever) as model, grpc_epp(model.address) as epp:
        request = replace(POST, abort=Abort(at="response-body"))
        ran = await exchange(epp, request, FDS, HttpUpstream())
        assert ran.outcome.aborted
        assert ran.of(UpstreamResponse)[0].body == b"data: 1\n\n"
        hold.set()
        await model.done.wait()


async def test_many_exchanges_share_a_connection() -> None:
    async with grpc_epp("127.0.0.1:9") as epp:
        channel = await dial(epp)
        try:
            ran = await asyncio.gather(*(exchange(channel, replace(POST, body=b"%d" % number)) for number in range(30)))
        finally:
            await channel.close()
        assert {one.outcome.status for one in ran} == {200}
        assert [one.of(UpstreamRequest)[0].body for one in ran] == [b"%d" % number for number in range(30)]
