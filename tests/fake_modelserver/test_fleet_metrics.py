"""/metrics: names, values and labels, with prometheus-client's parser as the oracle; faults; scrapes seen."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fake_modelserver import Engine, FaultKind, Fleet, Gauges, LoraForm, LoraSeries, MetricsFault, PodSpec
from fake_modelserver.engines import generation
from fake_modelserver.engines.families import Identity
from fake_modelserver.faults.pages import GARBAGE, damaged
from fake_modelserver.page import Page, Rank

# No verdict may depend on how busy the machine is.
steady = settings(suppress_health_check=[HealthCheck.too_slow])


def render(gauges, *, engine=Engine.VLLM, updated=1.0, fault=None, lora=None, **identity):
    """The minimal page of one rank of an engine's newest generation."""
    kind = generation(engine)
    page = Page(kind, Identity(**identity), lora=lora).render([Rank(gauges=gauges, updated=updated)])
    if fault is not None:
        found = fault.fault("/metrics")
        page = damaged(page, found, kind.named(found.attributes.get("families", ())))
    return page


def parse(page: bytes):
    """Samples by name, and the families: name -> type. Fails if a family or a series comes twice."""
    families = list(text_string_to_metric_families(page.decode()))
    assert len({family.name for family in families}) == len(families)
    samples = [sample for family in families for sample in family.samples]
    series = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in samples]
    assert len(set(series)) == len(series)
    by_name: dict[str, list] = {}
    for sample in samples:
        by_name.setdefault(sample.name, []).append(sample)
    return by_name, {family.name: family.type for family in families}


GAUGES = Gauges(queue=3, running=2, kv=0.25, running_loras=("a", "b"), waiting_loras=("c",), max_lora=4)


def test_a_stale_lora_series_is_older_and_stands_where_told():
    stale = (
        LoraSeries(running=("old",), max_lora=4, age=60),
        LoraSeries(max_lora=4, age=5, place="after"),
    )
    samples, _ = parse(render(replace(GAUGES, stale_loras=stale), updated=1000.0, lora=LoraForm()))
    listed = [(item.labels["running_lora_adapters"], item.value) for item in samples["vllm:lora_requests_info"]]
    assert listed == [("old", 940.0), ("a,b", 1000.0), ("", 995.0)]


adapter = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=","), min_size=1).filter(
    lambda name: name == name.strip()
)
adapters = st.lists(adapter, max_size=4).map(tuple)


@steady
@given(
    model=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    queue=st.integers(0, 10**12),
    running=st.integers(0, 10**12),
    kv=st.floats(0, 1),
    running_loras=adapters,
    waiting_loras=adapters,
    max_lora=st.integers(0, 1000),
    engine=st.sampled_from(Engine),
    updated=st.floats(0, 4e9),
)
def test_any_values_survive_the_text_format(
    model, queue, running, kv, running_loras, waiting_loras, max_lora, engine, updated
):
    gauges = Gauges(
        queue=queue,
        running=running,
        kv=kv,
        running_loras=running_loras,
        waiting_loras=waiting_loras,
        max_lora=max_lora,
    )
    samples, _ = parse(render(gauges, engine=engine, model_name=model, updated=updated, lora=LoraForm()))
    every = [item for items in samples.values() for item in items]
    values = [item.value for item in every]
    assert float(queue) in values
    assert float(running) in values
    assert (round(kv, 2) if engine is Engine.SGLANG else kv) in values
    assert model in [item.labels.get("model_name", item.labels.get("model")) for item in every]
    if engine is Engine.VLLM and gauges.has_lora:
        (info,) = samples["vllm:lora_requests_info"]
        assert info.value == updated
        assert info.labels["running_lora_adapters"] == ",".join(running_loras)
        assert info.labels["waiting_lora_adapters"] == ",".join(waiting_loras)


