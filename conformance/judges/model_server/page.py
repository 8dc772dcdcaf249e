"""Metrics Reporting (MS-MET-01): metrics are served to Prometheus.

Text format 0.0.4 and 1.0.0 and OpenMetrics all count, and so do any path and port; but EPPs look at `/metrics` on the
port that serves requests. What Go's text parser refuses, every EPP of the field refuses with the whole page.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from conformance.judges.episode_view import EpisodeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_episode
from conformance.judges.server_view import SHOWN, Scraped, ServerView, held_for
from conformance.reading.metrics_page import Page
from conformance.verdict import Finding, Verdict

PAGE = "MS-MET-01"

STALE = 0.2
"""Seconds after which EPPs of the field hold metrics for stale."""

_WITHHELD = 0.25
"""Of the time of pages under load: if more of it may not be the server's, the rest tells nothing of it either."""

_STALE = "EPPs hold metrics for stale when they are older."

_TYPES = ("text/plain", "application/openmetrics-text")
"""The content types of pages in text."""

_HINTS = {
    "sglang": "SGLang has metrics with --enable-metrics only.",
    "trtllm-serve": "trtllm-serve has them with return_perf_metrics only, at /prometheus/metrics.",
    "vllm": "Is it at another path or port? Say so with --metrics-url.",
}


@judge_of_episode(PAGE, role="model-server")
def page(episode: EpisodeView) -> Iterator[Finding]:
    """Every scrape: answered with 200, whole, and in a format that is read."""
    view = episode.server
    if episode.exit is not None:
        return  # its death says it all
    for one in view.pages:
        if problem := _problem(view, one):
            yield problem
            return
    if not view.pages:
        return
    if PAGE in episode.context.requirements:
        yield from _served_as_epps_ask(view)
    yield from _counters(view)
    yield passed(PAGE)


def _served_as_epps_ask(view: ServerView) -> Iterator[Finding]:
    """What the text leaves free, and EPPs do not."""
    if view.pages[0].event.elsewhere:
        hint = "Tell EPPs where it is, or serve it there, too."
        expected = "the page is at /metrics on the port that serves requests, where EPPs look for it"
        yield view.fail(PAGE, expected, f"it is at {view.pages[0].event.url}", hint=hint, verdict=Verdict.WARN)
    if strange := next((one for one in view.readable if _type(one) not in _TYPES), None):
        hint = "EPPs do not look at it, but Prometheus from 3.0 on takes no page without a type that it knows."
        expected = f"content type {' or '.join(_TYPES)}"
        yield view.fail(PAGE, expected, _type(strange) or "it has none", at=strange, hint=hint, verdict=Verdict.WARN)
    if min(one.event.seconds for one in view.pages) > STALE:
        own = median(map(_own, view.pages)) > STALE
        yield _late(view, view.pages, f"each of {len(view.pages)}", f"a page within {STALE} s", own=own)
        return
    loaded = tuple(one for one in view.pages if one.loaded)
    slow = tuple(one for one in loaded if _own(one) > STALE)
    seconds = held_for(loaded, frozenset(one.at for one in slow))
    if seconds >= SHOWN:
        # Work that a busy machine left undone makes later pages late, too.
        own = sum(one.event.late for one in slow) <= _WITHHELD * sum(one.event.seconds for one in slow)
        yield _late(view, slow, f"for {seconds:.1f} s each", f"a page within {STALE} s, under load, too", own=own)


def _own(one: Scraped) -> float:
    """Seconds that a page took by the server's doing."""
    return one.event.seconds - one.event.late


def _late(view: ServerView, pages: tuple[Scraped, ...], which: str, expected: str, *, own: bool) -> Finding:
    """Pages that are late, by the server's `own` doing or by that of a busy machine."""
    actual = f"{which} took {min(one.event.seconds for one in pages):.2f} s or longer"
    if own:
        return view.fail(PAGE, expected, actual, at=pages[-1], hint=_STALE, verdict=Verdict.WARN)
    actual += ", of which a part may not be the server's: this machine was too busy"
    hint = "Run the suite where less runs beside it."
    return view.fail(PAGE, expected, actual, at=pages[-1], hint=hint, verdict=Verdict.INCONCLUSIVE)


def _type(one: Scraped) -> str:
    return one.event.content_type.partition(";")[0].strip().lower()


def _problem(view: ServerView, one: Scraped) -> Finding | None:
    event = one.event
    if event.outcome != "page":
        return view.fail(PAGE, "a page of metrics", event.details or event.outcome, at=one)
    if event.status != 200:
        hint = _HINTS.get(view.claims.engine, "")
        return view.fail(PAGE, "a page of metrics, with status 200", f"status {event.status}", at=one, hint=hint)
    if one.page.problems:
        hint = "EPPs lose the whole page, and keep what they read before." if len(event.body) else ""
        expected = "a page in the text format of Prometheus, or in OpenMetrics"
        return view.fail(PAGE, expected, one.page.problems[0], at=one, hint=hint)
    if twice := _twice(one.page):
        expected = "each series once"
        return view.fail(PAGE, expected, f"{twice} is there twice, with the same labels", at=one)
    return None


def _twice(page: Page) -> str:
    """A series that is there twice; empty if none is."""
    for name, samples in page.samples.items():
        seen = set()
        for sample in samples:
            labels = frozenset(sample.labels.items())
            if labels in seen:
                return name
            seen.add(labels)
    return ""


def _counters(view: ServerView) -> Iterator[Finding]:
    """A counter never falls: behind one address is one server, which did not restart."""
    before: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for one in view.readable:
        for name, samples in one.page.samples.items():
            if one.page.type_of(name) != "counter":
                continue
            for sample in samples:
                key = name, frozenset(sample.labels.items())
                if sample.value < before.get(key, sample.value):
                    actual = f"{name} fell from {before[key]:g} to {sample.value:g}"
                    hint = "Did the server restart, or are several behind this address? Then name one of them."
                    yield view.fail(PAGE, "counters never fall", actual, at=one, hint=hint)
                    return
                before[key] = sample.value
