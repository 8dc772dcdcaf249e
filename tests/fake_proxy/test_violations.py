"""How the data plane reacts to what an EPP does wrong, and to its errors: the table seen with Envoy 1.40."""

from __future__ import annotations

from dataclasses import replace

import pytest
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

from ext_proc.messages import (
    BodyMutation,
    CommonResponse,
    Duration,
    GrpcStatus,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    ProcessingMode,
    ProcessingResponse,
)
from fake_proxy.actions import Closing
from fake_proxy.client import HttpRequest, arrivals
from fake_proxy.config import BodyMode, ProxyConfig

FDS = ProxyConfig(pool=(A,))
BUFFERED = FDS.with_modes(BodyMode.BUFFERED)
STREAMED = FDS.with_modes(BodyMode.STREAMED)
NONE = FDS.with_modes(BodyMode.NONE)
POST = HttpRequest(body=b"hello")
GET = HttpRequest(method="GET")
EMPTY = ProcessingResponse().SerializeToString()
NORMAL_IN_FDS = "spurious_message:_Normal_body_mutation_response_is_received_while_body_mode__is_FULL_DUPLEX_STREAMED"
each_mode = pytest.mark.parametrize("config", [FDS, BUFFERED, STREAMED], ids=["fds", "buffered", "streamed"])
lock_step = pytest.mark.parametrize("config", [BUFFERED, STREAMED], ids=["buffered", "streamed"])


def failed(driven: Driven, details: str, status: int = 500) -> None:
    assert (driven.status, driven.details, bytes(driven.body)) == (status, details, b"")
    assert driven.closings == [Closing.ANSWERED]
    assert driven.ends == 1


@each_mode
@pytest.mark.parametrize(
    ("answers", "details"),
    [
        ([response_headers()], "spurious_message"),
        ([request_body(streamed(b"hello", True))], "spurious_message"),
        ([EMPTY], "unhandled_message"),
        ([b"\xff\xff\xff"], "ext_proc_error_gRPC_error_13{via_upstream}"),
    ],
    ids=["other direction", "body first", "empty", "not protobuf"],
)
def test_a_wrong_first_answer_is_a_500(config: ProxyConfig, answers: list[bytes], details: str) -> None:
    failed(Driven(config).request(POST).epp(*answers), details)


@each_mode
def test_a_second_headers_answer_is_spurious(config: ProxyConfig) -> None:
    failed(Driven(config).request(POST).epp(pick(A), pick(A)), "spurious_message")


@lock_step
@pytest.mark.parametrize("answers", [[EMPTY], [response_headers()], [b"\xff\xff\xff"]])
def test_failure_mode_allow_forgives_in_lock_step_modes(config: ProxyConfig, answers: list[bytes]) -> None:
    driven = Driven(replace(config, failure_mode_allow=True)).request(POST).epp(*answers)
    assert [one.endpoint for one in driven.attempts] == [A]
    assert bytes(driven.upstream) == b"hello"
    driven.respond(200, b"ok")
    assert driven.kinds == ["request_headers"]
    assert (driven.status, bytes(driven.body)) == (200, b"ok")


def test_failure_mode_allow_does_not_forgive_once_a_full_duplex_body_has_left() -> None:
    allowing = replace(FDS, failure_mode_allow=True)
    failed(Driven(allowing).request(POST).epp(EMPTY), "unhandled_message")
    assert Driven(allowing).request(GET).epp(EMPTY).attempts


def test_unknown_fields_are_ignored() -> None:
    driven = Driven(FDS).request(GET).epp(pick(A) + b"\xfa\x7f\x01x")
    assert driven.attempts[0].endpoint == A


# -- bodies ------------------------------------------------------------------------------------------------------------


MISMATCH = "mismatch_between_content_length_and_the_length_of_the_mutated_body"
CHANGED = BodyMutation(body=b"changed")
WHOLE = request_body(streamed(b"hello", True))


