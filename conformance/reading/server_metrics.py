"""The metrics of one model server on its pages, by what they mean: `queued`, `running`, `kv_cache`, ….

Where the server says that it has LoRA adapters, their names in labels are read here, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from conformance.evidence.model_server import LoadPhase, MetricsPage, ModelServerFacts
from conformance.reading.metrics_page import MetricReading, MetricSample, Page, look_up, names_of, read_page, values_of
from conformance.scenario.model_server import Until
from conformance.scenario.server_stimulus import SHORT

BETWEEN = 2
"""Requests by which a count must be too high, at least: one may be between two states, and a probe may be one more."""

ONE = 1
"""What a gauge shows at most that says whether there is a request, and not how many."""

MOST_OF_THEM = 0.75
"""Share of the requests that wait, or run, that the gauge must show at some time: the others may be between states."""

ROOMY = 0.5
"""Share of the KV cache in use up to which no request that had begun has to wait again for want of room."""

PART = 0.05
"""Share of what prompts fill that the gauge of the KV cache must show: some models keep a part of the tokens only, and
vLLM that spreads a cache over ranks (decode context parallelism of 16) says the size of a rank's blocks."""

OFTEN = 0.1
"""Seconds between two scrapes, on average, up to which they are as frequent as they are meant to be, or nearly."""

LASTED = 3
"""Scrapes for which an answer lasts, on average, from which on what it shows can be expected to be seen."""

ERROR_EVENT = "error event"
"""How a refusal counts that is an event of a stream with status 200."""

REJECTED = ("400", "413", "422", ERROR_EVENT)
"""Refusals that may mean that a prompt is too long."""

TOGETHER = "together"
"""What is too high where `queued` and `running` are, taken together."""

MAX, RUNS, WAITS = "max_lora", "running_lora_adapters", "waiting_lora_adapters"
"""The labels of the LoRA gauge."""

_NO_COUNTS = ("kv_cache", "block_size")
"""What is the same kind of number for one rank and for all of them, so that it does not add up."""


def page_of(event: MetricsPage) -> Page:
    """What a scrape found; an empty page if there was none."""
    if event.outcome != "page" or event.status != 200:
        return Page(samples={}, types={})
    return read_page(event.body, event.content_type)


def too_few(scrapes: int, seconds: float, load: LoadPhase, ended: int) -> bool:
    """Whether so many scrapes in so many seconds of `load` tell too little of it, although answers lasted: `ended` so
    many. Of a server whose answers are over between two scrapes, more of them would tell nothing either."""
    return seconds > OFTEN * max(scrapes, 1) and load.level * scrapes >= LASTED * max(ended, 1)


