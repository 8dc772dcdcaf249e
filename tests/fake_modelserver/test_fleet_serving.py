"""Gauges that follow from requests: queue, batch, KV cache, prefix cache, adapters; and gauges that are scripted."""

from __future__ import annotations

import asyncio
import json
import random
import re
from pathlib import Path

import httpx
import openai
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fake_modelserver import (
    Constant,
    Engine,
    Fleet,
    Gauges,
    Latency,
    PodSpec,
    Ramp,
    Replay,
    Serving,
    Square,
)
from fake_modelserver.engines.statistics import Statistics
from fake_modelserver.kv_cache import Cache
from fake_modelserver.scheduler import Job, Scheduler

# As quick as can be, but step by step.
QUICK = Latency(mean=0.002)
NEVER = Latency(mean=3000)


def serving(**more) -> Serving:
    return Serving(**{"first_token": QUICK, "between_tokens": QUICK, **more})


def samples(page: bytes):
    found = {}
    for family in text_string_to_metric_families(page.decode()):
        for one in family.samples:
            found.setdefault((one.name, *sorted(one.labels.items())), one.value)
    return found


def value(page: bytes, name: str, **labels):
    """The one sample of that name with those labels among its own."""
    (found,) = [
        amount
        for (known, *pairs), amount in samples(page).items()
        if known == name and labels.items() <= dict(pairs).items()
    ]
    return found


def with_pod(run, spec, look):
    async def scenario():
        async with Fleet() as fleet:
            pod = await fleet.add(spec)
            base = f"http://{pod.endpoint}/v1"
            async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
                return await look(pod, client)

    return run(scenario())


async def until(condition):
    while not condition():  # noqa: ASYNC110 - what is waited for is a page
        await asyncio.sleep(0.001)


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def test_more_requests_than_places_wait_and_all_end(run):
    spec = PodSpec(name="a", page="real", serving=serving(max_running=2))

    async def look(pod, client):
        async def ask(number):
            return await client.completions.create(model="fake-model", prompt=f"Question {number}", max_tokens=20)

        seen = []
        asked = [asyncio.create_task(ask(number)) for number in range(5)]
        await until(lambda: seen.append(pod.gauges) or (pod.gauges.running == 2 and pod.gauges.queue == 3))
        answers = await asyncio.gather(*asked)
        return answers, seen, pod.gauges, pod.page()

    answers, seen, after, page = with_pod(run, spec, look)
    assert all(answer.usage.completion_tokens == 20 for answer in answers)
    assert max(one.running for one in seen) == 2
    assert (after.running, after.queue, after.kv) == (0, 0, 0.0)
    assert value(page, "vllm:request_success_total", finished_reason="length") == 5
    assert value(page, "vllm:generation_tokens_total") == 100
    assert value(page, "vllm:time_to_first_token_seconds_count") == 5
    assert value(page, "vllm:inter_token_latency_seconds_count") == 95
    assert value(page, "vllm:e2e_request_latency_seconds_count") == 5
    assert value(page, "vllm:num_preemptions_total") == 0


def test_the_cache_is_used_by_live_requests_alone(run):
    spec = PodSpec(name="a", num_gpu_blocks=101, serving=serving(between_tokens=NEVER))

    async def look(pod, client):
        prompt = " ".join(f"word-{number}" for number in range(320))
        stream = await client.completions.create(model="fake-model", prompt=prompt, stream=True, max_tokens=5)
        await anext(aiter(stream))
        during = pod.gauges
        await stream.close()
        await until(lambda: pod.gauges.running == 0)
        return during, pod.gauges

    during, after = with_pod(run, spec, look)
    assert during.running == 1
    assert during.kv == pytest.approx(0.2, abs=0.011)
    assert after.kv == 0


def test_a_prompt_that_begins_alike_is_found_in_the_cache(run):
    spec = PodSpec(name="a", page="real", serving=serving())

    async def look(pod, client):
        prompt = " ".join(f"word-{number}" for number in range(100))
        usages = []
        for text in (prompt, prompt + " and more", "quite " + prompt):
            answer = await client.completions.create(model="fake-model", prompt=text, max_tokens=2)
            usages.append(answer.usage.prompt_tokens_details.cached_tokens)
        return usages, pod.page()

    usages, page = with_pod(run, spec, look)
    assert usages == [0, 96, 0]
    assert value(page, "vllm:prefix_cache_hits_total") == 96
    assert value(page, "vllm:prefix_cache_queries_total") == 303


