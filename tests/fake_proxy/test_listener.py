"""The fake proxy as a server: real HTTP clients, a scripted EPP, real sockets to model servers."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import until

from ext_proc.channel import Channel
from ext_proc.record import (
    ClientAborted,
    ClientResponse,
    Entry,
    Event,
    ExchangeOpened,
    Message,
    Recorder,
    UpstreamRequest,
    Wait,
)
from fake_epp import Answer, Delay, Script, answers_immediately, does, open_epp, picks, stays_silent
from fake_epp.acts import Pick
from fake_modelserver import Fleet, PodSpec, Reply
from fake_proxy.config import BodyMode, ProxyConfig
from fake_proxy.exchange import ExchangeOutcome
from fake_proxy.listener import Listener, Serving, open_listener
from fake_proxy.pace import Pace
from fake_proxy.scripted import ScriptedUpstream, UpstreamReply

CHAT = {"model": "fake-model", "messages": [{"role": "user", "content": "hi"}]}
MODES = [BodyMode.FULL_DUPLEX_STREAMED, BodyMode.BUFFERED, BodyMode.STREAMED, BodyMode.NONE]


@dataclass
class Stage:
    """A listener with an EPP and one pod behind it, and all that was recorded."""

    listener: Listener
    pod: str
    client: httpx.AsyncClient
    entries: list[Entry]
    outcomes: list[ExchangeOutcome] = field(default_factory=list)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, kind: type[Event]) -> list:
        return [entry.event for entry in self.entries if isinstance(entry.event, kind)]

    async def finished(self, count: int = 1) -> list[ExchangeOutcome]:
        while len(self.outcomes) < count:
            self.news.clear()
            await self.news.wait()
        return self.outcomes


@contextlib.asynccontextmanager
async def stage(script: Callable[[str], Script] = picks, **options) -> AsyncIterator[Stage]:
    async with Fleet() as fleet:
        pod = (await fleet.add(PodSpec(name="a"))).endpoint
        epp = await open_epp(default=script(pod))
        channel = Channel(epp.address)
        recorder, entries = Recorder(), []
        recorder.listen(entries.append)
        outcomes, news = [], asyncio.Event()

        def finished(outcome: ExchangeOutcome) -> None:
            outcomes.append(outcome)
            news.set()

        serving = Serving(channel=channel, recorder=recorder, finished=finished, **options)
        listener = await open_listener("127.0.0.1", 0, serving)
        try:
            async with httpx.AsyncClient(base_url=f"http://{listener.address}", timeout=20) as client:
                yield Stage(listener, pod, client, entries, outcomes, news)
        finally:
            await listener.close()
            await channel.close()
            await epp.close()


def reply(**script) -> dict[str, str]:
    name, value = Reply(**script).to_header()
    return {name.decode(): value.decode()}


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_request_goes_through_the_epp_to_the_model_server_and_back(mode: BodyMode) -> None:
    async with stage(config=ProxyConfig().with_modes(mode)) as here:
        for number in (1, 2):  # on one connection
            response = await here.client.post("/v1/chat/completions", json=CHAT, headers={"x-mine": "1"})
            assert response.status_code == 200
            assert response.json()["model"] == "fake-model"
            assert response.headers["content-type"] == "application/json"
            assert (await here.finished(number))[-1].attempts == (here.pod,)
        opened = here.of(ExchangeOpened)
        assert [one.exchange for one in opened] == ["request-1", "request-2"]
        assert (b"x-mine", b"1") in opened[0].headers
        assert here.of(UpstreamRequest)[0].endpoint == here.pod
        assert json.loads(here.of(UpstreamRequest)[0].body) == CHAT
        assert [one.status for one in here.of(ClientResponse)] == [200, 200]


async def test_an_openai_stream_comes_as_it_is_made() -> None:
    async with stage() as here:
        body = CHAT | {"stream": True}
        async with here.client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = [line async for line in response.aiter_lines() if line.startswith("data: ")]
        assert lines[-1] == "data: [DONE]"
        assert len(lines) > 2


async def test_a_piece_reaches_the_client_before_the_next_is_made() -> None:
    go = asyncio.Event()

    async def model(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        await go.wait()
        writer.write(b"4\r\nlast\r\n0\r\nx-sum: 9\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(model, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with stage(lambda _: picks(address)) as here:
        async with here.client.stream("GET", "/stream") as response:
            pieces = response.aiter_raw()
            assert await anext(pieces) == b"first"
            go.set()
            assert await anext(pieces) == b"last"
        assert (await here.finished())[0].complete
        assert here.of(ClientResponse)[0].trailers == ((b"x-sum", b"9"),)
    server.close()
    await server.wait_closed()


async def test_a_request_goes_to_the_epp_as_it_comes() -> None:
    async with stage() as here:
        first = asyncio.Event()

        async def body() -> AsyncIterator[bytes]:
            yield b'{"model": "fake-model", '
            await until(lambda: any(b"fake-model" in one.raw for one in here.of(Message)))
            first.set()
            yield b'"messages": []}'

        response = await here.client.post("/v1/chat/completions", content=body(), headers=reply(body=b"ok"))
        assert first.is_set()
        assert response.status_code == 200


@pytest.mark.parametrize(
    ("headers", "check"),
    [
        (reply(status=418, body=b"tea", headers=((b"x-pot", b"1"),)), lambda r: r.text == "tea" and r.headers["x-pot"]),
        (reply(chunks=(b"a", b"b")), lambda r: r.content == b"ab"),
        (reply(size=300_000), lambda r: len(r.content) == 300_000),
        (reply(status=204), lambda r: r.content == b""),
        (reply(body=b"zip" * 99, gzip=True), lambda r: r.content == b"zip" * 99),
        (reply(body=b""), lambda r: r.headers["content-length"] == "0"),
    ],
)
async def test_any_response_reaches_the_client(headers: dict[str, str], check) -> None:
    async with stage() as here:
        response = await here.client.post("/x", content=b"{}", headers=headers)
        assert check(response)
        head = await here.client.head("/v1/models", headers=headers)
        assert head.content == b""


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS"])
async def test_methods_and_bodies_are_those_of_the_client(method: str) -> None:
    async with stage() as here:
        for content in (None, b"", b"x" * 200_000):
            response = await here.client.request(method, "/echo?a=1", content=content, headers=reply(echo=True))
            assert response.status_code == 200
        assert [one.body for one in here.of(UpstreamRequest)] == [b"", b"", b"x" * 200_000]
        assert {one.path for one in here.of(ExchangeOpened)} == {"/echo?a=1"}


async def test_the_epps_own_answer_reaches_the_client_while_it_still_sends() -> None:
    async with stage(lambda _: answers_immediately(429, b"busy")) as here:
        response = await here.client.post("/x", content=b"z" * 2_000_000)
        assert (response.status_code, response.text) == (429, "busy")
        assert (await here.finished())[0].status == 429


async def test_no_epp_is_a_500_as_with_envoy() -> None:
    recorder = Recorder()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    channel = Channel(address)
    listener = await open_listener("127.0.0.1", 0, Serving(channel=channel, recorder=recorder))
    async with httpx.AsyncClient(base_url=f"http://{listener.address}") as client:
        assert (await client.post("/x", content=b"{}")).status_code == 500
    await listener.close()
    await channel.close()


async def test_a_defect_in_a_connection_reaches_the_handler_of_the_loop() -> None:
    seen: asyncio.Queue[BaseException] = asyncio.Queue()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: seen.put_nowait(context["exception"]))

    def finished(outcome: ExchangeOutcome) -> None:
        raise ZeroDivisionError

    channel = Channel("127.0.0.1:9")
    serving = Serving(channel=channel, recorder=Recorder(), finished=finished)
    listener = await open_listener("127.0.0.1", 0, serving)
    async with httpx.AsyncClient(base_url=f"http://{listener.address}") as client:
        assert (await client.post("/x", content=b"{}")).status_code == 500
    assert isinstance(await seen.get(), ZeroDivisionError)
    await listener.close()
    await channel.close()


async def test_a_model_server_that_is_gone_is_a_503() -> None:
    upstream = ScriptedUpstream({})
    async with stage(upstream=upstream) as here:
        response = await here.client.get("/x")
        assert response.status_code == 503
        assert response.text == "no healthy upstream"


async def test_a_response_that_breaks_off_breaks_off_for_the_client() -> None:
    broken = ScriptedUpstream(UpstreamReply(body=(b"a", b"b", b"c"), reset_after=2))
    async with stage(upstream=broken, pace=Pace(lock_step=True)) as here:
        with pytest.raises(httpx.RemoteProtocolError):
            await here.client.get("/x")
        assert not (await here.finished())[0].complete


async def test_an_epp_that_never_answers_is_told_to_the_client() -> None:
    async with stage(lambda _: stays_silent(), pace=Pace(deadline=0.2)) as here:
        response = await here.client.post("/x", content=b"{}")
        assert response.status_code == 504
        assert response.text == "nothing happened for 0.2 s while waiting for: answer to request_headers\n"
        assert [one.outcome for one in here.of(Wait)][:1] == ["expired"]


@pytest.mark.parametrize("when", ["head", "body", "waiting", "response"])
async def test_a_client_that_goes_away_ends_the_exchange(when: str) -> None:
    def script(pod: str) -> Script:
        if when == "waiting":
            return does(pick=Pick(endpoints=(pod,)), request_headers=(Delay(seconds=20), Answer()))
        return picks(pod)

    never = ScriptedUpstream(UpstreamReply(fail="never", early=True))
    async with stage(script, upstream=never) as here:
        _, writer = await asyncio.open_connection("127.0.0.1", here.listener.port)
        head = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n"
        writer.write(head if when == "head" else head + (b"12345" if when == "body" else b"1234567890"))
        await writer.drain()
        await until(lambda: here.of(Message))
        writer.close()
        outcome = (await here.finished())[0]
        assert outcome.aborted
        assert outcome.status is None
        expected = "request-body" if when in ("head", "body") else "request"
        assert [one.point for one in here.of(ClientAborted)] == [expected]


async def raw(listener: Listener, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(data)
    with contextlib.suppress(ConnectionResetError):
        found = await reader.read(-1)
    writer.close()
    return found


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"garbage\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),  # no host
        (b"GET / HTTP/1.1\r\nhost: a\r\n" + b"x: " + b"y" * 300_000 + b"\r\n\r\n", b"431"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"505"),
    ],
)
async def test_clients_that_speak_no_http_are_told_so(data: bytes, status: bytes) -> None:
    async with stage() as here:
        assert (await raw(here.listener, data)).startswith(b"HTTP/1.1 " + status)
        assert not here.entries
        assert (await here.client.get("/v1/models")).status_code == 200


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with stage(max_body=1000) as here:
        response = await here.client.post("/x", content=b"z" * 100_000)
        assert response.status_code == 413
        assert (await here.finished())[0].aborted


async def test_pipelined_requests_expectations_and_http_1_0() -> None:
    async with stage() as here:
        one = b"GET /v1/models HTTP/1.1\r\nhost: a\r\n\r\n"
        last = b"GET /v1/models HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        assert (await raw(here.listener, one + one + last)).count(b"HTTP/1.1 200") == 3
        assert (await raw(here.listener, b"GET /v1/models HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        expecting = (
            b"POST /x HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\nconnection: close\r\n\r\n"
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", here.listener.port)
        writer.write(expecting)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
        writer.write(b"{}")
        assert b"HTTP/1.1 " in await reader.read(-1)
        writer.close()


async def test_closing_drops_what_is_open() -> None:
    never = ScriptedUpstream(UpstreamReply(fail="never"))
    async with stage(upstream=never) as here:
        waiting = asyncio.create_task(here.client.get("/x"))
        await until(lambda: here.of(UpstreamRequest))
        await here.listener.close()
        with pytest.raises(httpx.TransportError):
            await waiting


@given(
    st.lists(st.binary(min_size=1, max_size=5000), max_size=6),
    st.lists(st.binary(min_size=1, max_size=5000), min_size=1, max_size=6),
    st.sampled_from(MODES),
)
@settings(max_examples=15)
def test_any_body_arrives_and_comes_back(sent: list[bytes], answered: list[bytes], mode: BodyMode) -> None:
    async def main() -> None:
        upstream = ScriptedUpstream(UpstreamReply(body=tuple(answered)))
        async with stage(config=ProxyConfig().with_modes(mode), upstream=upstream) as here:

            async def content() -> AsyncIterator[bytes]:
                for piece in sent:
                    yield piece

            response = await here.client.post("/x", content=content())
            assert response.content == b"".join(answered)
            assert here.of(UpstreamRequest)[0].body == b"".join(sent)

    asyncio.run(main())


async def test_compressed_bodies_are_left_alone() -> None:
    async with stage() as here:
        packed = gzip.compress(json.dumps(CHAT).encode())
        headers = {"content-encoding": "gzip", **reply(status=200, body=b"ok")}
        assert (await here.client.post("/x", content=packed, headers=headers)).text == "ok"
        assert here.of(UpstreamRequest)[0].body == packed


@pytest.mark.parametrize("turns", range(6))
async def test_closing_ends_connections_that_are_just_being_accepted(turns: int) -> None:
    listener = await open_listener("127.0.0.1", 0, Serving(channel=Channel("127.0.0.1:9"), recorder=Recorder()))
    with socket.create_connection((listener.host, listener.port)) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.close()
        with contextlib.suppress(ConnectionError):
            reader, writer = await asyncio.open_connection(sock=client)
            await reader.read()
            writer.transport.abort()


async def test_an_error_of_ours_in_reading_a_request_ends_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("fake_proxy.listener._Connection._read_body", fails)
    async with stage() as here:
        with pytest.raises(httpx.RemoteProtocolError):
            await here.client.post("/v1/chat/completions", json=CHAT)
