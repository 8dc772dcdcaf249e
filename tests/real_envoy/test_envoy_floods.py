"""A peer that sends thousands of tiny pieces leaves others their turns in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import h11
import pytest

from conformance.run.model_server.client import ServerClient
from conformance.run.model_server.requests import request_of
from conformance.scenario.model_server import Ask
from conformance.targets.model_server import ModelServerProfile
from ext_proc.turns import PIECES
from fake_proxy.actions import OpenUpstream
from fake_proxy.client import HttpRequest
from fake_proxy.upstream import HttpUpstream
from real_envoy import send_request

MANY = 5_000
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
HEADS = b"HTTP/1.1 100 Continue\r\n\r\n" * MANY + b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
BODY = CHUNKED + b"1\r\nx\r\n" * MANY + b"0\r\n\r\n"

Client = Callable[[str], Awaitable[int]]
"""Asks a server and gives the status that it got."""


async def gateway_client(address: str) -> int:
    request = HttpRequest(method="GET", path="/", headers=(), authority=address)
    response = await send_request(address, request, timeout=60)
    assert response.complete
    return response.status or 0


async def model_server_client(address: str) -> int:
    profile = ModelServerProfile(role="model-server")
    async with ServerClient(profile, f"http://{address}", f"http://{address}/metrics") as client:
        got = await client.ask(request_of(profile, "m", Ask(), Random(1), Random(2)))
    assert got.outcome == "response"
    return got.status or 0


class Events:
    """What an attempt of the fake proxy brings."""

    def __init__(self) -> None:
        self.status = 0
        self.over = asyncio.Event()

    async def headers(self, _: int, headers: Any, end: bool) -> None:
        self.status = int(headers[0][1])
        if end:
            self.over.set()

    async def data(self, _: int, _data: bytes, end: bool) -> None:
        if end:
            self.over.set()

    async def trailers(self, *_: Any) -> None:
        raise AssertionError

    failed = trailers


async def fake_proxy(address: str) -> int:
    events = Events()
    head = [(b":method", b"GET"), (b":path", b"/"), (b":authority", address.encode())]
    opening = OpenUpstream(attempt=1, endpoint=address, headers=head, body=b"", end=True, trailers=None)
    attempt = HttpUpstream().open(opening, events)
    await events.over.wait()
    await attempt.wait_closed()
    return events.status


@pytest.mark.parametrize(
    ("client", "answer"),
    [
        (gateway_client, HEADS),
        (gateway_client, BODY),
        (fake_proxy, HEADS),
        (fake_proxy, BODY),
        (model_server_client, BODY),
    ],
    ids=["a gateway's heads", "its pieces", "a pod's heads", "a pod's pieces", "a model server's pieces"],
)
def test_others_have_their_turn(monkeypatch: pytest.MonkeyPatch, client: Client, answer: bytes) -> None:
    read = 0
    next_event = h11.Connection.next_event

    def counted(connection: h11.Connection) -> Any:
        nonlocal read
        read += 1
        return next_event(connection)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await reader.read()
        writer.close()

    async def main() -> list[int]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        asking = asyncio.ensure_future(client("{}:{}".format(*server.sockets[0].getsockname())))
        each, before = [], 0
        while not asking.done():
            each.append(read - before)
            before = read
            await asyncio.sleep(0)
        assert asking.result() == 200
        server.close()
        return each

    monkeypatch.setattr(h11.Connection, "next_event", counted)
    each = asyncio.run(main())
    assert sum(each) > MANY
    assert max(each) <= 2 * PIECES
