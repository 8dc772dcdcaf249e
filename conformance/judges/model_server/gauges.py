"""Metrics Reporting (MS-MET-02 to -05): the gauges of load, their type, range, and that they move with the load.

Nothing here is judged by a time limit of a moment: a gauge must show at one of many scrapes what was so all the while
that the scrape took. Servers refresh gauges once a second or once in 30 s; a server that is fast is no finding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile, pairwise

from conformance.judges.episode_view import EpisodeView
from conformance.judges.findings import not_applicable, passed
from conformance.judges.model_server.excess import MEANS, one_more, too_high
from conformance.judges.model_server.seen import all_run, cache_untold, untold
from conformance.judges.registry import judge_of_episode
from conformance.judges.server_view import SHOWN, Scraped, ServerExchange, ServerView, held_for
from conformance.printable import plural
from conformance.reading.metrics_page import MetricReading
from conformance.reading.server_metrics import BETWEEN, MOST_OF_THEM, ONE, PART
from conformance.verdict import Finding, Verdict

QUEUED, KV, RUNNING, BLOCKS = "MS-MET-02", "MS-MET-03", "MS-MET-04", "MS-MET-05"

WAITING = 2
"""Requests more than those that run, at least, before some of them must wait: one may be between two states."""

RISES = 5
"""How often a gauge must have risen of itself before that is a fault: it may lag behind, and others may ask."""

ROUNDED = 1e-6
"""By how much a fraction may be out of its range: `1 - free / all` is computed with numbers of so many digits."""

VISIBLE = 0.02
"""Share of the KV cache that prompts must fill before a gauge that stays the same is at fault: some round to 0.01."""


@judge_of_episode(QUEUED, role="model-server")
def queued(episode: EpisodeView) -> Iterator[Finding]:
    """The queue: more is sent than runs, so that requests wait; when all have ended, none does."""
    view = episode.server
    if not _asked(episode, QUEUED):
        return
    yield from _moves(view, QUEUED, "queued", _queue_shown)


@judge_of_episode(RUNNING, role="model-server")
def running(episode: EpisodeView) -> Iterator[Finding]:
    """The running requests: some run, and when all have ended, none does."""
    view = episode.server
    if not _asked(episode, RUNNING):
        return
    yield from _moves(view, RUNNING, "running", _running_shown)


@judge_of_episode(KV, role="model-server")
def kv_cache(episode: EpisodeView) -> Iterator[Finding]:
    """The KV cache: it fills under long prompts, and by nothing else; when they have ended, it is less full."""
    view = episode.server
    if not _asked(episode, KV):
        return
    problem = _wrong(view, KV, "kv_cache", _share)
    yield problem or _kv_of_nothing(view) or _kv_shown(view)
    if problem is None:
        yield from _old_name(view)
        yield from _kv_left(view)


@judge_of_episode(BLOCKS, role="model-server")
def blocks(episode: EpisodeView) -> Iterator[Finding]:
    """Block size and number of blocks: whole numbers above 0 that stay the same, where they are shown."""
    view = episode.server
    for meaning in ("block_size", "blocks"):
        seen: set[float] = set()
        for one, found in view.readings(meaning):
            texts = [text for text in found.texts if text not in ("", "None")]
            if "@" in found.selector and not texts:
                continue
            values = [_number(text) for text in texts] or [sample.value for sample in found.samples]
            for value in values:
                if not _whole(value) or value <= 0:
                    yield view.fail(BLOCKS, f"{found.selector} is a whole number above 0", f"{value:g}", at=one)
                    return
            seen |= {value for value in (found.value,) if value is not None}
        if len(seen) > 1:
            actual = " and ".join(f"{value:g}" for value in sorted(seen))
            yield view.fail(BLOCKS, f"{meaning.replace('_', ' ')} stays as it is", actual)
            return
        if seen:
            yield passed(BLOCKS)
    if view.pages:
        yield not_applicable(BLOCKS, "the page does not show them")


def _asked(episode: EpisodeView, requirement: str) -> bool:
    """Whether the scenario has load, and asks for this; a server that died says no more."""
    named = requirement in episode.context.requirements
    return named and any(one.loaded for one in episode.server.pages) and episode.exit is None


# -- what is on the page -----------------------------------------------------------------------------------------------


def _moves(
    view: ServerView, requirement: str, meaning: str, shown: Callable[[ServerView], Finding | None]
) -> Iterator[Finding]:
    yield (
        _wrong(view, requirement, meaning, _count)
        or shown(view)
        or _too_low(view, requirement, meaning)
        or too_high(view, requirement, meaning)
        or _returned(view, requirement, meaning)
        or (one_more(view, requirement) if meaning == "queued" else None)
        or untold(view, requirement, meaning, f"the gauge shows how many requests {MEANS[meaning]}")
        or passed(requirement)
    )


def _wrong(
    view: ServerView, requirement: str, meaning: str, check: Callable[[MetricReading, float], tuple[str, str] | None]
) -> Finding | None:
    """What is wrong with the metric on any page: it is missing, of another type, or out of its range."""
    names = " or ".join(getattr(view.claims.names, meaning)) or f"a name for {meaning}"
    found = list(view.readings(meaning))
    with_samples = [(one, metric) for one, metric in found if metric.samples]
    if not with_samples:
        if not view.readable:
            return not_applicable(requirement, "no page could be read, which is a matter of MS-MET-01")
        actual = "it has HELP and TYPE only" if found else "it has none"
        hint = "If it has another name, map it in the profile (metrics: {names: …}); --engine says whose names it has."
        return view.fail(requirement, f"the page has {names}, at the latest under load", actual, hint=hint)
    for one, metric in with_samples:
        if metric.type != "gauge":
            expected = f"{metric.selector} is of TYPE gauge"
            return view.fail(requirement, expected, metric.type or "it has no TYPE: untyped", at=one)
        for sample in metric.samples:
            if wrong := check(metric, sample.value):
                return view.fail(requirement, wrong[0], f"{sample.value:g}", at=one, hint=wrong[1])
    return None


def _count(metric: MetricReading, value: float) -> tuple[str, str] | None:
    right = _whole(value) and value >= 0
    hint = "EPPs take NaN for a negative number, which is the shortest queue of all." if math.isnan(value) else ""
    return None if right else (f"{metric.selector} is a whole number from 0", hint)


def _share(metric: MetricReading, value: float) -> tuple[str, str] | None:
    if -ROUNDED <= value <= 1 + ROUNDED:
        return None
    hint = "Is it a number of per cent? EPPs read a fraction." if 1 < value <= 100 else ""
    return f"{metric.selector} is a fraction from 0 to 1", hint


def _old_name(view: ServerView) -> Iterator[Finding]:
    """A name that was given up, alone: current EPPs don't read it."""
    names = view.claims.names.kv_cache
    for one, metric in view.readings("kv_cache"):
        if metric.selector != names[0] and metric.samples:
            actual = f"it has {metric.selector} alone"
            hint = "EPPs that read the recommended name take the cache for empty."
            yield view.fail(KV, f"{names[0]}, the recommended name", actual, at=one, hint=hint, verdict=Verdict.WARN)
            return


