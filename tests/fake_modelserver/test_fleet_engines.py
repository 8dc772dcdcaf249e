"""Engines and their generations: what is on a page and how long it is; prometheus-client and openai as witnesses."""

from __future__ import annotations

import gzip
from dataclasses import replace

import httpx
import openai
import prometheus_client
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from fake_modelserver import GENERATIONS, Decoy, Engine, Fleet, Gauges, LoraForm, PodSpec
from fake_modelserver.engines import generation
from fake_modelserver.engines.families import Identity, number
from fake_modelserver.engines.statistics import Statistics
from fake_modelserver.gauges import LoraSeries
from fake_modelserver.page import Page, Rank

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
LOAD = Gauges(queue=3, running=2, kv=0.25, running_loras=("b", "a"), waiting_loras=("c",), max_lora=4)
EVERY = [(engine, name) for engine, generations in GENERATIONS.items() for name in generations]
ENGINES = pytest.mark.parametrize(("engine", "name"), EVERY)


def page(engine=Engine.VLLM, name=None, *, real=False, ranks=1, gauges=LOAD, lora=None, decoys=(), first=0):
    found = Page(generation(engine, name), Identity(model_name=LLAMA, ranks=ranks), real=real, lora=lora)
    found.decoys = decoys
    states = [
        Rank(number=first + index, gauges=gauges, updated=1_700_000_000.5, statistics=found.statistics())
        for index in range(ranks)
    ]
    return found, states


def families(text: bytes, *, openmetrics=False):
    """Name -> family. Fails if a family or a series comes twice, or the parser finds anything wrong."""
    found = list((parse_openmetrics if openmetrics else parse_text)(text.decode()))
    assert len({family.name for family in found}) == len(found)
    series = [(one.name, *sorted(one.labels.items())) for family in found for one in family.samples]
    assert len(set(series)) == len(series)
    return {family.name: family for family in found}


def first_of(text: bytes, name: str):
    """What a reader of the first series sees; None if there is none."""
    return next((f.samples[0].value for f in families(text).values() if f.name == name and f.samples), None)


# -- what is on a page -------------------------------------------------------------------------------------------------


@ENGINES
@pytest.mark.parametrize("real", [False, True])
def test_every_page_parses_and_ends_its_last_line(engine, name, real):
    made, ranks = page(engine, name, real=real, ranks=2 if generation(engine, name).ranked else 1)
    openmetrics = made.generation.openmetrics == "always"
    for counted in (False, True):
        text = made.render(ranks, openmetrics=openmetrics)
        assert text == b"" or text.endswith(b"\n")
        families(text, openmetrics=openmetrics)
        if counted or openmetrics:
            continue
        for statistic in ("prompt_tokens", "finished", "first_token", "between_tokens"):
            ranks[0].statistics.add(statistic, label="stop")
            ranks[0].statistics.observe(statistic, 0.3)
    if made.generation.openmetrics == "asked":
        families(made.render(ranks, openmetrics=True), openmetrics=True)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("0.8.5", 0.25, None), ("0.10.2", 0.25, 0.25), ("0.12.0", None, 0.25), ("0.33.0", None, 0.25)],
)
@pytest.mark.parametrize("real", [False, True])
def test_the_gauge_of_the_kv_cache_changed_its_name(name, old, new, real):
    made, ranks = page(name=name, real=real)
    text = made.render(ranks)
    assert first_of(text, "vllm:gpu_cache_usage_perc") == old
    assert first_of(text, "vllm:kv_cache_usage_perc") == new
    assert first_of(text, "vllm:num_requests_waiting") == 3
    assert first_of(text, "vllm:num_requests_running") == 2


@pytest.mark.parametrize(
    ("name", "info", "gauges"), [("0.5.8", False, False), ("0.5.10", True, False), ("0.5.23", False, True)]
)
def test_how_sglang_describes_its_cache(name, info, gauges):
    made, ranks = page(Engine.SGLANG, name)
    found = families(made.render(ranks))
    assert ("sglang:cache_config_info" in found) is info
    assert ("sglang:num_pages" in found) is gauges
    if info:
        assert found["sglang:cache_config_info"].samples[0].labels["page_size"] == "16"
    assert found["sglang:token_usage"].samples[0].value == 0.25


