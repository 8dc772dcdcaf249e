"""Conversations: what is answered, in which order, in every body mode and version. No sockets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.messages import ProcessingRequest, ProcessingResponse
from reference_epp.epp import Bodies, BodyMode, Close

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "[fd00::3]:8000"
NONE, STREAMED, BUFFERED, PARTIAL, FULL_DUPLEX = range(5)
COMPLETION = b'{"model":"m","prompt":"hi"}'
HEADER = "x-gateway-destination-endpoint"


def kinds(said: Sequence[Any]) -> list[str | None]:
    return [item.WhichOneof("response") if isinstance(item, ProcessingResponse) else "close" for item in said]


def codes(said: Sequence[Any]) -> list[int]:
    return [item.immediate_response.status.code for item in said if isinstance(item, ProcessingResponse)]


def streamed(said: Sequence[ProcessingResponse], direction: str = "request") -> list[tuple[bytes, bool]]:
    pieces = [
        getattr(item, f"{direction}_body").response.body_mutation for item in said if item.HasField(f"{direction}_body")
    ]
    assert all(piece.WhichOneof("mutation") == "streamed_response" for piece in pieces)
    return [(piece.streamed_response.body, piece.streamed_response.end_of_stream) for piece in pieces]


@pytest.fixture
def three(world: Callable[..., Any]) -> Any:
    made = world(objectives={"batch": -1, "urgent": 5})
    made.endpoints(A, B, C)
    return made


# -- the request, by body mode


def test_full_duplex_holds_the_headers_until_the_body_is_complete(
    three: Any, data_plane: Any, destination: Any
) -> None:
    conversation = three.open()
    assert conversation.receive(data_plane.request_headers()) == []
    assert conversation.receive(data_plane.request_body(COMPLETION[:5], end=False)) == []
    assert conversation.receive(data_plane.request_body(COMPLETION[5:], end=False)) == []
    said = conversation.receive(data_plane.request_body(b"", end=True))
    assert kinds(said) == ["request_headers", "request_body"]
    header, metadata = destination(said[0])
    assert header == metadata
    assert header.count(",") == 1
    assert said[0].request_headers.response.clear_route_cache
    assert not said[1].HasField("dynamic_metadata")
    assert streamed(said) == [(COMPLETION, True)]


def test_the_header_is_in_raw_value_and_overwrites(three: Any, data_plane: Any) -> None:
    said = three.talk(data_plane.request_headers((HEADER, b"6.6.6.6:1"), end=True))
    (option,) = said[0].request_headers.response.header_mutation.set_headers
    assert (option.header.key, option.header.value) == (HEADER, "")
    assert option.append_action == option.OVERWRITE_IF_EXISTS_OR_ADD
    assert not option.HasField("append")
    assert b"6.6.6.6" not in option.header.raw_value


@pytest.mark.parametrize("mode", [NONE, STREAMED, BUFFERED, PARTIAL, FULL_DUPLEX, None])
def test_a_request_without_a_body_is_answered_at_once(three: Any, data_plane: Any, destination: Any, mode: int) -> None:
    said = three.talk(data_plane.request_headers(end=True, mode=mode, subset=[C]))
    assert kinds(said) == ["request_headers"]
    assert destination(said[0]) == (C, C)


def test_buffered_answers_the_headers_and_steers_with_the_body(three: Any, data_plane: Any, destination: Any) -> None:
    said = three.talk(data_plane.request_headers(mode=BUFFERED), data_plane.request_body(subset=[B]))
    assert kinds(said) == ["request_headers", "request_body"]
    assert destination(said[0]) == (None, None)
    assert destination(said[1]) == (B, B)
    assert not said[1].request_body.response.HasField("body_mutation")


def test_a_buffered_body_before_trailers_has_no_end_and_is_complete(
    three: Any, data_plane: Any, destination: Any
) -> None:
    messages = (
        data_plane.request_headers(mode=BUFFERED),
        data_plane.request_body(end=False),
        data_plane.request_trailers(),
    )
    said = three.talk(*messages)
    assert kinds(said) == ["request_headers", "request_body", "request_trailers"]
    assert destination(said[1])[0] is not None


def test_trailers_instead_of_a_buffered_body_are_refused(three: Any, data_plane: Any) -> None:
    said = three.talk(data_plane.request_headers(mode=BUFFERED), data_plane.request_trailers())
    assert kinds(said) == ["request_headers", "immediate_response", "close"]
    assert said[1].immediate_response.status.code == 400


@pytest.mark.parametrize("mode", [STREAMED, PARTIAL])
def test_other_modes_steer_with_the_headers(three: Any, data_plane: Any, destination: Any, mode: int) -> None:
    bodies = [data_plane.request_body(COMPLETION[:3], end=False), data_plane.request_body(COMPLETION[3:])]
    said = three.talk(data_plane.request_headers(mode=mode), *bodies)
    assert kinds(said) == ["request_headers", "request_body", "request_body"]
    assert destination(said[0])[0] is not None
    assert not any(item.request_body.response.HasField("body_mutation") for item in said[1:])


def test_mode_none_steers_with_the_headers(three: Any, data_plane: Any, destination: Any) -> None:
    said = three.talk(data_plane.request_headers(mode=NONE))
    assert destination(said[0])[0] is not None


def test_without_protocol_config_a_body_that_does_not_wait_is_full_duplex(three: Any, data_plane: Any) -> None:
    said = three.talk(data_plane.request_headers(mode=None), data_plane.request_body())
    assert kinds(said) == ["request_headers", "request_body"]
    assert streamed(said) == [(COMPLETION, True)]


def test_without_protocol_config_and_body_patience_ends(three: Any, data_plane: Any, destination: Any) -> None:
    conversation = three.open()
    assert conversation.receive(data_plane.request_headers(mode=None)) == []
    assert conversation.impatient
    said = conversation.patience_is_over()
    assert destination(said[0])[0] is not None
    assert not conversation.impatient
    (body,) = conversation.receive(data_plane.request_body())
    assert not body.request_body.response.HasField("body_mutation")


@pytest.mark.parametrize("full_duplex", [True, False])
def test_without_protocol_config_a_response_is_answered_as_requests_were_sent(
    three: Any, data_plane: Any, full_duplex: bool
) -> None:
    conversation = three.open()
    conversation.receive(data_plane.request_headers(mode=None))
    _ = conversation.receive(data_plane.request_body()) if full_duplex else conversation.patience_is_over()
    get = data_plane.request_headers(mode=None, end=True)
    body = three.talk(get, data_plane.response_headers(), data_plane.response_body())[-1]
    assert body.response_body.response.HasField("body_mutation") == full_duplex


def test_an_unknown_body_mode_closes_the_stream(three: Any, data_plane: Any) -> None:
    (end,) = three.talk(data_plane.request_headers(mode=99))
    assert isinstance(end, Close)
    assert end.code == 9


def test_trailers_end_a_body(three: Any, data_plane: Any) -> None:
    chunks = [data_plane.request_body(b"ab", end=False), data_plane.request_body(b"c", end=False)]
    said = three.talk(data_plane.request_headers(), *chunks, data_plane.request_trailers())
    assert codes(said)[0] == 400  # it said that it is JSON
    said = three.talk(
        data_plane.request_headers(("content-type", b"application/grpc")), *chunks, data_plane.request_trailers()
    )
    assert kinds(said) == ["request_headers", "request_body", "request_trailers"]
    assert streamed(said) == [(b"abc", False)]


def test_trailers_after_an_ended_body_are_answered(three: Any, data_plane: Any) -> None:
    said = three.talk(data_plane.request_headers(), data_plane.request_body(), data_plane.request_trailers())
    assert kinds(said) == ["request_headers", "request_body", "request_trailers"]


def test_what_comes_after_the_end_of_a_body_is_ignored(three: Any, data_plane: Any) -> None:
    again = data_plane.request_body(b"", end=True)
    said = three.talk(data_plane.request_headers(), data_plane.request_body(), again, again)
    assert kinds(said) == ["request_headers", "request_body"]


@pytest.mark.parametrize("size", [0, 1, 61_999, 62_000, 62_001, 200_000])
def test_large_bodies_come_in_pieces(three: Any, data_plane: Any, size: int) -> None:
    body = b"x" * size
    plain = data_plane.request_headers(("content-type", b"text/plain"))
    pieces = streamed(three.talk(plain, data_plane.request_body(body, end=False), data_plane.request_body(b""))[1:])
    assert b"".join(piece for piece, _ in pieces) == body
    assert max(len(piece) for piece, _ in pieces) <= 62_000
    assert [end for _, end in pieces] == [False] * (len(pieces) - 1) + [True]


def test_observability_mode_is_not_answered(three: Any, data_plane: Any) -> None:
    message = data_plane.request_headers(end=True)
    message.observability_mode = True
    assert three.talk(message) == []


def test_an_unknown_message_is_not_answered(three: Any) -> None:
    assert three.talk(ProcessingRequest()) == []


# -- the subset


@pytest.mark.parametrize("where", ["headers", "body", "both"])
def test_the_subset_may_come_with_any_message(three: Any, data_plane: Any, destination: Any, where: str) -> None:
    on_headers = [C] if where != "body" else None
    on_body = [C] if where != "headers" else None
    said = three.talk(data_plane.request_headers(subset=on_headers), data_plane.request_body(subset=on_body))
    assert destination(said[0]) == (C, C)


@pytest.mark.parametrize("hint", [[], "", None, 7, True, {}, {"a": A}, [1], [[A]], ["10.0.0.1"], ["10.0.0.1:81"]])
def test_a_hint_that_names_no_eligible_endpoint_is_503(three: Any, data_plane: Any, hint: Any) -> None:
    said = three.talk(data_plane.request_headers(end=True, hint=hint))
    assert kinds(said) == ["immediate_response", "close"]
    assert codes(said) == [503]
    assert not said[0].HasField("dynamic_metadata")


@pytest.mark.parametrize("hint", [f"{A}", f"x, {A} ", [A, 7, "9.9.9.9:1"], [f" {A}\t", A]])
def test_a_hint_that_names_one_among_others_gives_it(three: Any, data_plane: Any, destination: Any, hint: Any) -> None:
    assert destination(three.talk(data_plane.request_headers(end=True, hint=hint))[0]) == (A, A)


def test_an_empty_namespace_is_no_hint(three: Any, data_plane: Any) -> None:
    assert kinds(three.talk(data_plane.request_headers(end=True, empty_namespace=True))) == ["request_headers"]


# -- refusals


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b'{"model": "m"} x'])
def test_broken_json_is_400(three: Any, data_plane: Any, body: bytes) -> None:
    said = three.talk(data_plane.request_headers(), data_plane.request_body(body))
    assert kinds(said) == ["immediate_response", "close"]
    assert codes(said) == [400]


@pytest.mark.parametrize("body", [b"", b"[]", b"1", b"null", b"{}", b'{"model":null}', b'{"model":7}'])
def test_a_body_without_model_gets_an_endpoint(three: Any, data_plane: Any, body: bytes) -> None:
    assert kinds(three.talk(data_plane.request_headers(), data_plane.request_body(body)))[0] == "request_headers"


def test_no_endpoint_is_503_with_and_without_body(world: Any, data_plane: Any) -> None:
    empty = world()
    assert codes(empty.talk(data_plane.request_headers(end=True))) == [503]
    assert codes(empty.talk(data_plane.request_headers(), data_plane.request_body())) == [503]
    assert codes(empty.talk(data_plane.request_headers(mode=STREAMED))) == [503]
    buffered = empty.talk(data_plane.request_headers(mode=BUFFERED), data_plane.request_body())
    assert kinds(buffered) == ["request_headers", "immediate_response", "close"]


def test_a_sheddable_request_gets_429_under_load(three: Any, data_plane: Any) -> None:
    for text in (A, B, C):
        three.load(text, queued=50)
    for objective, code in ((b"batch", [429]), (b"urgent", [0]), (b"unheard-of", [0]), (b"\xff", [0])):
        said = three.talk(data_plane.request_headers(("x-gateway-inference-objective", objective), end=True))
        assert codes(said) == code


# -- versions


@pytest.mark.parametrize("version", ["0.2.0", "0.3.0", "0.4.0", "1.0.0", "next"])
def test_what_differs_between_versions(world: Any, data_plane: Any, destination: Any, version: str) -> None:
    made = world(version, models=frozenset({"m"}))
    made.endpoints(A, B)
    said = made.talk(data_plane.request_headers(subset=[A, B]), data_plane.request_body())
    header, metadata = destination(said[0])
    assert header == metadata
    endpoints = header.split(",")
    assert len(endpoints) == (1 if version in ("0.2.0", "0.3.0") else 2)
    fields = said[0].dynamic_metadata.fields["envoy.lb"].struct_value.fields
    assert ("x-gateway-destination-endpoint-fallback" in fields) == (version == "0.3.0")
    if version == "0.3.0":
        assert {fields["x-gateway-destination-endpoint-fallback"].string_value, header} == {A, B}
    unknown = made.talk(data_plane.request_headers(), data_plane.request_body(b'{"model":"nope"}'))
    assert codes(unknown)[0] == (404 if version in ("0.3.0", "0.4.0") else 0)
    assert codes(made.talk(data_plane.request_headers(end=True))) == [0]
    assert codes(made.talk(data_plane.request_headers(end=True, subset=[]))) == [0 if version == "0.2.0" else 503]


def test_other_namespaces_can_be_configured(world: Any, data_plane: Any) -> None:
    made = world(metadata_namespace="my.lb", subset_namespace="my.hint")
    made.endpoints(A, B)
    said = made.talk(data_plane.request_headers(end=True, subset=[]))
    assert list(said[0].dynamic_metadata.fields) == ["my.lb"]


# -- the response


def test_a_response_passes_chunk_by_chunk(three: Any, data_plane: Any) -> None:
    conversation = three.open()
    conversation.receive(data_plane.request_headers(end=True))
    (headers,) = conversation.receive(data_plane.response_headers())
    assert headers == ProcessingResponse(response_headers={"response": {}}) or kinds([headers]) == ["response_headers"]
    assert not headers.HasField("dynamic_metadata")
    for chunk in (b"data: 1\n\n", b"data: 2\n\n"):
        assert streamed(conversation.receive(data_plane.response_body(chunk, end=False)), "response") == [
            (chunk, False)
        ]
    assert streamed(conversation.receive(data_plane.response_body(b"")), "response") == [(b"", True)]


@pytest.mark.parametrize("mode", [STREAMED, BUFFERED])
def test_outside_full_duplex_a_response_body_is_answered_one_for_one(three: Any, data_plane: Any, mode: int) -> None:
    headers = data_plane.request_headers(end=True, mode=FULL_DUPLEX, response_mode=mode)
    bodies = [data_plane.response_body(b"a", end=False), data_plane.response_body(b"", end=True)]
    said = three.talk(headers, data_plane.response_headers(), *bodies, data_plane.response_trailers())
    assert kinds(said) == ["request_headers", "response_headers", "response_body", "response_body", "response_trailers"]
    assert not any(item.response_body.response.HasField("body_mutation") for item in said[2:4])


def test_a_response_may_come_first(three: Any, data_plane: Any) -> None:
    said = three.talk(data_plane.response_headers(status=b"413", served=A), data_plane.response_body(b"large"))
    assert kinds(said) == ["response_headers", "response_body"]


def test_a_response_may_come_before_the_request_is_complete(three: Any, data_plane: Any) -> None:
    conversation = three.open()
    conversation.receive(data_plane.request_headers())
    assert kinds(conversation.receive(data_plane.response_headers())) == ["response_headers"]
    assert kinds(conversation.receive(data_plane.request_body())) == ["request_headers", "request_body"]


@pytest.mark.parametrize(
    ("served", "where"), [(B, B), ("[fd00::9]:1", "[fd00::9]:1"), ("odd", A), (7, A), ([B], A), (None, A), ({}, A)]
)
def test_the_request_counts_where_it_was_served(three: Any, data_plane: Any, served: Any, where: str) -> None:
    conversation = three.open()
    conversation.receive(data_plane.request_headers(end=True, subset=[A]))
    assert kinds(conversation.receive(data_plane.response_headers(served=served))) == ["response_headers"]
    assert {str(endpoint): count for endpoint, count in three.accounting.in_flight.items()} == {where: 1}
    conversation.finished()
    conversation.finished()
    assert not three.accounting.in_flight
    assert dict(three.accounting.served) == ({where if where == B else "other": 1} if where != A else {})


# -- all of them

chunks = st.lists(st.binary(max_size=70), max_size=6)


@given(
    st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8), st.sampled_from(["flag", "empty", "trailers"])
)
def test_any_body_in_any_chunks_comes_back_whole(body: bytes, cuts: list[int], end: str) -> None:
    made, data_plane = _world(), _messages()
    edges = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    parts = [body[a:b] for a, b in itertools.pairwise(edges)] or [b""]
    messages = [data_plane.request_headers(("content-type", b"application/octet-stream"))]
    messages += [
        data_plane.request_body(part, end=end == "flag" and i == len(parts) - 1) for i, part in enumerate(parts)
    ]
    messages += {"flag": [], "empty": [data_plane.request_body(b"")], "trailers": [data_plane.request_trailers()]}[end]
    said = made.talk(*messages)
    order = kinds(said)
    assert order[0] == "request_headers"
    assert (order[-1] == "request_trailers") == (end == "trailers")
    pieces = streamed(said[1:])
    assert b"".join(piece for piece, _ in pieces) == body
    assert sum(ended for _, ended in pieces) == (0 if end == "trailers" else 1)


@given(st.lists(st.sampled_from(range(9)), max_size=12), st.sampled_from([None, *BodyMode]))
def test_no_order_of_messages_breaks_it(order: list[int], mode: int | None) -> None:
    made, data_plane = _world(), _messages()
    menu = [
        data_plane.request_headers(mode=mode),
        data_plane.request_headers(end=True, mode=mode),
        data_plane.request_body(b"{", end=False),
        data_plane.request_body(b"}"),
        data_plane.request_trailers(),
        data_plane.response_headers(served=A),
        data_plane.response_body(b"x", end=False),
        data_plane.response_body(b"y"),
        data_plane.response_trailers(),
    ]
    for item in made.talk(*(menu[index] for index in order)):
        assert isinstance(item, Close) or item.WhichOneof("response") is not None
    assert not made.accounting.in_flight


def test_the_answers_are_small_json_free_text() -> None:
    made = _world()
    refusal = made.talk(_messages().request_headers(end=True, subset=[]))[0].immediate_response
    assert refusal.body == b"no endpoint in subset\n"
    assert [option.header.key for option in refusal.headers.set_headers] == ["content-type", "retry-after"]
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(refusal.body)


WORLD: list[Any] = []


@pytest.fixture(autouse=True)
def _makers(world: Any, data_plane: Any) -> None:
    """Property tests make their own world for every example, which fixtures can't."""
    WORLD[:] = [world, data_plane]