@pytest.mark.parametrize(
    ("config", "answers", "details"),
    [
        (FDS, [request_body(BodyMutation(body=b"hello"))], NORMAL_IN_FDS),
        (FDS, [request_body(BodyMutation(clear_body=True))], NORMAL_IN_FDS),
        (FDS, [request_body(None)], NORMAL_IN_FDS),
        (FDS, [WHOLE, request_body(streamed(b"", True))], "spurious_message"),
        (BUFFERED, [WHOLE], MISMATCH),
        (BUFFERED, [request_body(CHANGED)], MISMATCH),
    ],
    ids=["body", "clear", "none", "after the end", "streamed when buffered", "another length"],
)
def test_a_wrong_body_answer_is_a_500(config: ProxyConfig, answers: list[bytes], details: str) -> None:
    failed(Driven(config).request(POST).epp(pick(A), *answers), details)


@pytest.mark.parametrize(
    ("config", "answer", "body", "length"),
    [
        (STREAMED, request_body(streamed(b"other", True)), b"hello", None),
        (STREAMED, request_body(CHANGED), b"changed", None),
        (BUFFERED, request_body(CHANGED, mutation(set_header("content-length", b"7"))), b"changed", b"7"),
        (BUFFERED, request_body(CHANGED, mutation(set_header("content-length", b"7" * 5000))), b"changed", b"7" * 5000),
    ],
    ids=["streamed when whole", "streamed", "buffered with its length", "a length of thousands of digits"],
)
def test_a_body_is_changed(config: ProxyConfig, answer: bytes, body: bytes, length: bytes | None) -> None:
    driven = Driven(config).request(POST).epp(pick(A), answer)
    assert (bytes(driven.upstream), driven.upstream_headers.get(b"content-length")) == (body, length)


def test_a_full_duplex_body_that_never_ends_hangs_until_the_client_goes() -> None:
    driven = Driven(FDS).request(POST).epp(pick(A), request_body(streamed(b"hello")))
    assert not driven.upstream_ended
    assert driven.machine.awaiting == "answer to request_body"
    driven.do(driven.machine.client_gone())
    assert (driven.ends, driven.closings) == (1, [Closing.OWN])


@pytest.mark.parametrize(("config", "kept"), [(FDS, None), (STREAMED, None), (BUFFERED, b"3")])
def test_a_content_length_of_the_epp_counts_only_in_buffered_mode(config: ProxyConfig, kept: bytes | None) -> None:
    options = mutation(set_header("content-length", b"3"), set_header("x-gateway-destination-endpoint", A.encode()))
    driven = Driven(config).request(POST).epp(request_headers(common(options)))
    driven.epp(request_body(streamed(b"hello", True) if config is FDS else None))
    assert driven.upstream_headers.get(b"content-length") == kept


@pytest.mark.parametrize(("config", "applied"), [(BUFFERED, True), (STREAMED, True), (FDS, False)])
def test_headers_of_a_body_answer_count_where_envoy_still_holds_them(config: ProxyConfig, applied: bool) -> None:
    options = mutation(set_header("x-late", b"1"))
    driven = Driven(config).request(POST).epp(pick(A))
    driven.epp(request_body(streamed(b"hello", True) if config is FDS else None, options))
    assert (b"x-late" in driven.upstream_headers) is applied


def test_a_body_mutation_on_headers_without_replace_is_ignored() -> None:
    response = common(mutation(set_header("x-gateway-destination-endpoint", A.encode())), BodyMutation(body=b"no"))
    driven = Driven(BUFFERED).request(POST).epp(request_headers(response), request_body())
    assert bytes(driven.upstream) == b"hello"


def test_continue_and_replace_in_full_duplex_leaves_no_room_for_body_answers() -> None:
    replaced = common(None, BodyMutation(body=b"other"), CommonResponse.CONTINUE_AND_REPLACE)
    driven = Driven(FDS).request(POST).epp(request_headers(replaced))
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"other", True)
    failed(driven.epp(request_body(streamed(b"hello", True))), "spurious_message")


