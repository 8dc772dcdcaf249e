"""What goes to the EPP and in which order, by body mode; what waits for which answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from machine_driver import (
    A,
    B,
    Driven,
    common,
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

from ext_proc.headers import to_struct, to_value
from ext_proc.messages import BodyMutation, BodyResponse, CommonResponse, ProcessingRequest, ProcessingResponse
from fake_proxy.actions import Closing
from fake_proxy.client import Chunk, HttpRequest, arrivals
from fake_proxy.config import BodyMode, ProtocolConfigForm, ProxyConfig
from fake_proxy.stimulus import Injection, ServedMetadata, Stimulus, subset_hint

FDS = ProxyConfig()
BUFFERED = ProxyConfig().with_modes(BodyMode.BUFFERED)
STREAMED = ProxyConfig().with_modes(BodyMode.STREAMED)
NONE = replace(ProxyConfig().with_modes(BodyMode.NONE), send_request_trailers=False, send_response_trailers=False)
POST = HttpRequest(body=b"hello")
TWO = HttpRequest(body=(Chunk(data=b"hel"), Chunk(data=b"lo")))


def test_full_duplex_sends_all_without_waiting() -> None:
    driven = Driven(FDS).request(TWO)
    assert driven.kinds == ["request_headers", "request_body", "request_body", "request_body"]
    bodies = [(m.request_body.body, m.request_body.end_of_stream) for m in driven.messages[1:]]
    assert bodies == [(b"hel", False), (b"lo", False), (b"", True)]
    assert not driven.timers, "message_timeout does not run in this mode"
    assert not driven.attempts


def test_full_duplex_ends_on_the_data_of_an_http2_client() -> None:
    driven = Driven(FDS).request(replace(POST, http=2))
    assert [(m.request_body.body, m.request_body.end_of_stream) for m in driven.messages[1:]] == [(b"hello", True)]


def test_full_duplex_forwards_with_the_first_body_answer_and_follows_late_metadata() -> None:
    driven = Driven(FDS).request(POST).epp(request_headers())
    assert not driven.attempts, "Envoy chooses the host only when the body comes back"
    answer = ProcessingResponse(
        request_body=BodyResponse(response=common(None, streamed(b"hello", True))),
        dynamic_metadata=to_struct({"envoy.lb": {"x-gateway-destination-endpoint": B}}),
    )
    driven.epp(answer.SerializeToString())
    assert [one.endpoint for one in driven.attempts] == [B]
    assert bytes(driven.upstream) == b"hello"
    assert driven.upstream_ended
    assert b"content-length" not in driven.upstream_headers


def test_full_duplex_forwards_headers_at_once_while_the_client_still_sends() -> None:
    driven = Driven(FDS)
    first = HttpRequest(body=b"x")
    headers = next(iter(arrivals(first)))
    driven.do(driven.machine.request_headers(headers.headers, False))
    driven.epp(pick(A))
    assert [one.endpoint for one in driven.attempts] == [A]
    driven.do(driven.machine.request_data(b"x", True))
    assert driven.upstream == b""
    driven.epp(request_body(streamed(b"x", True)))
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"x", True)


def test_full_duplex_response_runs_ahead_of_its_answers() -> None:
    driven = Driven(FDS).request(POST).epp(pick(A), request_body(streamed(b"hello", True)))
    driven.respond(200, b"one", b"two")
    assert driven.kinds[3:] == ["response_headers", "response_body", "response_body", "response_body"]
    assert driven.status is None
    driven.epp(response_headers(), response_body(streamed(b"onetw")), response_body(streamed(b"o", True)))
    assert (driven.status, bytes(driven.body)) == (200, b"onetwo")
    assert driven.closings == [Closing.ANSWERED]
    assert driven.ends == 1


def test_full_duplex_request_trailers_end_the_body() -> None:
    driven = Driven(FDS).request(replace(POST, trailers=((b"x-t", b"1"),)))
    assert driven.kinds == ["request_headers", "request_body", "request_trailers"]
    driven.epp(pick(A), request_body(streamed(b"hello")))
    assert not driven.upstream_ended
    driven.epp(request_trailers(mutation(set_header("x-u", b"2"))))
    assert driven.upstream_trailers == [(b"x-t", b"1"), (b"x-u", b"2")]


@pytest.mark.parametrize("config", [BUFFERED, STREAMED], ids=["buffered", "streamed"])
def test_lock_step_modes_wait_for_the_headers_answer(config: ProxyConfig) -> None:
    driven = Driven(config).request(POST)
    assert driven.kinds == ["request_headers"]
    assert driven.timers == {"request"}
    driven.epp(pick(A))
    assert [(m.request_body.body, m.request_body.end_of_stream) for m in driven.messages[1:]] == [(b"hello", True)]
    driven.epp(request_body())
    assert not driven.timers
    assert bytes(driven.upstream) == b"hello"


def test_buffered_holds_the_response_until_it_is_complete() -> None:
    driven = Driven(BUFFERED).request(POST).epp(pick(A), request_body())
    driven.respond(200, b"one", b"two", end=False)
    driven.epp(response_headers())
    assert driven.kinds[-1] == "response_headers"
    driven.do(driven.machine.upstream_data(1, b"", True))
    last = driven.messages[-1].response_body
    assert (last.body, last.end_of_stream) == (b"onetwo", True)
    driven.epp(response_body())
    assert (driven.status, bytes(driven.body), driven.closings) == (200, b"onetwo", [Closing.ANSWERED])


def test_streamed_sends_a_slow_body_piece_by_piece() -> None:
    driven = Driven(STREAMED)
    for index, arrival in enumerate(arrivals(TWO)):
        if index == 0:
            driven.do(driven.machine.request_headers(arrival.headers, False)).epp(pick(A))
        else:
            driven.do(driven.machine.request_data(arrival.data, arrival.end))
    bodies = [(m.request_body.body, m.request_body.end_of_stream) for m in driven.messages[1:]]
    assert bodies == [(b"hel", False), (b"lo", False), (b"", True)]
    driven.epp(request_body(), request_body(BodyMutation(body=b"LO")), request_body())
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"helLO", True)


def test_streamed_may_send_the_body_ahead_of_the_headers_answer() -> None:
    config = replace(STREAMED, send_body_without_waiting=True)
    driven = Driven(config).request(POST)
    assert driven.kinds == ["request_headers", "request_body", "request_body"]
    assert driven.messages[0].protocol_config.send_body_without_waiting_for_header_response
    driven.epp(pick(A), request_body(), request_body())
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"hello", True)


def test_mode_none_sends_headers_only_and_leaves_after_them() -> None:
    driven = Driven(NONE).request(POST).epp(pick(A))
    assert driven.kinds == ["request_headers"]
    assert bytes(driven.upstream) == b"hello"
    assert driven.upstream_headers[b"content-length"] == b"5"
    driven.respond(200, b"answer")
    assert driven.kinds == ["request_headers", "response_headers"]
    driven.epp(response_headers())
    assert (bytes(driven.body), driven.closings) == (b"answer", [Closing.ANSWERED])


def test_a_request_phase_only_filter_ends_the_stream_with_its_last_answer() -> None:
    config = replace(FDS, response_body_mode=BodyMode.NONE, send_response_headers=False, send_response_trailers=False)
    driven = Driven(config).request(POST).epp(pick(A), request_body(streamed(b"hello", True)))
    assert driven.closings == [Closing.ANSWERED]
    driven.respond(200, b"answer")
    assert (driven.status, bytes(driven.body)) == (200, b"answer")
    assert driven.kinds == ["request_headers", "request_body", "request_body"]


def test_skipped_request_headers_make_the_body_the_first_message() -> None:
    driven = Driven(replace(FDS, send_request_headers=False, pool=(A,))).request(POST)
    assert driven.kinds[0] == "request_body"
    assert driven.messages[0].protocol_config.request_body_mode == BodyMode.FULL_DUPLEX_STREAMED


@pytest.mark.parametrize("config", [FDS, BUFFERED, STREAMED], ids=["fds", "buffered", "streamed"])
@pytest.mark.parametrize("request_", [HttpRequest(method="GET"), HttpRequest(), HttpRequest(method="GET", http=2)])
def test_without_a_body_the_headers_answer_is_all(config: ProxyConfig, request_: HttpRequest) -> None:
    driven = Driven(config).request(request_)
    assert driven.messages[0].request_headers.end_of_stream
    driven.epp(pick(A))
    assert driven.attempts[0].end
    driven.respond(204)
    assert driven.messages[1].response_headers.end_of_stream
    driven.epp(response_headers())
    assert (driven.kinds, driven.status, driven.ends) == (["request_headers", "response_headers"], 204, 1)


@pytest.mark.parametrize("config", [FDS, BUFFERED, STREAMED], ids=["fds", "buffered", "streamed"])
def test_response_trailers_end_the_exchange(config: ProxyConfig) -> None:
    fds = config is FDS
    body = streamed(b"hello", True) if fds else None
    driven = Driven(config).request(POST).epp(pick(A), request_body(body))
    driven.respond(200, b"answer", trailers=[(b"x-tr", b"yes")])
    answers = [response_headers(), response_body(streamed(b"answer") if fds else None), response_trailers()]
    driven.epp(*answers)
    assert driven.trailers == [(b"x-tr", b"yes")]
    assert bytes(driven.body) == b"answer"
    assert driven.closings == [Closing.ANSWERED]


def test_an_early_response_comes_before_the_request_is_complete() -> None:
    driven = Driven(FDS)
    headers = next(iter(arrivals(POST)))
    driven.do(driven.machine.request_headers(headers.headers, False)).epp(pick(A))
    driven.respond(429, b"busy")
    assert "response_headers" in driven.kinds
    driven.epp(response_headers(), response_body(streamed(b"busy", True)))
    assert (driven.status, driven.ends) == (429, 1)


def test_content_length_is_seen_by_the_epp_in_every_mode() -> None:
    for config in (FDS, BUFFERED, STREAMED, NONE):
        driven = Driven(config).request(POST)
        names = {h.key: h.raw_value for h in driven.messages[0].request_headers.headers.headers}
        assert names["content-length"] == b"5"


def test_continue_and_replace_ends_the_epp_share_of_the_body() -> None:
    replaced = common(
        mutation(set_header(":method", b"PUT"), set_header("x-gateway-destination-endpoint", A.encode())),
        BodyMutation(body=b"replaced"),
        CommonResponse.CONTINUE_AND_REPLACE,
    )
    driven = Driven(BUFFERED).request(POST).epp(request_headers(replaced))
    assert driven.kinds == ["request_headers"]
    assert (bytes(driven.upstream), driven.upstream_ended) == (b"replaced", True)
    assert driven.upstream_headers[b":method"] == b"PUT"
    assert b"content-length" not in driven.upstream_headers


def test_a_buffered_body_above_the_limit_is_answered_413_through_the_epp() -> None:
    driven = Driven(BUFFERED).request(HttpRequest(body=b"x" * (1024 * 1024 + 1)))
    assert driven.kinds == ["request_headers", "response_headers"]
    names = [(h.key, h.raw_value) for h in driven.messages[1].response_headers.headers.headers]
    assert names == [(":status", b"413"), ("content-length", b"17"), ("content-type", b"text/plain")]
    driven.epp(request_headers(), response_headers())
    assert driven.messages[-1].response_body.end_of_stream
    driven.epp(response_body())
    assert (driven.status, bytes(driven.body), driven.details) == (
        413,
        b"Payload Too Large",
        "request_payload_too_large",
    )
    assert not driven.attempts


def test_a_buffered_response_above_the_limit_becomes_a_500() -> None:
    driven = Driven(BUFFERED).request(POST).epp(pick(A), request_body())
    driven.respond(200, b"x" * (1024 * 1024 + 1))
    assert (driven.status, driven.details) == (500, "response_payload_too_large")


# -- what each message carries -----------------------------------------------------------------------------------------


def test_metadata_context_is_on_every_message_and_grows() -> None:
    config = replace(FDS, pool=(A, B))
    driven = Driven(config, Stimulus(metadata=subset_hint(config, [A, B]))).request(POST)
    driven.epp(pick(A), request_body(streamed(b"hello", True)))
    driven.respond(200, b"answer")
    for message in driven.messages:
        assert message.HasField("metadata_context")
        hint = message.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        values = hint.fields["x-gateway-destination-endpoint-subset"].list_value.values
        assert [value.string_value for value in values] == [A, B]
    assert "envoy.lb" not in driven.messages[2].metadata_context.filter_metadata
    for message in driven.messages[3:]:
        fields = message.metadata_context.filter_metadata["envoy.lb"].fields
        assert {name: value.string_value for name, value in fields.items()} == {
            "x-gateway-destination-endpoint": A,
            "x-gateway-destination-endpoint-served": A,
        }


def test_metadata_outside_the_forwarded_namespaces_is_not_sent() -> None:
    driven = Driven(FDS, Stimulus(metadata={"other": {"a": 1}})).request(POST)
    assert not driven.messages[0].metadata_context.filter_metadata


def test_metadata_of_a_namespace_that_is_not_received_is_dropped() -> None:
    answer = request_headers(None, {"other": {"a": "b"}, "envoy.lb": "not a struct"})
    driven = Driven(replace(FDS, forwarding_namespaces=("envoy.lb", "other"))).request(HttpRequest(method="GET"))
    driven.epp(answer)
    assert driven.status is None
    assert driven.details == "no_healthy_upstream"
    context = driven.messages[-1].metadata_context.filter_metadata
    assert (list(context), len(context["envoy.lb"].fields)) == (["envoy.lb"], 0)


@pytest.mark.parametrize(
    ("served", "expected"),
    [(ServedMetadata.ACTUAL, A), (ServedMetadata.ABSENT, None), ("10.9.9.9:1", "10.9.9.9:1"), ((A, B), B), ((B, A), B)],
)
def test_the_served_endpoint_can_be_overridden(
    served: ServedMetadata | str | tuple[str, ...], expected: str | None
) -> None:
    driven = Driven(FDS, Stimulus(served=served)).request(HttpRequest(method="GET")).epp(pick(A)).respond(200)
    fields = driven.messages[-1].metadata_context.filter_metadata["envoy.lb"].fields
    key = "x-gateway-destination-endpoint-served"
    assert (fields[key].string_value if key in fields else None) == expected


def test_the_served_endpoint_can_have_any_type() -> None:
    driven = Driven(FDS, Stimulus(served=to_value([A]))).request(HttpRequest(method="GET")).epp(pick(A)).respond(200)
    value = driven.messages[-1].metadata_context.filter_metadata["envoy.lb"].fields
    assert value["x-gateway-destination-endpoint-served"].list_value.values[0].string_value == A


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (FDS, b"\x5a\x04\x08\x04\x10\x04"),
        (NONE, b"\x5a\x00"),
        (replace(FDS, protocol_config=ProtocolConfigForm.EMPTY), b"\x5a\x00"),
        (replace(FDS, protocol_config=ProtocolConfigForm.ABSENT), b""),
    ],
    ids=["modes", "none", "empty", "absent"],
)
def test_protocol_config_is_on_the_first_message_only(config: ProxyConfig, expected: bytes) -> None:
    driven = Driven(config).request(POST)
    assert driven.sent[0][1].endswith(b"\x42\x00" + expected)
    assert not any(message.HasField("protocol_config") for message in driven.messages[1:])


def test_header_values_can_go_in_value_as_older_envoys_wrote_them() -> None:
    driven = Driven(replace(FDS, header_value_field="value")).request(HttpRequest(headers=((b"x-a", b"\xff1"),)))
    headers = {h.key: h for h in driven.messages[0].request_headers.headers.headers}
    assert (headers["x-a"].value, headers["x-a"].raw_value) == ("\ufffd1", b"")


def test_header_bytes_pass_through_raw() -> None:
    driven = Driven(FDS).request(HttpRequest(headers=((b"X-A", b"\xff\xfe"), (b"x-a", b"2"), (b"Host", b"h"))))
    headers = [(h.key, h.raw_value) for h in driven.messages[0].request_headers.headers.headers]
    assert headers[4:6] == [("x-a", b"\xff\xfe"), ("x-a", b"2")]
    assert "host" not in dict(headers)


# -- off-contract stimuli ----------------------------------------------------------------------------------------------


def test_stimuli_change_what_is_sent_and_nothing_else() -> None:
    stimulus = Stimulus(
        append=b"\xfa\x7f\x01x",  # field 2047, unknown to the schema
        inject=(Injection(after="open", raw=b"first"), Injection(after="request_body", raw=b"\xff")),
        duplicate_end=True,
        metadata_on="headers",
    )
    driven = Driven(FDS, stimulus).request(POST)
    assert driven.kinds == ["injected", "request_headers", "request_body", "injected", "request_body", "request_body"]
    assert [raw for kind, raw in driven.sent if kind == "injected"] == [b"first", b"\xff"]
    kept = [raw for kind, raw in driven.sent if kind != "injected"]
    assert all(raw.endswith(b"\xfa\x7f\x01x") for raw in kept)
    assert [ProcessingRequest.FromString(raw).HasField("metadata_context") for raw in kept] == [True] + [False] * 3
    assert kept[-1] == kept[-2]


def test_a_withheld_headers_message_makes_the_body_come_first() -> None:
    driven = Driven(FDS, Stimulus(withhold=frozenset({"request_headers"}))).request(POST)
    assert driven.kinds == ["request_body", "request_body"]
    assert driven.messages[0].HasField("protocol_config")


def test_configurations_that_envoy_refuses_are_refused() -> None:
    with pytest.raises(ValueError, match="send_request_trailers=True"):
        ProxyConfig(send_request_trailers=False)
