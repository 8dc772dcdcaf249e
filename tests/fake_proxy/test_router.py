"""The choice of endpoints: Envoy's override_host with a walk over the list, and the router's retries."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_driver import A, B, C, Driven, common, mutation, pick, request_body, request_headers, set_header, streamed

from ext_proc.headers import to_struct, to_value
from ext_proc.messages import HeadersResponse, ProcessingResponse
from fake_proxy.client import HttpRequest
from fake_proxy.config import BodyMode, ProxyConfig
from fake_proxy.router import dialable

OPEN = replace(
    ProxyConfig(),
    send_response_headers=False,
    send_response_trailers=False,
    response_body_mode=ProxyConfig().response_body_mode.NONE,
)
POOL = replace(OPEN, pool=(A, B, C))
GET = HttpRequest(method="GET")


def walk(config: ProxyConfig, answer: bytes, fates: str, request: HttpRequest = GET) -> tuple[Driven, list[str]]:
    """The endpoints tried when attempts fare as `fates` says: r(efused), x (reset), 5(03), 2(00)."""
    driven = Driven(config).request(request).epp(answer)
    for fate in fates:
        number = driven.attempts[-1].attempt
        match fate:
            case "r":
                driven.do(driven.machine.upstream_failed(number, "connect-failed"))
            case "x":
                driven.do(driven.machine.upstream_failed(number, "reset"))
            case "5":
                driven.respond(503, b"busy")
            case "2":
                driven.respond(200, b"ok")
    return driven, [one.endpoint for one in driven.attempts]


@pytest.mark.parametrize(
    ("answer", "fates", "expected", "status"),
    [
        (pick(A), "2", [A], 200),
        (pick(f"{A},{B}"), "52", [A, B], 200),
        (pick(f" {A} , {B} "), "r2", [A, B], 200),
        (pick(f",{B}"), "2", [B], 200),
        (pick(f"{A},{B}"), "r2", [A, B], 200),
        (pick(f"{A},{B}"), "x2", [A, B], 200),
        (pick(f"{A},{B}", header=False), "552", [A, B, A], 200),  # then round-robin
        (pick(f"{A},{B}"), "552", [A, B, A], 200),  # both sources: the list is walked again
        (pick(A, header=False), "5555", [A, A, B, C], 503),
        (pick(A), "5555", [A, A, A, B], 503),
        (pick(B, metadata=False), "2", [B], 200),
        (pick("10.9.9.9:1"), "2", [A], 200),
        (pick(f"10.9.9.9:1,{C}"), "2", [C], 200),
        (pick("garbage"), "2", [A], 200),
        (pick(f"{A};{B}"), "2", [A], 200),
        (pick("127.0.0.011:8000"), "2", [A], 200),
        (request_headers(), "2", [A], 200),
        (request_headers(None, {"x-gateway-destination-endpoint": B}), "2", [A], 200),
        (request_headers(None, {"envoy.lb": {"x-gateway-destination-endpoint": [B]}}), "2", [A], 200),
    ],
)
def test_the_walk(answer: bytes, fates: str, expected: list[str], status: int) -> None:
    driven, tried = walk(POOL, answer, fates)
    assert tried == expected
    assert driven.status == status


def test_metadata_comes_before_the_header() -> None:
    answer = request_headers(
        common(mutation(set_header("x-gateway-destination-endpoint", A.encode()))),
        {"envoy.lb": {"x-gateway-destination-endpoint": B}},
    )
    assert walk(POOL, answer, "52")[1] == [B, A]
    assert walk(replace(POOL, destination_sources=("header",)), answer, "2")[1] == [A]


def test_a_clients_own_header_counts_if_the_epp_sets_nothing() -> None:
    request = replace(GET, headers=((b"x-gateway-destination-endpoint", C.encode()),))
    assert walk(POOL, request_headers(), "2", request)[1] == [C]
    assert walk(POOL, pick(B), "2", request)[1] == [B]


def test_metadata_is_merged_over_messages() -> None:
    other = ProcessingResponse(
        request_headers=HeadersResponse(), dynamic_metadata=to_struct({"envoy.lb": {"other": 1}})
    )
    driven = Driven(ProxyConfig(pool=(A, B))).request(GET).epp(other.SerializeToString()).respond(200)
    fields = driven.messages[-1].metadata_context.filter_metadata["envoy.lb"].fields
    assert fields["other"] == to_value(1)
    assert fields["x-gateway-destination-endpoint-served"].string_value == A


def test_without_a_pool_every_address_is_dialled_and_nothing_else() -> None:
    assert walk(OPEN, pick("10.9.9.9:1"), "2")[1] == ["10.9.9.9:1"]
    driven, tried = walk(OPEN, pick("garbage"), "")
    assert (tried, driven.status, driven.details) == ([], 503, "no_healthy_upstream")
    assert bytes(driven.body) == b"no healthy upstream"


def test_in_a_pool_that_grows_every_address_is_dialled_and_the_pool_is_fallen_back_to() -> None:
    growing = replace(POOL, pool_grows=True)
    assert walk(growing, pick("10.9.9.9:1"), "2")[1] == ["10.9.9.9:1"]
    assert walk(growing, pick("10.9.9.9:1"), "rr2")[1] == ["10.9.9.9:1", "10.9.9.9:1", A]
    assert walk(growing, pick("garbage"), "2")[1] == [A]


def test_when_all_attempts_break_the_client_gets_a_503() -> None:
    driven, tried = walk(POOL, pick(f"{A},{B}"), "rrrr")
    assert len(tried) == 4
    assert (driven.status, driven.details) == (
        503,
        "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused}",
    )


def test_local_replies_pass_the_epp_with_the_last_endpoint_tried() -> None:
    driven = Driven(ProxyConfig(pool=(A,), num_retries=0)).request(GET).epp(pick(A))
    driven.do(driven.machine.upstream_failed(1, "connect-failed"))
    assert driven.kinds == ["request_headers", "response_headers", "response_body"]
    names = [h.key for h in driven.messages[1].response_headers.headers.headers]
    assert names == [":status", "content-length", "content-type"]
    fields = driven.messages[1].metadata_context.filter_metadata["envoy.lb"].fields
    assert fields["x-gateway-destination-endpoint-served"].string_value == A


def test_a_request_is_retried_with_what_is_known_of_it() -> None:
    driven = Driven(replace(POOL, request_body_mode=BodyMode.STREAMED))
    headers = [(b":authority", b"g"), (b":path", b"/"), (b":method", b"POST"), (b":scheme", b"http")]
    driven.do(driven.machine.request_headers(headers, False)).epp(pick(f"{A},{B}"))
    driven.do(driven.machine.request_data(b"one", False)).epp(request_body())
    driven.do(driven.machine.upstream_failed(1, "connect-failed"))
    assert [(one.endpoint, one.body, one.end) for one in driven.attempts] == [(A, b"", False), (B, b"one", False)]
    driven.do(driven.machine.request_data(b"two", True)).epp(request_body())
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"onetwo", True)


def test_a_request_that_outgrew_the_buffer_is_not_retried() -> None:
    driven = Driven(replace(POOL, buffer_limit=3)).request(HttpRequest(body=b"long"))
    driven.epp(pick(f"{A},{B}"), request_body(streamed(b"long", True)))
    driven.do(driven.machine.upstream_failed(1, "reset"))
    assert (len(driven.attempts), driven.status) == (1, 503)


def test_events_of_a_former_attempt_are_dropped() -> None:
    driven, _ = walk(POOL, pick(f"{A},{B}"), "5")
    driven.do(driven.machine.upstream_data(1, b"late", True))
    driven.respond(200, b"ok")
    assert bytes(driven.body) == b"ok"


def test_a_broken_response_is_cut() -> None:
    driven = Driven(POOL).request(GET).epp(pick(A)).respond(200, b"on", end=False)
    driven.do(driven.machine.upstream_failed(1, "reset"))
    assert (driven.status, bytes(driven.body), driven.reset, driven.ends) == (200, b"on", True, 1)


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("127.0.0.1:80", True),
        ("[::1]:80", True),
        ("::1:80", False),
        ("[127.0.0.1]:80", False),
        ("127.0.0.1", False),
        ("127.0.0.1:", False),
        ("127.0.0.1:0", False),
        ("127.0.0.1:65536", False),
        ("127.0.0.1:" + "9" * 5000, False),
        ("127.0.0.1:080", False),
        ("127.0.0.011:80", False),
        ("host:80", False),
        ("", False),
    ],
)
def test_what_is_an_address(endpoint: str, expected: bool) -> None:
    assert dialable(endpoint) is expected


@given(st.text())
def test_any_text_is_an_address_or_not(text: str) -> None:
    assert dialable(text) in (True, False)
    assert dialable(text + ":80") in (True, False)
