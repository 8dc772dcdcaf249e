"""Which faults there are: by name, with their attributes. Names and units of lines are toxiproxy's.

One table: it checks a fault, is the schema of the control endpoint, and what help texts are made from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

Stage = Literal["pod", "line", "answer", "page", "stream"]
"""What a fault befalls: the pod as a whole, the bytes of a response, the answer, the page, a stream of events."""


class FaultType(StrEnum):
    """The faults; `KINDS` says what each does."""

    DOWN = "down"
    LATENCY = "latency"
    BANDWIDTH = "bandwidth"
    SLOW_CLOSE = "slow_close"
    TIMEOUT = "timeout"
    RESET_PEER = "reset_peer"
    SLICER = "slicer"
    LIMIT_DATA = "limit_data"

    STATUS = "status"
    REDIRECT = "redirect"
    HTML = "html"
    JSON = "json"
    CONTENT_TYPE = "content_type"
    ENDLESS = "endless"

    EMPTY = "empty"
    NO_SAMPLES = "no_samples"
    HALF = "half"
    NO_NEWLINE = "no_newline"
    CRLF = "crlf"
    GARBAGE = "garbage"
    VALUE = "value"
    TYPE = "type"
    MISSING = "missing"
    RENAMED = "renamed"
    DUPLICATE = "duplicate"
    SECOND_HEADER = "second_header"
    STALE_SERIES = "stale_series"
    LINES = "lines"
    FROZEN = "frozen"
    PACKED = "packed"

    CUT = "cut"
    SPLIT = "split"
    MERGE = "merge"
    NO_DONE = "no_done"
    COMMENTS = "comments"
    ERROR_EVENT = "error_event"
    ABORT = "abort"
    CHUNKS = "chunks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """An attribute of a fault: a number or whole number from `least` to `most`, a text, one of `choices`, or names."""

    about: str
    default: Any
    least: float = 0
    most: float = 3_600_000
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> Any:
        """`value` as it is used. Raises `ValueError`, which says what it may be."""
        if self.choices:
            if value not in self.choices:
                raise ValueError(f"{name} is {value!r}; it is one of {', '.join(self.choices)}")
            return value
        match self.default:
            case tuple():
                if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
                    return tuple(value)
                raise ValueError(f"{name} is {value!r}; it is a list of names")
            case str():
                if isinstance(value, str):
                    return value
                raise ValueError(f"{name} is {value!r}; it is a text")
        whole = isinstance(self.default, int)
        right = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not right or math.isnan(value) or not self.least <= value <= self.most:
            kind = "whole number" if whole else "number"
            raise ValueError(f"{name} is {value!r}; it is a {kind} from {self.least:g} to {self.most:g}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault: what it does, at which stage, and its attributes."""

    about: str
    stage: Stage
    attributes: Mapping[str, Attribute]


def _kind(stage: Stage, about: str, **attributes: Attribute) -> Kind:
    return Kind(about=about, stage=stage, attributes=MappingProxyType(attributes))


def _milliseconds(about: str, default: int) -> Attribute:
    return Attribute(about=f"{about}, milliseconds", default=default)


_FAMILIES = Attribute(
    about="families by meaning (queue, running, kv, lora, cache) or by name; none: the gauges of load", default=()
)
_EVENTS = Attribute(about="after so many events", default=1, most=1_000_000)

