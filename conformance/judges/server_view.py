"""What judges of role model-server look at: each request with its answer, and each page with the load behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

from conformance.evidence.model_server import LoadPhase, MetricsPage, ModelServerFacts, ServerAnswered, ServerAsked
from conformance.judges.episode_facts import EpisodeFacts
from conformance.judges.findings import violation
from conformance.printable import plural, printable
from conformance.reading.metrics_page import MetricReading, Page
from conformance.reading.server_answer import ServerAnswer
from conformance.reading.server_metrics import ServerMetrics, page_of, too_few, too_long
from conformance.verdict import Finding, Nature, Verdict


@dataclass(frozen=True, kw_only=True)
class ServerExchange:
    """One request to the API, at entry `at`, and its answer; `answer` is None if the record ends before it."""

    exchange: str
    at: int
    asked: ServerAsked
    answer: ServerAnswer | None

    def describe(self) -> str:
        """What came back, in words."""
        return self.answer.describe() if self.answer is not None else "no answer"

    def fail(
        self, requirement: str, expected: str, actual: str, *, hint: str = "", verdict: Verdict = Verdict.FAIL
    ) -> Finding:
        """A violation in this exchange."""
        return violation(requirement, expected, actual, exchange=self.exchange, seq=self.at, hint=hint, verdict=verdict)


@dataclass(frozen=True, kw_only=True)
class Scraped:
    """One scrape at entry `at`, `t` nanoseconds into the record, in a phase of the load (None: before any)."""

    at: int
    t: int
    event: MetricsPage
    load: LoadPhase | None

    @cached_property
    def page(self) -> Page:
        """What the page says; nothing if there was none."""
        return page_of(self.event)

    @property
    def readable(self) -> bool:
        """Whether there was a page that could be read."""
        unread = any(one.startswith(("it can't", "it is not UTF-8")) for one in self.page.problems)
        return self.event.outcome == "page" and self.event.status == 200 and not unread

    @property
    def loaded(self) -> bool:
        """Whether the suite's load was on, and not yet released."""
        return self.load is not None and self.load.phase == "raised"


