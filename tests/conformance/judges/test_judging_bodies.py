"""Judging bodies that are made by a program: compressed ones, and one in very many pieces."""

from __future__ import annotations

import gzip
import sys
import zlib

import pytest
from scripted import BODY, Script, echo, headers_answer

A = "10.0.0.1:8000"
GZIPPED = gzip.compress(BODY, mtime=0)


@pytest.mark.parametrize("side", ["request", "response"])
@pytest.mark.parametrize(
    ("sent", "coding", "answered", "removed", "failed"),
    [
        (GZIPPED, b"gzip", BODY, True, set()),
        (zlib.compress(BODY), b"deflate", BODY, True, set()),
        (GZIPPED, b"gzip", b" " + BODY, True, set()),  # the same value
        (GZIPPED, b"gzip", BODY.replace(b"hello", b""), True, {"ENV-09"}),
        (GZIPPED, b"gzip", BODY, False, {"ENV-09"}),
        (GZIPPED[:-9], b"gzip", BODY, True, {"ENV-09"}),
        (GZIPPED, b"br", BODY, True, {"ENV-09"}),
        (GZIPPED + GZIPPED, b"gzip", BODY, True, {"ENV-09"}),
        (gzip.compress(bytes(10_000_000)), b"gzip", BODY, True, {"ENV-09"}),
    ],
)
def test_decompressed_body(ask, side, sent, coding, answered, removed, failed):
    made, headers = Script(pool={"a": A}), ((b"content-encoding", coding),)
    remove = {side: ["content-encoding"]} if removed else {}
    exchange = made.exchange(headers=headers if side == "request" else ())
    exchange.request(sent if side == "request" else BODY)
    exchange.answers(headers_answer(A, remove=remove.get("request", ())))
    exchange.answers(*echo(answered if side == "request" else BODY))
    if side == "response":
        exchange.response_headers(headers=headers)
        exchange.answers(headers_answer(side="response", remove=remove.get("response", ())))
        exchange.chunk(sent, side="response", end=True).answers(*echo(answered, side="response"))
    exchange.drained()
    assert ask(made).blamed - {"EPP-TRN-06"} == failed


def test_work_grows_linearly_with_the_number_of_messages(ask):
    """A data plane may cut a body of some megabytes into pieces of some bytes."""

    def calls(chunks: int) -> int:
        body, made, count = b"x" * chunks, Script(pool={"a": A}), 0

        def called(*_: object) -> None:
            nonlocal count
            count += 1

        made.exchange().request(body, chunks=chunks).answers(headers_answer(A), *echo(body, chunks=chunks)).drained()
        before = sys.getprofile()
        sys.setprofile(called)
        try:
            ask(made)
        finally:
            sys.setprofile(before)
        return count

    calls(1)  # what is done once and remembered
    assert calls(1600) < 6 * calls(400)