# -- whether it moves --------------------------------------------------------------------------------------------------


def _queue_shown(view: ServerView) -> Finding | None:
    loaded = tuple(one for one in view.readable if one.loaded)
    if any((view.value(one, "queued") or 0) > 0 for one in loaded):
        return None
    held = frozenset(one.at for one in _serving(loaded) if _must_wait(view, one))
    if held_for(loaded, held) >= SHOWN:
        worst = max((one for one in loaded if one.at in held), key=lambda one: one.event.sent)
        runs = view.value(worst, "running") or 0
        actual = f"0 at every scrape, while {worst.event.sent} were in flight and {runs:g} ran"
        return view.fail(QUEUED, "the gauge shows the requests that wait", actual, at=worst)
    most = max((one.event.sent for one in loaded), default=0)
    flown = plural(most, "request was", "requests were")
    why = f"the server never had to queue: at most {flown} in flight, and none waited"
    if all_run(view):
        return not_applicable(QUEUED, why)
    expected = "the gauge shows the requests that wait"
    return view.unseen(QUEUED, expected) or _queue_not_held(view, loaded, expected) or not_applicable(QUEUED, why)


def _queue_not_held(view: ServerView, loaded: Sequence[Scraped], expected: str) -> Finding | None:
    """Requests seem to have waited, by the gauge of those that run, but not for long enough to prove it."""
    last = [one for one in loaded if one.load is loaded[-1].load]
    runs = max((view.value(one, "running") or 0 for one in last), default=0)
    level = last[-1].load.level if last and last[-1].load else 0
    waited = [one for one in last if (view.value(one, "running") or 0) > 0 and _must_wait(view, one)]
    if not waited or runs >= MOST_OF_THEM * level:
        return None
    actual = f"0 at every scrape, while {level} were in flight at a time and at most {runs:g} ran; not for long enough"
    hint = "Raise limits.tokens in the profile, or run the suite where less runs beside it."
    return view.fail(QUEUED, expected, actual, at=waited[-1], hint=hint, verdict=Verdict.INCONCLUSIVE)


