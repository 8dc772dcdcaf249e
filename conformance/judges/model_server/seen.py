"""What too few pages do not tell of the gauges: a machine that is busy with other things hides what is wrong, too."""

from __future__ import annotations

from conformance.judges.server_view import SHOWN, Scraped, ServerView, held_for
from conformance.reading.server_metrics import BETWEEN, MOST_OF_THEM, PART
from conformance.verdict import Finding


def all_run(view: ServerView) -> bool:
    """Whether the highest load ran as a whole, by the gauge and for long enough, so that nothing had to wait."""
    loaded = [one for one in view.readable if one.loaded]
    last = tuple(one for one in loaded if one.load is loaded[-1].load)
    whole = (one.at for one in last if one.load and one.load.level - (view.value(one, "running") or 0) < BETWEEN)
    return held_for(last, frozenset(whole)) >= SHOWN


def untold(view: ServerView, requirement: str, meaning: str, expected: str) -> Finding | None:
    """That there were too few pages, if on none of them the gauges account for what was in flight.

    Where a part of the series counts, or may, that is not known. Of what runs, what had begun tells, too.
    """
    loaded = [one for one in view.readable if one.loaded]
    if not loaded or view.claims.match or view.claims.combine != "sum":
        return None
    runs = max((view.value(one, "running") or 0 for one in loaded), default=0)
    begun = max(one.event.begun for one in loaded)
    if meaning == "running" and begun and abs(runs - begun) < BETWEEN:
        return None  # whatever the queue says
    alike = not begun or min(runs, begun) >= MOST_OF_THEM * max(runs, begun)
    return None if alike and any(_adds_up(view, one) for one in loaded) else view.unseen(requirement, expected)


def _adds_up(view: ServerView, one: Scraped) -> bool:
    counted = (view.value(one, "queued") or 0) + (view.value(one, "running") or 0)
    return one.load is not None and abs(counted - one.load.level) < BETWEEN


def cache_untold(view: ServerView, requirement: str, most: float) -> Finding | None:
    """That there were too few pages, if the gauge of the cache was at `most`, which may be a hundredth of what it is.

    What a single page says to run, or had begun, does not prove it: it makes the doubt.
    """
    loaded = (one for one in view.readable if one.loaded)
    requests = max((max(one.event.begun, view.value(one, "running") or 0) for one in loaded), default=0)
    least = PART * min(1.0, requests * view.words / view.capacity) if view.capacity else 0.0
    return view.unseen(requirement, "the gauge shows what is in use") if most < least else None
