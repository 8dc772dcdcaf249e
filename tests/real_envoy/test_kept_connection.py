"""Several requests on one connection, as clients with a pool send them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from fake_modelserver import Fleet, PodSpec
from fake_modelserver.messages import Request, Response
from fake_proxy.client import Chunk, HttpRequest
from real_envoy.kept import KeptConnection

GET = HttpRequest(method="GET", path="/v1/models")
POST = HttpRequest(body=(Chunk(data=b'{"model": '), Chunk(data=b'"m"}')), headers=((b"x-a", b"1"),))


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(bounded())


def test_requests_follow_each_other_on_one_connection() -> None:
    async def main() -> None:
        seen: list[bytes] = []

        def answer(request: Request) -> Response:
            seen.append(request.body)
            return Response(body=b"%d" % len(seen), trailers=((b"x-end", b"1"),) if len(seen) == 2 else ())

        async with Fleet(mode="shared", script=answer) as fleet:
            pod = await fleet.add(PodSpec(name="a"))
            async with KeptConnection(pod.endpoint) as kept:
                answers = [await kept.send(one) for one in (GET, POST, GET)]
                assert pod.connections == 1
            assert [(one.status, one.body, one.complete) for one in answers] == [
                (200, b"1", True),
                (200, b"2", True),
                (200, b"3", True),
            ]
            assert answers[1].trailers == ((b"x-end", b"1"),)
            assert seen == [b"", b'{"model": "m"}', b""]

    run(main)


def test_a_connection_that_was_closed_is_opened_anew() -> None:
    async def main() -> None:
        async with Fleet(mode="shared", script=lambda _: Response(headers=((b"connection", b"close"),))) as fleet:
            pod = await fleet.add(PodSpec(name="a"))
            async with KeptConnection(pod.endpoint) as kept:
                assert [(await kept.send(GET)).status for _ in range(3)] == [200, 200, 200]

    run(main)


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
def test_a_connection_that_was_closed_without_a_word_after_a_response_is_opened_again(
    loop: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def main() -> None:
        closed: asyncio.Queue[None] = asyncio.Queue()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            writer.close()
            await writer.wait_closed()
            closed.put_nowait(None)

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            async with KeptConnection(f"{host}:{port}") as kept:
                for _ in range(3):
                    assert (await kept.send(GET)).status == 204
                    await closed.get()
                    for _ in range(5):
                        await asyncio.sleep(0)  # the end of the connection is there, and is read now

    loop(asyncio.wait_for(main(), 30))


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
@pytest.mark.parametrize(("unasked", "then"), [(b"", 204), (b"what is this?\r\n\r\n", None)])
def test_what_came_after_a_response_and_was_not_read_yet_is_seen(
    loop: Callable[[Coroutine[Any, Any, None]], None], unasked: bytes, then: int | None
) -> None:
    """An end: the connection is opened again. Bytes that no request asked for: they answer the next one."""
    going_on, done = threading.Event(), threading.Event()

    def serve(server: socket.socket) -> None:
        for _ in range(2 if then else 1):
            connection, _ = server.accept()
            with connection:
                assert connection.recv(4096).endswith(b"\r\n\r\n")
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
                assert going_on.wait(30)
                connection.sendall(unasked)
            done.set()

    async def main() -> None:
        async with KeptConnection(f"127.0.0.1:{server.getsockname()[1]}") as kept:
            assert (await kept.send(GET)).status == 204
            going_on.set()
            assert done.wait(30)  # the event loop stands still, and reads nothing
            assert (await kept.send(GET)).status == then

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        serving = threading.Thread(target=serve, args=(server,))
        serving.start()
        try:
            loop(asyncio.wait_for(main(), 30))
        finally:
            going_on.set()
            serving.join(60)


def test_trouble_is_in_the_response_or_raised() -> None:
    async def main() -> None:
        replies = iter([Response(reset=True), Response(delay=20.0), Response()])
        async with Fleet(mode="shared", script=lambda _: next(replies)) as fleet:
            pod = await fleet.add(PodSpec(name="a"))
            async with KeptConnection(pod.endpoint) as kept:
                cut = await kept.send(GET)
                assert (cut.status, cut.complete, cut.expired) == (None, False, False)
                late = await kept.send(GET, timeout=0.2)
                assert (late.status, late.expired) == (None, True)
                assert (await kept.send(GET)).status == 200
            await fleet.remove("a")
            async with KeptConnection(pod.endpoint) as kept:
                with pytest.raises(ConnectionRefusedError):
                    await kept.send(GET)

    run(main)
