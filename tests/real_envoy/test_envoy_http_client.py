"""The HTTP client against plain servers: what it writes, what it reads, and how it goes away."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from ext_proc.http2 import frames
from ext_proc.http2.connection import SERVER_SETTINGS, Http2Connection
from ext_proc.http2.fields import FieldEncoder
from ext_proc.http2.streams import CloseKind
from ext_proc.http2.transport import Transport
from ext_proc.record import Headers
from fake_proxy.client import Abort, AbortPoint, Chunk, HttpRequest
from real_envoy import HttpResponse, send_request
from real_envoy.http_response import KEPT, MOST, ResponseParts
from real_envoy.kept import KeptConnection

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


def _run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


async def _http1(serve: Serve, request: HttpRequest, **options: Any) -> HttpResponse:
    """The answer to `request` of a server that does `serve` once."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        return await send_request(f"{host}:{port}", request, **options)
    finally:
        server.close()


@pytest.mark.parametrize("says", [b"HTTP/1.1 100 Continue\r\n\r\n", b""])
def test_a_client_that_expects_100_waits_for_it_and_not_for_long(says: bytes) -> None:
    async def main() -> None:
        read: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            read.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(says)
            read.append(await reader.readexactly(4))
            writer.write(OK)

        got = await _http1(serve, HttpRequest(headers=((b"expect", b"100-continue"),), body=b"body"))
        assert (got.status, got.complete, read[1]) == (200, True, b"body")

    _run(main())


@pytest.mark.parametrize(
    ("written", "line"),
    [
        ("ordinary", b"POST /v1?x=1 HTTP/1.1\r\n"),
        ("absolute-form", b"POST http://gateway.example/v1?x=1 HTTP/1.1\r\n"),
        ("http-1.0", b"POST /v1?x=1 HTTP/1.0\r\n"),
    ],
)
def test_how_the_first_line_is_written(written: Any, line: bytes) -> None:
    async def main() -> None:
        read: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            read.append(await reader.readline())
            writer.write(b"HTTP/1.0 200 OK\r\n\r\nok")

        got = await _http1(serve, HttpRequest(path="/v1?x=1", written=written))
        assert (got.status, got.complete, got.body, read) == (200, True, b"ok", [line])

    _run(main())


class _Http2Server:
    """Answers each stream with a head, `pieces` and trailers when the request is complete; notes what came."""

    def __init__(self, pieces: tuple[bytes, ...] = (b"ok",), trailers: Headers = (), reset: int | None = None) -> None:
        self.headers: list[Headers] = []
        self.data: list[tuple[bytes, bool]] = []
        self.closed: list[tuple[str, int]] = []
        self._pieces, self._trailers, self._reset = pieces, trailers, reset

    async def __aenter__(self) -> str:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, "127.0.0.1", 0)
        return "{}:{}".format(*self._server.sockets[0].getsockname())

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def _connection(self) -> Transport:
        def accept(stream: int, headers: Headers, end: bool) -> _Http2Server:
            self._stream = stream
            self.on_headers(headers, end)
            return self

        self._transport = Transport(Http2Connection(settings=SERVER_SETTINGS, accept=accept))
        return self._transport

    def on_headers(self, headers: Headers, end: bool, /) -> None:
        self.headers.append(headers)
        if end:
            self._answer()

    def on_data(self, data: bytes, end: bool, /) -> None:
        self.data.append((data, end))
        if end:
            self._answer()

    def on_closed(self, kind: CloseKind, code: int, _: str, /) -> None:
        self.closed.append((kind, code))

    def _answer(self) -> None:
        transport, stream = self._transport, self._stream
        transport.send_headers(stream, ((b":status", b"103"),))
        transport.send_headers(stream, ((b":status", b"200"), (b"x-a", b"1")))
        for piece in self._pieces:
            transport.send(stream, piece)
        if self._reset is not None:
            transport.reset(stream, self._reset)
        elif self._trailers:
            transport.send_headers(stream, self._trailers, end=True)
        else:
            transport.send(stream, b"", end=True)


def test_http1_announces_the_length_and_keeps_the_headers_as_they_are() -> None:
    async def test() -> None:
        got = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal got
            got = await reader.readuntil(b"\r\n\r\n") + await reader.readexactly(4)
            writer.write(OK)

        answer = await _http1(serve, HttpRequest(path="/p?q=1", headers=((b"X-A", b"caf\xe9"),), body=b"body"))
        assert got == (
            b"POST /p?q=1 HTTP/1.1\r\nhost: gateway.example\r\nX-A: caf\xe9\r\ncontent-length: 4\r\n\r\nbody"
        )
        assert answer == HttpResponse(status=200, headers=((b"content-length", b"2"),), pieces=(b"ok",), complete=True)

    _run(test())


