"""The client of a model server on connections that the server closes without a word."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from random import Random

import pytest

from conformance.run.model_server.client import ServerClient
from conformance.run.model_server.requests import request_of
from conformance.scenario.model_server import Ask
from conformance.targets.model_server import ModelServerProfile

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


@contextlib.asynccontextmanager
async def asked(answers: int) -> AsyncIterator[tuple[ServerClient, list[int]]]:
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
        async with ServerClient(ModelServerProfile(role="model-server"), url, url) as client:
            yield client, came
        await asyncio.gather(*served)


@pytest.mark.parametrize(("answers", "outcomes"), [(1, ["response"] * 3), (0, ["failed"] * 2)])
def test_what_a_used_connection_does_not_answer_is_asked_again(answers: int, outcomes: list[str]) -> None:
    request = request_of(ModelServerProfile(role="model-server"), "m", Ask(), Random(1), Random(2))

    async def ask() -> list[int]:
        async with asked(answers) as (client, came):
            assert [(await client.ask(request)).outcome for _ in outcomes] == outcomes
            return came[:]

    assert asyncio.run(ask()) == ([2, 2, 1] if answers else [1, 1])