def _serving(loaded: Sequence[Scraped]) -> Iterator[Scraped]:
    """The scrapes while answers were under way. Answers of one length end together, and for a moment none is: a scrape
    of that moment is one of them if those beside it are."""
    begun = [one.event.begun > 0 for one in loaded]
    for index, one in enumerate(loaded):
        if begun[index] or (0 < index < len(loaded) - 1 and begun[index - 1] and begun[index + 1]):
            yield one


def _must_wait(view: ServerView, one: Scraped) -> bool:
    """Whether requests waited all through a scrape: more were in flight than had begun, and than the server runs."""
    runs = view.value(one, "running")
    begun = one.event.begun if runs is None else max(one.event.begun, runs)
    return one.event.sent - begun >= WAITING


def _running_shown(view: ServerView) -> Finding | None:
    loaded = tuple(one for one in view.readable if one.loaded)
    if any((view.value(one, "running") or 0) > 0 for one in loaded):
        return None
    held = frozenset(one.at for one in loaded if one.event.begun > 0)
    if held_for(loaded, held) >= SHOWN:
        worst = max((one for one in loaded if one.at in held), key=lambda one: one.event.begun)
        actual = (
            f"0 at every scrape, while answers to {plural(worst.event.begun, 'request was', 'requests were')} under way"
        )
        return view.fail(RUNNING, "the gauge shows the requests that run", actual, at=worst)
    unseen = view.unseen(RUNNING, "the gauge shows the requests that run")
    return unseen or not_applicable(RUNNING, "answers were over before a scrape could show them")


def _too_low(view: ServerView, requirement: str, meaning: str) -> Finding | None:
    """A gauge that never counts more than one, though more wait, or run, for long enough: it says only whether. If it
    counts a part at every scrape, it may count what the server keeps in one of several places: that is warned of.

    What is shown may be old. It is not from the scrape on at which any gauge has changed since there were more. A gauge
    that never shows more than where it counts a part has not counted all, however few waited at another scrape.
    """
    loaded = tuple(one for one in view.readable if one.loaded)
    most = max((view.value(one, meaning) or 0 for one in loaded), default=0)
    serving = list(_serving(loaded))
    low = [one for one in serving if meaning in view.metrics.understated(one.event)]
    at = {one.at for one in low}
    part = max((view.value(one, meaning) or 0 for one in low), default=0)
    counted = [one for one in serving if one.at not in at and (view.value(one, meaning) or 0) > part]
    there = [view.metrics.waiting(one.event) if meaning == "queued" else one.event.begun for one in counted]
    a_part = most > ONE and not any((number or 0) >= ONE + BETWEEN for number in there)
    low = list(dropwhile(lambda one: view.gauges(one) == view.gauges(low[0]), low))
    if (most > ONE and not a_part) or held_for(loaded, frozenset(one.at for one in low)) < SHOWN:
        return None
    worst = max(low, key=lambda one: one.event.sent)
    actual = (
        f"{most:g} at most, while {worst.event.sent} were in flight, of which {worst.event.begun} had begun, and "
        f"{view.value(worst, 'running') or 0:g} ran by the gauge"
    )
    expected = f"the gauge shows how many requests {MEANS[meaning]}"
    if a_part:
        hint = f"Do others {MEANS[meaning]} elsewhere in the server? EPPs take it for less busy than it is."
        return view.fail(requirement, expected, actual, at=worst, hint=hint, verdict=Verdict.WARN)
    return view.fail(requirement, expected, actual, at=worst, hint="Does it say whether there is one?")


def _returned(view: ServerView, requirement: str, meaning: str) -> Finding | None:
    """When nothing is in flight any more, the gauge falls to 0."""
    rest = view.phase("rest")
    if rest is None or rest.met or view.phase("over") is None:
        return None
    last = view.pages[-1]
    value = view.value(last, meaning)
    if not value:
        return None
    aborted = view.phase("aborted") is not None
    actual = f"{value:g}, {rest.seconds:g} s after the last request {'was broken off' if aborted else 'had ended'}"
    verdict = Verdict.WARN if aborted else Verdict.FAIL
    return view.fail(requirement, "the gauge returns to 0", actual, at=last, verdict=verdict)


_KEPT = "Does it count blocks that are only kept for later prompts, or show the most there was? EPPs see no room."
"""What makes a cache look full for good, and is not wrong by the text."""