def test_http1_sends_chunks_one_by_one_and_trailers_after_them() -> None:
    async def test() -> None:
        seen: list[bytes] = []
        echoes: list[int] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            seen.append(await reader.readuntil(b"one\r\n"))
            go_on.set()
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n"
            )

        async def echo(through: int) -> None:
            echoes.append(through)
            await go_on.wait()

        go_on = asyncio.Event()
        chunks = (Chunk(data=b"one", await_echo=True), Chunk(data=b"four"))
        request = HttpRequest(body=chunks, trailers=((b"X-Sum", b"7"),))
        answer = await _http1(serve, request, echo=echo)
        assert seen == [b"3\r\none\r\n", b"4\r\nfour\r\n0\r\nx-sum: 7\r\n\r\n"]
        assert echoes == [3]
        assert (answer.body, answer.trailers, answer.complete) == (b"abc", ((b"x-t", b"1"),), True)

    _run(test())


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
        b"\x00\x01 not http\r\n\r\n",
    ],
)
def test_http1_a_cut_or_broken_response_is_not_complete(response: bytes) -> None:
    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(response)

        answer = await _http1(serve, HttpRequest(method="GET"))
        assert not answer.complete
        assert answer.body == (b"ab" if b"ab" in response else b"")

    _run(test())


@given(st.binary(max_size=300))
@settings(max_examples=40)
def test_http1_no_bytes_of_a_server_raise(response: bytes) -> None:
    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 " + response)

        answer = await _http1(serve, HttpRequest(method="GET"))
        assert isinstance(answer, HttpResponse)

    _run(test())


def test_a_response_may_come_before_the_request_is_complete() -> None:
    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"one")
            writer.write(OK)

        async def never(_: int) -> None:
            await asyncio.Event().wait()

        chunks = (Chunk(data=b"one", await_echo=True), Chunk(data=b"two"))
        assert (await _http1(serve, HttpRequest(body=chunks), echo=never)).complete

    _run(test())


@pytest.mark.parametrize("http", [1, 2])
def test_a_server_that_never_answers_is_given_up(http: Any) -> None:
    async def test() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        if http == 1:
            answer = await _http1(serve, HttpRequest(body=b"x"), timeout=0.05)
        else:
            server = _Http2Server()
            async with server as address:
                request = HttpRequest(body=(Chunk(data=b"x", await_echo=True), Chunk(data=b"y")), http=2)

                async def never(_: int) -> None:
                    await asyncio.Event().wait()

                answer = await send_request(address, request, echo=never, timeout=0.05)
        assert answer == HttpResponse(expired=True)

    _run(test())


@pytest.mark.parametrize(("most", "answer"), [(MOST, "expired"), (2 * KEPT, "endless")])
def test_of_a_body_that_does_not_end_a_part_is_kept(monkeypatch, most: int, answer: str) -> None:
    monkeypatch.setattr("real_envoy.http_response.MOST", most)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % MOST + bytes(3 * KEPT))
        await reader.read()  # the client's request
        await reader.read()

    got = asyncio.run(_http1(serve, HttpRequest(), timeout=1))
    assert getattr(got, answer)
    assert 0 < len(got.body) <= KEPT


@pytest.mark.parametrize(
    ("at", "after", "status", "body"),
    [
        ("request-headers", 1, None, b""),
        ("request-body", 2, None, b""),
        ("request", 1, None, b""),
        ("response-headers", 1, 200, b""),
        ("response-body", 1, 200, b"a"),
    ],
)
def test_the_client_goes_away_where_it_should(at: AbortPoint, after: int, status: int | None, body: bytes) -> None:
    async def test() -> None:
        gone = asyncio.Event()
        sent = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal sent
            try:
                while not sent.endswith(b"0\r\n\r\n"):
                    if not (piece := await reader.read(100)):
                        return
                    sent += piece
                head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
                writer.write(head + (b"1\r\na\r\n" if status == 200 else b""))
                while await reader.read(100):
                    pass
            finally:
                gone.set()

        chunks = tuple(Chunk(data=data) for data in (b"one", b"two", b"three"))
        request = HttpRequest(body=chunks, chunked=True, abort=Abort(at=at, after=after))
        answer = await _http1(serve, request)
        async with asyncio.timeout(5):
            await gone.wait()
        assert (answer.aborted, answer.complete, answer.status, answer.body) == (True, False, status, body)
        assert b"three" not in sent or at not in ("request-headers", "request-body")

    _run(test())


def test_the_choice_of_an_endpoint_is_no_place_to_go_away() -> None:
    async def test() -> None:
        with pytest.raises(ValueError, match="does not see the choice"):
            await send_request("127.0.0.1:9", HttpRequest(abort=Abort(at="destination")))

    _run(test())


def test_http2_ends_on_the_last_piece_and_reads_heads_pieces_and_trailers() -> None:
    async def test() -> None:
        server = _Http2Server(pieces=(b"a", b"b"), trailers=((b"x-t", b"1"),))
        async with server as address:
            answer = await send_request(address, HttpRequest(headers=((b"X-A", b"1"),), body=b"body", http=2))
        assert server.data == [(b"body", True)]
        assert server.headers[0] == (
            (b":method", b"POST"), (b":path", b"/v1/chat/completions"), (b":scheme", b"http"),
            (b":authority", b"gateway.example"), (b"x-a", b"1"), (b"content-length", b"4"),
        )  # fmt: skip
        assert answer == HttpResponse(
            status=200, headers=((b"x-a", b"1"),), pieces=(b"a", b"b"), trailers=((b"x-t", b"1"),), complete=True
        )

    _run(test())


