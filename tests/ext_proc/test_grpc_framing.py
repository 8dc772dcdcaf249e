"""gRPC framing and the reading of a call's end."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ext_proc import grpc
from ext_proc.grpc import Deframer, Violation
from ext_proc.record import Headers

_OK: Headers = ((b":status", b"200"), (b"content-type", b"application/grpc+proto"))


@given(st.lists(st.binary(max_size=300), max_size=6), st.lists(st.integers(0, 2000), max_size=6))
def test_any_split_gives_the_same_messages(messages: list[bytes], cuts: list[int]) -> None:
    wire = b"".join(grpc.frame(one) for one in messages)
    deframer, got = Deframer(), []
    for start, stop in itertools.pairwise([0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]):
        got += deframer.feed(wire[start:stop])
    assert got == messages
    assert deframer.finish() is None


@given(st.lists(st.binary(max_size=40), max_size=6))
def test_garbage_gives_at_most_one_violation_and_it_is_last(chunks: list[bytes]) -> None:
    deframer = Deframer(limit=100)
    got = [found for chunk in chunks for found in deframer.feed(chunk)]
    end = deframer.finish()
    got += [end] if end else []
    assert all(isinstance(one, bytes) for one in got[:-1])
    assert deframer.finish() is None


def test_a_message_of_4_gib_is_refused_at_its_prefix() -> None:
    (violation,) = Deframer().feed(b"\x00\xff\xff\xff\xff")
    assert isinstance(violation, Violation)
    assert "claims 4294967295 bytes" in violation.reason
    assert violation.raw == b"\x00\xff\xff\xff\xff"


def test_messages_before_a_violation_count_and_those_behind_it_do_not() -> None:
    deframer = Deframer()
    got = list(deframer.feed(grpc.frame(b"good") + grpc.frame(b"bad", compressed=1) + grpc.frame(b"unseen")))
    assert got[0] == b"good"
    assert isinstance(got[1], Violation)
    assert "compressed" in got[1].reason
    assert len(got) == 2
    assert list(deframer.feed(grpc.frame(b"still unseen"))) == []
    assert deframer.finish() is None


def test_an_end_inside_a_message_is_a_violation() -> None:
    deframer = Deframer()
    assert list(deframer.feed(grpc.frame(b"abc", length=10))) == []
    violation = deframer.finish()
    assert violation.raw == b"\x00\x00\x00\x00\x0aabc"
    assert "inside a message" in violation.reason


def test_the_limit_itself_is_allowed() -> None:
    assert list(Deframer(limit=4).feed(grpc.frame(b"1234"))) == [b"1234"]
    assert isinstance(next(Deframer(limit=4).feed(grpc.frame(b"12345"))), Violation)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_many_small_messages_reach_the_limit_of_all_before_their_bytes_do(one_by_one: bool) -> None:
    """A target that sends them without end would cost memory without end."""
    frames = [grpc.frame(b"")] * 1000
    deframer = Deframer(total=10 * grpc.LEAST)
    found = [one for data in (frames if one_by_one else [b"".join(frames)]) for one in deframer.feed(data)]
    assert found[:10] == [b""] * 10
    assert "too many for what was sent" in found[10].reason
    assert len(found) == 11


@given(st.text(), st.integers(0, 16))
def test_status_and_message_survive_the_trailers(message: str, status: int) -> None:
    trailers = grpc.trailers(status, message)
    assert all(0x20 <= byte <= 0x7E for _, value in trailers for byte in value)
    assert grpc.ending(_OK, trailers) == grpc.CallEnd(status=status, message=message)
    assert grpc.ending((*_OK, *trailers), None) == grpc.CallEnd(status=status, message=message)


@pytest.mark.parametrize(
    ("head", "trailers", "reason"),
    [
        (_OK, None, "without a grpc-status"),
        (_OK, (), "without a grpc-status"),
        (_OK, ((b"grpc-status", b"ok"),), "'ok', not a number"),
        (_OK, ((b"grpc-status", b"9" * 5000),), "not a number"),
        (((b":status", b"404"), (b"content-type", b"text/html")), None, "HTTP status is '404'"),
        (((b":status", b"503"),), ((b"grpc-status", b"0"),), "HTTP status is '503'"),
        (((b":status", b"200"), (b"content-type", b"text/html")), None, "content type is 'text/html'"),
        (((b":status", b"200"),), None, "content type is missing"),
        ((), None, "HTTP status is missing"),
    ],
)
def test_a_missing_grpc_status_has_a_reason(head: Headers, trailers: Headers | None, reason: str) -> None:
    end = grpc.ending(head, trailers)
    assert end.status is None
    assert reason in end.message


def test_damaged_percent_encoding_is_kept_as_it_is() -> None:
    end = grpc.ending(_OK, ((b"grpc-status", b"13"), (b"grpc-message", b"100% wrong %zz %ff")))
    assert end == grpc.CallEnd(status=13, message="100% wrong %zz \ufffd")


def test_request_headers_are_envoys_with_metadata_last() -> None:
    headers = grpc.request_headers(grpc.PROCESS, "epp:9002", scheme="https", metadata=((b"X-Tenant", b"a"),))
    assert [name for name, _ in headers] == [
        b":method",
        b":path",
        b":authority",
        b":scheme",
        b"te",
        b"content-type",
        b"x-envoy-internal",
        b"x-forwarded-for",
        b"x-tenant",
    ]
    assert dict(headers)[b":scheme"] == b"https"