class ServerView:
    """The episode of a model server."""

    def __init__(self, facts: EpisodeFacts) -> None:
        self._facts = facts
        self.claims: ModelServerFacts = facts.context.model_server or ModelServerFacts()
        self.metrics = ServerMetrics(self.claims)

    @cached_property
    def exchanges(self) -> tuple[ServerExchange, ...]:
        """Every request to the API, in order."""
        answers = {event.exchange: event for _, event in self._facts.episode.of(ServerAnswered)}
        return tuple(
            ServerExchange(
                exchange=asked.exchange or "",
                at=entry.seq,
                asked=asked,
                answer=ServerAnswer(event=answers[asked.exchange]) if asked.exchange in answers else None,
            )
            for entry, asked in self._facts.episode.of(ServerAsked)
        )

    @cached_property
    def pages(self) -> tuple[Scraped, ...]:
        """Every scrape, in order."""
        found: list[Scraped] = []
        load: LoadPhase | None = None
        for entry in self._facts.episode.entries:
            match entry.event:
                case LoadPhase() as now:
                    load = now
                case MetricsPage() as event:
                    found.append(Scraped(at=entry.seq, t=entry.t, event=event, load=load))
        return tuple(found)

    @cached_property
    def readable(self) -> tuple[Scraped, ...]:
        """The scrapes with a page that could be read."""
        return tuple(one for one in self.pages if one.readable)

    @cached_property
    def phases(self) -> tuple[LoadPhase, ...]:
        """The phases of the load, in order."""
        return tuple(event for _, event in self._facts.episode.of(LoadPhase))

    def phase(self, name: str) -> LoadPhase | None:
        """The last phase of that name; None if there was none."""
        return next((one for one in reversed(self.phases) if one.phase == name), None)

    @cached_property
    def capacity(self) -> float | None:
        """Tokens that the KV cache takes, at most; None if no page says it."""
        return next((found for one in self.readable if (found := self.metrics.capacity(one.page))), None)

    @property
    def words(self) -> int:
        """Words of each prompt of the load; 0 if there was none."""
        raised = self.phase("raised")
        return raised.words if raised is not None else 0

    @cached_property
    def too_few(self) -> str:
        """How few pages there were in the time of a level of load, in words; empty if there were enough."""
        entries = [one for one in self._facts.episode.entries if isinstance(one.event, LoadPhase | MetricsPage)]
        marks = [number for number, one in enumerate(entries) if isinstance(one.event, LoadPhase)]
        for begin, end in pairwise(marks):
            load, after = entries[begin].event, entries[end].event
            assert isinstance(load, LoadPhase)
            assert isinstance(after, LoadPhase)
            scrapes = sum(1 + one.event.same for one in entries[begin:end] if isinstance(one.event, MetricsPage))
            seconds = (entries[end].t - entries[begin].t) / 1e9
            ended = after.finished - load.finished + sum(after.refused.values()) - sum(load.refused.values())
            if load.phase != "raised" or too_long(load, after.finished, after.refused):
                continue
            if too_few(scrapes, seconds, load, ended):
                sent = plural(load.level, "request at a time was", "requests at a time were")
                return f"{plural(scrapes, 'page')} in {seconds:.1f} s, while {sent} sent"
        return ""

    @cached_property
    def unserved(self) -> str:
        """How the load was refused, and with which text, if none of it was served; else empty."""
        over = next((one for one in reversed(self.phases) if one.phase in ("released", "aborted", "over")), None)
        if over is None or over.finished or not over.refused:
            return ""
        refused = ", ".join(f"{count} × {what}" for what, count in over.refused.items())
        said = f"; the server's message: {printable(over.message)}" if over.message else ""
        return f"no request of the load was served ({refused}){said}"

    def unseen(self, requirement: str, expected: str) -> Finding | None:
        """That it can't be told whether what is expected is so: no request of the load was served, or there were too
        few pages; else None."""
        if self.unserved:
            hint = "The server must serve the load: see the limits of the profile."
            return self.fail(requirement, expected, self.unserved, hint=hint, verdict=Verdict.INCONCLUSIVE)
        if not self.too_few:
            return None
        actual = f"there were too few pages to tell: {self.too_few}"
        hint = (
            "This machine, or the server, is too busy for a page every 0.05 s: run the suite where less runs beside it."
        )
        return self.fail(requirement, expected, actual, hint=hint, verdict=Verdict.INCONCLUSIVE)

    def readings(self, meaning: str) -> Iterator[tuple[Scraped, MetricReading]]:
        """The metric on every page that has it."""
        for one in self.readable:
            found = self.metrics.look_up(one.page, meaning)
            if found is not None:
                yield one, found

    def value(self, one: Scraped, meaning: str) -> float | None:
        """What a metric amounts to on a page; None if it is not there."""
        return self.metrics.value(one.page, meaning)

    def gauges(self, one: Scraped) -> tuple[float | None, ...]:
        """What the gauges of the load show on a page: where these differ, it is not an old one."""
        return tuple(self.value(one, meaning) for meaning in ("queued", "running", "kv_cache"))

    def fail(
        self,
        requirement: str,
        expected: str,
        actual: str,
        *,
        at: Scraped | None = None,
        hint: str = "",
        nature: Nature = Nature.CONDUCT,
        verdict: Verdict = Verdict.FAIL,
    ) -> Finding:
        """A violation that shows on the page `at`; default: the last one."""
        place = at or (self.pages[-1] if self.pages else None)
        return violation(
            requirement,
            expected,
            actual,
            exchange=None,
            seq=place.at if place is not None else None,
            hint=hint,
            nature=nature,
            verdict=verdict,
        )


SHOWN = 3.0
"""Seconds for which something must have been so, at every scrape, before a gauge that does not show it is at fault."""


APART = 3
"""Pages with other gauges, at least, that prove that a page is not an old one: servers may refresh it seldom."""


def held_for(pages: tuple[Scraped, ...], holds: frozenset[int]) -> float:
    """Seconds for which scrapes, one after the other, were all among `holds` (by entry): of runs of a second or more,
    as servers may refresh their gauges once a second."""
    total = 0.0
    for kept, run in groupby(pages, key=lambda one: one.at in holds):
        ones = list(run)
        seconds = (ones[-1].t - ones[0].t) / 1e9
        total += seconds if kept and seconds >= 1 else 0
    return total
