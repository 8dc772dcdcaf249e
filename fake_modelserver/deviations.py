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
    refuses_long_prompts,
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


FAULTS: list[Deviation] = []
VARIANTS: list[Deviation] = []

Part = Fault | Mapping[str, Any] | Script


def fault(
    name: str, breaks: str, why: str, *parts: Part, also: Mapping[str, str] | None = None, **declared: Any
) -> None:
    """Declare a wrong server. A part is a fault of the pod, a change of its specification, or a script."""
    _declare(FAULTS, parts, name=name, breaks=breaks, why=why, also_breaks=also or {}, **declared)


def variant(name: str, why: str, *parts: Part, **declared: Any) -> None:
    """Declare an odd server that conforms."""
    _declare(VARIANTS, parts, name=name, why=why, **declared)


def _declare(known: list[Deviation], parts: Iterable[Part], **declared: Any) -> None:
    faults = tuple(one for one in parts if isinstance(one, Fault))
    spec = {name: value for one in parts if isinstance(one, Mapping) for name, value in one.items()}
    script = next((one for one in parts if not isinstance(one, Fault | Mapping)), None)
    known.append(Deviation(faults=faults, spec=spec, script=script, **declared))


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


def _fault(kind: FaultType, path: str | None = None, **attributes: Any) -> Fault:
    return Fault(type=kind, path=path, attributes=attributes)


def _chunks(how: str) -> Fault:
    return _fault(FaultType.CHUNKS, _C, how=how)


def _series(kind: FaultType, family: str, **attributes: Any) -> Fault:
    return Fault(type=kind, attributes={"families": (family,), **attributes})


def _choice(**changes: Any) -> Script:
    return plainly(choices=[{**COMPLETION["choices"][0], **changes}])


