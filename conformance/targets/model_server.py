"""The profile of a model server under test (role model-server): how it is started or reached, and what it shows.

Strings of `start` and `url` may hold placeholders: `{port}` (a free one), `{binary}`, `{version}` (protocol version),
`{workdir}` (a scratch folder of the run), `{python}`.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from conformance.evidence.model_server import MetricNames, ModelServerFacts
from conformance.requirements.schema import Version
from conformance.scenario.server_stimulus import CONTENT
from conformance.strict_yaml import FileModel
from conformance.targets.authority import no_authority
from conformance.targets.launch import Launch, fill
from conformance.targets.ports import free_ports
from conformance.targets.profile import (
    ApiRequests,
    Implementation,
    Limits,
    Metadata,
    Misplaced,
    Seconds,
    Start,
    SystemText,
    Timeouts,
)

NAMES = ("port", "binary", "version", "workdir", "python")
Engine = Literal["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "other"]

ENGINES: Mapping[Engine, MetricNames] = {
    "vllm": MetricNames(
        queued=("vllm:num_requests_waiting",),
        running=("vllm:num_requests_running",),
        kv_cache=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        block_size=("vllm:cache_config_info@block_size",),
        blocks=("vllm:cache_config_info@num_gpu_blocks",),
        lora=("vllm:lora_requests_info",),
        prefix_hits=("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits_total"),
    ),
    "sglang": MetricNames(
        queued=("sglang:num_queue_reqs",),
        running=("sglang:num_running_reqs",),
        kv_cache=("sglang:token_usage",),
        block_size=("sglang:page_size", "sglang:cache_config_info@page_size"),
        blocks=("sglang:num_pages", "sglang:cache_config_info@num_pages"),
        prefix_hits=('sglang:cached_tokens_total{cache_source="total"}', "sglang:cached_tokens_total"),
    ),
    "trtllm-serve": MetricNames(
        queued=("trtllm_num_requests_waiting",),
        running=("trtllm_num_requests_running",),
        kv_cache=("trtllm_kv_cache_utilization",),
        block_size=("trtllm_kv_cache_tokens_per_block",),
        blocks=("trtllm_kv_cache_max_blocks",),
        prefix_hits=("trtllm_kv_cache_reused_blocks_total",),
    ),
    "triton-tensorrt-llm": MetricNames(
        queued=('nv_trt_llm_request_metrics{request_type="waiting"}',),
        running=('nv_trt_llm_request_metrics{request_type="scheduled"}',),
        kv_cache=('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"}',),
        block_size=('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="tokens_per"}',),
        blocks=('nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max"}',),
    ),
    "other": MetricNames(),
}
"""The names that the protocol's table recommends, and what releases of the engines call the same (alternatives)."""

PAGES: Mapping[Engine, str] = {"trtllm-serve": "/prometheus/metrics", "triton-tensorrt-llm": ":8002/metrics"}
"""Where an engine has its page if not at `/metrics` on the port that serves requests."""

_SELECTOR = re.compile(
    r'[a-zA-Z_:][\w:]*(\{\s*([a-zA-Z_]\w*\s*=\s*"[^"{}]*"\s*(,\s*[a-zA-Z_]\w*\s*=\s*"[^"{}]*"\s*)*)?\})?(@[a-zA-Z_]\w*)?',
    re.ASCII,
)


def _no_url(url: str) -> str:
    """What to give in place of a URL that is none of a server; empty if it is one."""
    try:
        parts = urlsplit(url.replace("{port}", "1"))
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return "give http://host:port or https://host:port"
    if not right or parts.query or parts.fragment or parts.username:
        return "give http://host:port or https://host:port"
    return ""


class MetricsSettings(FileModel):
    """Where the metrics are, and what they are called. Names that are left out are those of the engine."""

    url: str | None = Field(
        None, description="the page: a URL, a path, or `:port/path`; default: where the engine has it"
    )
    names: MetricNames = Field(MetricNames(), description="names in the place of the engine's")
    match: dict[str, str] = Field({}, description="labels that a series must have to be counted")
    combine: Literal["sum", "max", "first"] = Field(
        "sum",
        description="what several series (ranks) amount to; of KV caches and sizes of blocks, sum means the largest",
    )

    @field_validator("url")
    @classmethod
    def _page(cls, url: str | None) -> str | None:
        if url is None or url.startswith("/") or re.fullmatch(r":[1-9]\d{0,4}/\S*", url):
            return url
        if problem := _no_url(url):
            raise ValueError(f"{problem}, /path, or :port/path")
        return url

    @field_validator("names")
    @classmethod
    def _selectors(cls, names: MetricNames) -> MetricNames:
        for field in dataclasses.fields(names):
            for text in getattr(names, field.name):
                if not _SELECTOR.fullmatch(text):
                    raise ValueError(f'{text!r} is no metric: give name, name{{label="value"}} or name@label')
        return names


class ServerTimeouts(Timeouts):
    """Bounds of every wait, in seconds."""

    start: Seconds = Field(120, description="the server must be ready after this")
    answer: Seconds = Field(60, description="an answer must begin within this; the first one may compile kernels")
    rest: Seconds = Field(35, description="gauges must show an idle server after this; some refresh every 30 s")
    scrape: Seconds = Field(10, description="the page must be there within this")


class ServerLimits(Limits):
    """How much the server may be asked."""

    concurrency: int = Field(64, ge=1, le=1024, description="requests at a time, at most, also under load")
    tokens: int = Field(512, ge=16, le=8192, description="tokens that one request of the load asks for, at most")
    prompt_words: int = Field(2000, ge=10, le=100_000, description="words of a long prompt, at most")


