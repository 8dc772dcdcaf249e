"""Gauges that count more than can be (MS-MET-02, -04): what runs among what waits, the reverse, or none at all."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from conformance.judges.server_view import APART, SHOWN, Scraped, ServerView, held_for
from conformance.reading.server_metrics import ONE, TOGETHER
from conformance.verdict import Finding, Verdict

MEANS = {"queued": "wait", "running": "run"}
"""What the requests do that a gauge counts."""

NEARLY_ALL = 0.9
"""Share of the scrapes with a queue that must show one too many: when load is raised, pages are behind."""


def too_high(view: ServerView, requirement: str, meaning: str) -> Finding | None:
    """A gauge that counts more than can be.

    One scrape does not tell: gauges lag behind, and others may ask the server for a moment.
    """
    loaded = tuple(one for one in view.readable if one.loaded)
    found = {one.at: view.metrics.overstated(one.event, one.load) for one in loaded if one.load}
    together = [one for one in loaded if TOGETHER in found.get(one.at, set())]
    named = {meaning, TOGETHER} if _is_the_queue(view, together) == (meaning == "queued") else {meaning}
    high = [one for one in loaded if named & found.get(one.at, set())]
    at = {one.at for one in high}
    since = [(one, (after.t - one.t) / 1e9) for one, after in pairwise(loaded) if high and one.at >= high[0].at]
    seconds = sum(lasted for one, lasted in since if one.at in at)
    if seconds < SHOWN or seconds < sum(lasted for _, lasted in since) / 2:
        return None
    worst = max(high, key=lambda one: view.value(one, meaning) or 0)
    other = "running" if meaning == "queued" else "queued"
    actual = (
        f"{view.value(worst, meaning) or 0:g}, and {view.value(worst, other) or 0:g} {MEANS[other]}, while "
        f"{worst.event.most} were in flight, of which {worst.event.begun} had begun; so, or alike, for {seconds:.1f} s"
    )
    return view.fail(
        requirement,
        f"the gauge shows the requests that {MEANS[meaning]}, and no others",
        actual,
        at=worst,
        hint="Does it count requests of both kinds? Did others ask the server meanwhile?",
    )


def one_more(view: ServerView, requirement: str) -> Finding | None:
    """A queue that is one longer than it can be, whenever there is one: nearly every scrape shows it, on pages that
    change. Another client that never ceases to ask shows alike."""
    waits = tuple(one for one in view.readable if one.loaded and (view.value(one, "queued") or 0) > 0)
    more = [one for one in waits if one.load and view.metrics.beyond(one.event, one.load) >= ONE]
    gauges = set(map(view.gauges, more))
    if len(more) < NEARLY_ALL * len(waits) or len(gauges) < APART or not _is_the_queue(view, more):
        return None
    if held_for(waits, frozenset(one.at for one in more)) < SHOWN:
        return None
    worst = more[-1]
    actual = (
        f"{view.value(worst, 'queued'):g}, and {view.value(worst, 'running'):g} run, of {worst.event.most} in flight"
    )
    hint = "Does it count one too many? Did another client ask the server all the while?"
    expected = "what waits and what runs are no more than what is in flight"
    return view.fail(requirement, expected, actual, at=worst, hint=hint, verdict=Verdict.WARN)


def _is_the_queue(view: ServerView, ones: Sequence[Scraped]) -> bool:
    """Whether it is the queue that is too long where both gauges together count too much: what had not begun has no
    room for it, over all such scrapes. A right one is not, as what has no token yet may run."""
    return sum(view.metrics.overlong(one.event) for one in ones) > 0