def _kv_shown(view: ServerView) -> Finding:
    loaded = _long(view)
    first = next((one for one in view.readable if not one.loaded), loaded[0] if loaded else None)
    idle = (view.value(first, "kv_cache") if first is not None else None) or 0.0
    most = max((view.value(one, "kv_cache") or 0.0 for one in loaded), default=0.0)
    filled, what = _filled(view, loaded)
    if most > idle and filled < VISIBLE:
        return cache_untold(view, KV, most) or passed(KV)
    if most > idle and most >= filled * PART:
        return passed(KV)
    if most > idle:
        expected = f"the gauge shows that {filled:.2g} of the cache is in use, or {PART:g} of that at the least"
        return view.fail(KV, expected, f"{most:.2g} at most, while {what}", at=loaded[-1])
    if held_for(loaded, frozenset(one.at for one in loaded if one.event.begun > 0)) < SHOWN:
        unseen = view.unseen(KV, "the gauge rises with long prompts")
        return unseen or not_applicable(KV, "answers were over before a scrape could show them")
    if filled >= VISIBLE:
        actual = f"{idle:g} at rest and {most:g} at most, while {what}"
        full = min((idle, *(view.value(one, "kv_cache") or 0.0 for one in loaded))) >= 1 - VISIBLE
        hint, verdict = (_KEPT, Verdict.WARN) if full else ("", Verdict.FAIL)
        expected = "the gauge rises with long prompts"
        return view.fail(KV, expected, actual, at=loaded[-1], hint=hint, verdict=verdict)
    actual = (
        f"{idle:g} at rest and {most:g} at most; it is not known that the prompts filled {VISIBLE:.0%} of the cache"
    )
    hint = "Raise limits.promptWords or limits.concurrency in the profile."
    return view.fail(KV, "the gauge rises with long prompts", actual, hint=hint, verdict=Verdict.INCONCLUSIVE)


def _long(view: ServerView) -> tuple[Scraped, ...]:
    """The pages under the last load, whose prompts are the long ones."""
    return tuple(one for one in view.readable if one.loaded and one.load and one.load.words == view.words)


def _kv_of_nothing(view: ServerView) -> Finding | None:
    """The gauge rises again and again while nothing runs or waits, and the suite has nothing in flight."""
    still = [one for one in view.readable if not one.event.most and _at_rest(view, one)]
    asked = [one.at for one in view.exchanges]
    risen = [
        (before, one)
        for before, one in pairwise(still)
        if (view.value(one, "kv_cache") or 0.0) > (view.value(before, "kv_cache") or 0.0)
        and not any(before.at < at < one.at for at in asked)
    ]
    if len(risen) < RISES:
        return None
    before, last = risen[-1]
    actual = f"it rose {plural(len(risen), 'time')}, from {view.value(before, 'kv_cache'):.2g} to "
    actual += f"{view.value(last, 'kv_cache'):.2g} at last, while nothing ran or waited"
    return view.fail(KV, "the gauge shows what is in use, which no request changes", actual, at=last)


def _at_rest(view: ServerView, one: Scraped) -> bool:
    return view.value(one, "running") is not None and view.metrics.idle(one.page)


def _kv_left(view: ServerView) -> Iterator[Finding]:
    """When all long prompts have ended, and short ones after them, the gauge shows less than it did."""
    loaded = _long(view)
    if not loaded:
        return
    before = [view.value(one, "kv_cache") or 0.0 for one in view.readable if one.load is None or one.at < loaded[0].at]
    most = max(view.value(one, "kv_cache") or 0.0 for one in loaded)
    asked = [one for one in view.exchanges if one.at > loaded[-1].at]
    if most <= min(before, default=0.0) or not asked or any(_refused(one) for one in asked):
        return
    after = [one for one in view.readable if one.at > asked[-1].at]
    if after and min(view.value(one, "kv_cache") or 0.0 for one in after) >= most:
        actual = f"{view.value(after[-1], 'kv_cache'):.2g}, and {most:.2g} at most while there were some"
        expected = "the gauge falls when no request with a long prompt is left"
        yield view.fail(KV, expected, actual, at=after[-1], hint=_KEPT, verdict=Verdict.WARN)


def _refused(one: ServerExchange) -> bool:
    return one.answer is None or one.answer.event.status != 200


def _filled(view: ServerView, loaded: tuple[Scraped, ...]) -> tuple[float, str]:
    """The share of the cache that prompts filled for long enough, at least, and in words; 0 if it is not known.

    A word is a token or more. What is not there all through a scrape, or has no token yet, is not counted.
    """
    capacity, words = view.capacity, view.words
    if capacity is None or not words:
        return 0.0, ""
    for begun in sorted({one.event.begun for one in loaded}, reverse=True):
        if begun and held_for(loaded, frozenset(one.at for one in loaded if one.event.begun >= begun)) >= SHOWN:
            text = f"{begun} prompts of {words} words were in a cache of {capacity:g} tokens"
            return begun * words / capacity, text
    return 0.0, ""


def _whole(value: float) -> bool:
    return math.isfinite(value) and value == int(value)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