def test_triton_had_no_queue_at_first():
    for name, complete in (("2024", False), ("2025", True)):
        made, ranks = page(Engine.TRITON, name)
        requests = families(made.render(ranks))["nv_trt_llm_request_metrics"].samples
        values = {one.labels["request_type"]: one.value for one in requests}
        assert values["scheduled"] == 2
        assert ("waiting" in values) is complete


def test_trtllm_serve_had_no_gauges_at_first():
    made, ranks = page(Engine.TRTLLM_SERVE, "1.2.0", real=True)
    assert made.render(ranks) == b""
    made, ranks = page(Engine.TRTLLM_SERVE, "1.3.0")
    assert first_of(made.render(ranks), "trtllm_num_requests_waiting") == 3


# Measured with the engines' own collectors, a model of this name, and no adapters.
@pytest.mark.parametrize(
    ("name", "ranks", "size", "lines"),
    [
        ("0.10.2", 1, 46_133, 466),
        ("0.12.0", 1, 47_574, 480),
        ("0.20.0", 1, 52_454, 524),
        ("0.33.0", 1, 56_790, 561),
        ("0.33.0", 8, 366_006, 3_284),
    ],
)
def test_a_real_page_is_as_long_as_that_of_the_release(name, ranks, size, lines):
    made, states = page(name=name, real=True, ranks=ranks, gauges=Gauges())
    text = made.render(states)
    assert text.count(b"\n") == pytest.approx(lines, rel=0.01)
    assert len(text) == pytest.approx(size, rel=0.05)


def test_every_rank_has_a_series_and_shows_the_blocks_of_all():
    made, ranks = page(ranks=4)
    ranks[3].gauges = replace(LOAD, queue=40)
    found = families(made.render(ranks))
    waiting = {one.labels["engine"]: one.value for one in found["vllm:num_requests_waiting"].samples}
    assert waiting == {"0": 3, "1": 3, "2": 3, "3": 40}
    assert {one.labels["num_gpu_blocks"] for one in found["vllm:cache_config_info"].samples} == {str(4 * 2048)}


@pytest.mark.parametrize("place", ["before", "after"])
def test_a_decoy_stands_before_or_after_the_own_series(place):
    full = Decoy(label="priority", value="1", own="", gauges=Gauges(queue=99, kv=1.0), place=place)
    made, ranks = page(Engine.SGLANG, decoys=(full,))
    found = families(made.render(ranks))
    series = [(one.labels["priority"], one.value) for one in found["sglang:num_queue_reqs"].samples]
    assert series == ([("1", 99), ("", 3)] if place == "before" else [("", 3), ("1", 99)])


def test_a_decoy_may_be_of_one_gauge_alone():
    """vLLM 0.10 with several API servers: the KV gauge has a series for each process, most of them 0."""
    idle = Decoy(label="pid", value="7", own="9", families=("kv",))
    made, ranks = page(name="0.10.2", decoys=(idle,))
    found = families(made.render(ranks))
    assert [one.value for one in found["vllm:kv_cache_usage_perc"].samples] == [0, 0.25]
    assert [one.value for one in found["vllm:num_requests_waiting"].samples] == [3]


# -- the LoRA metric ---------------------------------------------------------------------------------------------------


def lora(name="0.33.0", form=None, gauges=LOAD, **changes):
    made, ranks = page(name=name, lora=form and LoraForm(**form), gauges=replace(gauges, **changes))
    openmetrics = made.generation.openmetrics == "always"
    found = families(made.render(ranks, openmetrics=openmetrics), openmetrics=openmetrics)
    return found.get("vllm:lora_requests_info")


@pytest.mark.parametrize(
    ("name", "running", "waiting"),
    [("0.8.5", "b,a", "c"), ("0.10.2", "b,a", "c"), ("0.33.0", "b,a,c", "b,a,c"), ("0.33.0-rust", "a,b,c", "a,b,c")],
)
def test_both_labels_are_alike_in_later_releases(name, running, waiting):
    (info,) = lora(name).samples
    assert info.labels["running_lora_adapters"] == running
    assert info.labels["waiting_lora_adapters"] == waiting
    assert ("max_lora" in info.labels) is (name != "0.33.0-rust")
    assert info.value == 1_700_000_000.5


