"""StreamedImmediateResponse, as Envoy 1.40 was seen to take it (tests/real_envoy has the cases beside it)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machine_driver import A, Driven, immediate, pick, request_headers

from ext_proc.messages import (
    HeaderMap,
    HttpHeaders,
    ProcessingResponse,
    StreamedBodyResponse,
    StreamedImmediateResponse,
)
from fake_proxy.client import HttpRequest, arrivals
from fake_proxy.config import BodyMode, ProxyConfig

FDS = ProxyConfig(pool=(A,))
NONE, BUFFERED, STREAMED = (FDS.with_modes(mode) for mode in (BodyMode.NONE, BodyMode.BUFFERED, BodyMode.STREAMED))
POST, GET = HttpRequest(body=b"hello"), HttpRequest(method="GET")


def _part(**part: object) -> bytes:
    reply = StreamedImmediateResponse(**part)  # type: ignore[arg-type]
    return ProcessingResponse(streamed_immediate_response=reply).SerializeToString()


def head(status: str | None = "429", *, end: bool = False) -> bytes:
    said = HttpHeaders(end_of_stream=end)
    if status is not None:
        said.headers.headers.add(key=":status", raw_value=status.encode())
    said.headers.headers.add(key="x-reason", raw_value=b"shed")
    return _part(headers_response=said)


def piece(body: bytes, *, end: bool = False) -> bytes:
    return _part(body_response=StreamedBodyResponse(body=body, end_of_stream=end))


def trailers() -> bytes:
    said = HeaderMap()
    said.headers.add(key="sum", raw_value=b"1")
    return _part(trailers_response=said)


def test_a_status_of_thousands_of_digits_is_none() -> None:
    driven = Driven(FDS).request(POST).epp(head("4" * 5000, end=True))
    assert (driven.status, driven.details) == (500, "header_mutation_set_headers_failed")


@pytest.mark.parametrize("config", [FDS, NONE], ids=["fds", "none"])
@pytest.mark.parametrize("request_", [POST, GET], ids=["post", "get"])
@pytest.mark.parametrize("parts", [[b"bu", b"sy"], [b"busy"], [b"", b"busy", b""]])
def test_the_reply_reaches_the_client_piece_by_piece(config: ProxyConfig, request_: HttpRequest, parts) -> None:
    driven = Driven(config).request(request_).epp(head())
    for number, part in enumerate(parts):
        driven.epp(piece(part, end=number == len(parts) - 1))
    assert (driven.status, bytes(driven.body), driven.details) == (429, b"busy", "ext_proc_local_response")
    assert not driven.attempts
    assert driven.ends == 1


@pytest.mark.parametrize("config", [FDS, NONE, BUFFERED, STREAMED], ids=["fds", "none", "buffered", "streamed"])
def test_headers_alone_are_a_reply_in_every_mode(config: ProxyConfig) -> None:
    driven = Driven(config).request(POST).epp(head(end=True))
    assert (driven.status, bytes(driven.body), driven.ends) == (429, b"", 1)


def test_a_reply_may_end_with_trailers() -> None:
    driven = Driven(FDS).request(POST).epp(head(), piece(b"busy"), trailers())
    assert (driven.status, bytes(driven.body), driven.ends) == (429, b"busy", 1)


@pytest.mark.parametrize(
    ("config", "answers", "status", "details"),
    [
        (
            BUFFERED,
            [head()],
            500,
            "streaming_local_response_body_is_only_supported_in_NONE_or_FULL_DUPLEX_STREAMED_modes",
        ),
        (FDS, [piece(b"busy", end=True)], 500, "local_response_body_received_before_headers"),
        (FDS, [trailers()], 500, "local_response_trailers_received_before_headers"),
        (FDS, [_part()], 500, "Invalid_local_response_headers_continue"),
        (FDS, [head("99", end=True)], 500, "header_mutation_set_headers_failed"),
        (
            FDS,
            [head(None, end=True)],
            502,
            "filter_removed_required_response_headers{missing_required_header:_:status}",
        ),
        (FDS, [pick(A), head(end=True)], 500, "spurious_message"),
    ],
)
def test_what_is_out_of_place_fails_the_request(config: ProxyConfig, answers, status: int, details: str) -> None:
    driven = Driven(config).request(POST).epp(*answers)
    assert (driven.status, driven.details, driven.ends) == (status, details, 1)


@pytest.mark.parametrize("config", [FDS, replace(FDS, failure_mode_allow=True)], ids=["closed", "open"])
@pytest.mark.parametrize("then", [head(), immediate(503), request_headers(), b"\xff"])
@pytest.mark.parametrize("request_", [POST, GET], ids=["post", "get"])
def test_a_reply_that_has_begun_is_cut(config: ProxyConfig, then: bytes, request_: HttpRequest) -> None:
    """Also where the gateway fails open: the client has the beginning of it."""
    driven = Driven(config).request(request_).epp(head(), piece(b"bu"), then)
    assert (driven.status, bytes(driven.body), driven.ends) == (429, b"bu", 1)
    assert not driven.attempts


def test_the_rest_of_a_reply_is_waited_for() -> None:
    driven = Driven(FDS).request(POST).epp(head(), piece(b"bu"))
    driven.do(driven.machine.epp_closed(0))
    assert (driven.status, bytes(driven.body), driven.ends) == (429, b"bu", 0)
    assert not driven.attempts


def test_what_comes_of_the_request_during_a_reply_reaches_the_epp_and_no_endpoint() -> None:
    driven = Driven(NONE)
    begins, *rest = arrivals(HttpRequest(body=b"hello", trailers=((b"sum", b"1"),)))
    driven.do(driven.machine.request_headers(begins.headers, begins.end)).epp(head())
    driven.do(driven.machine.request_data(rest[0].data, False))
    driven.do(driven.machine.request_trailers(rest[1].trailers)).epp(piece(b"busy", end=True))
    assert driven.kinds == ["request_headers", "request_trailers"]
    assert (driven.status, bytes(driven.body), driven.ends, driven.attempts) == (429, b"busy", 1, [])


@pytest.mark.parametrize(
    ("end", "kinds"), [(False, ["request_headers", "request_trailers"]), (True, ["request_headers"])]
)
def test_trailers_that_wait_go_to_the_epp_when_its_reply_begins_and_not_when_it_ends(end: bool, kinds) -> None:
    waiting = HttpRequest(trailers=((b"sum", b"1"),), chunked=True)
    driven = Driven(NONE).request(waiting).epp(head(end=end))
    assert (driven.kinds, driven.attempts) == (kinds, [])
