"""What is kept of a target's output."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.targets.output import KEPT, LINE_LENGTH, LINES, Output


def redact(text: str) -> str:
    return text.replace("s3cret-token", "***")


def said(*pieces: bytes, redact=str) -> str:
    output = Output(redact)
    for piece in pieces:
        output.feed(piece)
    return output.tail()


def test_the_last_lines_are_kept():
    lines = said(*(f"line {number}\n".encode() for number in range(1000))).splitlines()
    assert lines == [f"line {number}" for number in range(1000 - LINES, 1000)]


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [
        ([], ""),
        ([b"one\ntw", b"o"], "one\ntwo"),
        ([b"\n\none\r\n\n  \ntwo\n\n"], "one\ntwo"),
        ([b"10 %\r20 %\r"], "10 %\n20 %"),
        ([b"\x1b[1;31merror\x1b[0m: \x1b]0;title\x07no"], "error: no"),
        ([b"a\x00b\xffc\td"], "a\ufffdb\ufffdc\td"),
        ([b"x" * (4 * KEPT)], "x" * LINE_LENGTH + "…"),
    ],
    ids=["nothing", "no line end", "blank lines", "progress", "colours", "control characters", "endless line"],
)
def test_output_is_kept_as_printable_lines(pieces, kept):
    assert said(*pieces) == kept


def test_a_flood_is_bounded():
    output = Output()
    for _ in range(2000):
        output.feed(b"x" * 65_535 + b"\n")
    assert len(output._kept) <= 2 * KEPT + 65_536
    assert len(output.tail()) <= LINES * (LINE_LENGTH + 2)


def test_secrets_are_redacted_before_anything_is_cut():
    assert said(b"Authorization: s3cret-token\n", redact=redact) == "Authorization: ***"
    assert said(b"\x1b[1ms3cret-token", redact=redact) == "***"
    flood = b"s3cret-token" * (4 * KEPT // 12)
    assert "token" not in said(flood, b"\nlast\n", redact=redact)


def test_half_a_secret_at_the_cut_is_not_kept():
    output = Output(redact)
    output.feed(b"x" * (2 * KEPT))
    output.feed(b"s3cret-token\nlast\n" + b"y" * (KEPT - 10 - len(b"\nlast\n")))
    assert "token" not in output.tail()


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_any_bytes_give_printable_lines(pieces):
    text = said(*pieces)
    assert all(char.isprintable() or char in "\t\n" for char in text)
    assert len(text.splitlines()) <= LINES


@given(st.binary(max_size=500), st.data())
def test_pieces_do_not_matter(data, draw):
    cut = draw.draw(st.integers(0, len(data)))
    assert said(data[:cut], data[cut:]) == said(data)