# -- headers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "value"), [("x-a", b"a\rb"), ("x-a", b"a\nb"), ("x-a", b"a\0b"), ("x a", b"1")])
@pytest.mark.parametrize("allow", [False, True])
def test_invalid_characters_fail_the_request(name: str, value: bytes, allow: bool) -> None:
    driven = Driven(replace(BUFFERED, failure_mode_allow=allow)).request(POST)
    driven.epp(request_headers(common(mutation(set_header(name, value)))))
    failed(driven, "header_mutation_set_contains_invalid_character")


def test_a_header_without_a_name_passes() -> None:
    driven = Driven(FDS).request(GET).epp(request_headers(common(mutation(set_header("", b"1")))))
    assert driven.upstream_headers[b""] == b"1"


def test_protected_headers_are_left_alone_and_the_rest_is_applied() -> None:
    options = mutation(
        set_header(":method", b"PUT"),
        set_header(":authority", b"evil"),
        set_header("host", b"evil"),
        set_header("x-envoy-thing", b"1"),
        set_header(":path", b"/mutated"),
        set_header("X-Good", b"1"),
        remove=(":path", "content-type"),
    )
    driven = Driven(FDS).request(replace(GET, headers=((b"content-type", b"text/plain"),)))
    driven.epp(request_headers(common(options)))
    headers = driven.upstream_headers
    assert (headers[b":method"], headers[b":authority"], headers[b":path"]) == (b"GET", b"gateway.example", b"/mutated")
    assert headers[b"x-good"] == b"1"
    assert not {b"host", b"x-envoy-thing", b"content-type"} & set(headers)


def test_value_instead_of_raw_value_leaves_the_header_empty() -> None:
    option = HeaderValueOption(header=HeaderValue(key="x-gateway-destination-endpoint", value=A))
    driven = Driven(replace(FDS, pool=("10.0.0.1:80",))).request(GET).epp(request_headers(common(mutation(option))))
    assert driven.upstream_headers[b"x-gateway-destination-endpoint"] == b""
    assert driven.attempts[0].endpoint == "10.0.0.1:80"


def test_beside_raw_value_value_does_not_count() -> None:
    option = HeaderValueOption(header=HeaderValue(key="x-a", value="1", raw_value=b"2"))
    driven = Driven(FDS).request(GET).epp(request_headers(common(mutation(option))))
    assert driven.upstream_headers[b"x-a"] == b"2"


def test_too_many_headers_fail_the_request() -> None:
    many = mutation(*(set_header(f"x-{number}", b"1") for number in range(98)))
    failed(Driven(FDS).request(GET).epp(request_headers(common(many))), "header_mutation_result_exceeds_limit")
    more = mutation(*(set_header("x-same", b"1") for _ in range(101)))
    failed(Driven(FDS).request(GET).epp(request_headers(common(more))), "header_mutation_operation_count_exceeds_limit")


# -- on the response path ----------------------------------------------------------------------------------------------


@each_mode
def test_a_wrong_answer_on_the_response_path_replaces_the_response(config: ProxyConfig) -> None:
    driven = Driven(config).request(GET).epp(pick(A)).respond(200, b"answer")
    driven.epp(pick(A))
    failed(driven, "spurious_message")


def test_a_body_answer_before_the_response_headers_answer_is_spurious() -> None:
    driven = Driven(FDS).request(GET).epp(pick(A)).respond(200, b"answer")
    failed(driven.epp(response_body(streamed(b"answer", True))), "spurious_message")


def test_a_violation_after_the_response_began_cuts_it() -> None:
    driven = Driven(FDS).request(GET).epp(pick(A)).respond(200, b"answer", end=False)
    driven.epp(response_headers(), response_body(streamed(b"ans")), EMPTY)
    assert (driven.status, bytes(driven.body), driven.reset, driven.ends) == (200, b"ans", True, 1)


# -- immediate responses -----------------------------------------------------------------------------------------------


