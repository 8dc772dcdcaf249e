"""What model servers say about their load: the gauges of the Model Server Protocol, parsed from Prometheus' text.

One address can show several series of a gauge: one for each data-parallel rank, or for each process. Requests are
summed; of the KV cache the fullest counts. Where a series is the total of the others (SGLang's `priority=""`), it
alone counts. A page is refused whole if it has no end, or if a gauge is NaN, infinite or negative: it is not known
then how busy the server is, and what it said before stands until it is too old.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

QUEUED = ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "trtllm_num_requests_waiting")
RUNNING = ("vllm:num_requests_running", "sglang:num_running_reqs", "trtllm_num_requests_running")
KV_CACHE = (
    "vllm:kv_cache_usage_perc",
    "vllm:gpu_cache_usage_perc",  # what vLLM called it before
    "sglang:token_usage",
    "trtllm_kv_cache_utilization",
)
LORA = "vllm:lora_requests_info"

_ESCAPED = re.compile(r'\\([\\"n])')

Sample = tuple[str, Mapping[str, str], float]
"""Name, labels and value of one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """One reading of a model server. `queued` and `running` count requests, `kv_cache` is a share from 0 to 1."""

    queued: float
    running: float
    kv_cache: float
    running_adapters: frozenset[str] = frozenset()
    waiting_adapters: frozenset[str] = frozenset()
    max_adapters: int = 0
    """How many LoRA adapters fit at once; 0 if the server does not say."""


def parse_gauges(text: str) -> Gauges:
    """Read the gauges that matter out of a /metrics page.

    Raises `ValueError` if there is neither a queue nor a KV-cache gauge, if one of the three has a value that can't be,
    or if the page ends inside a line. A gauge that is missing counts as 0, as does a server without LoRA adapters.
    """
    if text and text[-1] != "\n":
        raise ValueError("the page ends inside a line")
    samples: dict[str, list[Sample]] = {}
    for sample in parse_samples(text):
        samples.setdefault(sample[0], []).append(sample)
    queued, running = (_combined(samples, names, sum) for names in (QUEUED, RUNNING))
    kv_cache = _combined(samples, KV_CACHE, max)
    if queued is None and kv_cache is None:
        raise ValueError(f"none of {', '.join(QUEUED + KV_CACHE)} has a usable value")
    lora = max(samples.get(LORA, ()), key=lambda sample: sample[2], default=None)  # the value says when it was updated
    labels = lora[1] if lora else {}
    max_adapters = labels.get("max_lora", "")
    return Gauges(
        queued=queued or 0.0,
        running=running or 0.0,
        kv_cache=kv_cache or 0.0,
        running_adapters=_adapters(labels.get("running_lora_adapters", "")),
        waiting_adapters=_adapters(labels.get("waiting_lora_adapters", "")),
        max_adapters=int(max_adapters) if max_adapters.isascii() and max_adapters.isdigit() else 0,
    )


def parse_samples(text: str) -> Iterator[Sample]:
    """The samples in Prometheus' text format. Left out are comments, and lines that are no samples."""
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        try:
            yield _sample(line)
        except (ValueError, IndexError):
            continue


def _sample(line: str) -> Sample:
    brace = line.find("{")
    if brace < 0:
        name, value = line.split()[:2]
        return name, {}, float(value)
    labels, end = _labels(line, brace + 1)
    return line[:brace].strip(), labels, float(line[end:].split(maxsplit=1)[0])


def _labels(line: str, at: int) -> tuple[dict[str, str], int]:
    """The labels that begin at index `at` of `line`, and the index after the closing brace."""
    labels: dict[str, str] = {}
    while True:
        while line[at] in ", \t":
            at += 1
        if line[at] == "}":
            return labels, at + 1
        equals = line.index("=", at)
        start = end = line.index('"', equals) + 1
        while line[end] != '"':
            end += 2 if line[end] == "\\" else 1
        value = line[start:end]
        if "\\" in value:
            value = _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
        labels[line[at:equals].strip()] = value
        at = end + 1


def _combined(
    samples: Mapping[str, list[Sample]], names: tuple[str, ...], combine: Callable[[list[float]], float]
) -> float | None:
    """What the series under the first of `names` that is there amount to; None if none is there."""
    for name in names:
        if found := samples.get(name):
            totals = [value for _, labels, value in found if labels.get("priority") == ""]
            values = totals or [value for _, _, value in found]
            if not all(0 <= value < math.inf for value in values):
                raise ValueError(f"{name} is {', '.join(f'{value:g}' for value in values)}, which no load is")
            return combine(values)
    return None


def _adapters(text: str) -> frozenset[str]:
    return frozenset(name for item in text.split(",") if (name := item.strip()))
