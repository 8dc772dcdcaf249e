"""TensorRT-LLM: `trtllm-serve`, whose `/metrics` is JSON, and Triton with the backend, whose page has its own port."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fake_modelserver.engines.families import Family, Identity, Labels, Sample
from fake_modelserver.engines.generation import Engine, Generation
from fake_modelserver.engines.vllm import BETWEEN, FIRST, WHOLE
from fake_modelserver.gauges import Gauges

PREFILL = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 640, 2560)
LENGTHS = (10, 50, 100, 500, 1000)


def _blocks_used(identity: Identity, gauges: Gauges) -> int:
    return round(identity.num_gpu_blocks * gauges.kv)


# -- trtllm-serve ------------------------------------------------------------------------------------------------------


def _gauge(name: str, text: str, **more: Any) -> Family:
    return Family(name=f"trtllm_{name}", help=text, **more)


def _counter(name: str, text: str, statistic: str, **more: Any) -> Family:
    return Family(name=f"trtllm_{name}_total", help=text, kind="counter", statistic=statistic, **more)


def _requests(prefix: str) -> tuple[Family, ...]:
    """The families of requests, which 1.1 and 1.2 show without a prefix."""
    histograms = (
        ("e2e_request_latency_seconds", "From arrival to the end, seconds.", WHOLE, "whole"),
        ("time_to_first_token_seconds", "From arrival to the first token, seconds.", FIRST, "first_token"),
        ("time_per_output_token_seconds", "Mean time for a token, seconds.", BETWEEN, "per_token"),
        ("request_queue_time_seconds", "In the queue, seconds.", WHOLE, "queued"),
    )
    success = Family(
        name=f"{prefix}request_success_total",
        help="Requests finished, by how.",
        kind="counter",
        statistic="finished",
        label=("finished_reason", ("stop", "length", "timeout", "cancelled")),
    )
    return (
        success,
        *[
            Family(name=f"{prefix}{name}", help=text, kind="histogram", bounds=bounds, statistic=statistic)
            for name, text, bounds, statistic in histograms
        ],
    )


_SERVE = (
    _gauge(
        "num_requests_running",
        "Requests that run.",
        meaning="running",
        minimal=True,
        gauge=lambda _, gauges: [({}, gauges.running)],
    ),
    _gauge(
        "num_requests_waiting",
        "Requests that wait.",
        meaning="queue",
        minimal=True,
        gauge=lambda _, gauges: [({}, gauges.queue)],
    ),
    _gauge("max_num_active_requests", "Most requests that run at once.", constant=lambda _: [({}, 2048)]),
    _gauge("num_context_requests", "Requests in their context phase."),
    _gauge(
        "num_generation_requests", "Requests in their generation phase.", gauge=lambda _, gauges: [({}, gauges.running)]
    ),
    _gauge("num_paused_requests", "Requests that are paused."),
    _gauge("num_scheduled_requests", "Requests that are scheduled.", gauge=lambda _, gauges: [({}, gauges.running)]),
    _gauge(
        "kv_cache_utilization",
        "Share of the blocks of the KV cache in use.",
        meaning="kv",
        minimal=True,
        gauge=lambda _, gauges: [({}, gauges.kv)],
    ),
    _gauge(
        "kv_cache_max_blocks",
        "Blocks of the KV cache.",
        meaning="cache",
        minimal=True,
        constant=lambda identity: [({}, identity.num_gpu_blocks)],
    ),
    _gauge(
        "kv_cache_free_blocks",
        "Blocks that are free.",
        gauge=lambda identity, gauges: [({}, identity.num_gpu_blocks - _blocks_used(identity, gauges))],
    ),
    _gauge(
        "kv_cache_used_blocks", "Blocks in use.", gauge=lambda identity, gauges: [({}, _blocks_used(identity, gauges))]
    ),
    _gauge(
        "kv_cache_tokens_per_block",
        "Tokens in a block.",
        meaning="cache",
        minimal=True,
        constant=lambda identity: [({}, identity.block_size)],
    ),
    _counter("prompt_tokens", "Tokens of prompts processed.", "prompt_tokens"),
    _counter("generation_tokens", "Tokens generated.", "generation_tokens"),
    _counter("kv_cache_reused_blocks", "Blocks that were reused.", "reused_blocks"),
    *_requests("trtllm_"),
    Family(
        name="trtllm_request_prefill_time_seconds",
        help="From the batch to the first token, seconds.",
        kind="histogram",
        bounds=PREFILL,
        statistic="prefill",
    ),
)


def _serve_labels(identity: Identity, rank: int) -> Labels:
    return {"engine_type": "pytorch", "model_name": identity.model_name, "pid": str(1000 + rank)}


_1_3 = Generation(
    engine=Engine.TRTLLM_SERVE,
    name="1.3.0",
    families=_SERVE,
    labels=_serve_labels,
    metrics_path="/prometheus/metrics",
    iterations=True,
    touched=True,
    openmetrics="asked",
    gzip=True,
    errors="flat",
    invalid="text",
    names_checked=False,
    adapter_names="none",
    extra_fields=False,
    owned_by="tensorrt_llm",
)

SERVE = (
    _1_3,
    replace(
        _1_3,
        name="1.2.0",
        families=_requests(""),
        ranked=False,
        labels=lambda _, __: {"engine_type": "undefined", "model_name": "undefined"},
    ),
)


# -- Triton ------------------------------------------------------------------------------------------------------------


def _group(name: str, text: str, label: str, **values: Any) -> Family:
    """A family of gauges that `label` tells apart, each value read from identity and load."""

    def read(identity: Identity, gauges: Gauges) -> Iterable[Sample]:
        return [({label: key}, value(identity, gauges)) for key, value in values.items()]

    return Family(name=f"nv_trt_llm_{name}", help=text, gauge=read)


def _triton(*, complete: bool) -> tuple[Family, ...]:
    """The families of the backend; `complete`: with the queue and the used fraction, which came in 2025."""
    requests: dict[str, Any] = {
        "active": lambda _, gauges: gauges.running + gauges.queue,
        "max": lambda _, __: 2048,
        "scheduled": lambda _, gauges: gauges.running,
        "context": lambda _, __: 0,
    }
    blocks: dict[str, Any] = {
        "max": lambda identity, _: identity.num_gpu_blocks,
        "free": lambda identity, gauges: identity.num_gpu_blocks - _blocks_used(identity, gauges),
        "used": _blocks_used,
        "tokens_per": lambda identity, _: identity.block_size,
        "reused": lambda _, __: 0,
    }
    if complete:
        requests["waiting"] = lambda _, gauges: gauges.queue
        blocks["fraction"] = lambda _, gauges: gauges.kv
    load = _group("request_metrics", "Requests by their state.", "request_type", **requests)
    cache = _group("kv_cache_block_metrics", "Blocks of the KV cache.", "kv_cache_block_type", **blocks)
    zero = lambda _, __: 0  # noqa: E731 - a value among others
    return (
        replace(load, meaning="queue", minimal=True),
        _group("runtime_memory_metrics", "Memory in bytes.", "memory_type", cpu=zero, gpu=zero, pinned=zero),
        replace(cache, meaning="kv", minimal=True),
        _group(
            "inflight_batcher_metrics",
            "The batcher.",
            "inflight_batcher_specific_metric",
            total_context_tokens=zero,
            generation_requests=requests["scheduled"],
            micro_batch_id=zero,
            paused_requests=zero,
        ),
        _group("general_metrics", "The engine.", "general_type", timestamp=zero, iteration_counter=zero),
        Family(
            name="nv_llm_input_token_len",
            help="Tokens of prompts.",
            kind="histogram",
            bounds=LENGTHS,
            statistic="prompt_tokens",
        ),
        Family(
            name="nv_llm_output_token_len",
            help="Tokens generated.",
            kind="histogram",
            bounds=LENGTHS,
            statistic="generation_tokens",
        ),
    )


def _triton_labels(identity: Identity, _: int) -> Labels:
    return {"model": identity.model_name, "version": "1"}


_2025 = Generation(
    engine=Engine.TRITON,
    name="2025",
    families=_triton(complete=True),
    labels=_triton_labels,
    metrics_port=8002,
    ranked=False,
    owned_by="triton",
    adapter_names="none",
)

TRITON = (_2025, replace(_2025, name="2024", families=_triton(complete=False)))