def _usage(prompt: int, completion: int, total: int) -> Script:
    return plainly(usage={"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total})


def _shown(change: Callable[[Gauges], Mapping[str, Any]], **spec: Any) -> Mapping[str, Any]:
    """What the pod is, with other values of gauges on its page."""
    return {"shown_as": lambda true: replace(true, **change(true)), **spec}


_STREAMS = dict.fromkeys(("MS-MET-02", "MS-MET-03", "MS-MET-04", "MS-LORA-01"), "completions are not served")

_UNREAD = dict.fromkeys(
    ("MS-MET-02", "MS-MET-03", "MS-MET-04", "MS-LORA-02", "MS-LORA-03", "MS-LORA-04", "MS-LORA-05"),
    "what is not read does not show it",
)

_SGLANG = {"engine": "sglang", "adapters": ()}
_VLLM = {"engine": "vllm", "adapters": ()}

# fmt: off

fault("completions-status", "MS-API-01", "Completions are answered 500.",
      _fault(FaultType.STATUS, _C, status=500), also=_STREAMS)
fault("completions-html", "MS-API-01", "Completions are answered with HTML.",
      _fault(FaultType.HTML, _C), also=_STREAMS)
fault("stream-without-done", "MS-API-01", "The last event, [DONE], is missing.", _fault(FaultType.NO_DONE, _C))
fault("stream-cut", "MS-API-01", "Streams end inside an event.",
      _fault(FaultType.CUT, _C, events=1), also=_STREAMS)
fault("stream-with-error", "MS-API-01", "An error follows in the stream.",
      _fault(FaultType.ERROR_EVENT, _C, events=1), also=_STREAMS)
fault("stream-after-done", "MS-API-01", "A chunk follows [DONE].", _chunks("after-done"))
fault("stream-end-unended", "MS-API-01", "No empty line is after [DONE], which is lost with it.",
      _chunks("unended"))
fault("stream-ends-everywhere", "MS-API-01", "Every chunk has a finish_reason.", _chunks("all-finish"))
fault("stream-with-indices", "MS-API-01", "Each chunk has another index.", _chunks("indices"))
fault("stream-without-text", "MS-API-01", "All chunks are without text.", _chunks("no-text"))
fault("stream-repeats-its-text", "MS-API-01", "Each chunk has all text from the beginning on.",
      _chunks("repeated"))
fault("stream-ends-twice", "MS-API-01", "Two chunks have a finish_reason.",
      _chunks("two-finish"), effect="warn")
fault("stream-with-new-ids", "MS-API-01", "Each chunk has another id.", _chunks("new-ids"), effect="warn")
fault("two-choices", "MS-API-01", "One choice was asked for, and two come.",
      plainly(choices=[*COMPLETION["choices"]] * 2))
fault("second-choice", "MS-API-01", "The only choice has index 1.", _choice(index=1))
fault("completion-without-reason", "MS-API-01", "It does not say why it ended: finish_reason is empty.",
      _choice(finish_reason=""))
fault("completion-without-id", "MS-API-01", "Its id is empty.", plainly(id=""), effect="warn")
fault("completion-without-text", "MS-API-01", "Sixteen tokens make no text.", at_path(_C, writes_nothing))
fault("usage-of-no-tokens", "MS-API-01", "The text has 0 tokens.", _usage(1000, 0, 1000), effect="warn")
fault("usage-of-more-than-the-prompt", "MS-API-01", "More tokens of a prompt were cached than it has.",
      at_path(_C, caches_too_much), effect="warn")
fault("usage-does-not-add-up", "MS-API-01", "total_tokens is not the sum.", _usage(1000, 1, 1002))
fault("usage-of-one-prompt-token", "MS-API-01", "Any prompt has one token.", _usage(1, 1, 2))
fault("usage-of-one-token", "MS-API-01", "Any text has one token.", at_path(_C, counts_one_token))
fault("completion-cut-early", "MS-API-01", "It is said to be cut for its length, long before that.",
      _choice(finish_reason="length"), effect="warn")
fault("completion-that-stops-at-one-token", "MS-API-01",
      "An answer with its one token is said to have ended by itself.", plainly(), effect="warn")
fault("one-id-for-all", "MS-API-01", "All completions have one id.", at_path(_C, has_one_id), effect="warn")
fault("completion-in-milliseconds", "MS-API-01", "It was created at a time in milliseconds.",
      plainly(created=1_700_000_000_000), effect="warn")
fault("usage-missing", "MS-API-01", "An answer has no usage.", plainly(usage=None))
fault("object-of-chat", "MS-API-01", "A completion says that it is a chat completion.",
      plainly(object="chat.completion"))
fault("garbage-served", "MS-API-01", "A request that is no JSON is answered 200.", at_path(_C, takes_anything))
fault("errors-as-text", "MS-API-01", "Errors are no JSON.", at_path(_C, bare_error))
fault("chat-status", "MS-API-02", "Chats are answered 500.",
      _fault(FaultType.STATUS, _T, status=500), also={"MS-LORA-01": "an adapter is asked to chat"})
fault("chat-stream-without-done", "MS-API-02", "Streamed chats have no [DONE].", _fault(FaultType.NO_DONE, _T))
fault("chat-without-messages", "MS-API-02", "A chat without messages is answered 200.",
      at_path(_T, chats_without_messages))
fault("chat-without-role", "MS-API-02", "The message of a chat has no role.", saying(content="hello"))
fault("chat-without-content", "MS-API-02", "The message of a chat is empty.",
      saying(16, role="assistant", content=None))
fault("chat-by-the-user", "MS-API-02", "The message of a chat has the role of the user.",
      saying(role="user", content="hello"), effect="warn")
fault("chat-stream-beside-its-delta", "MS-API-02", "The text of streamed chats is not in the delta.",
      _fault(FaultType.CHUNKS, _T, how="beside"))
fault("page-status", "MS-MET-01", "The page is answered 500.",
      _fault(FaultType.STATUS, path="/metrics", status=500), also=_UNREAD)
fault("page-json", "MS-MET-01", "The page is an empty JSON list.",
      _fault(FaultType.JSON, path="/metrics"), also=_UNREAD)
fault("page-half", "MS-MET-01", "The page ends inside a line.", _fault(FaultType.HALF, share=0.6), also=_UNREAD)
fault("page-no-newline", "MS-MET-01", "The last line has no end.", _fault(FaultType.NO_NEWLINE), also=_UNREAD)
fault("page-crlf", "MS-MET-01", "Lines end as those of HTTP.", _fault(FaultType.CRLF), also=_UNREAD)
fault("page-garbage", "MS-MET-01", "The page is no text.", _fault(FaultType.GARBAGE), also=_UNREAD)
fault("page-duplicate", "MS-MET-01", "A series comes twice.", _fault(FaultType.DUPLICATE), also=_UNREAD)
fault("page-second-header", "MS-MET-01", "HELP and TYPE come once more.",
      _fault(FaultType.SECOND_HEADER), also=_UNREAD)
fault("page-not-packed", "MS-MET-01", "It says gzip, and is none.",
      _fault(FaultType.PACKED, how="plain"), also=_UNREAD)
fault("page-half-packed", "MS-MET-01", "Its gzip ends too early.",
      _fault(FaultType.PACKED, how="cut"), also=_UNREAD)
fault("page-packed-unsaid", "MS-MET-01", "It is gzip, and does not say so.",
      _fault(FaultType.PACKED, how="unsaid"), also=_UNREAD)
fault("page-fraction-of-a-timestamp", "MS-MET-01", "A timestamp is in seconds.",
      _fault(FaultType.LINES, text="extra 1 1700000000.5"))
fault("page-after-a-timestamp", "MS-MET-01", "A number follows a timestamp.",
      _fault(FaultType.LINES, text="extra 1 1700000000000 5"))
fault("page-escape", "MS-MET-01", "A backslash in a label is not escaped.",
      _fault(FaultType.LINES, text='extra{path="C:\\dir"} 1'))
fault("page-bound-of-a-bucket", "MS-MET-01", "A bucket has no number.",
      _fault(FaultType.LINES, text='# TYPE extra histogram\nextra_bucket{le="many"} 1'))
fault("page-late", "MS-MET-01", "The page comes a quarter of a second late.",
      _fault(FaultType.LATENCY, "/metrics", latency=250), effect="warn")
fault("page-late-under-load", "MS-MET-01", "Each request that runs makes the page 0.2 s later.",
      _fault(FaultType.LATENCY, "/metrics", latency=0, per_running=200.0), {"serving": SLOW}, effect="warn")
fault("page-of-html", "MS-MET-01", "The page says that it is HTML.",
      _fault(FaultType.CONTENT_TYPE, "/metrics", type="text/html; charset=utf-8"), effect="warn")
fault("page-of-no-type", "MS-MET-01", "The page does not say what it is.",
      _fault(FaultType.CONTENT_TYPE, "/metrics", type=""), effect="warn")
fault("page-elsewhere", "MS-MET-01", "The page is at another path.",
      {"metrics_path": "/stats"}, effect="warn", claims={"metrics": {"url": "/stats"}})
fault("queue-missing", "MS-MET-02", "The queue is not on the page.", _series(FaultType.MISSING, "queue"))
fault("queue-renamed", "MS-MET-02", "The queue has another name.", _series(FaultType.RENAMED, "queue"))
fault("queue-counter", "MS-MET-02", "The queue is of TYPE counter.",
      _series(FaultType.TYPE, "queue", type="counter"), also={"MS-MET-01": "a counter that falls"})
fault("queue-nan", "MS-MET-02", "The queue is NaN.", _series(FaultType.VALUE, "queue", value="NaN"))
fault("queue-negative", "MS-MET-02", "The queue is -1.", _series(FaultType.VALUE, "queue", value="-1"))
fault("queue-always-0", "MS-MET-02", "The queue is always 0.", pins={"queue": 0})
fault("queue-flag", "MS-MET-02", "The queue is 1 if any request waits.",
      _shown(lambda true: {"queue": min(1, true.queue)}, serving=SLOW))
fault("queue-flag-of-two", "MS-MET-02", "The queue is 1 if any request waits, while six of eight run.",
      _shown(lambda true: {"queue": min(1, true.queue)}, serving=replace(SLOW, max_running=6)))
fault("queue-two-if-any-waits", "MS-MET-02", "The queue is 2 if any request waits, however many do.",
      _shown(lambda true: {"queue": 2 * min(1, true.queue)}, serving=replace(SLOW, max_running=5)),
      effect="warn", claims={"limits": {"concurrency": 10}})
fault("queue-twice", "MS-MET-02", "The queue counts each request that waits twice.",
      _shown(lambda true: {"queue": 2 * true.queue}, serving=SLOW))
fault("queue-one-too-many", "MS-MET-02", "While any waits, the queue is one more.",
      _shown(lambda true: {"queue": true.queue + min(1, true.queue)}, serving=SLOW), effect="warn")
fault("queue-half", "MS-MET-02", "The queue counts every other request that waits.",
      _shown(lambda true: {"queue": true.queue // 2}, serving=SLOW), effect="warn")
fault("queue-counts-all", "MS-MET-02", "The queue counts the requests that run, too.",
      _shown(lambda true: {"queue": true.queue + true.running}, serving=SLOW))
fault("queue-and-running-swapped", "MS-MET-02", "The queue shows what runs, and the reverse.",
      _shown(lambda true: {"queue": true.running, "running": true.queue}, serving=replace(SLOW, max_running=6)),
      version="1.0.0")
fault("running-missing", "MS-MET-04", "The running requests are not on the page.",
      _series(FaultType.MISSING, "running"))
fault("running-untyped", "MS-MET-04", "The running requests have no TYPE.",
      _series(FaultType.TYPE, "running", type=""))
fault("running-always-0", "MS-MET-04", "The running requests are always 0.", pins={"running": 0})
fault("running-flag", "MS-MET-04", "The running requests are 1 if any runs.",
      _shown(lambda true: {"running": min(1, true.running)}, serving=SLOW))
fault("running-half", "MS-MET-04", "The running requests are half of those that run, rounded up.",
      _shown(lambda true: {"running": (true.running + 1) // 2}, serving=replace(SLOW, max_running=6)),
      effect="warn")
fault("running-counts-all", "MS-MET-04", "The running requests are those that wait, too.",
      _shown(lambda true: {"running": true.queue + true.running}, serving=SLOW))
fault("running-one-too-many", "MS-MET-04", "While any runs, the running requests are one more.",
      _shown(lambda true: {"running": true.running + min(1, true.running)}), effect="warn")
fault("running-hundredfold", "MS-MET-04", "Each running request counts a hundred times.",
      _shown(lambda true: {"running": 100 * true.running}))
fault("kv-missing", "MS-MET-03", "The KV cache is not on the page.", _series(FaultType.MISSING, "kv"))
fault("kv-without-samples", "MS-MET-03", "The KV cache has HELP and TYPE only.",
      _series(FaultType.NO_SAMPLES, "kv"))
fault("kv-old-name", "MS-MET-03", "vLLM 0.8.5: the KV cache has its old name alone.",
      {"generation": "0.8.5", "adapters": ()}, effect="warn", claims={"adapters": []})
fault("kv-per-cent", "MS-MET-03", "The KV cache is a number of per cent.",
      _series(FaultType.VALUE, "kv", value="37"))
fault("kv-always-0", "MS-MET-03", "The KV cache is always empty.", pins={"kv": 0.0})
fault("kv-free", "MS-MET-03", "The gauge shows how much of the KV cache is free.",
      _shown(lambda true: {"kv": 1 - true.kv}))
fault("kv-always-1", "MS-MET-03", "The KV cache is always full, as it may be of what is kept for later prompts.",
      effect="warn", pins={"kv": 1.0})
fault("kv-flag", "MS-MET-03", "The KV cache is full while any request runs.",
      _shown(lambda true: {"kv": float(true.running > 0)}))
fault("kv-by-the-clock", "MS-MET-03", "The KV cache fills and empties with the clock.",
      pins={"kv": Ramp(start=0, stop=1, seconds=0.17, repeat=True)})
fault("kv-peak", "MS-MET-03", "The KV cache is as full as it ever was.", {"shown_as": _peak()}, effect="warn")
fault("kv-percent-of-a-fraction", "MS-MET-03", "The share of the KV cache is divided by 100.",
      _shown(lambda true: {"kv": true.kv / 100}))
fault("kv-percent-of-a-fraction-with-ranks", "MS-MET-03", "The same on a page with four data-parallel ranks.",
      _shown(lambda true: {"kv": true.kv / 100}, ranks=4, num_gpu_blocks=1024, serving=SLOW))
fault("blocks-0", "MS-MET-05", "The cache has no tokens in a block.",
      effect="warn", claims={"metrics": {"names": {"blockSize": ["vllm:num_requests_waiting"]}}})
fault("lora-missing", "MS-LORA-02", "The LoRA gauge is not there.", _series(FaultType.MISSING, "lora"))
fault("lora-summed", "MS-LORA-02", "Its value is the sum of two processes' times.",
      {"lora": LoraForm(processes=2)})
fault("lora-static", "MS-LORA-02", "Its value never changes.",
      _series(FaultType.VALUE, "lora", value="1600000000"),
      also={"MS-LORA-04": "none of its series is the newest"})
fault("lora-counter", "MS-LORA-02", "It is of TYPE counter.", _series(FaultType.TYPE, "lora", type="counter"))
fault("lora-without-max", "MS-LORA-03", "The label max_lora is missing.", {"lora": LoraForm(max_lora=False)})
fault("lora-max-too-low", "MS-LORA-03", "More adapters run than max_lora says.",
      _shown(lambda _: {"max_lora": 1, "stale_loras": ()}, serving=SLOW), effect="warn")
fault("lora-one-alone", "MS-LORA-03", "One adapter is never on the list of those that run.",
      {"shown_as": lambda true: _listing(true, running=set(true.running_loras) - {"tuned-b"}), "serving": SLOW})
fault("lora-in-turn", "MS-LORA-03", "Of the adapters that run only the first is on the list.",
      {"shown_as": lambda true: _listing(true, running=true.running_loras[:1])}, effect="warn")
fault("lora-semicolons", "MS-LORA-03", "Names are separated by semicolons.",
      {"shown_as": lambda true: _listing(true, running=filter(None, [";".join(true.running_loras)]))},
      also={"MS-LORA-04": "the newest series names none of them"})
fault("lora-none-waits", "MS-LORA-05", "The list of adapters that wait is always empty.",
      {"shown_as": lambda true: _listing(true, waiting=()), "serving": replace(SLOW, max_loras=1)})
fault("lora-newest-is-stale", "MS-LORA-04", "An old series has the largest value.",
      _fault(FaultType.STALE_SERIES, series=1, ahead=3600), effect="warn")
fault("lora-ties", "MS-LORA-04", "All its series have the same value.",
      _series(FaultType.VALUE, "lora", value=f"{time.time():.0f}"),
      also={"MS-LORA-02": "the value stays as it is when adapters change"}, effect="warn")
fault("lora-alike", "MS-LORA-05", "Both labels name every adapter in flight.",
      {"lora": LoraForm(alike=True)}, effect="warn")
fault("adapters-not-served", "MS-LORA-01", "Requests for adapters are refused as unknown.", {"adapters": ()},
      also={"MS-LORA-02": "none is ever in flight", "MS-LORA-03": "likewise",
            "MS-LORA-04": "likewise", "MS-LORA-05": "likewise"})
fault("prefix-cache-off", "MS-PFX-01", "Prompts are computed again.",
      {"page": "real", "serving": replace(SERVING, prefix_caching=False)}, effect="warn")

variant("right", "An ordinary vLLM 0.10.2.")
variant("real-page", "A page with all families of vLLM 0.10.2.", {"page": "real"})
variant("sglang", "SGLang: flat errors, any model served.",
        {"engine": Engine.SGLANG, "generation": None, "adapters": ()}, claims=_SGLANG)
variant("sglang-labels", "SGLang with the cache described by labels.",
        {"engine": Engine.SGLANG, "generation": "0.5.10", "adapters": ()}, claims=_SGLANG)
variant("one-adapter-at-a-time", "An adapter waits while another runs.", {"serving": replace(SLOW, max_loras=1)})
variant("ranks", "Three data-parallel ranks on one page.", {"ranks": 3})
variant("ranks-in-turn", "SGLang: three ranks, each with a cache for itself, take requests in turn.",
        {"engine": Engine.SGLANG, "generation": None, "page": "real", "adapters": (), "ranks": 3,
         "ranks_in_turn": True}, claims=_SGLANG)
variant("fast", "It answers at once and never queues.",
        {"serving": None, "adapters": ()}, claims={"adapters": []})
variant("few-wait", "Of ten requests at most two wait.",
        {"serving": replace(SLOW, max_running=8)}, claims={"limits": {"concurrency": 10, "tokens": 64}})
variant("queues-on-an-old-page", "Five of ten requests wait, on a page of the last second.",
        _fault(FaultType.FROZEN, "/metrics", interval=1000), {"serving": replace(SLOW, max_running=5)},
        claims={"limits": {"concurrency": 10}})
variant("details", "Errors have a `detail`, as Triton's frontend has them.", at_path(_C, gives_details))
variant("reasons", "Its model reasons, and has not begun to answer when the tokens are used up.",
        at_path(_T, thinks))
variant("ends-at-once", "Its model ends at once; a text without characters is null, as with SGLang.",
        saying(role="assistant", content=None))
variant("comments", "Comments stand between events.", _fault(FaultType.COMMENTS))
variant("short-prompts", "It refuses prompts of more than 600 words.", refuses_long_prompts(600))
variant("short-prompts-in-the-stream", "It refuses prompts of more than 600 words in a stream with status 200.",
        refuses_long_prompts(600, streamed=True))
variant("split-events", "Every event comes in two pieces.", _fault(FaultType.SPLIT))
variant("lora-once-a-second", "Its page is brought up to date once a second, and old series stay on it.",
        _fault(FaultType.FROZEN, "/metrics", interval=1000))
variant("counters-with-and-without-total", "A counter, and another whose name is that and _total.",
        _fault(FaultType.LINES, text="# TYPE extra counter\nextra 5\n# TYPE extra_total counter\nextra_total 3"))
variant("stale-lora-series", "Old series of adapters stay on the page.",
        _fault(FaultType.STALE_SERIES, series=200))
variant("vllm-0.33.0", "vllm 0.33.0, with all of its page.",
        {"engine": Engine.VLLM, "generation": "0.33.0", "page": "real", "adapters": ()}, claims=_VLLM)
variant("vllm-0.33.0-rust", "vllm 0.33.0-rust, with all of its page.",
        {"engine": Engine.VLLM, "generation": "0.33.0-rust", "page": "real", "adapters": ()}, claims=_VLLM)
variant("vllm-0.12.0", "vllm 0.12.0, with all of its page.",
        {"engine": Engine.VLLM, "generation": "0.12.0", "page": "real", "adapters": ()}, claims=_VLLM)
variant("sglang-0.5.8", "sglang 0.5.8, with all of its page.",
        {"engine": Engine.SGLANG, "generation": "0.5.8", "page": "real", "adapters": ()}, claims=_SGLANG)