def test_ranks_that_take_requests_in_turn_have_a_cache_each(run):
    spec = PodSpec(name="a", page="real", ranks=2, ranks_in_turn=True, serving=serving())

    async def look(pod, client):
        prompt = " ".join(f"word-{number}" for number in range(100))
        answers = [await client.completions.create(model="fake-model", prompt=prompt, max_tokens=2) for _ in range(3)]
        return [answer.usage.prompt_tokens_details.cached_tokens for answer in answers]

    assert with_pod(run, spec, look) == [0, 0, 96]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_place(run, stream):
    spec = PodSpec(name="a", serving=serving(max_running=1, between_tokens=NEVER))

    async def look(pod, client):
        body = {"model": "fake-model", "prompt": "Hello", "stream": stream, "max_tokens": 5}
        async with httpx.AsyncClient() as impatient:
            url = f"http://{pod.endpoint}/v1/completions"
            with pytest.raises(httpx.ReadTimeout):
                await impatient.post(url, json=body, timeout=httpx.Timeout(10, read=0.1))
        await until(lambda: pod.gauges.running == 0)
        first = await client.completions.create(model="fake-model", prompt="Hello", max_tokens=1)
        return first.usage.completion_tokens

    assert with_pod(run, spec, look) == 1


def test_a_full_queue_refuses(run):
    spec = PodSpec(name="a", serving=serving(max_running=1, max_waiting=1, first_token=NEVER))

    async def look(pod, client):
        held = [
            asyncio.create_task(client.completions.create(model="fake-model", prompt=f"Question {number}"))
            for number in range(2)
        ]
        await until(lambda: pod.gauges.running == pod.gauges.queue == 1)
        with pytest.raises(openai.InternalServerError, match="The queue is full"):
            await client.completions.create(model="fake-model", prompt="One more")
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)

    with_pod(run, spec, look)


def test_adapters_wait_for_a_slot_and_the_metric_names_them(run):
    spec = PodSpec(
        name="a", generation="0.10.2", adapters=("x", "y"), serving=serving(max_loras=1, between_tokens=NEVER)
    )

    async def look(pod, client):
        async def ask(model):
            return await client.completions.create(model=model, prompt="Hello", max_tokens=2)

        before = pod.page()
        x = asyncio.create_task(ask("x"))
        await until(lambda: pod.gauges.running_loras == ("x",))
        y = asyncio.create_task(ask("y"))
        base = asyncio.create_task(ask("fake-model"))
        await until(lambda: pod.gauges.waiting_loras == ("y",) and pod.gauges.running == 2)
        during = pod.page()
        x.cancel()
        await until(lambda: pod.gauges.running_loras == ("y",))
        for task in (x, y, base):
            task.cancel()
        await asyncio.gather(x, y, base, return_exceptions=True)
        await until(lambda: pod.gauges.running == 0)
        return before, during, pod.page()

    def newest(page):
        found = [
            (at, dict(labels)) for (name, *labels), at in samples(page).items() if name == "vllm:lora_requests_info"
        ]
        return max(found, key=lambda one: one[0])[1] if found else None

    before, during, after = with_pod(run, spec, look)
    assert b"# TYPE vllm:lora_requests_info gauge" in before
    assert newest(before) is None
    assert newest(during) == {"max_lora": "1", "running_lora_adapters": "x", "waiting_lora_adapters": "y"}
    assert newest(after) == {"max_lora": "1", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    assert b'running_lora_adapters="y"' in after  # as vLLM, it never removes what was


def test_a_restart_begins_at_zero(run):
    spec = PodSpec(name="a", page="real", serving=serving())

    async def look(pod, client):
        await client.completions.create(model="fake-model", prompt="Hello", max_tokens=4)
        before = pod.page()
        await pod.restart()
        return before, pod.page()

    before, after = with_pod(run, spec, look)
    assert value(before, "vllm:generation_tokens_total") == 4
    assert value(after, "vllm:generation_tokens_total") == 0
    name = "process_start_time_seconds"
    assert value(after, name) > value(before, name)


def test_requests_go_to_the_rank_with_the_least_to_do(run):
    spec = PodSpec(name="a", ranks=2, serving=serving(max_running=4, between_tokens=NEVER))

    async def look(pod, client):
        asked = [
            asyncio.create_task(client.completions.create(model="fake-model", prompt=str(number), max_tokens=2))
            for number in range(6)
        ]
        await until(lambda: sum(one.running for one in pod.all_gauges) == 6)
        shares = [one.running for one in pod.all_gauges]
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        return shares

    assert with_pod(run, spec, look) == [3, 3]


@pytest.mark.parametrize("engine", Engine)
def test_every_engine_streams_what_it_makes(run, engine):
    async def look(pod, client):
        stream = await client.chat.completions.create(
            model="fake-model",
            messages=[{"role": "user", "content": "Hello"}],
            stream=True,
            max_tokens=12,
            stream_options={"include_usage": True},
        )
        return [chunk async for chunk in stream]

    chunks = with_pod(run, PodSpec(name="a", engine=engine, page="real", serving=serving()), look)
    assert chunks[-1].usage.completion_tokens == 12
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[0].choices[0].delta.role == "assistant"


# -- the model ---------------------------------------------------------------------------------------------------------


@settings(max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    requests=st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from([None, "x", "y"]), st.booleans()), max_size=12
    ),
    places=st.integers(1, 4),
    blocks=st.integers(2, 12),
    max_waiting=st.none() | st.integers(0, 3),
)
def test_every_request_ends_and_nothing_is_left(requests, places, blocks, max_waiting):
    """Whatever comes and goes: gauges stay in range, each request ends once, counts agree, all is free again."""

    async def scenario():
        statistics, seen, ended = Statistics(), [], []
        scheduler = Scheduler(
            Serving(
                max_running=places,
                max_waiting=max_waiting,
                max_loras=1,
                first_token=Latency(),
                between_tokens=Latency(),
            ),
            blocks=blocks,
            block_size=4,
            statistics=statistics,
            changed=seen.append,
        )
        made = 0
        for number, (prompt, length, adapter, leaves) in enumerate(requests):
            if scheduler.full:
                continue
            made += 1
            job = Job(
                prompt=list(range(prompt)),
                length=length,
                adapter=adapter,
                most=length,
                token=lambda _: None,
                done=lambda number=number: ended.append(number),
                arrived=asyncio.get_running_loop().time(),
            )
            scheduler.submit(job)
            if leaves:
                scheduler.abort(job)
                ended.append(number) if number not in ended else None
        async with asyncio.timeout(2):
            while len(ended) < made:  # noqa: ASYNC110 - to see it between two steps
                await asyncio.sleep(0)
        return statistics, seen, ended, made

    statistics, seen, ended, made = asyncio.run(scenario())
    assert len(ended) == len(set(ended)) == made
    assert sum(statistics.counter("finished", how) for how in ("stop", "length", "abort")) == made
    assert all(0 <= one.kv <= 1 and one.running <= places for one in seen)
    assert all(len(set(one.running_loras)) <= 1 for one in seen)
    if seen:
        assert (seen[-1].running, seen[-1].queue, seen[-1].kv) == (0, 0, 0.0)


