"""Replies scripted by the request's header: every field, its errors, and how the bytes arrive."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import zlib

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_modelserver import REPLY_HEADER, BadReplyError, Fleet, PodSpec, Reply
from fake_modelserver.reply import event

# No verdict may depend on how busy the machine is.
steady = settings(suppress_health_check=[HealthCheck.too_slow])

token = st.from_regex(rb"[a-z0-9-]{1,12}", fullmatch=True)
text = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0")).map(lambda s: s.encode("latin-1"))
headers = st.lists(st.tuples(token, text), max_size=3).map(tuple)
sources = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"body": st.binary(max_size=50)}),
    st.fixed_dictionaries({"chunks": st.lists(st.binary(max_size=20), max_size=4).map(tuple)}),
    st.fixed_dictionaries({"size": st.integers(0, 1000)}),
    st.just({"echo": True}),
)


@steady
@given(
    source=sources,
    rest=st.fixed_dictionaries(
        {},
        optional={
            "status": st.integers(200, 599),
            "headers": headers,
            "trailers": headers,
            "delay": st.floats(0, 3600),
            "gap": st.floats(0, 3600),
            "reset_after": st.integers(0, 10),
            "reset": st.booleans(),
        },
    ),
)
def test_header_and_reply_are_the_same(source, rest):
    reply = Reply(**source, **rest)
    name, value = reply.to_header()
    assert name == REPLY_HEADER
    assert value.isascii()
    assert b"\n" not in value
    assert Reply.parse(value) == reply


@steady
@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"status": value, "headers": value, "chunks": value}).encode()
    )
)
def test_parsing_gives_a_reply_or_says_what_is_wrong(value):
    with contextlib.suppress(BadReplyError):
        assert isinstance(Reply.parse(value), Reply)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"stauts": 1}', "unknown field 'stauts'"),
        ('{"status": 99}', "status is 99; it is a whole number from 200 to 599"),
        ('{"status": true}', "status is True"),
        ('{"body": 1}', "body is int; it is a string"),
        ('{"body": "a", "size": 1}', "body and size are given"),
        ('{"body": "a", "body_base64": "YQ=="}', "body and body_base64 are given"),
        ('{"body_base64": "?"}', "body_base64 is not base64"),
        ('{"headers": [["a b", "c"]]}', r"headers\[0\]"),
        ('{"headers": [["a", "b\\r\\nc: d"]]}', r"headers\[0\]"),
        ('{"headers": {"a": "b"}}', "list of"),
        ('{"chunks": [1]}', r"chunks\[0\]"),
        ('{"sse": true}', "sse is given without chunks"),
        ('{"gzip": true}', "gzip is given without a body"),
        ('{"delay": -1}', "delay is -1"),
        ('{"echo": 1}', "echo is 1; it is true or false"),
    ],
)
def test_a_bad_script_is_answered_400_with_the_reason(run, script, message):
    with pytest.raises(BadReplyError, match=message):
        Reply.parse(script.encode())

    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            return await client.get(f"http://{pod.endpoint}/x", headers={REPLY_HEADER: script.encode()})

    answer = run(scenario())
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("x-fake-modelserver-reply: ")


def ask(run, script, **request):
    """The answer of one pod to a request with `script` (a JSON value)."""

    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a"))
            given = {**request.pop("headers", {}), "x-fake-modelserver-reply": json.dumps(script)}
            method, path = request.pop("method", "POST"), request.pop("path", "/v1/completions")
            return await client.request(method, f"http://{pod.endpoint}{path}", headers=given, **request)

    return run(scenario())


def test_status_headers_and_body(run):
    script = {"status": 503, "headers": [["X-A", "1"], ["x-a", "2"], ["content-type", "x/y"]], "body": "bäh"}
    answer = ask(run, script)
    assert (answer.status_code, answer.content) == (503, "bäh".encode())
    assert answer.headers.get_list("x-a") == ["1", "2"]
    assert answer.headers.raw.count((b"X-A", b"1")) == 1
    assert answer.headers.get_list("content-type") == ["x/y"]
    assert ask(run, {"body_base64": base64.b64encode(b"\x00\xff").decode()}).content == b"\x00\xff"
    empty = ask(run, {"status": 204})
    assert (empty.status_code, empty.content) == (204, b"")
    assert "content-length" not in empty.headers
    assert ask(run, {"status": 599}).status_code == 599


def test_sizes_and_gzip(run):
    sized = ask(run, {"size": 200_001})
    assert len(sized.content) == 200_001
    assert sized.headers["content-length"] == "200001"
    for source in ({"size": 100_000}, {"body": "text " * 100}, {"chunks": ["a", "b", {"base64": "Yw=="}]}):
        packed = ask(run, source | {"gzip": True})
        assert packed.headers["content-encoding"] == "gzip"
        plain = ask(run, source)
        assert plain.content == packed.content
        assert "content-encoding" not in plain.headers


def test_echo_shows_the_request_as_the_pod_saw_it(run):
    answer = ask(run, {"echo": True}, method="PUT", path="/p?q=1", headers={"X-Mine": "yes"}, content=b"\x01\x02")
    seen = answer.json()
    assert (seen["pod"], seen["method"], seen["path"]) == ("a", "PUT", "/p?q=1")
    assert ["X-Mine", "yes"] in seen["headers"]
    assert base64.b64decode(seen["body_base64"]) == b"\x01\x02"
    assert seen["body_size"] == 2


def test_without_status_or_body_the_pods_own_answer_is_changed(run):
    call = {"model": "fake-model", "prompt": "hello"}
    answer = ask(run, {"headers": [["x-extra", "1"]]}, json=call)
    assert answer.json()["object"] == "text_completion"
    assert answer.headers["x-extra"] == "1"
    streamed = ask(run, {"reset_after": 100, "gap": 0.0001}, json=call | {"stream": True})
    assert streamed.text.endswith("data: [DONE]\n\n")


def test_server_sent_events_arrive_one_by_one(run, connect):
    """The second event is an hour away; the first is here."""

    async def scenario():
        async with Fleet() as fleet:
            pod = await fleet.add(PodSpec(name="a"))
            client = await connect(pod)
            name, value = Reply(sse=True, chunks=(b'{"n":1}', b"[DONE]"), gap=3600).to_header()
            await client.send(b"GET / HTTP/1.1\r\n%s: %s\r\n\r\n" % (name, value))
            head = await client.head()
            assert b"content-type: text/event-stream" in head
            assert b"transfer-encoding: chunked" in head
            assert await client.chunk() == b'data: {"n":1}\n\n'
            client.close()

    run(scenario())


def test_chunks_keep_their_borders_and_trailers_follow(run, connect):
    chunks = (b"a", b"bc", b"x" * 300_000, b"d")

    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            name, value = Reply(chunks=chunks, trailers=((b"grpc-status", b"0"),)).to_header()
            await client.send(b"GET / HTTP/1.1\r\nconnection: close\r\n%s: %s\r\n\r\n" % (name, value))
            await client.head()
            assert tuple([await client.chunk() for _ in chunks]) == chunks
            assert await client.rest() == b"0\r\ngrpc-status: 0\r\n\r\n"
            client.close()

    run(scenario())


def test_gzipped_chunks_can_be_read_as_they_come(run, connect):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            name, value = Reply(chunks=(b"one", b"two"), gzip=True, gap=0.001).to_header()
            await client.send(b"GET / HTTP/1.1\r\n%s: %s\r\n\r\n" % (name, value))
            await client.head()
            first = await client.chunk()
            assert zlib.decompressobj(wbits=31).decompress(first) == b"one"
            second = await client.chunk()
            assert gzip.decompress(first + second) == b"onetwo"
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("headers", "seen"), [((), b"\r\n1\r\na\r\n1\r\nb\r\n"), (((b"content-length", b"9"),), b"\r\nab")]
)
def test_the_connection_is_closed_before_the_end(run, connect, headers, seen):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            name, value = Reply(chunks=(b"a", b"b"), headers=headers, cut=True).to_header()
            await client.send(b"GET / HTTP/1.1\r\n%s: %s\r\n\r\n" % (name, value))
            assert (await client.rest()).endswith(seen)
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("reply", "seen"),
    [
        (Reply(reset=True), b""),
        (Reply(chunks=(b"a", b"b", b"c"), reset_after=0), b"HTTP/1.1 200 OK\r\n"),
        (Reply(chunks=(b"a", b"b", b"c"), reset_after=2), b"1\r\na\r\n1\r\nb\r\n"),
        (Reply(body=b"whole", reset_after=1), b"whole"),
        (Reply(size=1_000_000, reset_after=10), b"ABCDEFGHIJKLMNOPQRSTUVWXYZ-\n"),
    ],
)
def test_the_connection_is_reset_where_told(run, connect, reply, seen):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            name, value = reply.to_header()
            await client.send(b"GET / HTTP/1.1\r\n%s: %s\r\n\r\n" % (name, value))
            got = b""
            reset = False
            while not reset:
                try:
                    piece = await client.reader.read(65536)
                    assert piece, "the connection was closed, not reset"
                    got += piece
                except ConnectionResetError:
                    reset = True
            assert seen in got
            assert bool(seen) is bool(got)
            client.close()

    run(scenario())


@pytest.mark.parametrize(
    ("reply", "tail"),
    [
        (Reply(headers=((b"content-length", b"10"),), body=b"short"), b"short"),
        (Reply(headers=((b"connection", b"close"),), body=b"bye"), b"bye"),
        (Reply(headers=((b"Transfer-Encoding", b"chunked"),), chunks=(b"x",)), b"1\r\nx\r\n0\r\n\r\n"),
        (Reply(headers=((b"content-length", b"4"),), chunks=(b"ab", b"cd")), b"abcd"),
    ],
)
def test_framing_headers_are_sent_as_given(run, connect, reply, tail):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(PodSpec(name="a")))
            name, value = reply.to_header()
            await client.send(b"GET / HTTP/1.1\r\nhost: a\r\n%s: %s\r\n\r\n" % (name, value))
            head = (await client.head()).lower()
            assert await client.reader.readexactly(len(tail)) == tail
            given = reply.headers[0][0].lower() + b": "
            assert head.count(given) == 1
            if b"connection: close" in head:
                assert await client.rest() == b""
            else:
                await client.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
                assert (await client.head()).startswith(b"HTTP/1.1 200")
            client.close()

    run(scenario())


def test_an_event_keeps_line_breaks():
    assert event(b"a\nb") == b"data: a\ndata: b\n\n"