def _world() -> Any:
    made = WORLD[0]()
    made.endpoints(A, B)
    return made


def _messages() -> Any:
    return WORLD[1]


def test_held_bodies_are_counted_and_let_go(world: Any, data_plane: Any) -> None:
    bodies = Bodies(each=1000, together=1500)
    made = world(bodies=bodies)
    made.endpoints(A)
    piece = data_plane.request_body(b"x" * 900, end=False)
    first, second = made.open(), made.open()
    for conversation in (first, second):
        conversation.receive(data_plane.request_headers(("content-type", b"text/plain")))
    assert first.receive(piece) == []
    (refusal, end) = second.receive(piece)
    assert refusal.immediate_response.status.code == 503
    assert end == Close()
    second.finished()
    assert bodies.held == 900
    assert len(first.receive(data_plane.request_body(b"x"))) == 2
    assert bodies.held == 0
    third = made.open()
    third.receive(data_plane.request_headers())
    third.receive(piece)
    third.finished()  # the data plane has left
    assert bodies.held == 0


def test_what_served_is_counted_once_and_under_few_labels(world: Any, data_plane: Any) -> None:
    made = world()
    made.endpoints(A)
    for number in range(50):
        served = data_plane.response_headers(served=f"10.9.9.{number}:1")
        made.talk(data_plane.request_headers(end=True), served, served)
    assert made.accounting.served == {"other": 50}
    assert not made.accounting.in_flight
