"""What an episode with a model server under test has beside HTTP exchanges: pages of metrics, and the suite's load.

Prompts are the suite's own, made from the seed. They are kept as their length and digest (`Asked`), never as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from conformance.described import Described
from ext_proc.record import Event, Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsPage(Event):
    """One scrape: GET without `Accept`, as EPPs do it. `body` is without its gzip, if it had some.

    `outcome` is `page`, or why there is none: `failed` (`details` says how), `expired` (no answer in time), `endless`
    (more bytes than any page has). `whole` pages are kept as they came; of others `body` has the families that the
    profile names, and counters, and `size` and `sha256` are those of the page. `before` and `after` are what the suite
    had in flight when the scrape began and when it ended; `same` scrapes before it showed the same, and are left out.
    """

    kind: ClassVar[str] = "metrics-page"
    url: str
    outcome: Literal["page", "failed", "expired", "endless"] = "page"
    status: int | None = None
    content_type: str = ""
    body: bytes = b""
    whole: bool = True
    size: int = 0
    sha256: str = ""
    seconds: float = 0.0
    late: float = 0.0
    """Of these, the ones that may be ours, or in which the server got no processor, at most; of quick ones none."""
    at: float = 0.0
    """The suite's clock at its end: Unix time, seconds."""
    elsewhere: bool = False
    """Whether it is not at `/metrics` on the port that serves requests, where EPPs look for it."""
    gzip: bool = False
    """Whether the request said that gzip is taken, as those of EPPs do; else it said `identity`."""
    sent: int = 0
    """Requests of the suite's load that were in flight, without an end, all the time that the scrape took."""
    begun: int = 0
    """Of these, the ones that had their first token before it began."""
    most: int = 0
    """Requests of the suite that were in flight at any instant of the scrape."""
    same: int = 0
    details: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPhase(Event):
    """A change of the load that the suite makes: `level` requests at a time, of `tokens` tokens each.

    `raised`: it begins, or there is more of it. `released`: no more is sent, what is in flight runs to its end.
    `aborted`: what is in flight is broken off. `over`: nothing is in flight any more. `rest`: the gauges were watched
    for up to `seconds` seconds until they were at rest.
    """

    kind: ClassVar[str] = "load"
    phase: Literal["raised", "released", "aborted", "over", "rest"]
    level: int = 0
    tokens: int = 0
    words: int = 0
    """Words of each prompt."""
    finished: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """By status or failure, how many were not served; of the whole load. `error event`: HTTP 200, and then an error."""
    message: str = ""
    """The server's own text with the last refusal."""
    seconds: float = 0.0
    met: bool = True
    """Whether what was waited for came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAsked(Event):
    """A request to the API of the model server. `body` is as sent, but for the prompt (see `prompt`)."""

    kind: ClassVar[str] = "server-asked"
    method: str
    path: str
    headers: Headers = ()
    body: bytes = b""
    prompt: Mapping[str, Any] = field(default_factory=dict)
    """Its number of words and the SHA-256 of its text; empty where there is none."""
    api: Literal["completions", "chat", "models"] = "completions"
    stream: bool = False
    include_usage: bool = False
    tokens: int | None = None
    wrong: str = ""
    """What is wrong with it, so that it must be refused: `not-json`, `no-prompt`, `unknown-model`; empty: nothing."""
    model: str = ""
    adapter: bool = False
    """Whether `model` is a LoRA adapter that the profile names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAnswered(Event):
    """What came back: the whole body, its events as they were on the wire. `outcome` as in `MetricsPage`."""

    kind: ClassVar[str] = "server-answered"
    outcome: Literal["response", "failed", "expired", "endless"] = "response"
    status: int | None = None
    headers: Headers = ()
    body: bytes = b""
    details: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricNames(Described):
    """Where each metric is on the page: `name`, `name{label="value"}`, or `name@label` where a label has the value.

    Several are alternatives: the first that is on the page counts.
    """

    queued: tuple[str, ...] = ()
    """Requests that wait."""
    running: tuple[str, ...] = ()
    """Requests that run."""
    kv_cache: tuple[str, ...] = ()
    """The used share of the KV cache."""
    block_size: tuple[str, ...] = ()
    """Tokens of a block."""
    blocks: tuple[str, ...] = ()
    """Blocks of the KV cache."""
    lora: tuple[str, ...] = ()
    """The LoRA gauge with its labels."""
    prefix_hits: tuple[str, ...] = ()
    """A counter of prompt tokens or blocks that were found in the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelServerFacts(Described):
    """What is said of the model server under test, as far as a rule depends on it."""

    engine: str = "vllm"
    """The engine whose names it has for its metrics."""
    names: MetricNames = field(default_factory=MetricNames)
    """The names that were looked for: the engine's, with those that the profile maps."""
    match: Mapping[str, str] = field(default_factory=dict)
    """Labels that a series must have to be counted; none: all series are."""
    combine: Literal["sum", "max", "first"] = "sum"
    """What several series of a count amount to; of the KV cache, `sum` means the largest."""
    adapters: tuple[str, ...] = ()
    """LoRA adapters that are loaded, as a request names them in `model`."""
    lora: bool = False
    """Whether it says that it serves LoRA adapters dynamically."""
    prefix_cache: bool | None = None
    """Whether it says that it reuses caches of prompts; None: it says nothing."""