def too_long(load: LoadPhase, finished: int, refused: Mapping[str, int]) -> bool:
    """Whether the server refuses the requests of `load` for their length, by the counts since it was raised: shorter
    prompts may be served."""
    rejected = sum(refused.get(name, 0) - load.refused.get(name, 0) for name in REJECTED)
    return load.words > SHORT and rejected >= load.level and rejected > finished - load.finished


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
        combine = "max" if meaning in _NO_COUNTS and facts.combine == "sum" else facts.combine
        return look_up(page, getattr(facts.names, meaning), match=facts.match, combine=combine)

    def value(self, page: Page, meaning: str) -> float | None:
        """What a metric amounts to; None if it is not there."""
        found = self.look_up(page, meaning)
        return found.value if found is not None else None

    def idle(self, page: Page) -> bool:
        """Whether nothing runs or waits, by the gauges that there are."""
        return not any((self.value(page, meaning) or 0) > 0 for meaning in ("queued", "running"))

    def overstated(self, event: MetricsPage, load: LoadPhase) -> frozenset[str]:
        """Which of `queued` and `running` are more than can be, of all that was in flight at a time under `load`; or
        `TOGETHER`, as one of them counts what the other counts, too.

        Where there are several series each is taken by itself: ranks may show theirs at different times.
        """
        page = page_of(event)
        most = {name: max(self._series(page, name), default=0.0) for name in ("queued", "running")}
        found = {name for name, value in most.items() if value - load.level >= BETWEEN}
        if self.beyond(event, load) >= BETWEEN:
            found.add(TOGETHER)
        used = self.value(page, "kv_cache")
        full = used is None or used >= ROOMY  # in a full cache, what had begun may have to wait again
        if self.overlong(event) >= BETWEEN and not full:
            found.add("queued")
        return frozenset(found)

    def beyond(self, event: MetricsPage, load: LoadPhase) -> float:
        """By how many what waits and what runs are more than what was in flight; 0 where there are several series."""
        found = [self._series(page_of(event), name) for name in ("queued", "running")]
        return sum(map(sum, found)) - load.level if all(len(one) == 1 for one in found) else 0.0

    def overlong(self, event: MetricsPage) -> float:
        """By how many the longest queue is longer than what had not begun at a scrape."""
        return max(self._series(page_of(event), "queued"), default=0.0) - (event.most - event.begun)

    def understated(self, event: MetricsPage) -> frozenset[str]:
        """Which of `queued` and `running` show a part of the requests that there are, or none.

        Nothing is said where a part of the series counts, or may: of the others nothing is known. What had begun may
        have to wait again in a full cache.
        """
        page = page_of(event)
        queued, running, used = (self.value(page, name) for name in ("queued", "running", "kv_cache"))
        if self.facts.match or self.facts.combine != "sum" or running is None:
            return frozenset()
        found = set()
        wait = event.sent - max(event.begun, running)
        if queued is not None and wait >= ONE + BETWEEN and queued <= wait * MOST_OF_THEM and wait - queued >= BETWEEN:
            found.add("queued")
        a_part = running <= event.begun * MOST_OF_THEM and event.begun - running >= BETWEEN
        if a_part and event.begun >= ONE + BETWEEN and used is not None and used < ROOMY:
            found.add("running")
        return frozenset(found)

    def waiting(self, event: MetricsPage) -> float | None:
        """Requests that waited all through a scrape, at least: the rest had begun, or runs by the gauge."""
        runs = self.value(page_of(event), "running")
        return None if runs is None else event.sent - max(event.begun, runs)

    def _series(self, page: Page, meaning: str) -> tuple[float, ...]:
        found = self.look_up(page, meaning)
        return values_of(found.samples) if found is not None else ()

    def doubtful(self, event: MetricsPage, load: LoadPhase, until: Until) -> bool:
        """Whether the gauges that `load` is raised for show what can hardly be: load is held on until they don't."""
        match until:
            case "queued":
                more = self.beyond(event, load) >= ONE and (self.value(page_of(event), "queued") or 0) > 0
                return more or bool(self.overstated(event, load) or self.understated(event))
            case "one-runs":
                more = (self.value(page_of(event), "running") or 0) > load.level
                return more or bool(self.overstated(event, load) or self.understated(event))
            case "kv-cache":
                page = page_of(event)
                capacity = self.capacity(page)
                least = event.begun * load.words / capacity * PART if capacity else 0.0
                return (self.value(page, "kv_cache") or 0.0) < least
            case "adapters":
                page = page_of(event)
                return self.crowd(page) is not None or self.outdated(page)

    def engines(self, page: Page) -> int:
        """How many engines are behind the page, by the series that count what runs."""
        found = self.look_up(page, "running")
        return len(found.samples) if found is not None else 0

    def crowd(self, page: Page) -> tuple[int, int] | None:
        """How many adapters the newest series names that run, and the most that it says can, if those are fewer.

        Several engines together may have more. One that writes all of them into both lists tells nothing.
        """
        found = self.look_up(page, "lora")
        if found is None or not found.samples or self.engines(page) != 1:
            return None
        newest = max(found.samples, key=lambda sample: sample.value)
        names, most = len(adapters_of(newest, RUNS) - adapters_of(newest, WAITS)), newest.labels.get(MAX, "")
        return (names, int(most)) if most.isdecimal() and names > int(most) else None

    def outdated(self, page: Page) -> bool:
        """Whether the newest series names no adapter, although another one does: so it is for a moment between two
        answers, and on a page that is brought up to date seldom for longer."""
        found = self.look_up(page, "lora")
        ones = sorted(found.samples if found is not None else (), key=lambda sample: sample.value)
        named = [set(self.facts.adapters) & (adapters_of(one, RUNS) | adapters_of(one, WAITS)) for one in ones]
        return any(named) and not named[-1]

    def capacity(self, page: Page) -> float | None:
        """Tokens that the KV cache takes, at most; None if the page does not say it."""
        size, count = self.value(page, "block_size"), self.value(page, "blocks")
        return size * count if size and count else None

    def shows(self, event: MetricsPage, load: LoadPhase, until: Until, before: Page) -> bool:
        """Whether a page under `load` shows what it was raised for; `before` is the page of the idle server.

        A queue shows when it is long enough to tell a count of it from whether there is one, or can hardly be.
        """
        page = page_of(event)
        match until:
            case "queued":
                queued = self.value(page, "queued") or 0
                return queued >= ONE + BETWEEN or (queued > 0 and self.doubtful(event, load, until))
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
