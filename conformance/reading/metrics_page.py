"""A page of metrics as EPPs and Prometheus read it: families with their samples, and what is wrong with the text.

    page = read_page(body, content_type)
    found = look_up(page, ('vllm:num_requests_waiting',), match={}, combine="sum")

The text is parsed by `prometheus_client.parser`, which is more lenient than the parser that EPPs have (the one of Go's
`expfmt`): what that one refuses is in `Page.problems`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

TYPES = ("counter", "gauge", "histogram", "summary", "untyped", "gaugehistogram")
_SELECTOR = re.compile(r"([^{@]+)(?:\{([^}]*)\})?(?:@(\w+))?")
_PAIR = re.compile(r'(\w+)\s*=\s*"([^"]*)"')
_COMMENT = re.compile(r"[ \t]*#[ \t]*(HELP|TYPE)[ \t]+(\S+)[ \t]*(.*)")
_COUNTER = re.compile(r"^([ \t]*#[ \t]*TYPE[ \t]+\S+[ \t]+)counter", re.MULTILINE)
_TYPE = re.compile(rb"[ \t]*#[ \t]*TYPE[ \t]+(\S+)[ \t]*(\S*)")
_NAME = re.compile(r"[a-zA-Z_:][\w:]*", re.ASCII)
_SAMPLE = re.compile(
    r"""[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)[ \t]*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\}[ \t]*)?([^\s{]\S*)(.*)"""
)
_LABEL = re.compile(r"""(\w+)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)\"""")
_ESCAPE = re.compile(r"\\(.)")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_BOUNDS = {"histogram": "le", "gaugehistogram": "le", "summary": "quantile"}
"""The labels that have a number, by TYPE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSample:
    """One line: the labels of its series and its value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page says. `types` are the TYPE lines by name as written; `problems` what a strict reader refuses."""

    samples: Mapping[str, tuple[MetricSample, ...]]
    types: Mapping[str, str]
    problems: tuple[str, ...] = ()

    def type_of(self, name: str) -> str:
        """The TYPE of the family that has samples of this name; empty if it says none."""
        return self.types.get(name) or self.types.get(name.removesuffix("_total"), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricReading:
    """A metric on a page: by which of the alternative names, its TYPE, its series, and what they amount to.

    `texts` are the values as labels have them, where a label has the value; `value` is None if there is no number.
    """

    selector: str
    type: str
    samples: tuple[MetricSample, ...]
    value: float | None
    texts: tuple[str, ...] = ()


def is_openmetrics(content_type: str) -> bool:
    """Whether a page is in the OpenMetrics format, by its content type."""
    return "openmetrics" in content_type.lower()


@lru_cache(maxsize=64)
def read_page(body: bytes, content_type: str = "") -> Page:
    """The page in `body`. A page that can't be parsed at all has no samples, and a problem that says why."""
    try:
        text = body.decode()
    except UnicodeDecodeError as problem:
        return Page(
            samples={}, types={}, problems=(f"it is not UTF-8: byte {problem.start} is {body[problem.start]:#x}",)
        )
    openmetrics = is_openmetrics(content_type)
    types, problems = _comments(text, openmetrics=openmetrics)
    found: dict[str, list[MetricSample]] = {}
    families: Iterable[Any] = (parse_openmetrics if openmetrics else _text_families)(text)
    try:
        for family in families:
            for one in family.samples:
                found.setdefault(one.name, []).append(
                    MetricSample(name=one.name, labels=one.labels, value=float(one.value))
                )
    except (ValueError, KeyError, IndexError, TypeError) as problem:
        if openmetrics and (retry := _as_text(text)) is not None:  # readers of text take what has an # EOF, too
            found = retry
        else:
            return Page(samples={}, types={}, problems=(f"it can't be parsed: {problem}", *problems))
    return Page(samples={name: tuple(ones) for name, ones in found.items()}, types=types, problems=tuple(problems))


def _text_families(text: str) -> Iterable[Any]:
    """The families of the text format. Of a counter the parser would give `x` the name `x_total`, which may be there,
    too, and is another one: a gauge keeps its name."""
    return parse_text(_COUNTER.sub(r"\1gauge", text))


def _as_text(text: str) -> dict[str, list[MetricSample]] | None:
    found: dict[str, list[MetricSample]] = {}
    try:
        for family in _text_families(text):
            for one in family.samples:
                found.setdefault(one.name, []).append(
                    MetricSample(name=one.name, labels=one.labels, value=float(one.value))
                )
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return found


def _comments(text: str, *, openmetrics: bool) -> tuple[dict[str, str], list[str]]:
    """The TYPE lines, and what Go's text parser refuses."""
    types: dict[str, str] = {}
    helped: set[str] = set()
    begun: set[str] = set()
    problems: list[str] = []
    if text and not text.endswith("\n"):
        problems.append("the last line has no end")
    if "\r\n" in text:
        problems.append("lines end with a carriage return")
    for line in text.split("\n"):
        if not openmetrics and (sample := _SAMPLE.fullmatch(line)) and (problem := _refused(sample, types)):
            problems.append(problem)
        comment = _COMMENT.fullmatch(line)
        if comment is None:
            if name := _NAME.match(line.lstrip(" \t")):
                begun.add(name[0])
            continue
        kind, name_, rest = comment.groups()
        if kind == "HELP":
            if name_ in helped:
                problems.append(f"a second HELP of {name_}")
            if not openmetrics and (wrong := _no_escape(rest)):
                problems.append(f"\\{wrong}, in the HELP of {name_}, is no escape of the text format")
            helped.add(name_)
            continue
        if name_ in types:
            problems.append(f"a second TYPE of {name_}")
        elif name_ in begun:
            problems.append(f"the TYPE of {name_} comes after its samples")
        if rest not in TYPES and not openmetrics:
            problems.append(f"{rest!r}, the TYPE of {name_}, is none of the text format")
        types[name_] = rest
    return types, problems


def _refused(sample: re.Match[str], types: Mapping[str, str]) -> str:
    """What Go's text parser refuses in a line that the other takes; empty if nothing. `types` came before it."""
    name, inside, _, more = sample.groups()
    timestamp, *rest = more.split() or ["0"]
    if more.endswith((" ", "\t")):
        return f"a blank ends the line of {name}"
    if not _INTEGER.fullmatch(timestamp):
        return f"{timestamp!r}, the timestamp of {name}, is no whole number"
    if rest:
        return f"{rest[0]!r} follows the timestamp of {name}"
    bound = _BOUNDS.get(types.get(name) or types.get(re.sub("_(bucket|count|sum)$", "", name), ""))
    for label, text in _LABEL.findall(inside or ""):
        if wrong := _no_escape(text):
            return f"\\{wrong}, in the label {label} of {name}, is no escape of the text format"
        if label == bound and (_number(text) is None or re.search(r"[\s_]", text)):
            return f"{text!r}, the label {label} of {name}, is no number"
    return ""


def _no_escape(text: str) -> str:
    """What follows a backslash and makes no escape of the text format with it; empty if nothing."""
    return next((one for one in _ESCAPE.findall(text) if one not in '\\"n'), "")


def names_of(selectors: Iterable[str]) -> frozenset[str]:
    """The names of the families that selectors look for."""
    return frozenset(match[1] for text in selectors if (match := _SELECTOR.fullmatch(text)))


def look_up(
    page: Page, selectors: Sequence[str], *, match: Mapping[str, str], combine: str = "sum"
) -> MetricReading | None:
    """The first of the alternative metrics that the page has, or else of which it has the TYPE; None if it has none.

    `match` are labels that a series must have, `combine` is what several series amount to: `sum`, `max`, `first`.
    """
    empty: MetricReading | None = None
    for selector in selectors:
        parts = _SELECTOR.fullmatch(selector)
        assert parts is not None, "the profile checks its selectors"
        name, labels, label = parts[1], dict(_PAIR.findall(parts[2] or "")), parts[3]
        wanted = {**match, **labels}
        every = page.samples.get(name, ())
        samples = tuple(one for one in every if _has(one, wanted)) or tuple(one for one in every if _has(one, labels))
        texts = tuple(one.labels[label] for one in samples if label in one.labels) if label else ()
        numbers = tuple(number for text in texts if (number := _number(text)) is not None)
        reading = MetricReading(
            selector=selector,
            type=page.type_of(name),
            samples=samples,
            value=_combined(numbers if label else values_of(samples), combine),
            texts=texts,
        )
        if samples:
            return reading
        if empty is None and name in page.types:
            empty = reading
    return empty


def _has(sample: MetricSample, wanted: Mapping[str, str]) -> bool:
    return all(sample.labels.get(name) == value for name, value in wanted.items())


def values_of(samples: Iterable[MetricSample]) -> tuple[float, ...]:
    """The values of series. One engine shows the total beside its parts, by the label `priority`: then the total."""
    ones = list(samples)
    totals = tuple(one.value for one in ones if one.labels.get("priority") == "")
    return totals or tuple(one.value for one in ones)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _combined(values: Sequence[float], combine: str) -> float | None:
    if not values:
        return None
    match combine:
        case "sum":
            return sum(values)
        case "max":
            return max(values)
        case _:
            return values[0]


def excerpt(body: bytes, names: Collection[str]) -> bytes:
    """The lines of a page that are about the families `names`, and about counters, as they stand there."""
    return b"".join(_kept(body, {name.encode() for name in names}))


def _kept(body: bytes, names: set[bytes]) -> Iterator[bytes]:
    wanted = set(names)
    for line in re.findall(rb"[^\n]*\n|[^\n]+", body):
        if comment := _TYPE.match(line):
            name, kind = comment.groups()
            if kind == b"counter":
                wanted |= {name, name + b"_total"}
            if name in wanted:
                yield line
        elif line.startswith(b"# EOF") or re.split(rb"[{\s]", line.lstrip(b" \t"), maxsplit=1)[0] in wanted:
            yield line