@each_mode
def test_an_immediate_response_ends_all(config: ProxyConfig) -> None:
    driven = Driven(config).request(POST)
    options = mutation(
        set_header("x-why", b"full"),
        set_header(":status", b"200"),
        set_header("host", b"h"),
        set_header("content-length", b"1"),
        set_header("bad name", b"1"),
    )
    sent = len(driven.sent)
    driven.epp(immediate(503, b"no pods", "no pods left", options), immediate(429), pick(A))
    assert (driven.status, bytes(driven.body), driven.details) == (503, b"no pods", "no_pods_left")
    assert driven.headers[b"x-why"] == b"full"
    assert driven.headers[b"content-length"] == b"7"
    assert b"host" not in driven.headers
    assert len(driven.sent) == sent, "the EPP does not see its own reply"
    assert (driven.closings, driven.ends, driven.attempts) == ([Closing.ANSWERED], 1, [])


@pytest.mark.parametrize(("code", "status"), [(None, 200), (100, 200), (0, 200), (999, 999), (429, 429)])
def test_an_immediate_response_without_a_valid_status_is_a_200(code: int | None, status: int) -> None:
    assert Driven(FDS).request(GET).epp(immediate(code)).status == status


def test_an_immediate_response_after_the_response_began_truncates_it() -> None:
    driven = Driven(FDS).request(GET).epp(pick(A)).respond(200, b"event", end=False)
    driven.epp(response_headers(), response_body(streamed(b"event")), immediate(503, b"late"))
    assert (driven.status, bytes(driven.body), driven.reset) == (200, b"event", True)


def test_a_grpc_client_gets_its_error_in_trailers_form() -> None:
    grpc = replace(POST, headers=((b"content-type", b"application/grpc"),))
    driven = Driven(FDS).request(grpc).epp(immediate(503, b"no\npods", grpc=GrpcStatus(status=14)))
    assert driven.status == 200
    assert (driven.headers[b"grpc-status"], driven.headers[b"grpc-message"]) == (b"14", b"no%0Apods")


# -- the stream --------------------------------------------------------------------------------------------------------


@lock_step
def test_a_clean_close_without_an_answer_fails_open(config: ProxyConfig) -> None:
    driven = Driven(config).request(POST)
    driven.do(driven.machine.epp_closed(0))
    assert (driven.attempts[0].endpoint, bytes(driven.upstream)) == (A, b"hello")
    assert driven.closings == [Closing.EPP_FIRST]
    driven.respond(200, b"ok")
    assert (driven.status, driven.kinds) == (200, ["request_headers"])


@pytest.mark.parametrize("answers", [[], [pick(A)]], ids=["before any answer", "after the headers"])
def test_a_clean_close_of_a_full_duplex_stream_loses_the_body(answers: list[bytes]) -> None:
    driven = Driven(FDS).request(POST).epp(*answers)
    driven.do(driven.machine.epp_closed(0))
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"", True)
    driven.respond(200, b"ok")
    assert (driven.status, bytes(driven.body)) == (200, b"ok")


@each_mode
@pytest.mark.parametrize("status", [8, 13, 14])
def test_a_grpc_error_is_a_500(config: ProxyConfig, status: int) -> None:
    driven = Driven(config).request(POST)
    driven.do(driven.machine.epp_closed(status, "why"))
    assert (driven.status, driven.details) == (500, f"ext_proc_error_gRPC_error_{status}{{why}}")
    assert driven.closings == [Closing.EPP_FIRST]


def test_status_on_error_replaces_the_500() -> None:
    driven = Driven(replace(FDS, status_on_error=503)).request(POST).epp(EMPTY)
    assert driven.status == 503


@lock_step
def test_a_message_timeout_is_a_504(config: ProxyConfig) -> None:
    driven = Driven(config).request(POST)
    driven.do(driven.machine.timer_fired())
    assert (driven.status, driven.details) == (504, "ext_proc_error_per-message_timeout_exceeded")
    assert driven.closings == [Closing.OWN]
    allowing = Driven(replace(config, failure_mode_allow=True)).request(POST)
    allowing.do(allowing.machine.timer_fired())
    assert bytes(allowing.upstream) == b"hello"


