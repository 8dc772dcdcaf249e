"""What is kept of a target's output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from conformance.targets.output import KEPT, LINE_LENGTH, LINES, Output


def said(*pieces: bytes, redact=str) -> str:
    output = Output(redact)
    for piece in pieces:
        output.feed(piece)
    return output.tail()


def test_nothing():
    assert said() == ""


def test_the_last_lines_are_kept():
    lines = said(*(f"line {number}\n".encode() for number in range(1000))).splitlines()
    assert lines == [f"line {number}" for number in range(1000 - LINES, 1000)]


def test_a_line_without_an_end_is_kept():
    assert said(b"one\ntw", b"o") == "one\ntwo"


def test_blank_lines_take_no_place():
    assert said(b"\n\none\r\n\n  \ntwo\n\n") == "one\ntwo"


def test_progress_that_overwrites_itself_is_lines():
    assert said(b"10 %\r20 %\r") == "10 %\n20 %"


def test_colours_are_left_out():
    assert said(b"\x1b[1;31merror\x1b[0m: \x1b]0;title\x07no") == "error: no"


def test_control_characters_and_broken_text_are_marked():
    assert said(b"a\x00b\xffc\td") == "a\ufffdb\ufffdc\td"


def test_a_flood_is_bounded():
    output = Output()
    for _ in range(2000):
        output.feed(b"x" * 65_535 + b"\n")
    assert len(output._kept) <= 2 * KEPT + 65_536
    assert len(output.tail()) <= LINES * (LINE_LENGTH + 2)


def test_an_endless_line_is_cut():
    text = said(b"x" * (4 * KEPT))
    assert text == "x" * LINE_LENGTH + "…"


def test_secrets_are_redacted_before_anything_is_cut():
    def redact(text):
        return text.replace("s3cret-token", "***")

    assert said(b"Authorization: s3cret-token\n", redact=redact) == "Authorization: ***"
    assert said(b"\x1b[1ms3cret-token", redact=redact) == "***"
    flood = b"s3cret-token" * (4 * KEPT // 12)
    assert "token" not in said(flood, b"\nlast\n", redact=redact)


def test_half_a_secret_at_the_cut_is_not_kept():
    def redact(text):
        return text.replace("s3cret-token", "***")

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