def test_ranks_may_show_together_what_one_of_them_showed_before():
    """The first had `a` in flight, has none now, and another rank has it."""
    before = LoraSeries(running=("a",), waiting=(), max_lora=4)
    made, ranks = page(ranks=2, gauges=Gauges(max_lora=4))
    ranks[0].gauges = replace(ranks[0].gauges, stale_loras=(before,))
    ranks[1].gauges = replace(ranks[1].gauges, running_loras=("a",))
    (info,) = families(made.render(ranks))["vllm:lora_requests_info"].samples
    assert info.labels["running_lora_adapters"] == "a"


def test_an_idle_server_has_an_empty_series_or_none():
    idle = {"running_loras": (), "waiting_loras": ()}
    (info,) = lora("0.33.0", **idle).samples
    assert info.labels["running_lora_adapters"] == ""
    assert lora("0.33.0-rust", **idle) is None
    assert lora("0.33.0", **idle, max_lora=0) is None


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ({"processes": 2}, 3_400_000_001.0),
        ({"whole_seconds": True}, 1_700_000_000.0),
        ({"skew": 60.0}, 1_700_000_060.5),
    ],
)
def test_the_value_of_the_lora_metric(form, value):
    assert lora(form=form).samples[0].value == value


def test_the_list_of_adapters_may_have_blanks_and_an_order():
    labels = lora(form={"separator": ", ", "ordered": True, "alike": True}).samples[0].labels
    assert labels["running_lora_adapters"] == "a, b, c"


@pytest.mark.parametrize("wrong", [{"separator": ";"}, {"processes": 0}, {"skew": float("nan")}])
def test_a_form_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=" is "):
        LoraForm(**wrong)


# -- against prometheus-client -----------------------------------------------------------------------------------------


def test_a_histogram_is_written_as_prometheus_client_writes_it():
    family = next(one for one in generation(Engine.VLLM).families if one.name == "vllm:time_to_first_token_seconds")
    registry = prometheus_client.CollectorRegistry()
    theirs = prometheus_client.Histogram(family.name, family.help, ["engine"], registry=registry, buckets=family.bounds)
    ours = Statistics({family.statistic: frozenset({family.bounds})})
    for value in (0.0005, 0.001, 0.3, 7, 5000):
        theirs.labels("0").observe(value)
        ours.observe(family.statistic, value)
    text = prometheus_client.generate_latest(registry).decode()
    expected = [one for one in text.splitlines() if "_created" not in one]
    assert [*family.header(), *family.counted(ours, {"engine": "0"}, touched=False)] == expected


@pytest.mark.parametrize("value", [0, 1, -1, 0.1, 1e-9, 1234567.0, 1e6, 1.5e15, 1e300, float("nan"), float("-inf")])
def test_numbers_are_written_as_prometheus_client_writes_them(value):
    assert number(value) == prometheus_client.utils.floatToGoString(value)


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def serve(run, spec, *requests):
    """The answers of one pod to requests: (where, path, headers), where is `api` or `page`."""

    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(spec)
            places = {"api": pod.endpoint, "page": pod.metrics_endpoint}
            return [
                await client.get(f"http://{places[where]}{path}", headers=headers) for where, path, headers in requests
            ]

    return run(scenario())


PLAIN = {"accept-encoding": "identity", "accept": "*/*"}


def test_triton_has_its_page_on_a_port_for_itself(run):
    spec = PodSpec(name="a", engine=Engine.TRITON, gauges=LOAD)
    served, page_, none = serve(
        run, spec, ("api", "/metrics", PLAIN), ("page", "/metrics", PLAIN), ("page", "/v1/models", PLAIN)
    )
    assert (served.status_code, page_.status_code, none.status_code) == (404, 200, 404)
    assert "nv_trt_llm_request_metrics" in families(page_.content)


