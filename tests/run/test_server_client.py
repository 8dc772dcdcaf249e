"""The client of a model server: connections that are closed without a word, and pages that come packed."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from collections.abc import AsyncIterator, Callable
from random import Random

import pytest
from httpcore._async.http11 import HTTP11ConnectionByteStream

from conformance.run.model_server.client import MOST, Got, ServerClient
from conformance.run.model_server.requests import request_of
from conformance.scenario.model_server import Ask
from conformance.targets.model_server import ModelServerProfile

pytestmark = pytest.mark.program

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@contextlib.asynccontextmanager
async def asked(
    answers: int, late: Callable[[float], float] = lambda _: 0.0
) -> AsyncIterator[tuple[ServerClient, list[int]]]:
    """A client, and how many requests came on each connection: a server that closes it in place of another answer."""
    came: list[int] = []
    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(came)
        came.append(0)
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
                await reader.readexactly(int(length.partition(b":")[2]))
                came[number] += 1
                if came[number] > answers:
                    break
                writer.write(ANSWER)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = "http://{}:{}".format(*server.sockets[0].getsockname())
    async with server:
        async with ServerClient(ModelServerProfile(role="model-server"), url, url, late) as client:
            yield client, came
        await asyncio.gather(*served)


@pytest.mark.parametrize(("answers", "outcomes"), [(1, ["response"] * 3), (0, ["failed"] * 2)])
def test_a_request_is_repeated_if_a_used_connection_was_closed(answers: int, outcomes: list[str]) -> None:
    request = request_of(ModelServerProfile(role="model-server"), "m", Ask(), Random(1), Random(2))

    async def ask() -> list[int]:
        async with asked(answers) as (client, came):
            assert [(await client.ask(request)).outcome for _ in outcomes] == outcomes
            return came[:]

    assert asyncio.run(ask()) == ([2, 2, 1] if answers else [1, 1])


@pytest.mark.parametrize(("late", "outcome"), [(1.0, "response"), (0.0, "failed")], ids=["ours", "the server's"])
def test_time_that_is_not_the_servers_does_not_make_a_closed_connection_its_failure(
    monkeypatch: pytest.MonkeyPatch, late: float, outcome: str
) -> None:
    """A machine that is busy tells late that a used connection had been closed."""
    request = request_of(ModelServerProfile(role="model-server"), "m", Ask(), Random(1), Random(2))
    monkeypatch.setattr("conformance.run.model_server.client.AT_ONCE", 0.0)

    async def ask() -> list[str]:
        async with asked(1, lambda seconds: late * seconds) as (client, _):
            return [(await client.ask(request)).outcome for _ in range(2)]

    assert asyncio.run(ask()) == ["response", outcome]


def test_a_request_cancelled_while_it_closes_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load may be aborted just when an answer has taken too long: what is still sent would count as running."""
    request = request_of(ModelServerProfile(role="model-server"), "m", Ask(), Random(1), Random(2))
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n \r\n")
        with contextlib.suppress(OSError):
            await reader.read()
        closed.set()
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = "http://{}:{}".format(*server.sockets[0].getsockname())
        async with server, ServerClient(ModelServerProfile(role="model-server"), url, f"{url}/metrics") as client:
            asking = asyncio.create_task(client.ask(request, whole=0.01))
            aclose = HTTP11ConnectionByteStream.aclose

            async def broken_off(stream: HTTP11ConnectionByteStream) -> None:
                asking.cancel()
                await aclose(stream)

            monkeypatch.setattr(HTTP11ConnectionByteStream, "aclose", broken_off)
            with pytest.raises(asyncio.CancelledError):
                await asking
            async with asyncio.timeout(10):
                await closed.wait()

    asyncio.run(ask())


# -- pages -------------------------------------------------------------------------------------------------------------

PAGE = b"# TYPE x gauge\nx 1\n"
PACKED = gzip.compress(PAGE)


async def page_of(body: bytes, *headers: str, takes: bool) -> tuple[Got, bytes]:
    """What the client makes of a page, and the request that it sent."""
    came = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came = await reader.readuntil(b"\r\n\r\n")
        head = ["HTTP/1.1 200 OK", "content-type: text/plain", f"content-length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = "http://{}:{}".format(*server.sockets[0].getsockname())
    async with server, ServerClient(ModelServerProfile(role="model-server"), url, f"{url}/metrics") as client:
        return await client.page(gzip=takes), came


@pytest.mark.parametrize(
    ("body", "headers", "outcome", "taken"),
    [
        (PAGE, (), "response", PAGE),
        (PACKED, ("content-encoding: gzip",), "response", PAGE),
        (PACKED + PACKED, ("Content-Encoding: GZIP",), "response", PAGE + PAGE),
        (PAGE, ("content-encoding: gzip",), "failed", b""),
        (PACKED[:-4], ("content-encoding: gzip",), "failed", PAGE),
        (PACKED + b"more", ("content-encoding: gzip",), "failed", PAGE),
        (PACKED, (), "response", PACKED),
        (gzip.compress(bytes(MOST + 1)), ("content-encoding: gzip",), "endless", bytes(MOST)),
    ],
    ids=["plain", "packed", "two members", "plain, and says gzip", "cut", "more after it", "unsaid", "too large"],
)
def test_a_page_is_taken_as_go_takes_it(body, headers, outcome, taken) -> None:
    got, request = asyncio.run(page_of(body, *headers, takes=True))
    assert b"accept-encoding: gzip\r\n" in request.lower()
    assert (got.outcome, got.body) == (outcome, taken)
    assert got.details or outcome == "response"


def test_a_client_that_takes_no_gzip_unpacks_none() -> None:
    got, request = asyncio.run(page_of(PACKED, "content-encoding: gzip", takes=False))
    assert request.lower().count(b"accept-encoding: identity\r\n") == 1
    assert got.body == PACKED
