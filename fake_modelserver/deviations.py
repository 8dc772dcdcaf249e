"""Wrong and odd model servers by name, each one pod: what is wrong with it, and which requirement that breaks.

For tests of suites that certify model servers. A fault breaks `breaks`, and may break `also_breaks` (with the reason
why); a variant is unusual and breaks nothing. Faults that only a warning is due for have `effect` warn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fake_modelserver.engines import Engine
from fake_modelserver.faults import Fault, FaultType
from fake_modelserver.gauges import Gauges
from fake_modelserver.lora import LoraForm
from fake_modelserver.scheduler import Latency, Serving
from fake_modelserver.signals import Constant, Ramp, Signal
from fake_modelserver.spec import PodSpec
from fake_modelserver.wrong_answers import (
    COMPLETION,
    Script,
    at_path,
    bare_error,
    caches_too_much,
    chats_without_messages,
    counts_one_token,
    gives_details,
    has_one_id,
    plainly,
    saying,
    takes_anything,
    thinks,
    writes_nothing,
)

_C, _T = "/v1/completions", "/v1/chat/completions"

ADAPTERS = ("tuned-a", "tuned-b")
SERVING = Serving(
    max_running=6,
    max_loras=2,
    first_token=Latency(mean=0.03),
    between_tokens=Latency(mean=0.005),
)
SLOW = replace(SERVING, max_running=3, between_tokens=Latency(mean=0.03))
"""Answers of two seconds, three at a time: what waits and what runs is the same for many scrapes on a busy machine."""
RIGHT = PodSpec(name="server", models=("small-model",), generation="0.10.2", adapters=ADAPTERS, serving=SERVING)
"""The server that deviations are made of: it queues beyond six requests, and serves two adapters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """One wrong or odd server. `spec` changes what the pod is, `pins` hold gauges, `script` answers in its place."""

    name: str
    why: str
    breaks: str | None = None
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    effect: str = "fail"
    version: str = "next"
    faults: tuple[Fault, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[str, float | Signal] = field(default_factory=dict)
    script: Script | None = None
    claims: Mapping[str, Any] = field(default_factory=dict)
    """Keys of a profile that say how it is asked: `engine`, `adapters`, …"""

    def described(self) -> dict[str, Any]:
        """What tells a test how to try it."""
        names = ("name", "why", "breaks", "effect", "version")
        plain = {name: getattr(self, name) for name in names}
        return {**plain, "also_breaks": dict(self.also_breaks), "claims": dict(self.claims)}


def signals(pins: Mapping[str, float | Signal]) -> dict[str, Signal]:
    """What pinned gauges follow."""
    return {name: Constant(value=one) if isinstance(one, int | float) else one for name, one in pins.items()}


def _peak() -> Callable[[Gauges], Gauges]:
    """Shows the fullest that the KV cache has been."""
    most = 0.0

    def shown(true: Gauges) -> Gauges:
        nonlocal most
        most = max(most, true.kv)
        return replace(true, kv=most)

    return shown


def _listing(true: Gauges, *, running: Iterable[str] | None = None, waiting: Iterable[str] | None = None) -> Gauges:
    """Lists other adapters, and no old series."""
    runs = true.running_loras if running is None else tuple(running)
    waits = true.waiting_loras if waiting is None else tuple(waiting)
    return replace(true, running_loras=runs, waiting_loras=waits, stale_loras=())


def _fault(kind: FaultType, path: str | None = None, **attributes: Any) -> tuple[Fault, ...]:
    return (Fault(type=kind, path=path, attributes=attributes),)


_STREAMS = dict.fromkeys(("MS-MET-02", "MS-MET-03", "MS-MET-04", "MS-LORA-01"), "completions are not served")

_UNREAD = dict.fromkeys(
    ("MS-MET-02", "MS-MET-03", "MS-MET-04", "MS-LORA-02", "MS-LORA-03", "MS-LORA-04", "MS-LORA-05"),
    "what is not read does not show it",
)

FAULTS = (
    Deviation(name="completions-status", why="Completions are answered 500.", breaks="MS-API-01", also_breaks=_STREAMS,
              faults=_fault(FaultType.STATUS, _C, status=500)),
    Deviation(name="completions-html", why="Completions are answered with HTML.", breaks="MS-API-01",
              also_breaks=_STREAMS, faults=_fault(FaultType.HTML, _C)),
    Deviation(name="stream-without-done", why="The last event, [DONE], is missing.", breaks="MS-API-01",
              faults=_fault(FaultType.NO_DONE, _C)),
    Deviation(name="stream-cut", why="Streams end inside an event.", breaks="MS-API-01", also_breaks=_STREAMS,
              faults=_fault(FaultType.CUT, _C, events=1)),
    Deviation(name="stream-with-error", why="An error follows in the stream.", breaks="MS-API-01",
              also_breaks=_STREAMS, faults=_fault(FaultType.ERROR_EVENT, _C, events=1)),
    *(
        Deviation(name=f"stream-{name}", why=why, breaks="MS-API-01", effect=effect,
                  faults=_fault(FaultType.CHUNKS, _C, how=how))
        for name, why, how, effect in (
            ("after-done", "A chunk follows [DONE].", "after-done", "fail"),
            ("end-unended", "No empty line is after [DONE], which is lost with it.", "unended", "fail"),
            ("ends-everywhere", "Every chunk has a finish_reason.", "all-finish", "fail"),
            ("with-indices", "Each chunk has another index.", "indices", "fail"),
            ("without-text", "All chunks are without text.", "no-text", "fail"),
            ("repeats-its-text", "Each chunk has all text from the beginning on.", "repeated", "fail"),
            ("ends-twice", "Two chunks have a finish_reason.", "two-finish", "warn"),
            ("with-new-ids", "Each chunk has another id.", "new-ids", "warn"),
        )
    ),
    Deviation(name="two-choices", why="One choice was asked for, and two come.", breaks="MS-API-01",
              script=plainly(choices=[*COMPLETION["choices"]] * 2)),
    Deviation(name="second-choice", why="The only choice has index 1.", breaks="MS-API-01",
              script=plainly(choices=[{**COMPLETION["choices"][0], "index": 1}])),
    Deviation(name="completion-without-reason", why="It does not say why it ended: finish_reason is empty.",
              breaks="MS-API-01", script=plainly(choices=[{**COMPLETION["choices"][0], "finish_reason": ""}])),
    Deviation(name="completion-without-id", why="Its id is empty.", breaks="MS-API-01", effect="warn",
              script=plainly(id="")),
    Deviation(name="completion-without-text", why="Sixteen tokens make no text.", breaks="MS-API-01",
              script=at_path(_C, writes_nothing)),
    Deviation(name="usage-of-no-tokens", why="The text has 0 tokens.", breaks="MS-API-01", effect="warn",
              script=plainly(usage={"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000})),
    Deviation(name="usage-of-more-than-the-prompt", why="More tokens of a prompt were cached than it has.",
              breaks="MS-API-01", effect="warn", script=at_path(_C, caches_too_much)),
    Deviation(name="usage-does-not-add-up", why="total_tokens is not the sum.", breaks="MS-API-01",
              script=plainly(usage={"prompt_tokens": 1000, "completion_tokens": 1, "total_tokens": 1002})),
    Deviation(name="usage-of-one-prompt-token", why="Any prompt has one token.", breaks="MS-API-01",
              script=plainly(usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2})),
    Deviation(name="usage-of-one-token", why="Any text has one token.", breaks="MS-API-01",
              script=at_path(_C, counts_one_token)),
    Deviation(name="completion-cut-early", why="It is said to be cut for its length, long before that.",
              breaks="MS-API-01", effect="warn",
              script=plainly(choices=[{**COMPLETION["choices"][0], "finish_reason": "length"}])),
    Deviation(name="completion-that-stops-at-one-token", breaks="MS-API-01", effect="warn", script=plainly(),
              why="An answer with its one token is said to have ended by itself."),
    Deviation(name="one-id-for-all", why="All completions have one id.", breaks="MS-API-01", effect="warn",
              script=at_path(_C, has_one_id)),
    Deviation(name="completion-in-milliseconds", why="It was created at a time in milliseconds.", breaks="MS-API-01",
              effect="warn", script=plainly(created=1_700_000_000_000)),
    Deviation(name="usage-missing", why="An answer has no usage.", breaks="MS-API-01", script=plainly(usage=None)),
    Deviation(name="object-of-chat", why="A completion says that it is a chat completion.", breaks="MS-API-01",
              script=plainly(object="chat.completion")),
    Deviation(name="garbage-served", why="A request that is no JSON is answered 200.", breaks="MS-API-01",
              script=at_path(_C, takes_anything)),
    Deviation(name="errors-as-text", why="Errors are no JSON.", breaks="MS-API-01", script=at_path(_C, bare_error)),
    Deviation(name="chat-status", why="Chats are answered 500.", breaks="MS-API-02",
              also_breaks={"MS-LORA-01": "an adapter is asked to chat"},
              faults=_fault(FaultType.STATUS, _T, status=500)),
    Deviation(name="chat-stream-without-done", why="Streamed chats have no [DONE].", breaks="MS-API-02",
              faults=_fault(FaultType.NO_DONE, _T)),
    Deviation(name="chat-without-messages", why="A chat without messages is answered 200.", breaks="MS-API-02",
              script=at_path(_T, chats_without_messages)),
    Deviation(name="chat-without-role", why="The message of a chat has no role.", breaks="MS-API-02",
              script=saying(content="hello")),
    Deviation(name="chat-without-content", why="The message of a chat is empty.", breaks="MS-API-02",
              script=saying(16, role="assistant", content=None)),
    Deviation(name="chat-by-the-user", why="The message of a chat has the role of the user.", breaks="MS-API-02",
              effect="warn", script=saying(role="user", content="hello")),
    Deviation(name="chat-stream-beside-its-delta", why="The text of streamed chats is not in the delta.",
              breaks="MS-API-02", faults=_fault(FaultType.CHUNKS, _T, how="beside")),
    *(
        Deviation(name=f"page-{name}", why=why, breaks="MS-MET-01", also_breaks=_UNREAD,
                  faults=_fault(kind, **attributes))
        for name, why, kind, attributes in (
            ("status", "The page is answered 500.", FaultType.STATUS, {"path": "/metrics", "status": 500}),
            ("json", "The page is an empty JSON list.", FaultType.JSON, {"path": "/metrics"}),
            ("half", "The page ends inside a line.", FaultType.HALF, {"share": 0.6}),
            ("no-newline", "The last line has no end.", FaultType.NO_NEWLINE, {}),
            ("crlf", "Lines end as those of HTTP.", FaultType.CRLF, {}),
            ("garbage", "The page is no text.", FaultType.GARBAGE, {}),
            ("duplicate", "A series comes twice.", FaultType.DUPLICATE, {}),
            ("second-header", "HELP and TYPE come once more.", FaultType.SECOND_HEADER, {}),
            ("not-packed", "It says gzip, and is none.", FaultType.PACKED, {"how": "plain"}),
            ("half-packed", "Its gzip ends too early.", FaultType.PACKED, {"how": "cut"}),
            ("packed-unsaid", "It is gzip, and does not say so.", FaultType.PACKED, {"how": "unsaid"}),
        )
    ),
    *(
        Deviation(name=f"page-{name}", why=why, breaks="MS-MET-01", faults=_fault(FaultType.LINES, text=text))
        for name, why, text in (
            ("fraction-of-a-timestamp", "A timestamp is in seconds.", "extra 1 1700000000.5"),
            ("after-a-timestamp", "A number follows a timestamp.", "extra 1 1700000000000 5"),
            ("escape", "A backslash in a label is not escaped.", 'extra{path="C:\\dir"} 1'),
            ("bound-of-a-bucket", "A bucket has no number.", '# TYPE extra histogram\nextra_bucket{le="many"} 1'),
        )
    ),
    Deviation(name="page-late", why="The page comes a quarter of a second late.", breaks="MS-MET-01", effect="warn",
              faults=_fault(FaultType.LATENCY, "/metrics", latency=250)),
    Deviation(name="page-late-under-load", why="Each request that runs makes the page 0.2 s later.", breaks="MS-MET-01",
              effect="warn", faults=_fault(FaultType.LATENCY, "/metrics", latency=0, per_running=200.0),
              spec={"serving": SLOW}),
    *(
        Deviation(name=f"page-{name}", why=why, breaks="MS-MET-01", effect="warn",
                  faults=_fault(FaultType.CONTENT_TYPE, "/metrics", type=kind))
        for name, why, kind in (
            ("of-html", "The page says that it is HTML.", "text/html; charset=utf-8"),
            ("of-no-type", "The page does not say what it is.", ""),
        )
    ),
    Deviation(name="page-elsewhere", why="The page is at another path.", breaks="MS-MET-01", effect="warn",
              spec={"metrics_path": "/stats"}, claims={"metrics": {"url": "/stats"}}),
    Deviation(name="queue-missing", why="The queue is not on the page.", breaks="MS-MET-02",
              faults=_fault(FaultType.MISSING, families=("queue",))),
    Deviation(name="queue-renamed", why="The queue has another name.", breaks="MS-MET-02",
              faults=_fault(FaultType.RENAMED, families=("queue",))),
    Deviation(name="queue-counter", why="The queue is of TYPE counter.", breaks="MS-MET-02",
              also_breaks={"MS-MET-01": "a counter that falls"},
              faults=_fault(FaultType.TYPE, families=("queue",), type="counter")),
    Deviation(name="queue-nan", why="The queue is NaN.", breaks="MS-MET-02",
              faults=_fault(FaultType.VALUE, families=("queue",), value="NaN")),
    Deviation(name="queue-negative", why="The queue is -1.", breaks="MS-MET-02",
              faults=_fault(FaultType.VALUE, families=("queue",), value="-1")),
    Deviation(name="queue-always-0", why="The queue is always 0.", breaks="MS-MET-02", pins={"queue": 0}),
    Deviation(name="queue-flag", why="The queue is 1 if any request waits.", breaks="MS-MET-02",
              spec={"shown_as": lambda true: replace(true, queue=min(1, true.queue)), "serving": SLOW}),
    Deviation(name="queue-flag-of-two", why="So it is where six of eight requests run.", breaks="MS-MET-02",
              spec={"shown_as": lambda true: replace(true, queue=min(1, true.queue)),
                    "serving": replace(SLOW, max_running=6)}),
    Deviation(name="queue-two-if-any-waits", why="The queue is 2 if any request waits, however many do.",
              breaks="MS-MET-02", effect="warn", claims={"limits": {"concurrency": 10}},
              spec={"shown_as": lambda true: replace(true, queue=2 * min(1, true.queue)),
                    "serving": replace(SLOW, max_running=5)}),
    Deviation(name="queue-twice", why="The queue counts each request that waits twice.", breaks="MS-MET-02",
              spec={"shown_as": lambda true: replace(true, queue=2 * true.queue), "serving": SLOW}),
    Deviation(name="queue-one-too-many", why="While any waits, the queue is one more.", breaks="MS-MET-02",
              effect="warn",
              spec={"shown_as": lambda true: replace(true, queue=true.queue + min(1, true.queue)), "serving": SLOW}),
    Deviation(name="queue-half", why="The queue counts every other request that waits.", breaks="MS-MET-02",
              effect="warn", spec={"shown_as": lambda true: replace(true, queue=true.queue // 2), "serving": SLOW}),
    Deviation(name="queue-counts-all", why="The queue counts the requests that run, too.", breaks="MS-MET-02",
              spec={"shown_as": lambda true: replace(true, queue=true.queue + true.running), "serving": SLOW}),
    Deviation(name="queue-and-running-swapped", why="The queue shows what runs, and the reverse.", breaks="MS-MET-02",
              version="1.0.0", spec={"shown_as": lambda true: replace(true, queue=true.running, running=true.queue),
                                     "serving": replace(SLOW, max_running=6)}),
    Deviation(name="running-missing", why="The running requests are not on the page.", breaks="MS-MET-04",
              faults=_fault(FaultType.MISSING, families=("running",))),
    Deviation(name="running-untyped", why="The running requests have no TYPE.", breaks="MS-MET-04",
              faults=_fault(FaultType.TYPE, families=("running",), type="")),
    Deviation(name="running-always-0", why="The running requests are always 0.", breaks="MS-MET-04",
              pins={"running": 0}),
    Deviation(name="running-flag", why="The running requests are 1 if any runs.", breaks="MS-MET-04",
              spec={"shown_as": lambda true: replace(true, running=min(1, true.running)), "serving": SLOW}),
    Deviation(name="running-half", why="The running requests are half of those that run, rounded up.",
              breaks="MS-MET-04", effect="warn",
              spec={"shown_as": lambda true: replace(true, running=(true.running + 1) // 2),
                    "serving": replace(SLOW, max_running=6)}),
    Deviation(name="running-counts-all", why="The running requests are those that wait, too.", breaks="MS-MET-04",
              spec={"shown_as": lambda true: replace(true, running=true.queue + true.running),
                    "serving": SLOW}),
    Deviation(name="running-one-too-many", why="While any runs, the running requests are one more.",
              breaks="MS-MET-04", effect="warn",
              spec={"shown_as": lambda true: replace(true, running=true.running + min(1, true.running))}),
    Deviation(name="running-hundredfold", why="Each running request counts a hundred times.", breaks="MS-MET-04",
              spec={"shown_as": lambda true: replace(true, running=100 * true.running)}),
    Deviation(name="kv-missing", why="The KV cache is not on the page.", breaks="MS-MET-03",
              faults=_fault(FaultType.MISSING, families=("kv",))),
    Deviation(name="kv-without-samples", why="The KV cache has HELP and TYPE only.", breaks="MS-MET-03",
              faults=_fault(FaultType.NO_SAMPLES, families=("kv",))),
    Deviation(name="kv-old-name", why="vLLM 0.8.5: the KV cache has its old name alone.", breaks="MS-MET-03",
              effect="warn", spec={"generation": "0.8.5", "adapters": ()}, claims={"adapters": []}),
    Deviation(name="kv-per-cent", why="The KV cache is a number of per cent.", breaks="MS-MET-03",
              faults=_fault(FaultType.VALUE, families=("kv",), value="37")),
    Deviation(name="kv-always-0", why="The KV cache is always empty.", breaks="MS-MET-03", pins={"kv": 0.0}),
    Deviation(name="kv-free", why="The gauge shows how much of the KV cache is free.", breaks="MS-MET-03",
              spec={"shown_as": lambda true: replace(true, kv=1 - true.kv)}),
    Deviation(name="kv-always-1", why="The KV cache is always full, as it may be of what is kept for later prompts.",
              breaks="MS-MET-03", effect="warn", pins={"kv": 1.0}),
    Deviation(name="kv-flag", why="The KV cache is full while any request runs.", breaks="MS-MET-03",
              spec={"shown_as": lambda true: replace(true, kv=float(true.running > 0))}),
    Deviation(name="kv-by-the-clock", why="The KV cache fills and empties with the clock.", breaks="MS-MET-03",
              pins={"kv": Ramp(start=0, stop=1, seconds=0.17, repeat=True)}),
    Deviation(name="kv-peak", why="The KV cache is as full as it ever was.", breaks="MS-MET-03", effect="warn",
              spec={"shown_as": _peak()}),
    Deviation(name="kv-percent-of-a-fraction", why="The share of the KV cache is divided by 100.", breaks="MS-MET-03",
              spec={"shown_as": lambda true: replace(true, kv=true.kv / 100)}),
    Deviation(name="kv-percent-of-a-fraction-with-ranks", why="So it is on a page with four data-parallel ranks.",
              breaks="MS-MET-03", spec={"ranks": 4, "num_gpu_blocks": 1024, "serving": SLOW,
                                        "shown_as": lambda true: replace(true, kv=true.kv / 100)}),
    Deviation(name="blocks-0", why="The cache has no tokens in a block.", breaks="MS-MET-05", effect="warn",
              claims={"metrics": {"names": {"blockSize": ["vllm:num_requests_waiting"]}}}),
    Deviation(name="lora-missing", why="The LoRA gauge is not there.", breaks="MS-LORA-02",
              faults=_fault(FaultType.MISSING, families=("lora",))),
    Deviation(name="lora-summed", why="Its value is the sum of two processes' times.", breaks="MS-LORA-02",
              spec={"lora": LoraForm(processes=2)}),
    Deviation(name="lora-static", why="Its value never changes.", breaks="MS-LORA-02",
              also_breaks={"MS-LORA-04": "none of its series is the newest"},
              faults=_fault(FaultType.VALUE, families=("lora",), value="1600000000")),
    Deviation(name="lora-counter", why="It is of TYPE counter.", breaks="MS-LORA-02",
              faults=_fault(FaultType.TYPE, families=("lora",), type="counter")),
    Deviation(name="lora-without-max", why="The label max_lora is missing.", breaks="MS-LORA-03",
              spec={"lora": LoraForm(max_lora=False)}),
    Deviation(name="lora-max-too-low", why="More adapters run than max_lora says.", breaks="MS-LORA-03", effect="warn",
              spec={"shown_as": lambda true: replace(true, max_lora=1, stale_loras=()), "serving": SLOW}),
    Deviation(name="lora-one-alone", why="One adapter is never on the list of those that run.", breaks="MS-LORA-03",
              spec={"shown_as": lambda true: _listing(true, running=set(true.running_loras) - {"tuned-b"}),
                    "serving": SLOW}),
    Deviation(name="lora-in-turn", why="Of the adapters that run only the first is on the list.", breaks="MS-LORA-03",
              effect="warn", spec={"shown_as": lambda true: _listing(true, running=true.running_loras[:1])}),
    Deviation(name="lora-semicolons", why="Names are separated by semicolons.", breaks="MS-LORA-03",
              also_breaks={"MS-LORA-04": "the newest series names none of them"},
              spec={"shown_as": lambda true: _listing(true, running=filter(None, [";".join(true.running_loras)]))}),
    Deviation(name="lora-none-waits", why="The list of adapters that wait is always empty.", breaks="MS-LORA-05",
              spec={"shown_as": lambda true: _listing(true, waiting=()), "serving": replace(SLOW, max_loras=1)}),
    Deviation(name="lora-newest-is-stale", why="An old series has the largest value.", breaks="MS-LORA-04",
              effect="warn", faults=_fault(FaultType.STALE_SERIES, series=1, ahead=3600)),
    Deviation(name="lora-ties", why="All its series have the same value.", breaks="MS-LORA-04", effect="warn",
              also_breaks={"MS-LORA-02": "the value stays as it is when adapters change"},
              faults=_fault(FaultType.VALUE, families=("lora",), value=f"{time.time():.0f}")),
    Deviation(name="lora-alike", why="Both labels name every adapter in flight.", breaks="MS-LORA-05", effect="warn",
              spec={"lora": LoraForm(alike=True)}),
    Deviation(name="adapters-not-served", why="Requests for adapters are refused as unknown.", breaks="MS-LORA-01",
              also_breaks={"MS-LORA-02": "none is ever in flight", "MS-LORA-03": "likewise", "MS-LORA-04": "likewise",
                           "MS-LORA-05": "likewise"},
              spec={"adapters": ()}),
    Deviation(name="prefix-cache-off", why="Prompts are computed again.", breaks="MS-PFX-01", effect="warn",
              spec={"page": "real", "serving": Serving(max_running=6, max_loras=2, first_token=Latency(mean=0.03),
                                       between_tokens=Latency(mean=0.005), prefix_caching=False)}),
)  # fmt: skip

VARIANTS = (
    Deviation(name="right", why="An ordinary vLLM 0.10.2."),
    Deviation(name="real-page", why="A page with all families of vLLM 0.10.2.",
              spec={"page": "real"}),
    Deviation(name="sglang", why="SGLang: flat errors, any model served.",
              spec={"engine": Engine.SGLANG, "generation": None, "adapters": ()},
              claims={"engine": "sglang", "adapters": []}),
    Deviation(name="sglang-labels", why="SGLang with the cache described by labels.",
              spec={"engine": Engine.SGLANG, "generation": "0.5.10", "adapters": ()},
              claims={"engine": "sglang", "adapters": []}),
    Deviation(name="one-adapter-at-a-time", why="An adapter waits while another runs.",
              spec={"serving": replace(SLOW, max_loras=1)}),
    Deviation(name="ranks", why="Three data-parallel ranks on one page.", spec={"ranks": 3}),
    Deviation(name="ranks-in-turn", why="SGLang: three ranks, each with a cache for itself, take requests in turn.",
              spec={"engine": Engine.SGLANG, "generation": None, "page": "real", "adapters": (), "ranks": 3,
                    "ranks_in_turn": True},
              claims={"engine": "sglang", "adapters": []}),
    Deviation(name="fast", why="It answers at once and never queues.",
              spec={"serving": None, "adapters": ()}, claims={"adapters": []}),
    Deviation(name="few-wait", why="Of ten requests at most two wait.",
              spec={"serving": replace(SLOW, max_running=8)}, claims={"limits": {"concurrency": 10, "tokens": 64}}),
    Deviation(name="queues-on-an-old-page", why="Five of ten requests wait, on a page of the last second.",
              spec={"serving": replace(SLOW, max_running=5)}, claims={"limits": {"concurrency": 10}},
              faults=_fault(FaultType.FROZEN, "/metrics", interval=1000)),
    Deviation(name="details", why="Errors have a `detail`, as Triton's frontend has them.",
              script=at_path(_C, gives_details)),
    Deviation(name="reasons", why="Its model reasons, and has not begun to answer when the tokens are used up.",
              script=at_path(_T, thinks)),
    Deviation(name="ends-at-once", why="Its model ends at once; a text without characters is null, as with SGLang.",
              script=saying(role="assistant", content=None)),
    Deviation(name="comments", why="Comments stand between events.",
              faults=_fault(FaultType.COMMENTS)),
    Deviation(name="split-events", why="Every event comes in two pieces.",
              faults=_fault(FaultType.SPLIT)),
    Deviation(name="lora-once-a-second", why="Its page is brought up to date once a second, and old series stay on it.",
              faults=_fault(FaultType.FROZEN, "/metrics", interval=1000)),
    Deviation(name="counters-with-and-without-total", why="A counter, and another whose name is that and _total.",
              faults=_fault(FaultType.LINES, text="# TYPE extra counter\nextra 5\n"
                                                  "# TYPE extra_total counter\nextra_total 3")),
    Deviation(name="stale-lora-series", why="Old series of adapters stay on the page.",
              faults=_fault(FaultType.STALE_SERIES, series=200)),
    *(
        Deviation(name=f"{engine}-{name}", why=f"{engine} {name}, with all of its page.",
                  spec={"engine": engine, "generation": name, "page": "real", "adapters": ()},
                  claims={"engine": str(engine), "adapters": []})
        for engine, name in (
            (Engine.VLLM, "0.33.0"), (Engine.VLLM, "0.33.0-rust"), (Engine.VLLM, "0.12.0"),
            (Engine.SGLANG, "0.5.8"),
        )
    ),
)  # fmt: skip
