"""Faults by name: which requests they befall, and what arrives at the client, byte for byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fake_modelserver import Fault, FaultKind, FaultType, Fleet, Gauges, MetricsFault, PodSpec
from fake_modelserver.errors import AddressTakenError
from fake_modelserver.faults import KINDS, Faults
from fake_modelserver.faults.pages import GARBAGE

LOAD = Gauges(queue=3, running=2, kv=0.25, running_loras=("x",), max_lora=4)
SPEC = PodSpec(name="a", gauges=LOAD)
PLAIN = PodSpec(name="a", gauges=Gauges(queue=3))
GET = b"GET %s HTTP/1.1\r\nhost: pod\r\n\r\n"
QUESTION = {"model": "fake-model", "prompt": "Hello", "max_tokens": 40, "ignore_eos": True, "stream": True}


def fault(kind: str, **more) -> Fault:
    known = {"path", "after", "count", "toxicity", "duration", "name"}
    manner = {name: value for name, value in more.items() if name in known}
    attributes = {name: value for name, value in more.items() if name not in known}
    return Fault(type=FaultType(kind), attributes=attributes, **manner)


def with_pod(run, given, look, spec=SPEC):
    """What `look(pod, client)` gives of a pod with the faults."""

    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient(timeout=10) as client:
            pod = await fleet.add(spec)
            for one in given:
                await pod.inject(one)
            return await look(pod, client)

    return run(scenario())


def page_of(run, *given, spec=SPEC):
    async def look(pod, client):
        return await client.get(f"http://{pod.endpoint}/metrics")

    return with_pod(run, given, look, spec)


async def received(connect, pod, request: bytes, *, quiet: float | None = None) -> tuple[bytes, str]:
    """All bytes of the answer to `request`, and how the connection ended: closed, reset, or still open."""
    client = await connect(pod)
    await client.send(request)
    got = b""
    try:
        while piece := await asyncio.wait_for(client.reader.read(65536), quiet):
            got += piece
    except ConnectionResetError:
        return got, "reset"
    except TimeoutError:
        return got, "open"
    finally:
        client.close()
    return got, "closed"


# -- which requests ----------------------------------------------------------------------------------------------------


def test_after_count_and_path_say_which_requests(run):
    async def look(pod, client):
        paths = ("/v1/models", *["/metrics"] * 5)
        return [(await client.get(f"http://{pod.endpoint}{path}")).status_code for path in paths]

    given = [fault("status", status=404, path="/metrics", after=1, count=3)]
    assert with_pod(run, given, look) == [200, 200, 404, 404, 404, 200]


def test_a_fault_ends_by_itself_or_is_healed(run):
    async def look(pod, client):
        url = f"http://{pod.endpoint}/health"
        assert (await client.get(url)).status_code == 500
        assert await pod.heal("status")
        assert not await pod.heal("status")
        assert (await client.get(url)).status_code == 200
        await pod.inject(fault("status", duration=1))
        await asyncio.sleep(0.01)
        assert (await client.get(url)).status_code == 200
        assert len(pod.faults) == 0

    with_pod(run, [fault("status")], look)


@given(after=st.integers(0, 5), count=st.none() | st.integers(1, 5), paths=st.lists(st.sampled_from("ab"), max_size=20))
def test_a_fault_befalls_as_many_as_it_says(after, count, paths):
    faults = Faults("/metrics", seed="a")
    faults.add(Fault(type=FaultType.STATUS, path="/a", after=after, count=count))
    met = [bool(faults.meet(f"/{path}")) for path in paths]
    assert not any(hit for hit, path in zip(met, paths, strict=True) if path == "b")
    of_path = [hit for hit, path in zip(met, paths, strict=True) if path == "a"]
    last = len(of_path) if count is None else after + count
    assert of_path == [after <= index < last for index in range(len(of_path))]


def test_toxicity_is_a_share_and_repeats_itself():
    def hits():
        faults = Faults("/metrics", seed="a")
        faults.add(Fault(type=FaultType.STATUS, toxicity=0.5))
        return [len(faults.meet("/x")) for _ in range(1000)]

    assert hits() == hits()
    assert 300 < sum(hits()) < 700


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"type": "explode"}, "type is 'explode'"),
        ({"type": "latency", "attributes": {"delay": 1}}, "unknown attribute 'delay' of latency; known: latency"),
        ({"type": "latency", "attributes": {"latency": -1}}, "latency is -1; it is a whole number from 0"),
        ({"type": "latency", "attributes": {"latency": "1"}}, "latency is '1'"),
        ({"type": "latency", "attributes": {"latency": True}}, "latency is True"),
        ({"type": "half", "attributes": {"share": math.nan}}, "share is nan"),
        ({"type": "split", "attributes": {"inside": "word"}}, "inside is 'word'; it is one of event, character"),
        ({"type": "value", "attributes": {"families": "kv"}}, "families is 'kv'; it is a list of names"),
        ({"type": "value", "attributes": {"value": 1}}, "value is 1; it is a text"),
        ({"type": "status", "path": "metrics"}, "path is 'metrics'"),
        ({"type": "status", "count": 0}, "count 0"),
        ({"type": "status", "toxicity": 2}, "toxicity is 2"),
        ({"type": "status", "duration": 0}, "duration is 0"),
        ({"type": "down", "count": 1}, "the whole pod"),
    ],
)
def test_a_fault_that_makes_no_sense_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Fault(**wrong)


def test_a_fault_of_families_that_the_page_does_not_have_is_refused(run):
    async def look(pod, client):
        with pytest.raises(ValueError, match="'queues' is not on this page; known: cache, kv, lora"):
            await pod.inject(fault("missing", families=["queues"]))
        assert len(pod.faults) == 0

    with_pod(run, [], look)


NOT_IN_THE_BYTES = {"down", "latency", "bandwidth", "slow_close", "slicer", "endless", "timeout", "frozen"}


@pytest.mark.parametrize("kind", [kind for kind in FaultType if kind.value not in NOT_IN_THE_BYTES])
def test_a_fault_changes_what_arrives(run, connect, kind):
    """A fault without effect would pass for one that was withstood."""
    about = KINDS[kind]
    body = json.dumps(QUESTION).encode()
    post = b"POST /v1/completions HTTP/1.1\r\nhost: pod\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    request = (
        post + body
        if about.stage == "stream"
        else (GET % b"/metrics").replace(b"\r\n\r\n", b"\r\naccept-encoding: gzip\r\nconnection: close\r\n\r\n")
    )

    async def look(pod, client):
        well = await received(connect, pod, request)
        await pod.inject(Fault(type=kind))
        ill = await received(connect, pod, request)
        await pod.heal()
        return well, ill, await received(connect, pod, request)

    well, ill, healed = with_pod(run, [], look)
    assert ill != well
    assert healed == well


# -- the line ----------------------------------------------------------------------------------------------------------


def test_down_refuses_and_comes_back(run):
    async def look(pod, client):
        assert not pod.accepting
        with pytest.raises(httpx.ConnectError):
            await client.get(f"http://{pod.endpoint}/health")
        await pod.heal("down")
        assert (await client.get(f"http://{pod.endpoint}/health")).status_code == 200
        await pod.inject(fault("down", duration=10))
        while not pod.accepting:  # noqa: ASYNC110 - as a client sees it
            await asyncio.sleep(0.005)
        assert (await client.get(f"http://{pod.endpoint}/health")).status_code == 200

    with_pod(run, [fault("down")], look)


def test_reset_peer_and_limit_data(run, connect):
    async def look(pod, client):
        await pod.inject(fault("reset_peer", path="/now"))
        await pod.inject(fault("reset_peer", path="/late", timeout=5, name="late"))
        await pod.inject(fault("limit_data", path="/metrics", bytes=300))
        return [await received(connect, pod, GET % path) for path in (b"/now", b"/late", b"/metrics")]

    now, late, limited = with_pod(run, [], look)
    assert now == late == (b"", "reset")
    assert (len(limited[0]), limited[1]) == (300, "closed")
    assert limited[0].startswith(b"HTTP/1.1 200 OK")


def test_timeout_stalls_and_closes_or_does_not(run, connect):
    async def look(pod, client):
        await pod.inject(fault("timeout", path="/health"))
        await pod.inject(fault("timeout", path="/metrics", timeout=20, bytes=50, name="later"))
        return (
            await received(connect, pod, GET % b"/health", quiet=0.1),
            await received(connect, pod, GET % b"/metrics"),
        )

    never, later = with_pod(run, [], look)
    assert never == (b"", "open")
    assert (len(later[0]), later[1]) == (50, "closed")


def test_a_timeout_without_end_lasts_as_long_as_the_fault(run, connect):
    async def look(pod, client):
        pod.metrics_fault = MetricsFault(kind=FaultKind.HANG)
        reading = asyncio.create_task(received(connect, pod, GET % b"/metrics"))
        held = await pod.scraped(times=1, after=0, timeout=10)
        pod.metrics_fault = None
        return held, await reading

    assert with_pod(run, [], look) == (True, (b"", "closed"))


def test_latency_keeps_the_answer_back(run, connect):
    async def look(pod, client):
        late = await received(connect, pod, GET % b"/health", quiet=0.1)
        await pod.heal()
        # 2 requests run: an hour each.
        await pod.inject(fault("latency", latency=0, per_running=1_800_000))
        busy = await received(connect, pod, GET % b"/health", quiet=0.1)
        pod.gauges = Gauges()
        return late, busy, await received(connect, pod, GET % b"/health", quiet=0.1)

    late, busy, idle = with_pod(run, [fault("latency", latency=3_600_000, jitter=1000)], look)
    assert late == busy == (b"", "open")
    assert idle[0].startswith(b"HTTP/1.1 200")


def test_slow_lines_bring_everything(run, connect):
    async def look(pod, client):
        whole = (await client.get(f"http://{pod.endpoint}/metrics")).content
        await pod.inject(fault("bandwidth", rate=50.0))
        await pod.inject(fault("slicer", average_size=20, size_variation=10, delay=1))
        await pod.inject(fault("slow_close", delay=10))
        answer = await client.get(f"http://{pod.endpoint}/metrics")
        assert answer.headers["connection"] == "close"
        return whole, answer.content

    whole, slow = with_pod(run, [], look)
    assert slow == whole


def test_slow_close_leaves_the_connection_open_for_a_while(run, connect):
    async def look(pod, client):
        return await received(connect, pod, GET % b"/health", quiet=0.1)

    got, ended = with_pod(run, [fault("slow_close", delay=3_600_000)], look)
    assert got.startswith(b"HTTP/1.1 200")
    assert ended == "open"


# -- answers -----------------------------------------------------------------------------------------------------------


def test_answers_that_are_none(run):
    async def look(pod, client):
        url = f"http://{pod.endpoint}/v1/models"
        found = []
        for one in (fault("status", status=401), fault("redirect", location="http://x/"), fault("html"), fault("json")):
            await pod.inject(one)
            found.append(await client.get(url))
            await pod.heal()
        return found

    refused, redirect, html, empty = with_pod(run, [], look)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, 401)
    assert (redirect.status_code, redirect.headers["location"]) == (307, "http://x/")
    assert html.headers["content-type"].startswith("text/html")
    assert empty.json() == []


@pytest.mark.parametrize("path", ["/metrics", "/v1/models"])
def test_an_endless_answer_does_not_end(run, path):
    async def look(pod, client):
        size = 0
        async with client.stream("GET", f"http://{pod.endpoint}{path}") as answer:
            async for piece in answer.aiter_bytes():
                size += len(piece)
                if size > 2_000_000:
                    break
        return size

    assert with_pod(run, [fault("endless")], look) > 2_000_000


# -- pages -------------------------------------------------------------------------------------------------------------


def samples(page: bytes):
    return {one.name: one.value for family in text_string_to_metric_families(page.decode()) for one in family.samples}


def types(page: bytes):
    return {family.name: family.type for family in text_string_to_metric_families(page.decode())}


def test_pages_that_are_not_whole(run):
    whole = page_of(run, spec=PLAIN).content
    assert page_of(run, fault("empty"), spec=PLAIN).content == b""
    assert page_of(run, fault("garbage"), spec=PLAIN).content == GARBAGE
    half = page_of(run, fault("half"), spec=PLAIN).content
    assert whole.startswith(half)
    assert half.splitlines()[-1].partition(b"{")[0] in {line.partition(b"{")[0] for line in whole.splitlines()}
    assert half.endswith(b"}")  # a sample without its value, which no line of the whole page is
    assert page_of(run, fault("no_newline"), spec=PLAIN).content + b"\n" == whole
    assert page_of(run, fault("crlf"), spec=PLAIN).content.replace(b"\r\n", b"\n") == whole
    bare = page_of(run, fault("no_samples"), spec=PLAIN).content
    assert set(types(bare)) == set(types(whole))
    assert not samples(bare)


@pytest.mark.parametrize("value", ["NaN", "-1", "1.5", "+Inf", "1e300"])
def test_values_that_are_none(run, value):
    found = samples(page_of(run, fault("value", value=value, families=["kv"])).content)
    assert found["vllm:kv_cache_usage_perc"] == pytest.approx(float(value), nan_ok=True)
    assert found["vllm:num_requests_waiting"] == 3


def test_types_names_and_doubles(run):
    whole = page_of(run).content
    typed = types(page_of(run, fault("type", type="counter", families=["queue"])).content)
    assert (typed["vllm:num_requests_waiting"], typed["vllm:num_requests_running"]) == ("counter", "gauge")
    assert types(page_of(run, fault("type", type="")).content)["vllm:num_requests_waiting"] == "unknown"
    renamed = samples(page_of(run, fault("renamed", suffix="_new", families=["kv"])).content)
    assert "vllm:kv_cache_usage_perc_new" in renamed
    assert "vllm:kv_cache_usage_perc" not in renamed
    doubled = page_of(run, fault("duplicate", value="99", families=["queue"])).content.splitlines()
    series = [line for line in doubled if line.startswith(b"vllm:num_requests_waiting")]
    assert [line.rsplit(b" ", 1)[1] for line in series] == [b"3.0", b"99"]
    assert len({line.rsplit(b" ", 1)[0] for line in series}) == 1
    headers = page_of(run, fault("second_header", families=["queue"])).content
    assert headers.count(b"# TYPE vllm:num_requests_waiting gauge") == 2
    assert len(headers) > len(whole)
    assert "vllm:num_requests_running" not in samples(page_of(run, fault("missing", families=["running"])).content)


def test_series_that_were_never_removed(run):
    page = page_of(run, fault("stale_series", series=2000)).content.decode()
    (info,) = [one for one in text_string_to_metric_families(page) if one.name == "vllm:lora_requests_info"]
    assert len(info.samples) == 2001
    newest = max(info.samples, key=lambda one: one.value)
    assert newest.labels["running_lora_adapters"] == "x"


def test_a_frozen_page_stays_or_follows_in_steps(run):
    async def look(pod, client):
        url = f"http://{pod.endpoint}/metrics"
        pod.gauges = Gauges(queue=9)
        stuck = samples((await client.get(url)).content)
        await pod.heal()
        fresh = samples((await client.get(url)).content)
        await pod.inject(fault("frozen", interval=10))
        pod.gauges = Gauges(queue=11)
        await asyncio.sleep(0.02)
        return stuck, fresh, samples((await client.get(url)).content)

    found = with_pod(run, [fault("frozen")], look)
    assert [one["vllm:num_requests_waiting"] for one in found] == [3, 9, 11]


def test_faults_of_one_page_add_up(run):
    page = page_of(run, fault("value", value="-1", families=["kv"]), fault("no_newline"), fault("latency", latency=1))
    assert samples(page.content + b"\n")["vllm:kv_cache_usage_perc"] == -1
    assert not page.content.endswith(b"\n")


# -- streams -----------------------------------------------------------------------------------------------------------


def stream_of(run, connect, *given, body=None):
    """The chunks of a streamed completion as they were cut, and how the connection ended."""
    content = json.dumps(body or QUESTION).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: pod\r\ncontent-length: %d\r\n\r\n" % len(content)

    async def look(pod, client):
        raw = await connect(pod)
        await raw.send(head + content)
        await raw.head()
        chunks = []
        with contextlib.suppress(asyncio.IncompleteReadError):
            while chunk := await raw.chunk():
                chunks.append(chunk)
            raw.close()
            return chunks, "whole"
        raw.close()
        return chunks, "cut"

    return with_pod(run, given, look)


def test_a_stream_without_faults(run, connect):
    chunks, ended = stream_of(run, connect)
    assert (len(chunks), ended) == (41, "whole")
    assert chunks[-1] == b"data: [DONE]\n\n"


def test_streams_that_are_cut(run, connect):
    well, _ = stream_of(run, connect)
    cut, ended = stream_of(run, connect, fault("cut", events=3))
    assert (cut[:3], ended) == (well[:3], "cut")
    assert well[3].startswith(cut[3])
    assert not cut[3].endswith(b"\n\n")
    assert stream_of(run, connect, fault("no_done")) == (well[:-1], "whole")


def test_events_in_other_pieces(run, connect):
    well, _ = stream_of(run, connect)
    for inside in ("event", "character"):
        split, _ = stream_of(run, connect, fault("split", inside=inside))
        assert len(split) == 2 * len(well)
        assert b"".join(split) == b"".join(well)
    assert any(not _is_text(piece) for piece in split)
    merged, _ = stream_of(run, connect, fault("merge", events=4))
    assert len(merged) == math.ceil(len(well) / 4)
    assert b"".join(merged) == b"".join(well)


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_further_events(run, connect):
    well, _ = stream_of(run, connect)
    comments, _ = stream_of(run, connect, fault("comments", text="still here"))
    assert [one for one in comments if one != b": still here\n\n"] == well
    assert len(comments) == 2 * len(well)
    failed, ended = stream_of(run, connect, fault("error_event", events=2))
    assert (failed[:2], failed[-1], ended) == (well[:2], b"data: [DONE]\n\n", "whole")
    assert json.loads(failed[2].removeprefix(b"data: "))["error"]["code"] == 500
    aborted, _ = stream_of(run, connect, fault("abort", events=2))
    assert json.loads(aborted[2].removeprefix(b"data: "))["choices"][0]["finish_reason"] == "abort"


def test_a_stream_fault_leaves_other_answers_alone(run):
    async def look(pod, client):
        plain = {"model": "fake-model", "prompt": "x"}
        return (await client.post(f"http://{pod.endpoint}/v1/completions", json=plain)).json()["choices"][0]["text"]

    assert with_pod(run, [fault("cut"), fault("abort")], look) == "This answer comes from pod a."


def test_a_pod_whose_address_was_taken_while_it_was_down_is_told_of(run):
    async def scenario():
        told = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.set_result(context["exception"]))
        async with Fleet(mode="shared") as fleet:
            pod = await fleet.add(SPEC)
            await pod.inject(fault("down"))
            other = await asyncio.start_server(lambda *_: None, pod.addresses[0].host, pod.addresses[0].port)
            await pod.inject(fault("down", duration=1))
            assert isinstance(await asyncio.wait_for(told, 30), AddressTakenError)
            other.close()
            await other.wait_closed()

    run(scenario())