@given(st.lists(st.lists(st.integers(0, 2), max_size=30), max_size=10), st.integers(2, 20))
def test_a_cache_gives_back_what_it_gave(prompts, blocks):
    cache = Cache(blocks, 2)
    taken = []
    for prompt in prompts:
        keys = cache.keys(prompt)
        known = cache.known(keys)
        found = cache.take([*keys, None])
        if found is None:
            continue
        assert cache.known(keys) == len(keys) >= known
        taken.append(found)
        assert 0 < cache.usage <= 1
    for found in taken:
        cache.give_back(found)
    assert cache.usage == 0
    assert cache.free == blocks - 1


def test_latencies_are_drawn_around_their_mean_and_grow_with_load():
    chance = random.Random(1)
    assert Latency(mean=0.1).draw(chance, 5) == 0.1
    assert Latency(mean=0.1, per_running=0.01).draw(chance, 5) == pytest.approx(0.15)
    drawn = [Latency(mean=0.1, deviation=0.02).draw(chance, 0) for _ in range(1000)]
    assert sum(drawn) / 1000 == pytest.approx(0.1, rel=0.05)
    assert len(set(drawn)) > 900
    assert min(Latency(mean=0.001, deviation=1).draw(chance, 0) for _ in range(100)) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Latency(mean=-1),
        lambda: Latency(deviation=float("nan")),
        lambda: Serving(max_running=0),
        lambda: Serving(max_waiting=-1),
        lambda: Serving(output_tokens=0),
        lambda: Serving(per_prompt_token=-1),
        lambda: PodSpec(name="a", adapters=("x",), serving=Serving()),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=" is "):
        wrong()


