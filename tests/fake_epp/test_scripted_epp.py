"""The scripted EPP towards data planes: the fake proxy, a bare client, grpcio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import grpc as grpcio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import Tape

from conformance.evidence.episode import Context, Episode
from conformance.judges import judge
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Verdict
from ext_proc import grpc
from ext_proc.channel import Channel, dial
from ext_proc.headers import header_map
from ext_proc.health import health_check
from ext_proc.messages import HttpBody, HttpHeaders, ProcessingRequest, ProcessingResponse, ProtocolConfiguration
from ext_proc.record import Author, Message, StreamEnded, StreamOpened, UpstreamRequest
from fake_epp import (
    Answer,
    BreakConnection,
    Bytes,
    Delay,
    End,
    EndWithoutTrailers,
    FakeEpp,
    GoAway,
    HttpAnswer,
    Immediate,
    Match,
    Pick,
    Raw,
    Script,
    ScriptRule,
    SetHeader,
    answers_immediately,
    closes,
    does,
    open_epp,
    picks,
    resets,
    stays_silent,
)
from fake_proxy.client import Chunk, HttpRequest
from fake_proxy.config import BodyMode, Ending, ProxyConfig
from fake_proxy.exchange import ExchangeOutcome, run_exchange
from fake_proxy.pace import Pace
from fake_proxy.scripted import ScriptedUpstream, UpstreamReply, sse_reply
from fake_proxy.stimulus import Stimulus

A, B, C = "127.0.0.1:8001", "127.0.0.1:8002", "127.0.0.1:8003"
POST = HttpRequest(
    body=(Chunk(data=b'{"model":"m",'), Chunk(data=b'"prompt":"hi"}')),
    headers=((b"content-type", b"application/json"),),
)
SSE = ScriptedUpstream(sse_reply(b"one", b"two", b"[DONE]"))
NOBODY = ScriptedUpstream({})
MODES = [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED, BodyMode.STREAMED, BodyMode.NONE]
each_mode = pytest.mark.parametrize("mode", MODES, ids=str)


@contextlib.asynccontextmanager
async def playing(
    *rules: ScriptRule, default: Script | None = None, **options
) -> AsyncIterator[tuple[FakeEpp, Channel]]:
    epp = await open_epp(rules=rules, default=default, **options)
    channel = await dial(epp.address)
    try:
        yield epp, channel
    finally:
        await channel.close()
        await epp.close()


async def exchange(
    channel: Channel,
    config: ProxyConfig | None = None,
    *,
    request: HttpRequest = POST,
    upstream: ScriptedUpstream = SSE,
    tape: Tape | None = None,
    deadline: float = 10.0,
) -> ExchangeOutcome:
    tape = tape or Tape()
    return await run_exchange(
        channel,
        request,
        config or ProxyConfig(),
        Stimulus(),
        upstream,
        tape.recorder,
        "x",
        pace=Pace(deadline=deadline),
    )


async def play(script: Script, config: ProxyConfig | None = None, **options) -> ExchangeOutcome:
    """One exchange with an EPP that plays `script`."""
    async with playing(default=script) as (_, channel):
        return await exchange(channel, config, **options)


# -- right answers -----------------------------------------------------------------------------------------------------


@each_mode
@pytest.mark.parametrize("decides", ["headers", "end"])
@pytest.mark.parametrize("ending", [Ending.ENVOY, Ending.DRAIN], ids=str)
async def test_a_right_script_breaks_no_rule(mode: BodyMode, decides, ending: Ending) -> None:
    tape = Tape()
    async with playing(default=picks(A, decides=decides)) as (_, channel):
        config = replace(ProxyConfig().with_modes(mode), ending=ending)
        outcome = await exchange(channel, config, tape=tape)
        assert (outcome.status, outcome.attempts) == (200, (A,))
        assert outcome.body == b"data: one\n\ndata: two\n\ndata: [DONE]\n\n"
    context = Context(version="1.0.0", scenario="scripted")
    findings = judge(Episode(id="x", entries=tuple(tape.entries)), context, Catalogue.load())
    assert [one for one in findings if one.verdict in (Verdict.FAIL, Verdict.ERROR)] == []
    assert {one.requirement for one in findings if one.verdict is Verdict.PASS} >= {"EPP-DEST-01", "EPP-DEST-02"}


@each_mode
async def test_trailers_and_requests_without_body_are_answered(mode: BodyMode) -> None:
    trailing = replace(POST, trailers=((b"x-sum", b"1"),))
    reply = ScriptedUpstream(UpstreamReply(body=(b"a", b"b"), trailers=((b"x-done", b"1"),)))
    config = ProxyConfig().with_modes(mode)
    assert (await play(picks(A), config, request=trailing, upstream=reply)).status == 200
    assert (await play(picks(A), config, request=HttpRequest(method="GET", path="/v1/models"))).status == 200


@pytest.mark.parametrize("early", [False, True])
@each_mode
async def test_a_body_is_replaced_where_it_waits_for_the_answer_to_the_headers(mode: BodyMode, early: bool) -> None:
    tape = Tape()
    config = replace(ProxyConfig().with_modes(mode), send_body_without_waiting=early)
    replacing = Script(pick=Pick(endpoints=(A,)), replaces={"request": b"new", "response": b"other"})
    outcome = await play(replacing, config, tape=tape)
    own = b"".join(chunk.data for chunk in POST.chunks)
    waits = mode is not BodyMode.FULL_DUPLEX_STREAMED and not early
    assert outcome.status == 200
    assert (outcome.body == b"other") is waits
    assert [e.body for e in tape.of("x") if isinstance(e, UpstreamRequest)] == [b"new" if waits else own]


@pytest.mark.parametrize("chunked", [True, False])
@each_mode
async def test_a_body_is_cleared_in_lock_step_without_content_length(mode: BodyMode, chunked: bool) -> None:
    tape = Tape()
    request = replace(POST, chunked=chunked)
    clearing = Script(pick=Pick(endpoints=(A,)), clears=True)
    outcome = await play(clearing, ProxyConfig().with_modes(mode), tape=tape, request=request)
    own = b"".join(chunk.data for chunk in POST.chunks)
    cleared = chunked and mode in (BodyMode.BUFFERED, BodyMode.STREAMED)
    assert outcome.status == 200
    assert [e.body for e in tape.of("x") if isinstance(e, UpstreamRequest)] == [b"" if cleared else own]


@pytest.mark.parametrize("tells_length", [True, False])
@each_mode
async def test_a_body_gets_another_length_in_full_duplex_and_buffered_with_its_length(
    mode: BodyMode, tells_length: bool
) -> None:
    tape = Tape()
    own = b"".join(chunk.data for chunk in POST.chunks)
    longer = Script(pick=Pick(endpoints=(A,)), edits=(own[-1:], b"longer"), tells_length=tells_length)
    outcome = await play(longer, ProxyConfig().with_modes(mode), tape=tape, request=POST)
    grown = mode is BodyMode.FULL_DUPLEX_STREAMED or (mode is BodyMode.BUFFERED and tells_length)
    assert outcome.status == 200
    (arrived,) = (e for e in tape.of("x") if isinstance(e, UpstreamRequest))
    assert arrived.body == (own.replace(own[-1:], b"longer") if grown else own)


async def test_a_list_is_walked_in_order() -> None:
    assert (await play(picks(A, B, C), upstream=NOBODY)).attempts[:3] == (A, B, C)
    outcome = await play(picks(A, B, C), upstream=ScriptedUpstream({B: UpstreamReply(body=(b"from b",))}))
    assert (outcome.attempts, outcome.body) == ((A, B), b"from b")


async def test_a_large_body_comes_back_in_chunks() -> None:
    body = bytes(range(250)) * 2000
    got: list[bytes] = []

    def look(opening) -> UpstreamReply:
        return UpstreamReply(body=(b"ok",))

    tape = Tape()
    async with playing(default=picks(A, decides="end")) as (_, channel):
        request = replace(POST, body=body)
        outcome = await exchange(channel, request=request, upstream=ScriptedUpstream(look), tape=tape)
        assert outcome.status == 200
    for event in tape.of("x"):
        if isinstance(event, Message) and event.author is Author.EPP:
            answer = ProcessingResponse.FromString(event.raw)
            if answer.WhichOneof("response") == "request_body":
                got.append(answer.request_body.response.body_mutation.streamed_response.body)
    assert b"".join(got) == body
    assert max(map(len, got)) <= 64 * 1024


@pytest.mark.parametrize(
    ("script", "header", "metadata"),
    [
        (picks(A, B), f"{A},{B}", f"{A},{B}"),
        (picks(A, header=False), None, A),
        (picks(A, metadata=False), A, None),
        (picks(A, header=B), B, A),
        (picks(A, metadata="nonsense"), A, "nonsense"),
    ],
)
async def test_header_and_metadata_name_the_scripted_pick(
    script: Script, header: str | None, metadata: str | None
) -> None:
    (answer,) = await answers_to(script, headers_message())
    options = answer.request_headers.response.header_mutation.set_headers
    assert [option.header.raw_value.decode() for option in options] == ([header] if header else [])
    fields = answer.dynamic_metadata.fields
    said = fields["envoy.lb"].struct_value.fields["x-gateway-destination-endpoint"].string_value if fields else None
    assert said == metadata


# -- a bare data plane -------------------------------------------------------------------------------------------------


def headers_message(*pairs: tuple[bytes, bytes], mode: int = 4, end: bool = False) -> bytes:
    headers = HttpHeaders(headers=header_map(((b":path", b"/v1/x"), *pairs)), end_of_stream=end)
    config = ProtocolConfiguration(request_body_mode=mode, response_body_mode=mode)
    return ProcessingRequest(request_headers=headers, protocol_config=config).SerializeToString()


def body_message(body: bytes, *, end: bool, side: str = "request") -> bytes:
    return ProcessingRequest(**{f"{side}_body": HttpBody(body=body, end_of_stream=end)}).SerializeToString()


async def answers_to(script: Script, *messages: bytes) -> list[ProcessingResponse]:
    """All answers to `messages` on a stream that is half-closed after them."""
    found: list[ProcessingResponse] = []
    async with playing(default=script) as (_, channel):
        stream = await channel.open()
        for raw in messages:
            stream.send(raw)
        stream.half_close()
        while (raw := await stream.recv()) is not None:
            found.append(ProcessingResponse.FromString(raw))
        assert (await stream.wait_ended()).status == 0
    return found


async def test_every_change_of_an_answer_is_on_the_wire() -> None:
    said = Answer(
        set_headers=(
            SetHeader(name="x-one", value=b"1"),
            SetHeader(name="x-two", value=b"2", action=0, said_in="value"),
        ),
        remove_headers=("x-gone",),
        metadata={"other": {"n": 1, "list": ["a"]}},
        mode_override={"response_body_mode": 2},
        clear_route_cache=True,
        replaces=True,
        body=b"new",
        extra=b"\xf8\x07\x01",  # field 127
        picks=Pick(endpoints=(C,), namespace="mine", key="k", header_name="x-dest"),
    )
    (answer,) = await answers_to(does(request_headers=(said,)), headers_message())
    common = answer.request_headers.response
    one, two, dest = common.header_mutation.set_headers
    assert (one.header.key, one.header.raw_value, one.append_action) == ("x-one", b"1", 2)
    assert (two.header.value, two.header.raw_value, two.append_action) == ("2", b"", 0)
    assert (dest.header.key, dest.header.raw_value) == ("x-dest", C.encode())
    assert list(common.header_mutation.remove_headers) == ["x-gone"]
    assert (common.status, common.clear_route_cache, common.body_mutation.body) == (1, True, b"new")
    assert answer.mode_override.response_body_mode == 2
    assert answer.dynamic_metadata.fields["other"].struct_value.fields["n"].number_value == 1
    assert answer.dynamic_metadata.fields["mine"].struct_value.fields["k"].string_value == C
    assert answer.SerializeToString().endswith(b"\xf8\x07\x01")


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (Answer(form="none"), None),
        (Answer(form="clear"), "clear_body"),
        (Answer(form="body", body=b"z"), "body"),
        (Answer(form="streamed"), "streamed_response"),
        (Answer(), "streamed_response"),
    ],
)
async def test_bodies_are_said_in_any_form(act: Answer, expected: str | None) -> None:
    script = does(request_body=(act,), request_end=(act,))
    answers = await answers_to(script, headers_message(), body_message(b"abc", end=True))
    assert [one.WhichOneof("response") for one in answers] == ["request_headers", "request_body"]
    assert answers[1].request_body.response.body_mutation.WhichOneof("mutation") == expected


async def test_the_end_of_a_body_can_be_said_wrongly() -> None:
    script = does(request_body=(Answer(ends=True),), request_end=(Answer(ends=False), Answer(ends=True, body=b"")))
    answers = await answers_to(script, headers_message(), body_message(b"a", end=False), body_message(b"b", end=True))
    streamed = [one.request_body.response.body_mutation.streamed_response for one in answers[1:]]
    assert [(one.body, one.end_of_stream) for one in streamed] == [(b"a", True), (b"b", False), (b"", True)]


async def test_an_answer_of_another_kind_and_one_too_many() -> None:
    script = does(request_headers=(Answer(to="response_headers"), Answer(), Answer(to="request_trailers"), Answer()))
    kinds = [one.WhichOneof("response") for one in await answers_to(script, headers_message())]
    assert kinds == ["response_headers", "request_headers", "request_trailers", "request_headers"]


async def test_an_override_of_the_timeout() -> None:
    script = does(request_headers=(Answer(override_timeout=1.25), Answer()))
    first, second = await answers_to(script, headers_message())
    assert (first.override_message_timeout.seconds, first.override_message_timeout.nanos) == (1, 250_000_000)
    assert not second.HasField("override_message_timeout")


async def test_modes_come_from_the_script_where_the_data_plane_says_none() -> None:
    raw = ProcessingRequest(request_headers=HttpHeaders()).SerializeToString()
    buffered = Script(modes=("BUFFERED", "BUFFERED"))
    (_, body) = await answers_to(buffered, raw, body_message(b"abc", end=True))
    assert not body.request_body.response.HasField("body_mutation")
    (_, body) = await answers_to(Script(), raw, body_message(b"abc", end=True))
    assert body.request_body.response.body_mutation.streamed_response.body == b"abc"


async def test_half_close_is_a_moment() -> None:
    answers = await answers_to(does(half_close=(Immediate(code=500),)), headers_message())
    assert [one.WhichOneof("response") for one in answers] == ["request_headers", "immediate_response"]


@given(st.lists(st.binary(max_size=200_000), min_size=1, max_size=5), st.sampled_from(["headers", "end"]))
@settings(max_examples=20)
def test_any_body_comes_back_whole(chunks: list[bytes], decides) -> None:
    messages = [body_message(chunk, end=index == len(chunks) - 1) for index, chunk in enumerate(chunks)]
    answers = asyncio.run(answers_to(picks(A, decides=decides), headers_message(), *messages))
    streamed = [one.request_body.response.body_mutation.streamed_response for one in answers[1:]]
    assert b"".join(one.body for one in streamed) == b"".join(chunks)
    assert [one.end_of_stream for one in streamed] == [False] * (len(streamed) - 1) + [True]


async def test_many_messages_at_a_time_on_one_stream_hold_up_no_other() -> None:
    tape = Tape()
    async with playing(default=picks(A), recorder=tape.recorder) as (_, channel):
        long, short = await channel.open(), await channel.open()
        for message in (headers_message(), *[body_message(b"x", end=False)] * 200, body_message(b"", end=True)):
            long.send(message)
        short.send(headers_message(end=True))
        assert await short.recv() is not None
        for _ in range(202):
            assert await long.recv() is not None
    answers = [one.event for one in tape.entries if isinstance(one.event, Message) and one.event.author is Author.EPP]
    assert len({one.stream for one in answers}) == 2
    assert answers[-1].stream == answers[0].stream


@given(st.binary(max_size=300))
@settings(max_examples=40)
def test_the_server_survives_any_message(raw: bytes) -> None:
    async def main() -> None:
        async with playing(default=picks(A)) as (_, channel):
            stream = await channel.open()
            stream.send(raw, end=True)
            await stream.wait_ended()
            again = await channel.open()
            again.send(headers_message(), end=True)
            assert await again.recv() is not None

    asyncio.run(main())


# -- what a data plane makes of wrong ones -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "status", "details"),
    [
        (answers_immediately(429, b"busy"), 429, ""),
        (answers_immediately(503, headers=(SetHeader(name="retry-after", value=b"1"),)), 503, ""),
        (answers_immediately(None), 200, ""),
        (closes(14, "no"), 500, "ext_proc_error_gRPC_error_14{no}"),
        (resets(), 500, "ext_proc_error_gRPC_error_13{reset}"),
        (does(request_headers=(EndWithoutTrailers(),)), 500, "ext_proc_error_gRPC_error_2{malformed}"),
        (does(request_headers=(HttpAnswer(status=502),)), 500, "ext_proc_error_gRPC_error_14{malformed}"),
        (does(request_headers=(BreakConnection(),)), 500, "ext_proc_error_gRPC_error_14{lost}"),
        (does(request_headers=(Raw(message=b"\xff\xff"),)), 500, ""),
        (does(request_headers=(Bytes(data=b"\x01\x00\x00\x00\x00"),)), 500, "ext_proc_error_gRPC_error_13{malformed}"),
        (does(request_headers=(Answer(to="response_headers"),)), 500, ""),
        (does(pick=Pick(endpoints=(A,)), request_headers=(Answer(), Answer())), 500, ""),
    ],
)
async def test_the_fake_proxy_notices(script: Script, status: int, details: str) -> None:
    outcome = await play(script)
    assert outcome.status == status
    assert details in outcome.details


async def test_closing_with_status_0_lets_the_request_pass_and_silence_expires() -> None:
    outcome = await play(closes(), replace(ProxyConfig(), pool=(A,)))
    assert (outcome.status, outcome.attempts) == (200, (A,))
    assert (await play(stays_silent(), deadline=0.2)).expired == "answer to request_headers"


async def test_a_delay_runs_into_the_message_timeout() -> None:
    config = replace(ProxyConfig().with_modes(BodyMode.BUFFERED), message_timeout=0.05)
    assert (await play(does(request_headers=(Delay(seconds=5), Answer())), config)).status == 504
    assert (await play(does(pick=Pick(endpoints=(A,)), request_headers=(Delay(seconds=0.01), Answer())))).status == 200


async def test_a_goaway_moves_later_streams_to_another_connection() -> None:
    tape = Tape()
    script = does(pick=Pick(endpoints=(A,)), request_headers=(GoAway(debug=b"bye"), Answer()))
    async with playing(default=script) as (_, channel):
        for _ in range(2):
            assert (await exchange(channel, tape=tape)).status == 200
    opened = [event.connection for event in tape.of("x") if isinstance(event, StreamOpened)]
    assert opened == [1, 2]


# -- which script ------------------------------------------------------------------------------------------------------


async def test_scripts_are_chosen_by_request() -> None:
    rules = (
        ScriptRule(match=Match(nth=1), script=answers_immediately(401)),
        ScriptRule(match=Match(headers={"X-Case": "b*"}), script=answers_immediately(402)),
        ScriptRule(match=Match(path="/v1/emb*", method="POST"), script=answers_immediately(403)),
        ScriptRule(script=answers_immediately(404), times=1),
    )
    async with playing(*rules, default=answers_immediately(405)) as (epp, channel):
        requests = [
            POST,
            replace(POST, headers=((b"x-case", b"bad"),)),
            replace(POST, path="/v1/embeddings"),
            replace(POST, path="/v1/embeddings", method="PUT"),
            POST,
            replace(POST, headers=((b"x-case", b"a"),)),
        ]
        got = [(await exchange(channel, request=request)).status for request in requests]
        assert got == [401, 402, 403, 404, 405, 405]
        asked = await epp.wait_asked(6)
        assert [one.rule for one in asked] == [*rules, None, None]
        assert [one.number for one in asked] == [1, 2, 3, 4, 5, 6]
        assert (b":path", b"/v1/embeddings") in asked[2].headers
        epp.rules.insert(0, ScriptRule(script=answers_immediately(406)))
        assert (await exchange(channel)).status == 406


def test_unknown_moments_are_refused() -> None:
    with pytest.raises(ValueError, match="no moment 'request_header'; there are request_headers"):
        does(request_header=(End(),))


# -- the record --------------------------------------------------------------------------------------------------------


async def test_streams_are_recorded_under_the_name_of_the_request() -> None:
    mine, theirs = Tape(), Tape()
    async with playing(default=picks(A), recorder=mine.recorder, exchange_header="x-exchange") as (epp, channel):
        for name in (b"first", b"second"):
            request = replace(POST, headers=((b"x-exchange", name),))
            await exchange(channel, request=request, tape=theirs)
        await exchange(channel, tape=theirs)
        stream = await channel.open()
        stream.half_close()
        await stream.wait_ended()
        assert [one.exchange for one in epp.asked] == ["first", "second", "epp-3"]
    assert {entry.event.exchange for entry in mine.entries} == {"first", "second", "epp-3", "epp-4"}
    for author in Author:
        said = [e.event.raw for e in mine.entries if isinstance(e.event, Message) and e.event.author is author]
        heard = [e.event.raw for e in theirs.entries if isinstance(e.event, Message) and e.event.author is author]
        assert said == heard
    assert isinstance(mine.of("first")[0], StreamOpened)
    assert isinstance(mine.of("first")[-1], StreamEnded)
    assert mine.of("first")[-1].author is Author.DATA_PLANE
    assert [entry.seq for entry in mine.entries] == sorted(entry.seq for entry in mine.entries)


async def test_many_streams_at_once_keep_their_names_and_scripts() -> None:
    tape = Tape()
    rules = [
        ScriptRule(match=Match(headers={"x-exchange": f"r{n}"}), script=picks(f"10.0.0.{n}:80")) for n in range(40)
    ]
    async with playing(*rules, recorder=tape.recorder, exchange_header="x-exchange") as (_, channel):

        async def one(number: int) -> None:
            request = replace(POST, headers=((b"x-exchange", f"r{number}".encode()),))
            outcome = await exchange(channel, request=request)
            assert outcome.attempts == (f"10.0.0.{number}:80",)

        await asyncio.gather(*(one(number) for number in range(40)))
    for number in range(40):
        streams = {event.stream for event in tape.of(f"r{number}")}
        assert len(streams) == 1


async def test_health_is_scripted_too() -> None:
    async with playing(health={"": 1, "readiness": 2}) as (epp, channel):
        assert (await health_check(channel)).status == 1
        assert (await health_check(channel, "readiness")).status == 2
        assert (await health_check(channel, "nobody")).grpc_status == 5
        assert epp.health is not None
        epp.health["readiness"] = 1
        assert (await health_check(channel, "readiness")).status == 1
    async with playing() as (_, channel):
        assert (await health_check(channel)).grpc_status == grpc.UNIMPLEMENTED


async def test_grpcio_as_data_plane() -> None:
    async with playing(default=picks(A)) as (epp, _), grpcio.aio.insecure_channel(epp.address) as channel:
        call = channel.stream_stream(grpc.PROCESS.decode())()
        await call.write(headers_message(end=True))
        answer = ProcessingResponse.FromString(await call.read())
        assert answer.request_headers.response.header_mutation.set_headers[0].header.raw_value == A.encode()
        await call.done_writing()
        assert await call.code() is grpcio.StatusCode.OK
