"""The HTTP/1.1 side: framing, keep-alive, pipelining, broken input, resets; httpx and raw sockets as clients."""

from __future__ import annotations

import asyncio

import httptools
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_modelserver import Fleet, PodSpec, Reply, connection

GET = b"GET %s HTTP/1.1\r\nHost: pod\r\n\r\n"


def scripted(reply: Reply, *, method: bytes = b"POST", extra: bytes = b"", body: bytes = b"", version: bytes = b"1.1"):
    name, value = reply.to_header()
    head = b"%s /any HTTP/%s\r\nhost: pod\r\n%s: %s\r\ncontent-length: %d\r\n%s\r\n"
    return head % (method, version, name, value, len(body), extra) + body


def test_health_unknown_paths_and_methods(run):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            base = f"http://{pod.endpoint}"
            assert (await client.get(f"{base}/health")).status_code == 200
            pod.healthy = False
            assert (await client.get(f"{base}/health")).status_code == 503
            missing = await client.get(f"{base}/v2/nothing")
            assert missing.status_code == 404
            assert missing.json()["error"]["message"] == "/v2/nothing is not served here."
            wrong = await client.get(f"{base}/v1/completions")
            assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
            head = await client.head(f"{base}/v1/models")
            assert (head.status_code, head.content) == (200, b"")
            assert int(head.headers["content-length"]) > 0

    run(scenario())


def test_pipelined_requests_are_answered_in_order(run, connect):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            slow = scripted(Reply(body=b"first", delay=0.01))
            requests = [slow, *(scripted(Reply(body=b"%d" % number)) for number in range(40)), GET % b"/metrics"]
            await client.send(b"".join(requests))
            bodies = [await client.body(await client.head()) for _ in requests]
            assert bodies[:-1] == [b"first", *(b"%d" % number for number in range(40))]
            assert bodies[-1].startswith(b"# HELP vllm:")
            client.close()

    run(scenario())


def test_a_request_may_come_in_any_pieces(run, connect):
    async def scenario():
        async with Fleet(on_request=(heard := []).append) as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            for byte in b"POST /x?y=1 HTTP/1.1\r\nX-Case: Kept\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n":
                await client.send(bytes([byte]))
            await client.send(b"2\r\nde\r\n0\r\nX-Trail: last\r\n\r\n")
            assert (await client.head()).startswith(b"HTTP/1.1 404 Not Found\r\n")
            (served,) = heard
            assert (served.method, served.path, served.body, served.body_size) == ("POST", "/x?y=1", b"abcde", 5)
            assert served.headers == ((b"X-Case", b"Kept"), (b"Transfer-Encoding", b"chunked"))
            assert served.trailers == ((b"X-Trail", b"last"),)
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "closes"),
    [
        (b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n", True),
        (b"GET /health HTTP/1.0\r\n\r\n", True),
        (b"GET /health HTTP/1.0\r\nconnection: keep-alive\r\n\r\n", False),
        (b"GET /health HTTP/1.1\r\nhost: a\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n\r\n", False),
    ],
)
def test_keep_alive_is_the_clients_choice(run, connect, request_bytes, closes):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            await client.send(request_bytes)
            head = await client.head()
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert (b"connection: close" in head) is closes
            if closes:
                assert await client.rest() == b""
            else:
                await client.send(request_bytes)
                assert await client.head() == head
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("framing", "body"),
    [(b"Content-Length: 5", b"abcde"), (b"Transfer-Encoding: chunked", b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")],
)
def test_a_body_is_read_though_another_protocol_is_offered(run, connect, framing, body):
    async def scenario():
        async with Fleet(on_request=(heard := []).append) as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            head = b"POST /x HTTP/1.1\r\nConnection: Upgrade\r\nUPGRADE: h2c\r\nExpect: 100-continue\r\n" + framing
            for byte in head + b"\r\n\r\n":
                await client.send(bytes([byte]))
            assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(body + b"GET /y HTTP/1.1\r\n\r\n")
            assert (await client.head()).startswith(b"HTTP/1.1 404 Not Found\r\n")
            assert b"HTTP/1.1 404 Not Found\r\n" in await client.head()  # after the first one's body
            client.close()
        posted, got = heard
        assert (posted.method, posted.body, got.method, got.body) == ("POST", b"abcde", "GET", b"")
        assert (b"UPGRADE", b"h2c") in posted.headers

    run(scenario())


def test_http_1_0_gets_a_stream_without_chunked_coding(run, connect):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            await client.send(scripted(Reply(chunks=(b"one", b"two")), version=b"1.0"))
            head = await client.head()
            assert b"transfer-encoding" not in head
            assert await client.rest() == b"onetwo"
            client.close()

    run(scenario())


def test_expect_continue_and_half_close(run, connect):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            request = scripted(Reply(body=b"done", delay=0.01), extra=b"expect: 100-continue\r\n", body=b"later")
            await client.send(request[:-5])
            assert await client.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(b"later")
            client.writer.write_eof()
            assert (await client.head()).startswith(b"HTTP/1.1 200 OK")
            assert await client.rest() == b"done"
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"this is not HTTP\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"y" * (connection.MAX_HEADERS + 1) + b"\r\n\r\n", 431),
    ],
)
def test_what_is_not_a_request_gets_an_error_and_the_connection_ends(run, connect, request_bytes, status):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            await client.send(GET % b"/health" + request_bytes)
            assert (await client.head()).startswith(b"HTTP/1.1 200")
            head = await client.head()
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b'"error"' in await client.body(head)
            client.close()

    run(scenario())


def test_a_body_over_the_limit_is_refused(run, connect, monkeypatch):
    monkeypatch.setattr(connection, "MAX_BODY", 10)

    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            await client.send(b"POST / HTTP/1.1\r\ncontent-length: 11\r\n\r\n01234567890")
            assert (await client.head()).startswith(b"HTTP/1.1 413")
            client.close()

    run(scenario())


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=80) | st.sampled_from([GET % b"/health", b"\r\n\r\n", b"POST /x HTTP/1.1\r\n"])))
def test_no_input_breaks_a_connection_object(pieces):
    """Whatever arrives, the protocol never raises, and what it writes is HTTP/1.1 responses."""
    written = bytearray()

    class Transport(asyncio.Transport):
        closing = False

        def write(self, data):
            written.extend(data)

        def is_closing(self):
            return self.closing

        def close(self):
            self.closing = True

        def resume_reading(self):
            pass

        pause_reading = resume_reading

    async def feed():
        transport, peers = Transport(), connection.Connections()
        subject = connection.Connection(lambda request: connection.error_response(404, request.target), peers)
        subject.connection_made(transport)
        for piece in pieces:
            subject.data_received(piece)
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        subject.connection_lost(None)
        assert len(peers) == 0

    asyncio.run(feed())

    class Seen:
        count = 0

        def on_message_complete(self):
            self.count += 1

    httptools.HttpResponseParser(Seen()).feed_data(bytes(written))


def test_a_failing_listener_is_our_trouble_not_the_clients(run):
    async def scenario():
        def fail(_):
            raise RuntimeError("listener broke")

        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        async with Fleet(on_request=fail) as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            answer = await client.get(f"http://{pod.endpoint}/health")
            assert answer.status_code == 500
            assert "listener broke" in answer.json()["error"]["message"]
            assert [str(problem) for problem in reported] == ["listener broke"]

    run(scenario())
