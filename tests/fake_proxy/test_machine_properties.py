"""What holds for every split of a body, and for every EPP however wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_driver import (
    A,
    Driven,
    common,
    immediate,
    mutation,
    pick,
    request_body,
    request_headers,
    request_trailers,
    response_body,
    response_headers,
    response_trailers,
    set_header,
    streamed,
)

from ext_proc.messages import BodyMutation, ProcessingRequest, ProcessingResponse
from fake_proxy.client import Chunk, DataArrives, HttpRequest, Pause, arrivals
from fake_proxy.config import BodyMode, ProxyConfig

pieces = st.lists(st.binary(max_size=40), max_size=6)
modes = st.sampled_from([BodyMode.STREAMED, BodyMode.BUFFERED, BodyMode.FULL_DUPLEX_STREAMED, BodyMode.NONE])
trailers_ = st.sampled_from([(), ((b"x-t", b"1"),)])


def echo(message: ProcessingRequest, mode: BodyMode) -> bytes:
    """The answer of an EPP that changes nothing but names an endpoint."""
    kind = message.WhichOneof("request")
    full_duplex = mode is BodyMode.FULL_DUPLEX_STREAMED
    if kind == "request_headers":
        return pick(A)
    if kind == "response_headers":
        return response_headers()
    if kind.endswith("_body"):
        part = getattr(message, kind)
        body = streamed(part.body, part.end_of_stream) if full_duplex else None
        return request_body(body) if kind == "request_body" else response_body(body)
    return request_trailers() if kind == "request_trailers" else response_trailers()


@given(body=pieces, answer=pieces, mode=modes, http=st.sampled_from([1, 2]), trailers=trailers_, lag=st.integers(0, 4))
def test_any_split_arrives_as_it_was_sent(body, answer, mode, http, trailers, lag) -> None:
    """Bodies pass both directions whole, however they are cut and however late the EPP answers."""
    config = replace(ProxyConfig(pool=(A,)).with_modes(mode))
    request = HttpRequest(body=tuple(Chunk(data=piece) for piece in body), http=http, trailers=trailers, chunked=True)
    driven = Driven(config)
    answered = 0

    def answer_all(but: int) -> None:
        nonlocal answered
        while answered < len(driven.sent) - but:
            message = ProcessingRequest.FromString(driven.sent[answered][1])
            answered += 1
            driven.epp(echo(message, mode))

    for arrival in arrivals(request):
        match arrival:
            case (bytes() as data, bool(end), _):
                driven.do(driven.machine.request_data(data, end))
            case (list() as headers, bool(end)):
                driven.do(driven.machine.request_headers(headers, end))
            case (list() as headers,):
                driven.do(driven.machine.request_trailers(headers))
        answer_all(but=lag)
    answer_all(but=0)
    assert driven.attempts
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"".join(body), True)
    assert driven.upstream_trailers == (list(trailers) or None)
    sent = [m.request_body for m in driven.messages if m.WhichOneof("request") == "request_body"]
    if mode is not BodyMode.NONE:
        assert b"".join(part.body for part in sent) == b"".join(body)
        assert [part.end_of_stream for part in sent] == [False] * (len(sent) - 1) + [not trailers] * bool(sent)

    driven.respond(200, *answer, end=bool(answer))
    if not answer:
        driven.do(driven.machine.upstream_data(1, b"", True))
    answer_all(but=0)
    assert (driven.status, bytes(driven.body), driven.reset) == (200, b"".join(answer), False)
    assert (driven.ends, len(driven.closings)) == (1, 1)
    metadata = [message.HasField("metadata_context") for message in driven.messages]
    assert all(metadata)
    assert [message.HasField("protocol_config") for message in driven.messages] == [True] + [False] * (
        len(metadata) - 1
    )


bodies = st.one_of(
    st.none(),
    st.builds(streamed, st.binary(max_size=8), st.booleans()),
    st.builds(lambda body: BodyMutation(body=body), st.binary(max_size=8)),
    st.just(BodyMutation(clear_body=True)),
    st.just(BodyMutation()),
)
mutations = st.none() | st.builds(
    lambda name, value: mutation(set_header(name, value)),
    st.sampled_from(["x-a", "content-length", ":path", "bad name", "x-gateway-destination-endpoint"]),
    st.sampled_from([b"", b"3", b"a\nb", A.encode(), b"1,2"]),
)
commons = st.builds(common, mutations, bodies, st.sampled_from([0, 1]))
answers = st.one_of(
    st.binary(max_size=12),
    st.just(pick(A)),
    st.builds(request_headers, commons, st.none() | st.just({"envoy.lb": {"x-gateway-destination-endpoint": A}})),
    st.builds(request_body, bodies, mutations),
    st.builds(response_body, bodies),
    st.builds(response_headers, mutations),
    st.builds(request_trailers, mutations),
    st.builds(response_trailers),
    st.builds(immediate, st.none() | st.integers(0, 1000), st.binary(max_size=5)),
    st.just(ProcessingResponse().SerializeToString()),
)
happenings = st.one_of(
    st.tuples(st.just("epp"), answers),
    st.tuples(st.just("client"), st.none()),
    st.tuples(st.just("client"), st.none()),
    st.tuples(st.just("upstream"), st.sampled_from(["headers", "data", "end", "trailers", "refused", "reset", "503"])),
    st.tuples(st.just("closed"), st.sampled_from([0, 2, 13])),
    st.tuples(st.just("timer"), st.none()),
)


@settings(max_examples=400)
@given(
    mode=st.tuples(modes, modes),
    allow=st.booleans(),
    early=st.booleans(),
    request=st.builds(
        HttpRequest,
        body=st.lists(st.builds(Chunk, data=st.binary(max_size=5)), max_size=3).map(tuple),
        trailers=trailers_,
        http=st.sampled_from([1, 2]),
        chunked=st.booleans(),
    ),
    events=st.lists(happenings, max_size=25),
)
def test_no_epp_breaks_the_machine(mode, allow, early, request, events) -> None:
    """Whatever happens in whatever order, nothing raises, actions stay in order, and the exchange can be ended."""
    config = replace(
        ProxyConfig(pool=(A,)),
        request_body_mode=mode[0],
        response_body_mode=mode[1],
        failure_mode_allow=allow,
        send_body_without_waiting=early,
    )
    driven = Driven(config)
    machine = driven.machine
    client = arrivals(request)
    headers = next(client)
    driven.do(machine.request_headers(headers.headers, headers.end))
    answering = 0  # the attempt whose response has begun
    open_ = True
    for what, value in events:
        attempt = driven.attempts[-1].attempt if driven.attempts else 0
        match what:
            case "epp" if open_:
                driven.epp(value)
            case "closed" if open_:
                open_ = False
                driven.do(machine.epp_closed(value))
            case "timer" if driven.timers:
                driven.do(machine.timer_fired())
            case "client":
                match next(client, None):
                    case (bytes() as data, bool(end), _):
                        driven.do(machine.request_data(data, end))
                    case (list() as trailers,):
                        driven.do(machine.request_trailers(trailers))
            case "upstream" if attempt:
                match value:
                    case "headers" | "503" if answering != attempt:
                        answering = attempt
                        status = b"503" if value == "503" else b"200"
                        driven.do(machine.upstream_headers(attempt, [(b":status", status)], False))
                    case "data" if answering == attempt:
                        driven.do(machine.upstream_data(attempt, b"abc", False))
                    case "end" if answering == attempt:
                        driven.do(machine.upstream_data(attempt, b"", True))
                        answering = 0
                    case "trailers" if answering == attempt:
                        driven.do(machine.upstream_trailers(attempt, [(b"x-tr", b"1")]))
                        answering = 0
                    case "refused" if answering != attempt:
                        driven.do(machine.upstream_failed(attempt, "connect-failed"))
                    case "reset":
                        driven.do(machine.upstream_failed(attempt, "reset"))
    driven.do(machine.client_gone())
    assert (machine.done, driven.ends) == (True, 1)
    assert len(driven.closings) <= 1
    assert driven.do(machine.epp_message(pick(A))).ends == 1


@pytest.mark.parametrize(("http", "sizes"), [(1, [1048285, 1048576, 903439]), (2, [16384] * 183 + [2043])])
def test_read_sizes_are_envoys(http: int, sizes: list[int]) -> None:
    request = HttpRequest(body=b"x" * 3_000_300 if http == 1 else b"x" * 3_000_315, http=http)
    got = [len(arrival.data) for arrival in arrivals(request) if hasattr(arrival, "data")]
    assert got[: len(sizes)] == sizes
    assert got[len(sizes) :] == ([0] if http == 1 else [])


def test_a_client_pauses_before_a_chunk() -> None:
    request = HttpRequest(body=(Chunk(data=b"one", after=2), Chunk(data=b"two", after=3)), http=2)
    _, *rest = arrivals(request)
    assert rest == [Pause(2), DataArrives(b"one", False, 1), Pause(3), DataArrives(b"two", True, 2)]
    assert request.pauses == 5
