"""Gauges: the parser of Prometheus' text, and the scraper against small servers of all sorts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_epp import faults, variants  # noqa: F401 - they fill the registry
from reference_epp.accounting import Accounting
from reference_epp.deviations import FAULTS, VARIANTS
from reference_epp.endpoints import Endpoint, Pool, parse_endpoint
from reference_epp.gauges import Gauges, parse_gauges, parse_samples
from reference_epp.metrics_client import PAGE_LIMIT, MetricsConnection
from reference_epp.picker import Limits, Picked, Refused, Request
from reference_epp.scraper import Readings, Scraper
from reference_epp.server import Parts

PAGE = """\
# HELP vllm:num_requests_waiting Number of requests waiting.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a \\"b\\", {c}"} 3.0
vllm:num_requests_running{engine="0"} 2 1700000000000
vllm:kv_cache_usage_perc 0.25
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1.7e9
vllm:lora_requests_info{max_lora="4",running_lora_adapters="x, y",waiting_lora_adapters="z"} 1.8e9
"""


def test_reads_what_vllm_says() -> None:
    assert parse_gauges(PAGE) == Gauges(
        queued=3,
        running=2,
        kv_cache=0.25,
        running_adapters=frozenset({"x", "y"}),
        waiting_adapters=frozenset({"z"}),
        max_adapters=4,
    )


@pytest.mark.parametrize(
    "page",
    [
        "vllm:num_requests_waiting 7\nvllm:gpu_cache_usage_perc 0.5\n",
        "sglang:num_queue_reqs 7\nsglang:token_usage 0.5\n",
        "trtllm_num_requests_waiting 7\ntrtllm_kv_cache_utilization 0.5\n",
    ],
)
def test_reads_the_names_of_other_servers(page: str) -> None:
    assert parse_gauges(page) == Gauges(queued=7, running=0, kv_cache=0.5)


@pytest.mark.parametrize("page", ["", "up 1\n", "{\n", "a{\n", "<html>\n", "[]\n"])
def test_a_page_without_gauges_says_nothing(page: str) -> None:
    with pytest.raises(ValueError, match="usable value"):
        parse_gauges(page)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1", "-0.5"])
@pytest.mark.parametrize("name", ["num_requests_waiting", "num_requests_running", "kv_cache_usage_perc"])
def test_a_page_with_a_value_that_can_not_be_is_refused(name: str, value: str) -> None:
    right = {"num_requests_waiting": "1", "num_requests_running": "1", "kv_cache_usage_perc": "0.5", name: value}
    with pytest.raises(ValueError, match="which no load is"):
        parse_gauges("".join(f"vllm:{key} {text}\n" for key, text in right.items()))


def test_values_of_other_families_may_be_anything() -> None:
    assert parse_gauges("sglang:fwd_occupancy NaN\nsglang:num_queue_reqs 2\nup -1\n").queued == 2


def test_a_page_that_ends_inside_a_line_is_refused() -> None:
    with pytest.raises(ValueError, match="ends inside a line"):
        parse_gauges(PAGE + "vllm:num_requests_waiting 1")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_ranks_of_one_address_are_summed_and_the_fullest_cache_counts(queued: list[int], used: list[float]) -> None:
    lines = [f'vllm:num_requests_waiting{{engine="{rank}"}} {value}' for rank, value in enumerate(queued)]
    lines += [f'vllm:kv_cache_usage_perc{{engine="{rank}"}} {value!r}' for rank, value in enumerate(used)]
    gauges = parse_gauges("\n".join(lines) + "\n")
    assert (gauges.queued, gauges.kv_cache) == (sum(queued), max(used))


def test_a_total_beside_its_parts_is_not_added_to_them() -> None:
    page = 'sglang:num_queue_reqs{priority="1"} 2\nsglang:num_queue_reqs{priority=""} 5\n'
    assert parse_gauges(page).queued == 5


def test_a_broken_line_does_not_hide_the_others() -> None:
    assert list(parse_samples('a{b="c} 1\nb\nd 2\ne{f="g"\nh{} 3')) == [("d", {}, 2.0), ("h", {}, 3.0)]


@given(st.text())
def test_no_page_breaks_the_parser(page: str) -> None:
    assert all(isinstance(value, float) for _, _, value in parse_samples(page))


names = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]*", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True)
values = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"))


@given(names, st.dictionaries(label_names, values), st.floats(allow_nan=False, allow_infinity=False))
def test_a_well_formed_sample_reads_back(name: str, labels: dict[str, str], value: float) -> None:
    escaped = {key: text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for key, text in labels.items()}
    pairs = ",".join(f'{key}="{text}"' for key, text in escaped.items())
    assert list(parse_samples(f"{name}{{{pairs}}} {value!r}\n")) == [(name, labels, value)]


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def served(*answers: bytes, close: bool = False) -> tuple[Serve, list[int]]:
    """A server that gives these answers to requests in turn (the last one from then on), and its connections so far."""
    connections: list[int] = []
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(left.pop(0) if len(left) > 1 else left[0])
                await writer.drain()
                if close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve, connections


async def with_server(serve: Serve, act: Callable[[Endpoint], Awaitable[None]]) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        await asyncio.wait_for(act(parse_endpoint(f"{host}:{port}")), 20)
    finally:
        server.close()


def sized(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body)


@pytest.mark.parametrize(
    ("answer", "close"),
    [
        (sized(b"page"), False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\npa\r\n2\r\nge\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\npage", True),
    ],
)
def test_fetches_a_page_however_it_is_framed(answer: bytes, close: bool) -> None:
    async def act(endpoint: Endpoint) -> None:
        connection = await MetricsConnection.open(endpoint)
        assert await connection.fetch() == b"page"
        connection.close()
        assert connection.closed

    asyncio.run(with_server(served(answer, close=close)[0], act))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (sized(b"no", b"500 Internal Server Error"), ValueError),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ValueError),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort", ConnectionError),
        (sized(b"x" * (PAGE_LIMIT + 1)), ValueError),
    ],
)
def test_a_bad_answer_is_an_error(answer: bytes, error: type[Exception]) -> None:
    async def act(endpoint: Endpoint) -> None:
        connection = await MetricsConnection.open(endpoint)
        with pytest.raises(error):
            await connection.fetch()
        connection.close()

    asyncio.run(with_server(served(answer, close=True)[0], act))


def test_one_connection_serves_many_scrapes() -> None:
    serve, connections = served(sized(b"page"))

    async def act(endpoint: Endpoint) -> None:
        connection = await MetricsConnection.open(endpoint)
        for _ in range(5):
            assert await connection.fetch() == b"page"
        connection.close()

    asyncio.run(with_server(serve, act))
    assert len(connections) == 1


def test_the_scraper_follows_the_pool_and_recovers_from_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    serve, _ = served(sized(b"nothing here"), sized(b"oops", b"503 Service Unavailable"), sized(PAGE.encode()))

    async def act(endpoint: Endpoint) -> None:
        pool, readings = Pool(), Readings(60)
        arrived = asyncio.Event()
        monkeypatch.setattr(readings, "put", lambda *reading: (Readings.put(readings, *reading), arrived.set()))
        scraper = Scraper(pool, readings, 0.001)
        pool.update((endpoint,), synced=True)
        await arrived.wait()
        gauges = readings.get(endpoint)
        assert gauges is not None
        assert gauges.queued == 3
        pool.update((), synced=True)
        assert readings.get(endpoint) is None
        await scraper.stop()

    asyncio.run(with_server(serve, act))


def test_the_last_good_page_stands_while_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = (b"vllm:num_requests_waiting NaN\n", b"vllm:num_requests_waiting 9", b"<html>\n", b"")
    serve, _ = served(sized(PAGE.encode()), *(sized(page) for page in bad))

    async def act(endpoint: Endpoint) -> None:
        pool, readings = Pool(), Readings(60)
        arrived = asyncio.Event()
        monkeypatch.setattr(readings, "put", lambda *reading: (Readings.put(readings, *reading), arrived.set()))
        scraper = Scraper(pool, readings, 0.001)
        pool.update((endpoint,), synced=True)
        await arrived.wait()
        gauges = readings.get(endpoint)
        for _ in range(50):
            await asyncio.sleep(0.002)
            assert readings.get(endpoint) == gauges
        await scraper.stop()

    asyncio.run(with_server(serve, act))


def reader(name: str) -> Scraper:
    """A scraper as a deviation has it."""
    deviation = {**FAULTS, **VARIANTS}[name]
    return Parts().exchange(*deviation.classes).scraper(Pool(), Readings(60), 1.0)


RANKS = "".join(f'vllm:num_requests_waiting{{engine="{rank}"}} {value}\n' for rank, value in enumerate((1, 5)))


def test_deviations_of_reading_read_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    nan = RANKS.replace(" 5", " NaN")
    assert reader("reads-the-first-series").read(RANKS).queued == 1
    assert reader("reads-the-first-series").read(PAGE) == parse_gauges(PAGE)
    assert reader("takes-nan-for-an-empty-queue").read(nan).queued < 0
    assert reader("takes-nan-for-an-empty-queue").read(RANKS).queued == 6
    forgets, endpoint = reader("forgets-at-a-bad-page"), parse_endpoint("10.0.0.1:80")
    forgets.readings.put(endpoint, parse_gauges(RANKS))
    forgets.refused(endpoint, ValueError())
    assert forgets.readings.get(endpoint) is None
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    assert reader("odd-gauge-is-fatal").read(RANKS).queued == 6
    with pytest.raises(ValueError, match="no load is"):
        reader("odd-gauge-is-fatal").read(nan)
    assert ended == [70]


def test_a_pod_that_is_scraped_until_it_fails_is_left_out_from_then_on() -> None:
    parts = Parts().exchange(*FAULTS["scraped-until-it-fails"].classes)
    pool, readings, endpoint = Pool(), Readings(60), parse_endpoint("10.9.9.9:80")
    pool.update((endpoint,), synced=True)
    picker = parts.picker(pool, readings, Accounting(), Limits())
    assert isinstance(picker.pick(Request()), Picked)
    scraper = parts.scraper(Pool(), readings, 1.0)
    scraper.refused(endpoint, TimeoutError())
    assert isinstance(picker.pick(Request()), Picked)
    scraper.refused(endpoint, ValueError())
    assert isinstance(picker.pick(Request()), Refused)


def test_a_server_that_restarts_is_not_as_idle_as_it_said_before() -> None:
    async def act() -> None:
        serve, _ = served(sized(PAGE.encode()))
        open_now: list[asyncio.StreamWriter] = []

        async def remember(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            open_now.append(writer)
            await serve(reader, writer)

        async def until(known: bool) -> None:
            while True:
                if (readings.get(endpoint) is not None) is known:
                    return
                await asyncio.sleep(0.001)

        server = await asyncio.start_server(remember, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        endpoint, pool, readings = parse_endpoint(f"{host}:{port}"), Pool(), Readings(60)
        scraper = Scraper(pool, readings, 0.001)
        pool.update((endpoint,), synced=True)
        await until(known=True)
        server.close()
        for writer in open_now:
            writer.transport.abort()
        await until(known=False)
        server = await asyncio.start_server(serve, host, port)
        await until(known=True)
        await scraper.stop()
        server.close()

    asyncio.run(asyncio.wait_for(act(), 20))


def test_an_old_reading_says_nothing() -> None:
    readings, endpoint = Readings(0), parse_endpoint("10.0.0.1:80")
    readings.put(endpoint, Gauges(queued=1, running=0, kv_cache=0))
    assert readings.get(endpoint) is None
