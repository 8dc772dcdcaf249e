"""Families of a page, and their samples in the Prometheus text format and in OpenMetrics.

Rendered by hand: prometheus-client takes many times as long, and a fleet is scraped thousands of times a second.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from fake_modelserver.engines.statistics import Statistics
from fake_modelserver.gauges import Gauges

Meaning = Literal["queue", "running", "kv", "lora", "cache"]
"""What a metric means, whatever its engine calls it."""

Labels = dict[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What never changes on a pod's page: label values, and the size of the KV cache in blocks of tokens.

    `first_rank` is the number of the first of the `ranks` on the page; each rank has `num_gpu_blocks`.
    """

    model_name: str = "fake-model"
    first_rank: int = 0
    ranks: int = 1
    block_size: int = 16
    num_gpu_blocks: int = 2048


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Family:
    """A family of metrics; `name` is that of its TYPE line in the text format (a counter's ends in `_total`).

    A gauge is read by `gauge` from the load of a rank, by `constant` from the pod's identity, or is 0; a counter or a
    histogram is the `statistic` of that name. `label` is a further label of a counter, and its values. `bare`: without
    the labels that the series of a rank have; `process`: one series for all ranks; `minimal`: on the minimal
    page too, or only there.
    """

    name: str
    help: str
    kind: Literal["gauge", "counter", "histogram"] = "gauge"
    meaning: Meaning | None = None
    minimal: bool | Literal["only"] = False
    gauge: Callable[[Identity, Gauges], Iterable[Sample]] | None = None
    constant: Callable[[Identity], Iterable[Sample]] | None = None
    statistic: str = ""
    label: tuple[str, tuple[str, ...]] | None = None
    bounds: tuple[float, ...] = ()
    bare: bool = False
    process: bool = False

    def header(self, *, openmetrics: bool = False) -> list[str]:
        """The HELP and TYPE lines."""
        name = self.name.removesuffix("_total") if openmetrics and self.kind == "counter" else self.name
        return [f"# HELP {name} {_escape_help(self.help)}", f"# TYPE {name} {self.kind}"]

    def samples(self, identity: Identity, gauges: Gauges, labels: Labels) -> list[str]:
        """The lines of a gauge for one rank."""
        if self.gauge is not None:
            found = self.gauge(identity, gauges)
        else:
            found = self.constant(identity) if self.constant is not None else [({}, 0)]
        own = {} if self.bare else labels
        return [line(self.name, own | extra, value) for extra, value in found]

    def counted(self, statistics: Statistics, labels: Labels, *, touched: bool) -> list[str]:
        """The lines of a counter or histogram for one rank; with `touched` only those that are above zero."""
        own = {} if self.bare else labels
        if self.kind == "histogram":
            if touched and not statistics.histogram(self.statistic, self.bounds).count:
                return []
            return list(self._buckets(statistics, own))
        key, values = self.label or ("", ("",))
        found = [({key: value} if key else {}, statistics.counter(self.statistic, value)) for value in values]
        return [line(self.name, own | extra, value) for extra, value in found if value or not touched]

    def _buckets(self, statistics: Statistics, labels: Labels) -> Iterator[str]:
        histogram = statistics.histogram(self.statistic, self.bounds)
        below = 0
        before, after = _around("le", labels)
        for bound, count in zip((*self.bounds, math.inf), histogram.counts, strict=True):
            below += count
            yield f'{self.name}_bucket{{{before}le="{number(bound)}"{after}}} {number(below)}'
        yield line(f"{self.name}_count", labels, below)
        yield line(f"{self.name}_sum", labels, histogram.sum)


def line(name: str, labels: Labels, value: float) -> str:
    """One sample; labels in the order of their names, as the Python client prints them."""
    return f"{name}{{{_listed(labels)}}} {number(value)}" if labels else f"{name} {number(value)}"


def number(value: float) -> str:
    """`value` as a Go or Python client writes it."""
    value = float(value)
    if value != value or value in (math.inf, -math.inf):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    dot = text.find(".")
    if value > 0 and dot > 6:  # with an exponent
        digits = (text[:dot] + text[dot + 1 :]).rstrip("0")
        return f"{digits[0]}{digits[1:] and '.' + digits[1:]}e+{dot - 1:02d}"
    return text


def _around(name: str, labels: Labels) -> tuple[str, str]:
    """The labels that stand before and after `name`."""
    before = _listed({key: value for key, value in labels.items() if key < name})
    after = _listed({key: value for key, value in labels.items() if key > name})
    return before and before + ",", after and "," + after


def _listed(labels: Labels) -> str:
    return ",".join([f'{name}="{_escape(labels[name])}"' for name in sorted(labels)])


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
