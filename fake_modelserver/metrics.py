"""`/metrics` in the Prometheus text format, under the names of four engines, and the faults it can have.

Rendered by hand: prometheus-client takes about a thousand times as long, and a fleet is scraped thousands of times
a second. Names: model server protocol, "Metrics Reporting" (the table) and "LoRA Adapter Serving".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal, get_args

from fake_modelserver.gauges import Gauges

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

GARBAGE = b"<html>\n{{{ this is not the Prometheus text format \x00\xff\n} 1 2 3 4\n"
"""The body of the fault `garbage`: neither text format nor UTF-8."""

Family = Literal["queue", "running", "kv", "lora", "cache"]
"""What a metric means, whatever its engine calls it."""


class Engine(StrEnum):
    """Which model server a pod is; the values are those of the pod label that EPPs select their metric names by."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM_SERVE = "trtllm-serve"
    TRITON = "triton-tensorrt-llm"


class FaultKind(StrEnum):
    """How `/metrics` can fail.

    `down`: the connection is reset without an answer (the port itself stays open, since inference is served on it:
    see `Pod.refuse` for that). `slow`: answers late. `status`: an error status. `garbage`: 200 with a body that is
    not metrics. `nan`: every gauge is NaN. `missing`: families are left out. `stale`: values stay as they were.
    """

    DOWN = "down"
    SLOW = "slow"
    STATUS = "status"
    GARBAGE = "garbage"
    NAN = "nan"
    MISSING = "missing"
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsFault:
    """A fault of `/metrics`: its kind, `delay` in seconds for `slow`, `status` for `status`, and for `missing` the
    `families` left out (meanings or full metric names; none given: all of them)."""

    kind: FaultKind
    delay: float = 1.0
    status: int = 500
    families: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.delay < 3600:
            raise ValueError(f"delay is {self.delay!r}; it is a number of seconds, from 0 to 3600")
        if not 400 <= self.status <= 599:
            raise ValueError(f"status is {self.status!r}; the fault `status` is an error, from 400 to 599")
        if unknown := set(self.families) - _known_families():
            known = ", ".join(sorted(_known_families()))
            raise ValueError(f"families are {self.families!r}; {min(unknown)!r} is not one of {known}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What never changes on a pod's page: engine, label values, and the size of the KV cache in blocks of tokens."""

    engine: Engine = Engine.VLLM
    model_name: str = "fake-model"
    engine_label: str | None = None
    block_size: int = 16
    num_gpu_blocks: int = 2048


def render(identity: Identity, gauges: Gauges, *, updated: float, fault: MetricsFault | None = None) -> bytes:
    """The page of a pod. `updated` is when the gauges were set (Unix time, seconds): the LoRA metric's value.

    Of the faults only `nan` and `missing` change the page; the others are matters of how it is served.
    """
    nan = fault is not None and fault.kind is FaultKind.NAN
    left_out: frozenset[str] | None = frozenset()
    if fault is not None and fault.kind is FaultKind.MISSING:
        left_out = frozenset(fault.families) or None
    lines: list[str] = []
    family = None
    for meaning, name, text, labels, value in _SAMPLES[identity.engine](identity, gauges, updated):
        if left_out is None or meaning in left_out or name in left_out:
            continue
        if name != family:
            family = name
            lines += (f"# HELP {name} {text}", f"# TYPE {name} gauge")
        listed = ",".join([f'{label}="{_escape(item)}"' for label, item in labels.items()])
        number = "NaN" if nan and meaning in ("queue", "running", "kv") else repr(float(value))
        lines.append(f"{name}{{{listed}}} {number}" if listed else f"{name} {number}")
    return ("\n".join(lines) + "\n").encode() if lines else b""


_Sample = tuple[Family, str, str, dict[str, str], float]
"""Meaning, metric name, help text, labels, value. Samples of one family follow each other."""


def _vllm(identity: Identity, gauges: Gauges, updated: float) -> Iterator[_Sample]:
    labels = _labels(identity)
    yield "queue", "vllm:num_requests_waiting", "Number of requests waiting to be processed.", labels, gauges.queue
    yield "running", "vllm:num_requests_running", "Number of requests in model execution.", labels, gauges.running
    # The old name is what EPPs before 1.3.0 of the upstream implementation read, the new one is what later ones read.
    for name in ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"):
        yield "kv", name, "KV-cache usage. 1 means 100 percent usage.", labels, gauges.kv
    if gauges.has_lora:
        for adapters, value in _lora_series(gauges, updated):
            yield "lora", "vllm:lora_requests_info", "Running stats on lora requests.", adapters, value
    config = {"block_size": str(identity.block_size), "cache_dtype": "auto"}
    if identity.engine_label is not None:
        config["engine"] = identity.engine_label
    # vLLM writes unset configuration as the string "None": a parser must not take every label for a number.
    config |= {"num_cpu_blocks": "None", "num_gpu_blocks": str(identity.num_gpu_blocks)}
    yield "cache", "vllm:cache_config_info", "Information of the LLMEngine CacheConfig.", config, 1


def _sglang(identity: Identity, gauges: Gauges, _updated: float) -> Iterator[_Sample]:
    labels = _labels(identity)
    yield "queue", "sglang:num_queue_reqs", "The number of requests in the waiting queue.", labels, gauges.queue
    yield "running", "sglang:num_running_reqs", "The number of running requests.", labels, gauges.running
    yield "kv", "sglang:token_usage", "The token usage.", labels, gauges.kv
    config = {"num_pages": str(identity.num_gpu_blocks), "page_size": str(identity.block_size)}
    yield "cache", "sglang:cache_config_info", "Information of the cache configuration.", config, 1


def _trtllm_serve(identity: Identity, gauges: Gauges, _updated: float) -> Iterator[_Sample]:
    labels = _labels(identity)
    yield "queue", "trtllm_num_requests_waiting", "Number of requests waiting.", labels, gauges.queue
    yield "running", "trtllm_num_requests_running", "Number of requests running.", labels, gauges.running
    yield "kv", "trtllm_kv_cache_utilization", "Share of the KV cache in use.", labels, gauges.kv
    yield "cache", "trtllm_kv_cache_tokens_per_block", "Tokens in a block.", labels, identity.block_size
    yield "cache", "trtllm_kv_cache_max_blocks", "Blocks of the KV cache.", labels, identity.num_gpu_blocks


def _triton(identity: Identity, gauges: Gauges, _updated: float) -> Iterator[_Sample]:
    own = {"model": identity.model_name, "version": "1"}
    requests, blocks = "nv_trt_llm_request_metrics", "nv_trt_llm_kv_cache_block_metrics"
    about = "TRT LLM request metrics"
    yield "queue", requests, about, {"request_type": "waiting"} | own, gauges.queue
    yield "running", requests, about, {"request_type": "scheduled"} | own, gauges.running
    about = "TRT LLM KV cache block metrics"
    yield "kv", blocks, about, {"kv_cache_block_type": "fraction"} | own, gauges.kv
    yield "cache", blocks, about, {"kv_cache_block_type": "tokens_per"} | own, identity.block_size
    yield "cache", blocks, about, {"kv_cache_block_type": "max"} | own, identity.num_gpu_blocks


_SAMPLES = {
    Engine.VLLM: _vllm,
    Engine.SGLANG: _sglang,
    Engine.TRTLLM_SERVE: _trtllm_serve,
    Engine.TRITON: _triton,
}


def _labels(identity: Identity) -> dict[str, str]:
    engine = {} if identity.engine_label is None else {"engine": identity.engine_label}
    return engine | {"model_name": identity.model_name}


def _lora_series(gauges: Gauges, updated: float) -> Iterator[tuple[dict[str, str], float]]:
    def series(running: tuple[str, ...], waiting: tuple[str, ...], max_lora: int) -> dict[str, str]:
        return {
            "max_lora": str(max_lora),
            "running_lora_adapters": ",".join(running),
            "waiting_lora_adapters": ",".join(waiting),
        }

    for stale in gauges.stale_loras:
        if stale.place == "before":
            yield series(stale.running, stale.waiting, stale.max_lora), updated - stale.age
    yield series(gauges.running_loras, gauges.waiting_loras, gauges.max_lora), updated
    for stale in gauges.stale_loras:
        if stale.place == "after":
            yield series(stale.running, stale.waiting, stale.max_lora), updated - stale.age


@cache
def _known_families() -> frozenset[str]:
    gauges = Gauges(max_lora=1)
    samples = [sample for engine in Engine for sample in _SAMPLES[engine](Identity(engine=engine), gauges, 0.0)]
    return frozenset(get_args(Family)).union(name for _, name, *_ in samples)


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
