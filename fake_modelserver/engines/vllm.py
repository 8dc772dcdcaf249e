"""vLLM: its families since 0.8, its labels, its front end in Rust."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fake_modelserver.engines.families import Family, Identity, Labels, Sample
from fake_modelserver.engines.generation import Engine, Generation
from fake_modelserver.gauges import Gauges
from fake_modelserver.lora import LoraForm

FIRST = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
TOKENS = tuple(float(digit * 10**power) for power in range(6) for digit in (1, 2, 5) if digit * 10**power <= 131072)
STEP = (1, 8, *(2.0**power for power in range(4, 15)))
REASONS = ("stop", "length", "abort", "error", "repetition")

_Version = tuple[int, ...]


def _queue(_: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, gauges.queue)]


def _running(_: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, gauges.running)]


def _kv(_: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({}, gauges.kv)]


def _by_reason(_: Identity, gauges: Gauges) -> Iterable[Sample]:
    return [({"reason": "capacity"}, gauges.queue), ({"reason": "deferred"}, 0)]


def _awake(_: Identity) -> Iterable[Sample]:
    return [({"sleep_state": state}, state == "awake") for state in ("awake", "weights_offloaded", "discard_all")]


def _cache(identity: Identity) -> Iterable[Sample]:
    fields: Labels = {
        "cache_dtype": "auto",
        "calculate_kv_scales": "False",
        "cpu_kvcache_space_bytes": "None",
        "cpu_offload_gb": "0",
        "enable_prefix_caching": "True",
        "gpu_memory_utilization": "0.9",
        "is_attention_free": "False",
        "kv_sharing_fast_prefill": "False",
        "mamba_block_size": "None",
        "mamba_cache_dtype": "auto",
        "mamba_page_size_padded": "None",
        "mamba_ssm_cache_dtype": "auto",
        "num_gpu_blocks_override": "None",
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
        "swap_space": "4",
    }
    return [(fields | labels, value) for labels, value in _small_cache(identity)]


def _small_cache(identity: Identity) -> Iterable[Sample]:
    # Every rank shows the blocks of all of them together. Unset fields are the string "None": a reader must not take
    # every label for a number.
    fields = {
        "block_size": str(identity.block_size),
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(identity.num_gpu_blocks * identity.ranks),
    }
    return [
        (fields | {"engine": str(rank)}, 1) for rank in range(identity.first_rank, identity.first_rank + identity.ranks)
    ]


_Row = tuple[_Version, _Version, Family]


def _row(family: Family, since: _Version = (0,), until: _Version = (9,)) -> _Row:
    return since, until, family


def _gauge(name: str, text: str, *, since: _Version = (0,), until: _Version = (9,), **more: Any) -> _Row:
    return _row(Family(name=f"vllm:{name}", help=text, **more), since, until)


def _counter(
    name: str, text: str, statistic: str = "", *, since: _Version = (0,), until: _Version = (9,), **more: Any
) -> _Row:
    family = Family(name=f"vllm:{name}_total", help=text, kind="counter", statistic=statistic or name, **more)
    return _row(family, since, until)


def _histogram(
    name: str, text: str, bounds: tuple[float, ...], statistic: str, *, since: _Version = (0,), until: _Version = (9,)
) -> _Row:
    family = Family(name=f"vllm:{name}", help=text, kind="histogram", bounds=bounds, statistic=statistic)
    return _row(family, since, until)


_TABLE = (
    _gauge("num_requests_running", "Requests in the batch.", meaning="running", minimal=True, gauge=_running),
    _gauge("num_requests_waiting", "Requests waiting for the batch.", meaning="queue", minimal=True, gauge=_queue),
    _gauge(
        "num_requests_waiting_by_reason", "Waiting requests by what they wait for.", gauge=_by_reason, since=(0, 20)
    ),
    _gauge("engine_sleep_state", "State of the sleep mode: 1 for the present one.", constant=_awake, since=(0, 11, 1)),
    _gauge(
        "gpu_cache_usage_perc",
        "Share of the KV cache in use. 1 means all. Deprecated.",
        meaning="kv",
        minimal=True,
        gauge=_kv,
        until=(0, 11),
    ),
    _counter("gpu_prefix_cache_queries", "Tokens looked up in the prefix cache.", "prefix_queries", until=(0, 11)),
    _counter("gpu_prefix_cache_hits", "Tokens found in the prefix cache.", "prefix_hits", until=(0, 11)),
    _gauge(
        "kv_cache_usage_perc",
        "Share of the KV cache in use. 1 means all.",
        meaning="kv",
        minimal=True,
        gauge=_kv,
        since=(0, 9, 2),
    ),
    _counter("prefix_cache_queries", "Tokens looked up in the prefix cache.", "prefix_queries", since=(0, 9, 2)),
    _counter("prefix_cache_hits", "Tokens found in the prefix cache.", "prefix_hits", since=(0, 9, 2)),
    _counter("external_prefix_cache_queries", "Tokens looked up in other engines' caches.", since=(0, 11, 1)),
    _counter("external_prefix_cache_hits", "Tokens found in other engines' caches.", since=(0, 11, 1)),
    _counter("mm_cache_queries", "Items looked up in the cache of other media.", since=(0, 11, 1)),
    _counter("mm_cache_hits", "Items found in the cache of other media.", since=(0, 11, 1)),
    _counter("num_preemptions", "Times that a running request went back to wait.", "preemptions"),
    _counter("prompt_tokens", "Tokens of prompts processed."),
    _counter(
        "prompt_tokens_by_source",
        "Tokens of prompts by where their KV came from.",
        "prompt_source",
        label=("source", ("local_compute", "local_cache_hit", "external_kv_transfer")),
        since=(0, 15),
    ),
    _counter("prompt_tokens_cached", "Tokens of prompts found in a cache.", "prefix_hits", since=(0, 15)),
    _counter(
        "prompt_tokens_cached_by_source",
        "Tokens of prompts found in a cache, by which.",
        "cached",
        label=("source", ("device", "host", "p2p", "disk", "external_unspecified")),
        since=(0, 33),
    ),
    _counter("generation_tokens", "Tokens generated."),
    _counter("request_success", "Requests finished, by how.", "finished", label=("finished_reason", REASONS)),
    _counter(
        "admission_rejections",
        "Requests refused at the door.",
        bare=True,
        process=True,
        label=("reason", ("max_num_queued_reqs", "max_num_queued_tokens")),
        since=(0, 33),
    ),
    _histogram("request_prompt_tokens", "Tokens of each prompt.", TOKENS, "prompt_tokens"),
    _histogram("request_generation_tokens", "Tokens generated for each request.", TOKENS, "generation_tokens"),
    _histogram("iteration_tokens_total", "Tokens processed in each step of the engine.", STEP, "step_tokens"),
    _histogram("request_max_num_generation_tokens", "Most tokens asked for.", TOKENS, "max_tokens"),
    _histogram("request_params_n", "Parameter n of each request.", (1, 2, 5, 10, 20), "n"),
    _histogram("request_params_max_tokens", "Parameter max_tokens of each request.", TOKENS, "max_tokens"),
    _histogram("time_to_first_token_seconds", "From arrival to the first token, seconds.", FIRST, "first_token"),
    _histogram(
        "time_per_output_token_seconds",
        "Between two tokens, seconds. Deprecated.",
        BETWEEN,
        "between_tokens",
        until=(0, 12),
    ),
    _histogram(
        "inter_token_latency_seconds", "Between two tokens, seconds.", BETWEEN, "between_tokens", since=(0, 10, 2)
    ),
    _histogram(
        "request_time_per_output_token_seconds", "Mean time for a token, seconds.", BETWEEN, "per_token", since=(0, 11)
    ),
    _histogram("e2e_request_latency_seconds", "From arrival to the end, seconds.", WHOLE, "whole"),
    _histogram("request_queue_time_seconds", "In the queue, seconds.", WHOLE, "queued"),
    _histogram("request_inference_time_seconds", "In the batch, seconds.", WHOLE, "inference"),
    _histogram("request_prefill_time_seconds", "From the batch to the first token, seconds.", WHOLE, "prefill"),
    _histogram("request_decode_time_seconds", "From the first token to the last, seconds.", WHOLE, "decode"),
    _histogram(
        "request_prefill_kv_computed_tokens",
        "Tokens computed in prefill, without cached ones.",
        TOKENS,
        "computed_tokens",
        since=(0, 13),
    ),
    _histogram(
        "request_num_preemptions",
        "Preemptions of each request.",
        (1, 2, 3, 4, 5, 10, 20),
        "request_preemptions",
        since=(0, 30),
    ),
    _gauge(
        "lora_requests_info",
        "Adapters of requests in flight; the value is the time.",
        meaning="lora",
        minimal=True,
        bare=True,
        process=True,
    ),
    *[
        _gauge(
            "cache_config_info",
            "Configuration of the KV cache.",
            meaning="cache",
            minimal=minimal,
            bare=True,
            process=True,
            constant=labels,
        )
        for minimal, labels in ((False, _cache), ("only", _small_cache))
    ],
)
"""In the order of the page, each with the first release that has it and the first that has it no more."""


def _families(version: _Version, without: Iterable[str] = ()) -> tuple[Family, ...]:
    left_out = {f"vllm:{name}" for name in without}
    return tuple(family for since, until, family in _TABLE if since <= version < until and family.name not in left_out)


def _labels(identity: Identity, rank: int) -> Labels:
    return {"engine": str(rank), "model_name": identity.model_name}


_APART, _ALIKE = LoraForm(), LoraForm(alike=True)

_0_33 = Generation(
    engine=Engine.VLLM,
    name="0.33.0",
    families=_families((0, 33)),
    labels=_labels,
    content_type=b"text/plain; version=1.0.0; charset=utf-8",
    created=True,
    lora=_ALIKE,
    load_paths=("/v1/load_lora_adapter", "/v1/unload_lora_adapter"),
)
_RUST = replace(
    _0_33,
    name="0.33.0-rust",
    families=_families(
        (0, 33),
        without=(
            "cache_config_info",
            "engine_sleep_state",
            "admission_rejections_total",
            "mm_cache_queries_total",
            "mm_cache_hits_total",
        ),
    ),
    content_type=b"application/openmetrics-text; version=1.0.0; charset=utf-8",
    created=False,
    touched=True,
    openmetrics="always",
    owned_by="vllm-frontend-rs",
    lora=LoraForm(alike=True, drained=False, keeps=False, ordered=True, max_lora=False),
)
_OLD = b"text/plain; version=0.0.4; charset=utf-8"

GENERATIONS = (
    _0_33,
    _RUST,
    replace(_0_33, name="0.20.0", families=_families((0, 20))),
    replace(_0_33, name="0.12.0", families=_families((0, 12)), content_type=_OLD),
    replace(_0_33, name="0.10.2", families=_families((0, 10, 2)), content_type=_OLD, lora=_APART),
    replace(
        _0_33,
        name="0.8.5",
        families=_families((0, 8, 5)),
        content_type=_OLD,
        lora=_APART,
        errors="flat",
        invalid="flat",
    ),
)
