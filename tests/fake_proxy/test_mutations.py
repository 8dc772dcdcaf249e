"""Header mutations one by one: overwrite, append, the actions, and what is protected."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_driver import mutation, set_header

from ext_proc.messages import BodyMutation, BoolValue, HeaderMutation, HeaderValue, HeaderValueOption
from fake_proxy.answer_errors import RejectedError
from fake_proxy.header_map import REQUEST, get, joined, put
from fake_proxy.mutations import HeaderRules, apply_body, apply_headers

RULES = HeaderRules(max_count=100, max_bytes=60 * 1024, known=REQUEST)


def applied(headers: list[tuple[bytes, bytes]], *options: HeaderValueOption, remove: tuple[str, ...] = ()):
    headers = list(headers)
    apply_headers(mutation(*options, remove=remove), headers, RULES)
    return headers


@pytest.mark.parametrize(
    ("option", "present", "absent"),
    [
        ({}, [(b"x", b"2")], [(b"x", b"2")]),
        ({"append": BoolValue(value=False)}, [(b"x", b"2")], [(b"x", b"2")]),
        ({"append": BoolValue(value=True)}, [(b"x", b"1"), (b"x", b"2")], [(b"x", b"2")]),
        ({"append_action": HeaderValueOption.APPEND_IF_EXISTS_OR_ADD}, [(b"x", b"2")], [(b"x", b"2")]),
        ({"append_action": HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD}, [(b"x", b"2")], [(b"x", b"2")]),
        ({"append_action": HeaderValueOption.ADD_IF_ABSENT}, [(b"x", b"2")], [(b"x", b"2")]),
        ({"append_action": HeaderValueOption.OVERWRITE_IF_EXISTS}, [(b"x", b"2")], [(b"x", b"2")]),
    ],
    ids=["default", "append false", "append true", "action 0", "overwrite or add", "add if absent", "overwrite"],
)
def test_overwrite_and_append(option: dict, present: list, absent: list) -> None:
    assert applied([(b"x", b"1")], set_header("X", b"2", **option)) == present
    assert applied([], set_header("x", b"2", **option)) == absent


def test_well_known_headers_have_one_entry() -> None:
    append = {"append": BoolValue(value=True)}
    assert applied([(b"accept", b"1")], set_header("accept", b"2", **append)) == [(b"accept", b"1,2")]
    assert joined([(b"accept", b"1"), (b"x", b"1"), (b"accept", b"2"), (b"x", b"2")], REQUEST) == [
        (b"accept", b"1,2"),
        (b"x", b"1"),
        (b"x", b"2"),
    ]


def test_the_last_of_two_settings_wins_in_place() -> None:
    headers = [(b":path", b"/"), (b"x", b"1"), (b"y", b"1"), (b"x", b"3")]
    assert applied(headers, set_header("x", b"4"), set_header("x", b"5")) == [
        (b":path", b"/"),
        (b"x", b"5"),
        (b"y", b"1"),
    ]


def test_removals_come_first() -> None:
    assert applied([(b"x", b"1"), (b"y", b"1")], set_header("x", b"2"), remove=("X", ":path", "host")) == [
        (b"y", b"1"),
        (b"x", b"2"),
    ]


def test_new_pseudo_headers_stand_before_the_others() -> None:
    assert applied([(b":path", b"/"), (b"x", b"1")], set_header(":status", b"200"))[1] == (b":status", b"200")


def test_an_option_without_a_header_is_nothing() -> None:
    assert applied([(b"x", b"1")], HeaderValueOption()) == [(b"x", b"1")]


def test_a_bad_name_to_remove_is_rejected() -> None:
    with pytest.raises(RejectedError, match="invalid"):
        applied([], remove=("a b",))


def test_sizes_are_limited() -> None:
    with pytest.raises(RejectedError, match="exceeds_limit"):
        applied([], set_header("x", b"1" * (60 * 1024)))


def test_body_mutations() -> None:
    assert apply_body(BodyMutation(body=b"new"), b"old") == b"new"
    assert apply_body(BodyMutation(clear_body=True), b"old") == b""
    assert apply_body(BodyMutation(clear_body=False), b"old") == b"old"
    assert apply_body(BodyMutation(), b"old") == b"old"


names = st.sampled_from([b"x", b"y", b":path", b"content-length"])
headers_ = st.lists(st.tuples(names, st.binary(max_size=3)), max_size=6)


@given(headers_, names, st.binary(max_size=3))
def test_put_leaves_exactly_one(headers: list[tuple[bytes, bytes]], name: bytes, value: bytes) -> None:
    after = list(headers)
    put(after, name, value)
    assert [entry for entry in after if entry[0] == name] == [(name, value)]
    assert get(after, name) == value
    assert [entry for entry in after if entry[0] != name] == [entry for entry in headers if entry[0] != name]


options = st.builds(
    HeaderValueOption,
    header=st.builds(HeaderValue, key=st.text(max_size=4), value=st.text(max_size=2), raw_value=st.binary(max_size=4)),
    append=st.none() | st.builds(BoolValue, value=st.booleans()),
    append_action=st.integers(0, 9),
)


@given(headers_, st.lists(options, max_size=4), st.lists(st.text(max_size=4), max_size=3))
def test_any_mutation_is_applied_or_rejected(headers: list, setting: list, removing: list) -> None:
    after = list(headers)
    with contextlib.suppress(RejectedError):
        apply_headers(HeaderMutation(set_headers=setting, remove_headers=removing), after, RULES)
    assert all(key == key.lower() for key, _ in after)
