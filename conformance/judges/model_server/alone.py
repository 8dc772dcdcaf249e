"""What a single request shows (MS-MET-03, -04): that it is one, and leaves room for as many as run at a time."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.episode_view import EpisodeView
from conformance.judges.model_server.gauges import KV, RUNNING
from conformance.judges.registry import judge_of_episode
from conformance.judges.server_view import APART, SHOWN, Scraped, ServerView, held_for
from conformance.verdict import Finding, Verdict

ROOM = 2.0
"""By what factor requests may seem to fill more than all of the cache: prompts differ a little in their tokens."""

LARGE = 0.5
"""Share of the KV cache that one short request must fill: where a page shows the fullest of several caches only, as
many as these may run at a time."""


@judge_of_episode(RUNNING, role="model-server")
def one_too_many(episode: EpisodeView) -> Iterator[Finding]:
    """With one request at a time, the gauge never shows one: it is always more. For a moment it may be, between two."""
    view = episode.server
    shown = [one for one in _alone(view) if (view.value(one, "running") or 0) > 0]
    high = frozenset(one.at for one in shown if (view.value(one, "running") or 0) > 1)
    gauges = set(map(view.gauges, shown))
    if len(high) < len(shown) or len(gauges) < APART or held_for(tuple(shown), high) < SHOWN:
        return
    actual = f"{view.value(shown[-1], 'running'):g}, or more, while one request was in flight at a time"
    yield view.fail(RUNNING, "a single request shows as one", actual, at=shown[-1], verdict=Verdict.WARN)


@judge_of_episode(KV, role="model-server")
def no_room(episode: EpisodeView) -> Iterator[Finding]:
    """One short request fills so much of the cache that the requests with long prompts that run together, which take
    as much each, or more, could not all be in it. Ranks have a cache each, and are left out."""
    view = episode.server
    short, many = _alone(view), [one for one in view.readable if one.loaded and one.load and one.load.level > 1]
    runs = [one for one in short if one.event.begun and (view.value(one, "running") or 0) > 0]
    if view.claims.match or not runs or not many or any(view.metrics.engines(one.page) != 1 for one in many):
        return
    rest = [view.value(one, "kv_cache") or 0.0 for one in view.readable if not one.loaded and one.at < runs[0].at]
    each = min(view.value(one, "kv_cache") or 0.0 for one in runs) - max(rest, default=1.0)
    together = max(_together(view, one) for one in many)
    if each < LARGE or each * together <= ROOM:
        return
    expected = f"one short request fills no more than a share that {together} have room for"
    actual = f"{each:.2g} of the cache at every scrape, for a single request"
    yield view.fail(KV, expected, actual, at=runs[-1], hint="Does it say whether something runs?")


def _alone(view: ServerView) -> list[Scraped]:
    return [one for one in view.readable if one.loaded and one.load is not None and one.load.level == 1]


def _together(view: ServerView, one: Scraped) -> int:
    """Requests that were in the batch all through a scrape."""
    return min(one.event.begun, int(view.value(one, "running") or 0))