def test_nan_and_missing_families():
    nan, _ = parse(render(GAUGES, fault=MetricsFault(kind=FaultKind.NAN)))
    assert math.isnan(nan["vllm:num_requests_waiting"][0].value)
    assert math.isnan(nan["vllm:kv_cache_usage_perc"][0].value)
    missing = MetricsFault(kind=FaultKind.MISSING, families=("kv", "vllm:num_requests_running"))
    left, _ = parse(render(GAUGES, fault=missing))
    assert set(left) == {"vllm:num_requests_waiting", "vllm:lora_requests_info", "vllm:cache_config_info"}
    assert render(GAUGES, fault=MetricsFault(kind=FaultKind.MISSING)) == b""


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Gauges(queue=-1),
        lambda: Gauges(running=1.5),
        lambda: Gauges(kv=1.1),
        lambda: Gauges(kv=math.nan),
        lambda: Gauges(running_loras=("a,b",)),
        lambda: Gauges(max_lora=-1),
        lambda: Gauges(max_lora=1, stale_loras=(LoraSeries(max_lora=1),)),
        lambda: LoraSeries(age=-1),
        lambda: LoraSeries(running=(" a",)),
        lambda: MetricsFault(kind=FaultKind.SLOW, delay=-1),
        lambda: MetricsFault(kind=FaultKind.STATUS, status=200),
    ],
)
def test_values_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=r" is | are | cannot "):
        wrong()


# -- over HTTP ---------------------------------------------------------------------------------------------------------


async def scrape(client, pod):
    return await client.get(f"http://{pod.endpoint}/metrics")


def test_gauges_change_at_run_time(run):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a", gauges=Gauges(queue=1)))
            first = await scrape(client, pod)
            assert first.headers["content-type"].startswith("text/plain; version=1.0.0")
            assert parse(first.content)[0]["vllm:num_requests_waiting"][0].value == 1
            assert (await scrape(client, pod)).content == first.content
            pod.gauges = replace(pod.gauges, queue=7, running_loras=("x",))
            samples, _ = parse((await scrape(client, pod)).content)
            assert samples["vllm:num_requests_waiting"][0].value == 7
            assert samples["vllm:lora_requests_info"][0].labels["running_lora_adapters"] == "x"

    run(scenario())


def test_faults_over_http_and_what_the_listener_hears(run):
    async def scenario():
        heard = []
        async with Fleet(on_scrape=heard.append) as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a", gauges=Gauges(queue=1)))

            pod.metrics_fault = MetricsFault(kind=FaultKind.STATUS, status=503)
            assert (await scrape(client, pod)).status_code == 503
            pod.metrics_fault = MetricsFault(kind=FaultKind.GARBAGE)
            assert (await scrape(client, pod)).content == GARBAGE
            pod.metrics_fault = MetricsFault(kind=FaultKind.DOWN)
            with pytest.raises(httpx.TransportError):
                await scrape(client, pod)
            assert (await client.get(f"http://{pod.endpoint}/health")).status_code == 200

            pod.metrics_fault = MetricsFault(kind=FaultKind.STALE)
            pod.gauges = Gauges(queue=9)
            assert parse((await scrape(client, pod)).content)[0]["vllm:num_requests_waiting"][0].value == 1
            pod.metrics_fault = None
            assert parse((await scrape(client, pod)).content)[0]["vllm:num_requests_waiting"][0].value == 9

            pod.metrics_fault = MetricsFault(kind=FaultKind.SLOW, delay=3000)
            with pytest.raises(httpx.ReadTimeout):
                await client.get(f"http://{pod.endpoint}/metrics", timeout=httpx.Timeout(10, read=0.05))
            pod.metrics_fault = MetricsFault(kind=FaultKind.SLOW, delay=0.001)
            assert (await scrape(client, pod)).status_code == 200
        outcomes = [event.outcome for event in heard]
        assert outcomes == ["status", "garbage", "reset_peer", "frozen", "ok", "latency", "latency"]
        assert {event.pod for event in heard} == {"a"}
        assert [event.t for event in heard] == sorted(event.t for event in heard)

    run(scenario())


def test_waiting_for_scrapes_after_a_mark(run):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            a = await fleet.add(PodSpec(name="a"))
            b = await fleet.add(PodSpec(name="b"))
            await scrape(client, a)
            mark = a.mark()
            assert mark == 1 == fleet.scrapes("a")
            assert not await a.scraped(times=1, after=mark, timeout=0.01)

            waiting = asyncio.create_task(a.scraped(times=2, after=mark, timeout=10))
            await scrape(client, a)
            assert not waiting.done()
            await scrape(client, a)
            assert await waiting
            assert await a.scraped(times=2, after=mark, timeout=0)

            marks = fleet.marks()
            await scrape(client, a)
            assert await fleet.scraped(times=1, after=marks, timeout=0.05) == {"a": True, "b": False}

            ended = asyncio.create_task(b.scraped(timeout=10))
            await asyncio.sleep(0)
            await fleet.remove("b")
            assert not await ended

    run(scenario())