KINDS: Mapping[FaultType, Kind] = MappingProxyType(
    {
        FaultType.DOWN: _kind("pod", "Connections are refused."),
        FaultType.LATENCY: _kind(
            "line",
            "The response begins late.",
            latency=_milliseconds("how late", 1000),
            jitter=_milliseconds("more or less by up to", 0),
            per_running=Attribute(about="milliseconds more for each request that runs", default=0.0),
        ),
        FaultType.BANDWIDTH: _kind(
            "line",
            "The response comes slowly.",
            rate=Attribute(about="kilobytes a second", default=1.0, least=0.001, most=1e6),
        ),
        FaultType.SLOW_CLOSE: _kind(
            "line", "The connection is closed after the response, but late.", delay=_milliseconds("how late", 1000)
        ),
        FaultType.TIMEOUT: _kind(
            "line",
            "Nothing arrives, and the connection is closed later, or when the fault goes.",
            timeout=_milliseconds("closed after; 0: when the fault goes", 0),
            bytes=Attribute(about="bytes of the response that arrive first", default=0, most=1e9),
        ),
        FaultType.RESET_PEER: _kind(
            "line", "The connection is reset instead of an answer.", timeout=_milliseconds("reset after", 0)
        ),
        FaultType.SLICER: _kind(
            "line",
            "The response comes in small pieces, which split events and characters.",
            average_size=Attribute(about="bytes of a piece", default=64, least=1, most=1e6),
            size_variation=Attribute(about="bytes more or less, below average_size", default=0, most=1e6),
            delay=Attribute(about="microseconds between pieces", default=0, most=1e9),
        ),
        FaultType.LIMIT_DATA: _kind(
            "line",
            "The connection is closed inside the response.",
            bytes=Attribute(about="bytes of the response that arrive", default=100, most=1e9),
        ),
        FaultType.STATUS: _kind(
            "answer",
            "An error in the form of the engine.",
            status=Attribute(about="status code", default=500, least=400, most=599),
        ),
        FaultType.REDIRECT: _kind(
            "answer", "A redirect (307).", location=Attribute(about="where to", default="/elsewhere")
        ),
        FaultType.HTML: _kind("answer", "A page of HTML with status 200."),
        FaultType.JSON: _kind("answer", "An empty JSON list with status 200."),
        FaultType.CONTENT_TYPE: _kind(
            "answer", "Another content type.", type=Attribute(about="which; empty: none", default="text/html")
        ),
        FaultType.ENDLESS: _kind("answer", "The body is repeated without end."),
        FaultType.EMPTY: _kind("page", "A page without a byte."),
        FaultType.NO_SAMPLES: _kind("page", "HELP and TYPE without samples.", families=_FAMILIES),
        FaultType.HALF: _kind(
            "page",
            "The page ends inside a line.",
            share=Attribute(about="share of the bytes that are there", default=0.5, most=1),
        ),
        FaultType.NO_NEWLINE: _kind("page", "The last line has no end."),
        FaultType.CRLF: _kind("page", "Lines end as those of HTTP."),
        FaultType.GARBAGE: _kind("page", "Neither text format nor UTF-8."),
        FaultType.VALUE: _kind(
            "page",
            "Gauges have this value.",
            value=Attribute(about="as it is written: NaN, -1, 1.5, +Inf, 1e300", default="NaN"),
            families=_FAMILIES,
        ),
        FaultType.TYPE: _kind(
            "page",
            "Families have another TYPE.",
            type=Attribute(about="counter, untyped, info, …; empty: no TYPE line", default="counter"),
            families=_FAMILIES,
        ),
        FaultType.MISSING: _kind("page", "Families are left out.", families=_FAMILIES),
        FaultType.RENAMED: _kind(
            "page",
            "Families have another name.",
            suffix=Attribute(about="what stands after the name", default="_v2"),
            families=_FAMILIES,
        ),
        FaultType.DUPLICATE: _kind(
            "page",
            "A series comes twice, with the same labels.",
            value=Attribute(about="value of the second; empty: the same", default=""),
            families=_FAMILIES,
        ),
        FaultType.SECOND_HEADER: _kind("page", "HELP and TYPE come once more after the samples.", families=_FAMILIES),
        FaultType.STALE_SERIES: _kind(
            "page",
            "Old series of the LoRA metric were never removed.",
            series=Attribute(about="how many", default=2000, most=100_000),
            ahead=Attribute(about="seconds by which their values are ahead of the clock; 0: they are old", default=0),
        ),
        FaultType.LINES: _kind(
            "page",
            "Further lines stand at the end of the page.",
            text=Attribute(about="the lines", default="extra 1 1700000000.5"),
        ),
        FaultType.FROZEN: _kind(
            "page",
            "The page stays as it was when the fault came.",
            interval=_milliseconds("it is brought up to date every so many; 0: never", 0),
        ),
        FaultType.PACKED: _kind(
            "page",
            "The page is packed wrongly for clients that take gzip.",
            how=Attribute(
                about="it says gzip and is plain, ends too early, or does not say that it is gzip",
                default="plain",
                choices=("plain", "cut", "unsaid"),
            ),
        ),
        FaultType.CUT: _kind("stream", "The connection ends inside an event.", events=_EVENTS),
        FaultType.SPLIT: _kind(
            "stream",
            "Every event comes in two pieces.",
            inside=Attribute(
                about="where: in the middle, or inside a character of several bytes where there is one",
                default="event",
                choices=("event", "character"),
            ),
        ),
        FaultType.MERGE: _kind(
            "stream",
            "Several events come in one piece.",
            events=Attribute(about="how many", default=3, least=2, most=1000),
        ),
        FaultType.NO_DONE: _kind("stream", "The last event, [DONE], is missing."),
        FaultType.COMMENTS: _kind(
            "stream",
            "A comment stands before every event.",
            text=Attribute(about="the comment", default="keep-alive"),
        ),
        FaultType.ERROR_EVENT: _kind("stream", "An error follows, then [DONE].", events=_EVENTS),
        FaultType.ABORT: _kind("stream", "Requests end with finish_reason abort.", events=_EVENTS),
        FaultType.CHUNKS: _kind(
            "stream",
            "The chunks of a stream are each right, and together wrong.",
            how=Attribute(
                about="a chunk or no empty line after [DONE], a finish_reason in all or in two, an id or an index for "
                "each, text repeated, missing, or beside an empty delta",
                default="after-done",
                choices=(
                    "after-done",
                    "unended",
                    "all-finish",
                    "two-finish",
                    "new-ids",
                    "indices",
                    "repeated",
                    "no-text",
                    "beside",
                ),
            ),
        ),
    }
)
"""Every fault with what it does."""
