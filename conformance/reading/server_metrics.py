"""The metrics of one model server on its pages, by what they mean: `queued`, `running`, `kv_cache`, ….

Where the server says that it has LoRA adapters, their names in labels are read here, too.
"""

from __future__ import annotations

from dataclasses import fields

from conformance.evidence.model_server import MetricsPage, ModelServerFacts
from conformance.reading.metrics_page import MetricReading, MetricSample, Page, look_up, names_of, read_page
from conformance.scenario.model_server import Until

MAX, RUNS, WAITS = "max_lora", "running_lora_adapters", "waiting_lora_adapters"
"""The labels of the LoRA gauge."""


def page_of(event: MetricsPage) -> Page:
    """What a scrape found; an empty page if there was none."""
    if event.outcome != "page" or event.status != 200:
        return Page(samples={}, types={})
    return read_page(event.body, event.content_type)


class ServerMetrics:
    """Looks metrics up as the profile maps them."""

    def __init__(self, facts: ModelServerFacts) -> None:
        self.facts = facts

    @property
    def families(self) -> frozenset[str]:
        """The names of all families that have one of them."""
        names = self.facts.names
        return names_of(text for one in fields(names) for text in getattr(names, one.name))

    def look_up(self, page: Page, meaning: str) -> MetricReading | None:
        """A metric on the page; None if the page has none of its names."""
        facts = self.facts
        combine = "max" if meaning == "kv_cache" and facts.combine == "sum" else facts.combine
        return look_up(page, getattr(facts.names, meaning), match=facts.match, combine=combine)

    def value(self, page: Page, meaning: str) -> float | None:
        """What a metric amounts to; None if it is not there."""
        found = self.look_up(page, meaning)
        return found.value if found is not None else None

    def idle(self, page: Page) -> bool:
        """Whether nothing runs or waits, by the gauges that there are."""
        return not any((self.value(page, meaning) or 0) > 0 for meaning in ("queued", "running"))

    def shows(self, page: Page, until: Until, before: Page) -> bool:
        """Whether the page shows what load was raised for; `before` is the page of the idle server."""
        match until:
            case "queued":
                return (self.value(page, "queued") or 0) > 0
            case "one-runs":
                return (self.value(page, "running") or 0) > 0
            case "kv-cache":
                return (self.value(page, "kv_cache") or 0.0) > (self.value(before, "kv_cache") or 0.0)
            case "adapters":
                found = self.look_up(page, "lora")
                samples = found.samples if found is not None else ()
                return set(self.facts.adapters) <= {name for one in samples for name in adapters_of(one, RUNS)}


def adapters_of(sample: MetricSample, label: str) -> set[str]:
    """The adapters that a label lists; blanks around them do not count."""
    return {name.strip() for name in sample.labels.get(label, "").split(",") if name.strip()}