def test_reading_the_iterations_of_trtllm_serve_consumes_them(run):
    spec = PodSpec(name="a", engine=Engine.TRTLLM_SERVE)

    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(spec)
            base = f"http://{pod.endpoint}"
            before = (await client.get(f"{base}/metrics")).json()
            pod.gauges = LOAD
            read = [(await client.get(f"{base}/metrics")).json() for _ in range(2)]
            return before, read, await client.get(f"{base}/prometheus/metrics")

    before, (first, second), text = run(scenario())
    assert (before, second) == ([], [])
    assert [(one["numActiveRequests"], one["numQueuedRequests"]) for one in first] == [(2, 3)]
    assert "trtllm_kv_cache_utilization" in families(text.content)


def test_each_rank_may_have_a_port_with_its_own_page(run):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a", ranks=3, first_rank=2, rank_ports=True))
            pod.set_gauges(replace(LOAD, queue=70), rank=1)
            pages = [(await client.get(f"http://{endpoint}/metrics")).content for endpoint in pod.endpoints]
            return [families(text)["vllm:num_requests_waiting"].samples for text in pages]

    ranks = run(scenario())
    assert [[(one.labels["engine"], one.value) for one in samples] for samples in ranks] == [
        [("2", 0)],
        [("3", 70)],
        [("4", 0)],
    ]


@ENGINES
def test_what_the_page_is_encoded_as(run, engine, name):
    spec = PodSpec(name="a", engine=engine, generation=name, gauges=LOAD, page="real")
    path = spec.page_path
    asks = {"accept": "application/openmetrics-text; version=1.0.0", "accept-encoding": "gzip"}
    plain, asked = serve(run, spec, ("page", path, PLAIN), ("page", path, asks))
    kind = spec.kind
    assert plain.headers["content-type"].encode() == (
        b"application/openmetrics-text; version=1.0.0; charset=utf-8"
        if kind.openmetrics == "always"
        else kind.content_type
    )
    families(plain.content, openmetrics=kind.openmetrics == "always")
    openmetrics = kind.openmetrics != "never"
    assert asked.headers["content-type"].startswith("application/openmetrics-text") is openmetrics
    assert (asked.headers.get("content-encoding") == "gzip") is kind.gzip
    families(asked.content, openmetrics=openmetrics)


def test_the_page_may_be_elsewhere(run):
    spec = PodSpec(name="a", metrics_path="/m", metrics_port=0)
    moved, gone = serve(run, spec, ("page", "/m", PLAIN), ("api", "/metrics", PLAIN))
    assert (moved.status_code, gone.status_code) == (200, 404)


def test_gzip_is_the_same_page(run):
    spec = PodSpec(name="a", engine=Engine.SGLANG, gauges=LOAD)

    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(spec)
            request = client.build_request("GET", f"http://{pod.endpoint}/metrics", headers={"accept-encoding": "gzip"})
            answer = await client.send(request, stream=True)
            raw = b"".join([piece async for piece in answer.aiter_raw()])
            return raw, pod.page()

    raw, text = run(scenario())
    assert gzip.decompress(raw) == text


# -- the API, with the openai client -----------------------------------------------------------------------------------


def ask(run, spec, call):
    """What `call` gives, which gets a client of the official package."""

    async def scenario():
        async with Fleet() as fleet:
            pod = await fleet.add(spec)
            base = f"http://{pod.endpoint}/v1"
            async with openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0) as client:
                return await call(client)

    return run(scenario())


MESSAGES = [{"role": "user", "content": "Hello there"}]


