"""SGLang with `--enable-metrics`: before 0.5.11 the cache is described by labels, from then on by gauges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fake_modelserver.engines.families import Family, Identity, Labels, Sample
from fake_modelserver.engines.generation import Engine, Generation
from fake_modelserver.gauges import Gauges

FIRST = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
WHOLE = (*FIRST, 600, 1200, 1800, 2400)
BETWEEN = (
    0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08,
    0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8,
)  # fmt: skip
TOKENS = (
    100, 300, 500, 700, *range(1000, 2000, 500), *range(2000, 10_000, 1000), *range(10_000, 100_000, 10_000),
    *range(100_000, 1_000_000, 100_000), 1_000_000, 1_100_000,
)  # fmt: skip
QUEUED = (
    0, 0.001, 0.005, 0.01, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 4, 5, 10, 15, *range(20, 100, 10), *range(100, 1000, 100),
    *range(1000, 2000, 200), 2000, 2500, 3000,
)  # fmt: skip


def _queue(_: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, gauges.queue)]


def _running(_: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, gauges.running)]


def _usage(_: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, round(gauges.kv, 2))]


def _tokens(identity: Identity) -> int:
    return identity.num_gpu_blocks * identity.block_size


def _used(identity: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, round(_tokens(identity) * gauges.kv))]


def _free(identity: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, _tokens(identity) - round(_tokens(identity) * gauges.kv))]


def _info(identity: Identity) -> Iterable[Sample]:
    return [({"num_pages": str(identity.num_gpu_blocks), "page_size": str(identity.block_size)}, 1)]


def _gauge(name: str, text: str, **more: Any) -> Family:
    return Family(name=f"sglang:{name}", help=text, **more)


def _counter(name: str, text: str, statistic: str, **more: Any) -> Family:
    return Family(name=f"sglang:{name}_total", help=text, kind="counter", statistic=statistic, **more)


def _histogram(name: str, text: str, bounds: tuple[float, ...], statistic: str) -> Family:
    return Family(name=f"sglang:{name}", help=text, kind="histogram", bounds=bounds, statistic=statistic)


_LOAD = (
    _gauge("num_running_reqs", "Requests that run.", meaning="running", minimal=True, gauge=_running),
    _gauge("num_used_tokens", "Tokens in the KV cache.", gauge=_used),
    _gauge(
        "token_usage", "Share of the KV cache in use, of the fullest pool.", meaning="kv", minimal=True, gauge=_usage
    ),
    _gauge("gen_throughput", "Tokens a second in the last interval."),
    _gauge("num_queue_reqs", "Requests in the queue.", meaning="queue", minimal=True, gauge=_queue),
    _gauge("num_grammar_queue_reqs", "Requests that wait for a grammar."),
    _gauge("num_paused_reqs", "Requests that are paused."),
    _gauge("num_retracted_reqs", "Requests that lost their place."),
    _gauge("cache_hit_rate", "Share of prompt tokens found in the cache."),
    _gauge("utilization", "Utilization of the engine."),
    _gauge("new_token_ratio", "Share of tokens kept for those to come."),
    _gauge("spec_accept_length", "Mean length accepted of speculation."),
    _gauge("num_prefill_bootstrap_queue_reqs", "Requests in the bootstrap queue of prefill."),
    _gauge("num_prefill_inflight_queue_reqs", "Requests in flight in prefill."),
    _gauge("num_decode_prealloc_queue_reqs", "Requests that wait for memory in decode."),
    _gauge("num_decode_transfer_queue_reqs", "Requests that wait for the transfer of their KV."),
)

_NEW_LOAD = (
    _gauge("full_token_usage", "Share of the pool of full attention in use.", gauge=_usage),
    _gauge("swa_token_usage", "Share of the pool of sliding windows in use."),
    _gauge("mamba_usage", "Share of the pool of states in use."),
    _gauge("kv_used_tokens", "Tokens in the KV cache.", gauge=_used),
    _gauge("kv_available_tokens", "Tokens that are free.", gauge=_free),
    _gauge("kv_evictable_tokens", "Tokens that are kept for reuse."),
    _gauge("spec_accept_rate", "Share accepted of speculation."),
    _gauge(
        "fwd_occupancy",
        "Occupancy of the forward pass; NaN while idle.",
        gauge=lambda _, gauges: [({}, 1.0 if gauges.running else float("nan"))],
    ),
    _gauge(
        "max_total_num_tokens", "Tokens that the KV cache holds.", constant=lambda identity: [({}, _tokens(identity))]
    ),
    _gauge("context_len", "Longest context.", constant=lambda _: [({}, 131072)]),
    _gauge(
        "page_size",
        "Tokens in a page of the KV cache.",
        meaning="cache",
        minimal=True,
        constant=lambda identity: [({}, identity.block_size)],
    ),
    _gauge(
        "num_pages",
        "Pages of the KV cache.",
        meaning="cache",
        minimal=True,
        constant=lambda identity: [({}, identity.num_gpu_blocks)],
    ),
)

_COUNTED = (
    _histogram("time_to_first_token_seconds", "From arrival to the first token, seconds.", FIRST, "first_token"),
    _histogram("e2e_request_latency_seconds", "From arrival to the end, seconds.", WHOLE, "whole"),
    _histogram("inter_token_latency_seconds", "Between two tokens, seconds.", BETWEEN, "between_tokens"),
    _histogram("queue_time_seconds", "In the queue, seconds.", QUEUED, "queued"),
    _histogram("prompt_tokens_histogram", "Tokens of each prompt.", TOKENS, "prompt_tokens"),
    _histogram(
        "uncached_prompt_tokens_histogram", "Tokens of each prompt that no cache had.", TOKENS, "computed_tokens"
    ),
    _histogram("generation_tokens_histogram", "Tokens generated for each request.", TOKENS, "generation_tokens"),
    _counter("prompt_tokens", "Tokens of prompts processed.", "prompt_tokens"),
    _counter("generation_tokens", "Tokens generated.", "generation_tokens"),
    _counter(
        "cached_tokens",
        "Tokens of prompts found in the cache.",
        "cached",
        label=("cache_source", ("device", "host", "storage", "total")),
    ),
    _counter("num_requests", "Requests finished.", "requests"),
    _counter("num_aborted_requests", "Requests aborted.", "aborted"),
)


def _labels(identity: Identity, rank: int) -> Labels:
    labels = {
        "engine_type": "unified",
        "model_name": identity.model_name,
        "moe_ep_rank": "0",
        "pp_rank": "0",
        "tp_rank": "0",
    }
    return labels | ({"dp_rank": str(rank)} if identity.ranks > 1 or identity.first_rank else {})


_0_5_23 = Generation(
    engine=Engine.SGLANG,
    name="0.5.23",
    families=(*_LOAD, *_NEW_LOAD, *_COUNTED),
    labels=_labels,
    touched=True,
    openmetrics="asked",
    gzip=True,
    errors="flat",
    invalid="flat",
    names_checked=False,
    adapter_names="base:name",
    owned_by="sglang",
    load_paths=("/load_lora_adapter", "/unload_lora_adapter"),
)

_INFO = _gauge(
    "cache_config_info",
    "Configuration of the cache.",
    meaning="cache",
    minimal=True,
    bare=True,
    process=True,
    constant=_info,
)

GENERATIONS = (
    _0_5_23,
    replace(_0_5_23, name="0.5.10", families=(*_LOAD, _INFO, *_COUNTED)),
    replace(_0_5_23, name="0.5.8", families=(*_LOAD, *_COUNTED)),
)
