"""Bodies in protobuf: what can be read is read, all else is refused in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_kubernetes import protobuf_body

TEXT = st.text(max_size=200)


def number(value: int) -> bytes:
    written = b""
    while value > 0x7F:
        written, value = written + bytes([value & 0x7F | 0x80]), value >> 7
    return written + bytes([value])


def field(at: int, value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return number(at << 3 | 2) + number(len(raw)) + raw


def body(kind: str, metadata: bytes) -> bytes:
    """As client-go writes it: type, object, and a content encoding."""
    written = field(1, field(1, "v1") + field(2, kind)) + field(2, field(1, metadata) + field(2, b"")) + field(3, "")
    return protobuf_body.MAGIC + written


@given(TEXT, st.dictionaries(TEXT, TEXT, max_size=3), st.integers(0, 2**63))
def test_the_metadata_of_a_namespace_is_read(name: str, labels: dict[str, str], generation: int) -> None:
    maps = b"".join(field(11, field(1, key) + field(2, value)) for key, value in labels.items())
    read = protobuf_body.read(body("Namespace", field(1, name) + number(7 << 3) + number(generation) + maps))
    metadata = {"name": name} | ({"labels": labels} if labels else {})
    assert read == {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def test_of_a_kind_with_more_to_say_nothing_is_read() -> None:
    assert protobuf_body.read(body("Pod", field(1, "a"))) is None


@given(st.binary(max_size=60), st.integers(0, 80))
def test_anything_else_is_refused(garbage: bytes, cut: int) -> None:
    whole = body("Namespace", field(1, "a" * 30))
    for raw in (garbage, protobuf_body.MAGIC + garbage, whole[:cut]):
        try:
            read = protobuf_body.read(raw)
        except ValueError:
            continue
        assert read is None or read["kind"] == "Namespace"


@pytest.mark.parametrize("raw", [b"", b"{}", b"k8s\0\x0a", b"k8s\0\xff", b"k8s\0\x0a\x05ab", b"k8s\0\x0d\x00"])
def test_a_body_that_is_cut_or_none_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        protobuf_body.read(raw)