@ENGINES
def test_the_openai_client_speaks_with_every_engine(run, engine, name):
    async def call(client):
        listed = await client.models.list()
        plain = await client.completions.create(model=LLAMA, prompt="Hello", max_tokens=3)
        chat = await client.chat.completions.create(model=LLAMA, messages=MESSAGES, max_tokens=20)
        stream = await client.chat.completions.create(
            model=LLAMA, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        text = await client.completions.create(model=LLAMA, prompt="Hello", stream=True)
        pieces = [piece.choices[0].text async for piece in text]
        return listed, plain, chat, chunks, pieces

    spec = PodSpec(name="a", engine=engine, generation=name, models=(LLAMA,), adapters=("tuned",))
    listed, plain, chat, chunks, pieces = ask(run, spec, call)
    expected = [LLAMA] if spec.kind.adapter_names == "none" else [LLAMA, "tuned"]
    assert [model.id for model in listed.data] == expected
    assert (plain.choices[0].text, plain.choices[0].finish_reason) == ("This answer comes", "length")
    assert chat.choices[0].message.content == "This answer comes from pod a."
    assert (chat.usage.prompt_tokens, chat.usage.completion_tokens, chat.usage.total_tokens) == (2, 6, 8)
    content = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(piece or "" for piece in content) == "".join(pieces) == "This answer comes from pod a."
    assert chunks[-1].usage.completion_tokens == 6
    assert chunks[-2].choices[0].finish_reason == "stop"


@ENGINES
def test_errors_have_the_shape_of_the_engine_and_the_client_knows_them(run, engine, name):
    spec = PodSpec(name="a", engine=engine, generation=name, models=(LLAMA,))

    async def call(client):
        try:
            await client.completions.create(model=LLAMA, prompt="x", max_tokens=0)
        except openai.BadRequestError as problem:
            return problem.response.json()

    body = ask(run, spec, call)
    match spec.kind.invalid:
        case "nested":
            assert body["error"]["code"] == 400
        case "flat":
            assert (body["object"], body["code"]) == ("error", 400)
        case "text":
            assert isinstance(body["error"], str)


@pytest.mark.parametrize(("engine", "refused"), [(Engine.VLLM, True), (Engine.SGLANG, False), (Engine.TRITON, True)])
def test_an_unknown_model_is_refused_or_served_by_the_base(run, engine, refused):
    async def call(client):
        try:
            return (await client.completions.create(model="other", prompt="x")).model
        except openai.NotFoundError as problem:
            return problem.status_code

    assert ask(run, PodSpec(name="a", engine=engine), call) == (404 if refused else "other")


@pytest.mark.parametrize(
    ("engine", "model", "text"),
    [
        (Engine.VLLM, "tuned", "This answer comes from pod a with adapter tuned."),
        (Engine.SGLANG, "tuned", "This answer comes from pod a."),
        (Engine.SGLANG, "base:tuned", "This answer comes from pod a with adapter tuned."),
    ],
)
def test_how_a_request_names_an_adapter(run, engine, model, text):
    spec = PodSpec(name="a", engine=engine, models=("base",), adapters=("tuned",))

    async def call(client):
        return (await client.completions.create(model=model, prompt="x", max_tokens=20)).choices[0].text

    assert ask(run, spec, call) == text


def test_sglang_refuses_an_adapter_that_is_not_loaded(run):
    async def call(client):
        with pytest.raises(openai.BadRequestError, match="not loaded"):
            await client.completions.create(model="base:other", prompt="x")
        return await client.models.retrieve("base")

    assert ask(run, PodSpec(name="a", engine=Engine.SGLANG, models=("base",)), call).id == "base"


def test_trtllm_serve_refuses_fields_that_it_does_not_know(run):
    async def call(client):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="m", prompt="x", extra_body={"colour": 1})
        assert caught.value.response.json() == {"error": "Unknown field: 'colour'."}

    ask(run, PodSpec(name="a", engine=Engine.TRTLLM_SERVE), call)


@pytest.mark.parametrize(
    ("engine", "load", "unload"),
    [
        (Engine.VLLM, "/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
        (Engine.SGLANG, "/load_lora_adapter", "/unload_lora_adapter"),
    ],
)
def test_adapters_are_loaded_and_unloaded(run, engine, load, unload):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(PodSpec(name="a", engine=engine, adapters_loadable=True))
            base, adapter = f"http://{pod.endpoint}", {"lora_name": "new", "lora_path": "/adapters/new"}
            statuses = []
            for path, body in ((load, adapter), (load, adapter), (unload, adapter), (unload, adapter), (load, {})):
                statuses.append((await client.post(base + path, json=body)).status_code)
                statuses.append("new" in pod.adapters)
            other = await fleet.add(PodSpec(name="b", engine=engine))
            statuses.append((await client.post(f"http://{other.endpoint}{load}", json=adapter)).status_code)
            return statuses

    assert run(scenario()) == [200, True, 400, True, 200, False, 404, False, 400, False, 404]