# -- scripted gauges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signal", "expected"),
    [
        (Constant(value=3), {0: 3, 100: 3}),
        (Ramp(start=0, stop=10, seconds=5), {0: 0, 1: 2, 5: 10, 99: 10}),
        (Ramp(start=10, stop=0, seconds=5, repeat=True), {0: 10, 1: 8, 6: 8}),
        (Square(low=1, high=9, period=4, duty=0.25), {0: 9, 0.9: 9, 1: 1, 3.9: 1, 4: 9}),
        (Replay(points=((0, 1), (2, 5), (3, 2))), {0: 1, 1.9: 1, 2: 5, 3: 2, 50: 2}),
        (Replay(points=((1, 1), (2, 5), (4, 0)), repeat=True), {0: 1, 1: 1, 2: 5, 3.9: 5, 6: 5}),
    ],
)
def test_signals(signal, expected):
    assert {seconds: signal.at(seconds) for seconds in expected} == pytest.approx(expected)
    low, high = signal.range
    assert all(low <= one <= high for one in expected.values())


def test_a_replay_is_read_from_a_file_and_its_errors_name_the_line(tmp_path: Path):
    path = tmp_path / "gauge.csv"
    path.write_text("seconds,value\n0,1\n\n0.5,2.5\n")
    assert Replay.read(path).points == ((0.0, 1.0), (0.5, 2.5))
    path.write_text("seconds,value\n0,1\n1,two\n")
    with pytest.raises(ValueError, match=r"gauge\.csv:3: '1,two' is not `seconds,value`"):
        Replay.read(path)
    path.write_text("1,1\n0,1\n")
    with pytest.raises(ValueError, match=r"gauge\.csv: points have the times \[1\.0, 0\.0\]"):
        Replay.read(path)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Ramp(start=0, stop=1, seconds=0),
        lambda: Square(low=0, high=1, period=-1),
        lambda: Square(low=0, high=1, period=1, duty=2),
        lambda: Replay(points=()),
        lambda: Replay(points=((0, 1),), repeat=True),
    ],
)
def test_signals_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match=r"is|have|end"):
        wrong()


def test_a_pinned_gauge_stays_while_requests_come(run):
    async def look(pod, client):
        pod.pin("queue", Constant(value=7))
        pod.pin("kv", Ramp(start=0.5, stop=1.0, seconds=0.01))
        await client.completions.create(model="fake-model", prompt="Hello", max_tokens=4)
        await asyncio.sleep(0.02)
        pinned = pod.page()
        assert set(pod.pinned()) == {"queue", "kv"}
        assert pod.unpin("queue")
        assert pod.unpin()
        assert not pod.unpin("kv")
        return pinned, pod.page()

    pinned, free = with_pod(run, PodSpec(name="a", serving=serving()), look)
    assert (value(pinned, "vllm:num_requests_waiting"), value(pinned, "vllm:kv_cache_usage_perc")) == (7, 1)
    assert (value(free, "vllm:num_requests_waiting"), value(free, "vllm:kv_cache_usage_perc")) == (0, 0)


def test_setting_gauges_pins_those_of_a_pod_that_takes_requests(run):
    async def look(pod, client):
        pod.gauges = Gauges(queue=3, running=2, kv=0.5)
        await client.completions.create(model="fake-model", prompt="Hello", max_tokens=2)
        return pod.gauges

    found = with_pod(run, PodSpec(name="a", serving=serving()), look)
    assert (found.queue, found.running, found.kv) == (3, 2, 0.5)


@pytest.mark.parametrize(
    ("gauge", "signal", "message"),
    [
        ("kv", Constant(value=1.1), "kv takes values from 1.1 to 1.1; it is a share from 0 to 1"),
        ("queue", Ramp(start=0, stop=-1, seconds=1), "queue takes values from -1 to 0"),
        ("running", Constant(value=float("nan")), "running takes values from nan"),
        ("lora", Constant(value=1), "gauge is 'lora'; those that can be pinned"),
    ],
)
def test_a_signal_out_of_range_is_refused(run, gauge, signal, message):
    async def look(pod, client):
        with pytest.raises(ValueError, match=re.escape(message)):
            pod.pin(gauge, signal)

    with_pod(run, PodSpec(name="a"), look)


def test_a_pod_without_a_model_answers_at_once_as_long_as_it_is_asked_to(run):
    async def look(pod, client):
        body = {"model": "fake-model", "prompt": "x", "max_tokens": 30}
        async with httpx.AsyncClient() as plain:
            url = f"http://{pod.endpoint}/v1/completions"
            answer = (await plain.post(url, content=json.dumps(body | {"ignore_eos": True}))).json()
        return answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]

    assert with_pod(run, PodSpec(name="a"), look) == (30, "length")