def test_override_message_timeout_makes_a_message_no_answer() -> None:
    answer = ProcessingResponse(request_headers=HeadersResponse(), override_message_timeout=Duration(seconds=1))
    driven = Driven(BUFFERED).request(POST).epp(answer.SerializeToString())
    assert driven.kinds == ["request_headers"]
    assert driven.timers == {"request"}


def test_mode_override_is_ignored() -> None:
    override = ProcessingMode(request_body_mode=BodyMode.NONE)
    answer = ProcessingResponse(request_headers=HeadersResponse(), mode_override=override)
    driven = Driven(BUFFERED).request(POST).epp(answer.SerializeToString())
    assert driven.kinds == ["request_headers", "request_body"]


def test_trailers_answers_that_nobody_asked_for_are_spurious_but_in_full_duplex() -> None:
    for answer in (request_trailers(), response_trailers()):
        failed(Driven(BUFFERED).request(POST).epp(answer), "spurious_message")
    passed = Driven(FDS).request(POST).epp(request_trailers())
    assert (len(passed.attempts), bytes(passed.upstream), passed.upstream_ended) == (1, b"", True)
    failed(passed.epp(request_body(streamed(b"hello", True))), "spurious_message")
    waiting = Driven(FDS).request(POST).epp(response_trailers())
    assert (waiting.attempts, waiting.status) == ([], None)


@pytest.mark.parametrize("at", range(6))
def test_a_client_that_goes_ends_the_exchange_wherever_it_is(at: int) -> None:
    driven = Driven(FDS).request(POST)
    answers = [pick(A), request_body(streamed(b"hello", True))]
    driven.epp(*answers[:at])
    if at >= 3:
        driven.respond(200, b"one", end=False)
    if at >= 4:
        driven.epp(response_headers())
    if at >= 5:
        driven.epp(response_body(streamed(b"one")))
    driven.do(driven.machine.client_gone())
    assert (driven.closings, driven.ends, driven.details) == ([Closing.OWN], 1, "downstream_remote_disconnect")
    assert driven.do(driven.machine.client_gone()).ends == 1


@pytest.mark.parametrize("whole", [True, False])
def test_the_stream_ends_with_the_headers_answer_where_envoy_knows_that_no_trailers_come(whole: bool) -> None:
    """In mode NONE the body passes by; a request that is not complete may still end with trailers."""
    driven = Driven(replace(NONE, send_response_headers=False, send_response_trailers=False))
    begins, data, end = arrivals(POST)
    driven.do(driven.machine.request_headers(begins.headers, begins.end))
    coming = [(data.data, False), (end.data, True)]
    for piece in coming[: 2 if whole else 1]:
        driven.do(driven.machine.request_data(*piece))
    assert driven.epp(pick(A)).closings == ([Closing.ANSWERED] if whole else [])


def test_the_epp_gets_the_rest_of_a_request_whose_response_has_begun() -> None:
    driven = Driven(replace(FDS, response_body_mode=BodyMode.NONE, send_response_trailers=False))
    begins, data, end = arrivals(POST)
    driven.do(driven.machine.request_headers(begins.headers, begins.end)).epp(pick(A))
    driven.do(driven.machine.request_data(data.data, False)).epp(request_body(streamed(b"hello")))
    driven.respond(200, b"one", end=False).epp(response_headers())
    driven.do(driven.machine.request_data(end.data, True))
    assert driven.kinds == ["request_headers", "request_body", "response_headers", "request_body"]
    assert driven.closings == []
    assert driven.epp(request_body(streamed(b"", True))).closings == [Closing.ANSWERED]


@pytest.mark.parametrize(("content_type", "status"), [(b"application/grpc+proto", 200), (b"application/grpc-web", 503)])
def test_refusals_have_the_form_of_grpc_for_clients_of_grpc_alone(content_type: bytes, status: int) -> None:
    request = HttpRequest(body=b"hello", headers=((b"content-type", content_type),))
    assert Driven(FDS).request(request).epp(immediate(503)).status == status
