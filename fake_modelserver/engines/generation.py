"""What one generation of an engine is, as a value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from fake_modelserver.engines.families import Family, Identity
from fake_modelserver.lora import LoraForm
from fake_modelserver.messages import ErrorShape


class Engine(StrEnum):
    """Which model server a pod is; the values are those of the pod label that EPPs select their metric names by."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TRTLLM_SERVE = "trtllm-serve"
    TRITON = "triton-tensorrt-llm"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """One generation. `families` are in the order of the page; `labels` gives the labels of a rank's series.

    - `metrics_path` is where the page is, `metrics_port` its port if it is not the serving one; `iterations`:
      `/metrics` is a list of iteration statistics as JSON, taken out of a queue by reading it;
    - `ranked`: series say which rank they are of, so that one page can show several; `touched`: a series is there only
      once something has set it; `created`: the page has the gauges `…_created` of the Python client;
    - `openmetrics`: never, to a client that asks for it, or always; `gzip`: compressed for a client that takes it;
    - `errors` is the form of error bodies, `invalid` that of requests that do not validate; `names_checked`: an unknown
      model is refused; `adapter_names`: how a request names an adapter; `extra_fields`: unknown fields are ignored;
    - `load_paths` load and unload adapters; `lora`: how the LoRA metric is written, None: there is none.
    """

    engine: Engine
    name: str
    families: tuple[Family, ...]
    labels: Callable[[Identity, int], dict[str, str]]
    content_type: bytes = b"text/plain; version=0.0.4; charset=utf-8"
    metrics_path: str = "/metrics"
    metrics_port: int | None = None
    ranked: bool = True
    iterations: bool = False
    touched: bool = False
    created: bool = False
    openmetrics: Literal["never", "asked", "always"] = "never"
    gzip: bool = False
    errors: ErrorShape = "nested"
    invalid: ErrorShape = "nested"
    names_checked: bool = True
    adapter_names: Literal["name", "base:name", "none"] = "name"
    extra_fields: bool = True
    owned_by: str = "vllm"
    load_paths: tuple[str, str] | None = None
    lora: LoraForm | None = None

    def named(self, wanted: tuple[str, ...]) -> frozenset[str]:
        """The names of the families that `wanted` lists by meaning or by name; all gauges of load if it lists none."""
        wanted = wanted or ("queue", "running", "kv")
        return frozenset(family.name for family in self.families if family.meaning in wanted or family.name in wanted)