def test_http2_trailers_and_bodyless_requests() -> None:
    async def test() -> None:
        server = _Http2Server()
        async with server as address:
            await send_request(address, HttpRequest(body=b"x", trailers=((b"X-Sum", b"1"),), http=2))
            await send_request(address, HttpRequest(method="GET", http=2))
            await send_request(address, HttpRequest(chunked=True, http=2))
        assert server.data == [(b"x", False), (b"", True)]
        assert server.headers[1] == ((b"x-sum", b"1"),)

    _run(test())


def test_http2_a_reset_response_is_not_complete() -> None:
    async def test() -> None:
        async with _Http2Server(pieces=(), reset=2) as address:
            answer = await send_request(address, HttpRequest(method="GET", http=2))
        assert not answer.complete

    _run(test())


def test_http2_going_away_is_a_reset() -> None:
    async def test() -> None:
        server = _Http2Server(pieces=(b"a" * 10,))
        async with server as address:
            abort = Abort(at="response-headers")
            answer = await send_request(address, HttpRequest(method="GET", http=2, abort=abort))
        assert (answer.aborted, answer.status, answer.body) == (True, 200, b"")

    _run(test())


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_http2_a_connection_that_takes_no_stream_is_none(
    loop: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    gone = asyncio.Event()

    async def leaves(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.settings(()) + frames.goaway(0, frames.ErrorCode.NO_ERROR))
        await reader.read()
        writer.close()
        await writer.wait_closed()
        gone.set()

    async def test() -> None:
        async with await asyncio.start_server(leaves, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            async with asyncio.timeout(30) as limit:
                with pytest.raises(ConnectionError, match="takes no request"):
                    await send_request(f"{host}:{port}", HttpRequest(http=2, body=b"body"), timeout=600)
            assert not limit.expired()
            await gone.wait()

    loop(asyncio.wait_for(test(), 30))


def test_http2_a_stream_waits_until_the_connection_takes_one() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frames.settings(((frames.Setting.MAX_CONCURRENT_STREAMS, 0),)))
        await reader.readuntil(frames.frame(frames.SETTINGS, frames.ACK, 0))
        writer.write(frames.settings(((frames.Setting.MAX_CONCURRENT_STREAMS, 1),)))
        await reader.readuntil(b"body")
        writer.write(frames.headers(1, FieldEncoder().encode(((b":status", b"204"),)), end=True, size=16_384))
        await reader.read()

    async def test() -> None:
        answer = await _http1(serve, HttpRequest(http=2, body=b"body"), timeout=600)
        assert (answer.status, answer.complete) == (204, True)

    _run(asyncio.wait_for(test(), 30))


@pytest.mark.parametrize("where", ["reading", "sending"])
def test_an_error_of_ours_is_raised_and_is_no_gateway_that_hangs(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if where == "reading":
            writer.write(OK)
        await reader.read()

    def fails(*_: object) -> None:
        raise RuntimeError("ours")

    async def echo(_: int) -> None:
        fails()

    async def test() -> None:
        chunks = tuple(Chunk(data=data, await_echo=True) for data in (b"one", b"two"))
        async with asyncio.timeout(30) as limit:
            with pytest.raises(RuntimeError, match="ours"):
                await _http1(serve, HttpRequest(body=chunks), echo=echo if where == "sending" else None, timeout=600)
        assert not limit.expired()

    if where == "reading":
        monkeypatch.setattr(ResponseParts, "head", fails)
    _run(test())


@pytest.mark.parametrize("http", [1, 2])
def test_a_gateway_that_is_not_there_is_an_error(http: Any) -> None:
    async def test() -> None:
        with pytest.raises(ConnectionError, match=r"127\.0\.0\.1"):
            await send_request("127.0.0.1:1", HttpRequest(http=http))

    _run(test())


@pytest.mark.parametrize("sending", ["http1", "http2", "kept"])
def test_a_gateway_that_leaves_the_connection_waiting_is_an_error(
    monkeypatch: pytest.MonkeyPatch, sending: str
) -> None:
    """Its queue is full, or it was never given a processor to accept anything."""
    monkeypatch.setattr("real_envoy.http_client.CONNECT", 0.3)

    async def send(address: str) -> HttpResponse:
        if sending == "kept":
            async with KeptConnection(address) as kept:
                return await kept.send(HttpRequest())
        return await send_request(address, HttpRequest(http=2 if sending == "http2" else 1))

    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, contextlib.ExitStack() as queue:
        for _ in range(4):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        with pytest.raises(TimeoutError, match=r"127\.0\.0\.1:\d+: .* did not come within 0\.3 s"):
            asyncio.run(asyncio.wait_for(send(f"127.0.0.1:{server.getsockname()[1]}"), 30))
