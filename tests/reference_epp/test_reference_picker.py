"""The picker: whom it lets in, whom it prefers, when it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc.messages import ProcessingRequest
from reference_epp.endpoints import parse_endpoint
from reference_epp.picker import Picked, Refused, Request
from reference_epp.subset import read_subset

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"


def subset(*texts: str) -> frozenset[Any]:
    return frozenset(parse_endpoint(text) for text in texts)


def first(decision: Any) -> str:
    assert isinstance(decision, Picked), decision
    return str(decision.endpoints[0])


@pytest.fixture
def three(world: Callable[..., Any]) -> Any:
    made = world()
    made.endpoints(A, B, C)
    return made


def test_an_empty_pool_is_503_even_for_sheddable_requests(world: Callable[..., Any]) -> None:
    assert world().picker.pick(Request()) == Refused(503, "no ready endpoints")
    assert world().picker.pick(Request(sheddable=True)).code == 503


def test_equal_endpoints_take_turns(three: Any) -> None:
    assert {first(three.picker.pick(Request())) for _ in range(3)} == {A, B, C}


def test_the_idle_endpoint_wins_and_the_rest_follows_in_order(three: Any) -> None:
    three.load(A, queued=4)
    three.load(B, queued=0, kv_cache=0.1)
    three.load(C, queued=1)
    for _ in range(5):
        decision = three.picker.pick(Request())
        assert [str(endpoint) for endpoint in decision.endpoints] == [B, C]


def test_a_full_cache_is_load_too(three: Any) -> None:
    three.load(A, kv_cache=0.9)
    three.load(B, kv_cache=0.5)
    three.load(C, kv_cache=0.7)
    assert first(three.picker.pick(Request())) == B


def test_the_adapter_attracts(three: Any) -> None:
    three.load(A, max_adapters=2)
    three.load(B, running_adapters=frozenset({"sql"}), max_adapters=2)
    three.load(C, max_adapters=2)
    for _ in range(5):
        assert first(three.picker.pick(Request(model="sql"))) == B


def test_the_prefix_attracts_among_equals(three: Any) -> None:
    body = b"x" * 5000
    chosen = first(three.picker.pick(Request(body=body)))
    for _ in range(5):
        assert first(three.picker.pick(Request(body=body + b"tail"))) == chosen


def test_one_that_says_nothing_is_used_last_and_still_used(three: Any) -> None:
    three.load(A, queued=1)
    three.load(B, queued=1)
    assert {first(three.picker.pick(Request())) for _ in range(6)} == {A, B}
    assert first(three.picker.pick(Request(subset=subset(C)))) == C


def test_requests_in_flight_decide_among_equals(three: Any) -> None:
    for text in (A, B, C):
        three.load(text)
    for text in (A, B):
        three.accounting.begin(parse_endpoint(text))
    assert {first(three.picker.pick(Request())) for _ in range(3)} == {C}


def test_a_subset_limits_the_whole_list_however_good_the_others_are(three: Any) -> None:
    three.load(A, queued=100, kv_cache=1)
    for _ in range(5):
        assert three.picker.pick(Request(subset=subset(A))) == Picked((parse_endpoint(A),))
    for _ in range(5):
        assert set(three.picker.pick(Request(subset=subset(B, C, "9.9.9.9:1"))).endpoints) <= subset(B, C)


@pytest.mark.parametrize("members", [(), ("9.9.9.9:8000",), ("10.0.0.1:8001",)])
def test_a_subset_without_eligible_members_is_503(three: Any, members: tuple[str, ...]) -> None:
    assert three.picker.pick(Request(subset=subset(*members))).code == 503


def test_only_sheddable_requests_are_shed_and_only_when_all_are_saturated(three: Any) -> None:
    for text in (A, B, C):
        three.load(text, queued=6)
    assert three.picker.pick(Request(sheddable=True)).code == 429
    assert isinstance(three.picker.pick(Request()), Picked)
    three.load(B, queued=5, kv_cache=0.8)  # at both thresholds, above none
    assert isinstance(three.picker.pick(Request(sheddable=True)), Picked)
    assert three.picker.pick(Request(sheddable=True, subset=subset(A, C))).code == 429


def test_silence_is_no_overload(three: Any) -> None:
    assert isinstance(three.picker.pick(Request(sheddable=True)), Picked)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.text()
    | st.sampled_from([A, f" {B} ", "10.0.0.1", f"{A},{B}", "[::1]:80"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(json_values)
def test_any_hint_is_a_subset_that_only_names_narrow(value: Any) -> None:
    message = ProcessingRequest()
    fields = message.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields
    fields["x-gateway-destination-endpoint-subset"].SetInParent()
    match value:
        case None:
            fields["x-gateway-destination-endpoint-subset"].null_value = 0
        case bool():
            fields["x-gateway-destination-endpoint-subset"].bool_value = value
        case float():
            fields["x-gateway-destination-endpoint-subset"].number_value = value
        case str():
            fields["x-gateway-destination-endpoint-subset"].string_value = value
        case list():
            fields["x-gateway-destination-endpoint-subset"].list_value.extend(value)
        case dict():
            fields["x-gateway-destination-endpoint-subset"].struct_value.update(value)
    wire = ProcessingRequest.FromString(message.SerializeToString())
    found = read_subset(wire.metadata_context, "envoy.lb.subset_hint")
    items = value if isinstance(value, list) else value.split(",") if isinstance(value, str) else []
    assert found is not None
    assert found == {endpoint for item in items if isinstance(item, str) for endpoint in _valid(item)}


def _valid(item: str) -> list[Any]:
    try:
        return [parse_endpoint(item)]
    except ValueError:
        return []


def test_no_key_is_no_subset() -> None:
    message = ProcessingRequest()
    assert read_subset(message.metadata_context, "envoy.lb.subset_hint") is None
    message.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields["other"].string_value = A
    message.metadata_context.filter_metadata["envoy.lb"].fields[
        "x-gateway-destination-endpoint-subset"
    ].string_value = A
    assert read_subset(message.metadata_context, "envoy.lb.subset_hint") is None
