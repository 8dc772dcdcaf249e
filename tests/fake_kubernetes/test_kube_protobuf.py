"""Bodies in protobuf: what can be read is read, all else is refused in words."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubernetes import protobuf_body

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEXT = st.text(max_size=200)


def number(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written, value = written + bytes([value & 0x7F | 0x80]), value >> 7
    return written + bytes([value])


def field(at: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return number(at << 3 | 2) + number(len(raw)) + raw


def integer(at: int, value: int) -> bytes:
    return number(at << 3) + number(value % (1 << 64))


def body(kind: str, metadata: bytes, spec: bytes = b"", api_version: str = "v1") -> bytes:
    """As client-go writes it: type, object, and a content encoding."""
    raw = field(1, metadata) + field(2, spec)
    return protobuf_body.MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, raw) + field(3, "")


def lease(metadata: bytes, spec: bytes) -> bytes:
    return body("Lease", metadata, spec, "coordination.k8s.io/v1")


@given(TEXT.filter(bool), st.dictionaries(TEXT, TEXT, max_size=3), st.integers(0, 2**63))
def test_the_metadata_of_a_namespace_is_read(name: str, labels: dict[str, str], generation: int) -> None:
    maps = b"".join(field(11, field(1, key) + field(2, value)) for key, value in labels.items())
    read = protobuf_body.read(body("Namespace", field(1, name) + number(7 << 3) + number(generation) + maps))
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    assert read == {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


@given(TEXT, st.integers(-(2**31), 2**31 - 1), st.integers(-(10**9), 10**9), st.integers(0, 999_999))
def test_a_lease_is_read_whole(holder: str, seconds: int, time: int, micros: int) -> None:
    metadata = field(1, "epp") + field(2, "") + field(3, "default") + field(5, "u") + field(6, "12") + integer(7, 3)
    moment = integer(1, time) + integer(2, micros * 1000)
    spec = field(1, holder) + integer(2, seconds) + field(3, moment) + field(4, moment) + integer(5, 2)
    read = protobuf_body.read(lease(metadata, spec))
    assert read is not None
    assert read["metadata"] == {"name": "epp", "namespace": "default", "uid": "u", "resourceVersion": "12"}
    written = read["spec"].pop("acquireTime")
    assert datetime.fromisoformat(written) == EPOCH + timedelta(seconds=time, microseconds=micros)
    rest = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": written, "leaseTransitions": 2}
    assert read["spec"] == rest


def test_a_lease_with_a_time_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="out of range"):
        protobuf_body.read(lease(field(1, "epp"), field(4, integer(1, 2**62))))


def test_of_a_kind_with_more_to_say_nothing_is_read() -> None:
    assert protobuf_body.read(body("Pod", field(1, "a"))) is None


@given(st.binary(max_size=60), st.integers(0, 80))
def test_anything_else_is_refused(garbage: bytes, cut: int) -> None:
    whole = body("Namespace", field(1, "a" * 30))
    for raw in (garbage, protobuf_body.MAGIC + garbage, whole[:cut], lease(b"", garbage)):
        try:
            read = protobuf_body.read(raw)
        except ValueError:
            continue
        assert read is None or read["kind"] in ("Namespace", "Lease")


@pytest.mark.parametrize("raw", [b"", b"{}", b"k8s\0\x0a", b"k8s\0\xff", b"k8s\0\x0a\x05ab", b"k8s\0\x0d\x00"])
def test_a_body_that_is_cut_or_none_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        protobuf_body.read(raw)