class ModelServerProfile(FileModel):
    """A model server under test."""

    role: Literal["model-server"] = Field(description="says that this is a model server's profile and not an EPP's")
    name: str = Field("", description="what the server is called")
    implementation: Implementation = Field(Implementation.model_construct(), description="who made it")
    start: Start = Field(Start.model_construct(), description="how it is started")
    url: str = Field("http://127.0.0.1:{port}", description="where it serves requests, without /v1")
    ca: SystemText | None = Field(
        None, description="PEM file that must have signed its certificate; default: the system's"
    )
    engine: Engine = Field("vllm", description="whose names its metrics have")
    metrics: MetricsSettings = Field(MetricsSettings.model_construct(), description="where its metrics are")
    adapters: tuple[str, ...] = Field((), description="LoRA adapters that are loaded, as a request names them")
    lora: bool = Field(False, description="it serves LoRA adapters dynamically; true if `adapters` are named")
    prefix_cache: bool | None = Field(None, description="it reuses caches of prompts")
    requests: ApiRequests = Field(ApiRequests.model_construct(), description="what the suite's requests look like")
    limits: ServerLimits = Field(ServerLimits.model_construct(), description="how much it may be asked")
    protocol_versions: tuple[Version, ...] = Field(("1.0.0",), min_length=1, description="the versions that it claims")
    timeouts: ServerTimeouts = Field(ServerTimeouts.model_construct(), description="bounds of every wait, in seconds")

    @field_validator("url")
    @classmethod
    def _base(cls, url: str) -> str:
        if problem := _no_url(url):
            raise ValueError(f"{problem}, with a path if the API is below one")
        if urlsplit(url.replace("{port}", "1")).path.rstrip("/").endswith("/v1"):
            raise ValueError("give it without /v1: the paths of requests begin there")
        return url.rstrip("/")

    @field_validator("requests")
    @classmethod
    def _further(cls, requests: ApiRequests) -> ApiRequests:
        if taken := sorted(CONTENT & set(requests.body)):
            raise ValueError(f"body: {', '.join(taken)}: scenarios say that themselves; leave it out")
        return requests

    @field_validator("start")
    @classmethod
    def _one_for_all(cls, start: Start) -> Start:
        if start.versions:
            raise ValueError("a model server is started alike for every version; leave out `versions`")
        if "network" in start.model_fields_set and start.network == "bridge":
            raise ValueError("an image of a model server runs in this machine's network; leave out `network`")
        return start

    @model_validator(mode="after")
    def _named_somehow(self) -> ModelServerProfile:
        if self.engine == "other" and not (self.metrics.names.queued and self.metrics.names.kv_cache):
            raise ValueError("engine `other` has no names: give metrics.names.queued and .kvCache")
        return self

    @property
    def names(self) -> MetricNames:
        """The names of the engine, with those that the profile maps."""
        own = self.metrics.names
        mapped = {one.name: getattr(own, one.name) for one in dataclasses.fields(own) if getattr(own, one.name)}
        return dataclasses.replace(ENGINES[self.engine], **mapped)

    @property
    def claims(self) -> ModelServerFacts:
        """What is said of it, as far as a rule depends on it."""
        return ModelServerFacts(
            engine=self.engine,
            names=self.names,
            match=self.metrics.match,
            combine=self.metrics.combine,
            adapters=self.adapters,
            lora=self.lora or bool(self.adapters),
            prefix_cache=self.prefix_cache,
        )

    @property
    def metadata(self) -> Metadata:
        """No ext_proc stream, no metadata: the protocol's own."""
        return Metadata.model_construct()

    @property
    def started_by_us(self) -> bool:
        """True if the suite starts the server, so that it can also restart it."""
        return bool(self.start.command or self.start.image)

    @property
    def only_one_at_a_time(self) -> str | None:
        """Why two runs can't stand side by side: the load of one would be on the gauges that the other reads."""
        return "its gauges show the load of all who ask it"

    @property
    def started_for(self) -> tuple[str, ...]:
        """The protocol versions for which it can be started; empty: for any."""
        return ()

    @property
    def address(self) -> str:
        """Where it is, with placeholders."""
        return self.url

    def page_url(self, base: str) -> str:
        """The URL of the page of metrics, given the URL of the server."""
        given = self.metrics.url or PAGES.get(self.engine, "/metrics")
        if "://" in given:
            return given
        if given.startswith(":"):
            parts = urlsplit(base)
            host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
            return f"{parts.scheme}://{host}{given}"
        return base + given

    def beside(self, folder: Path) -> ModelServerProfile:
        """The profile with its relative paths read from the folder of its file."""
        placed = {name: str((folder / path).absolute()) for name, path in (("ca", self.ca),) if path}
        workdir = self.start.workdir and str((folder / self.start.workdir).absolute())
        return self.model_copy(update={"start": self.start.model_copy(update={"workdir": workdir}), **placed})

    def out_of_place(self) -> Iterator[Misplaced]:
        """What it names that can't be there."""
        if self.ca is not None and (wrong := no_authority(self.ca)):
            yield ("ca",), wrong, ""


def server_launch(profile: ModelServerProfile, version: str, values: Mapping[str, str]) -> Launch:
    """How to start `profile`; `values` has what the run and the command line give. Raises `UsageError`."""
    values = {"port": str(free_ports(1)[0]), **values, "version": version, "python": sys.executable}

    def filled(text: str, where: str) -> str:
        return fill(text, values, where, names=NAMES, missing={"binary": "give it with --binary"})

    start = profile.start
    return Launch(
        command=tuple(filled(word, "start.command") for word in (*(start.command or ()), *start.args)),
        image=start.image and filled(start.image, "start.image"),
        env={name: filled(value, f"start.env.{name}") for name, value in start.env.items()},
        address=filled(profile.url, "url"),
        health_address=None,
        values=values,
    )
