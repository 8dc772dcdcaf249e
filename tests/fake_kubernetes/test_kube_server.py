"""The HTTP server below the API: framing, pipelining, and what it does with bytes that are no HTTP."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_kubernetes.server import MAX_BODY, MAX_WAITING, ApiAnswer, HttpServer, StreamedAnswer

DEADLINE = 10.0


async def _echo(request):
    return ApiAnswer(body=f"{request.method} {request.path} {dict(request.query)} ".encode() + request.body)


async def _count(request):
    async def run(send):
        for number in range(3):
            await send(str(number).encode())

    return ApiAnswer(body=StreamedAnswer(run=run))


def _talk(handler, data: bytes, *, half_close: bool = True) -> bytes:
    async def scenario() -> bytes:
        server = HttpServer(handler, host="127.0.0.1", port=0)
        await server.open()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(data)
            async with asyncio.timeout(DEADLINE):
                answer = await reader.read(-1)
            writer.close()
            return answer
        finally:
            await server.close()
            server.release()

    return asyncio.run(scenario())


CLOSE = b"Host: localhost\r\nConnection: close\r\n\r\n"


def test_pipelined_requests_are_answered_in_order():
    data = (
        b"GET /a?x=%20y&z HTTP/1.1\r\nHost: localhost\r\n\r\nPOST /b%20c HTTP/1.1\r\nContent-Length: 2\r\n"
        + CLOSE
        + b"hi"
    )
    answer = _talk(_echo, data)
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"GET /a {'x': ' y', 'z': ''} " in answer
    assert answer.endswith(b"Connection: close\r\n\r\nPOST /b c {} hi")


def test_chunked_bodies_both_ways():
    data = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + CLOSE + b"2\r\nhi\r\n1\r\n!\r\n0\r\n\r\n"
    assert _talk(_echo, data).endswith(b"hi!")
    assert _talk(_count, b"GET / HTTP/1.1\r\n" + CLOSE).endswith(b"\r\n\r\n1\r\n0\r\n1\r\n1\r\n1\r\n2\r\n0\r\n\r\n")


def test_http_1_0_streams_end_with_the_connection():
    answer = _talk(_count, b"GET / HTTP/1.0\r\n\r\n")
    assert b"chunked" not in answer
    assert answer.endswith(b"\r\n\r\n012")


def test_an_offer_of_another_protocol_is_not_taken_up():
    offer = b"Host: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    data = b"GET /a HTTP/1.1\r\n" + offer + b"\r\nPOST /b HTTP/1.1\r\nContent-Length: 2\r\n" + offer + b"\r\nhi"
    answer = _talk(_echo, data + b"GET /c HTTP/1.1\r\n" + CLOSE)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.endswith(b"Connection: close\r\n\r\nGET /c {} ")
    assert b"POST /b {} hiHTTP/1.1" in answer
    assert _talk(_echo, b"CONNECT x:1 HTTP/1.1\r\n" + CLOSE).startswith(b"HTTP/1.1 405 ")


def test_a_watch_by_websocket_is_refused_at_once():
    """fabric8's client goes on over HTTP then; with an answer that does not end it would wait for that."""
    offer = b"Connection: Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
    answer = _talk(_echo, b"GET /api/v1/pods?watch=true HTTP/1.1\r\n" + offer + b"\r\n", half_close=False)
    assert answer.startswith(b"HTTP/1.1 503 ")


def test_an_answer_to_head_has_no_body():
    answer = _talk(_echo, b"HEAD /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n" + CLOSE)
    first, second = answer.split(b"\r\n\r\n", 1)
    assert b"Content-Length: 11" in first
    assert second.startswith(b"HTTP/1.1 200 OK")


def test_expect_continue():
    data = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n" + CLOSE + b"hi"
    assert _talk(_echo, data).startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400 Bad Request"),
        (b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", b"400 Bad Request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n" + b"x" * (MAX_BODY + 1), b"413"),
    ],
)
def test_bad_requests_are_refused_and_the_connection_closed(data, status):
    assert _talk(_echo, data).startswith(b"HTTP/1.1 " + status)


def test_a_flood_of_pipelined_requests_is_refused():
    async def never(request):
        await asyncio.Event().wait()

    answer = _talk(never, b"GET / HTTP/1.1\r\n\r\n" * (MAX_WAITING + 2))
    assert b"HTTP/1.1 400" in answer


@settings(max_examples=40)
@given(st.binary(min_size=1, max_size=60))
def test_no_bytes_keep_the_server_from_serving(data):
    async def scenario() -> None:
        server = HttpServer(_echo, host="127.0.0.1", port=0)
        await server.open()
        try:
            _, bad = await asyncio.open_connection("127.0.0.1", server.port)
            bad.write(data)
            reader, good = await asyncio.open_connection("127.0.0.1", server.port)
            good.write(b"GET /fine HTTP/1.1\r\n" + CLOSE)
            async with asyncio.timeout(DEADLINE):
                assert b"GET /fine" in await reader.read(-1)
            bad.close()
            good.close()
        finally:
            await server.close()
            server.release()

    asyncio.run(scenario())


def test_a_handler_that_fails_ends_the_connection_and_why_is_told():
    told = []

    async def fails(_):
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
        raise RuntimeError("ours")

    assert _talk(fails, b"GET / HTTP/1.1\r\n" + CLOSE) == b""
    assert [str(one) for one in told] == ["ours"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:80", 200),
        ("[::1]:80", 200),
        ("localhost", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
        ("[::", 421),
        ("", 421),
    ],
)
def test_only_addresses_and_own_names_are_served(host: str, status: int) -> None:
    """A web page can give its own name the address of this machine, and then read what is served there."""
    data = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    assert _talk(_echo, data).startswith(b"HTTP/1.1 %d " % status)
