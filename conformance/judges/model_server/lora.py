"""LoRA Adapter Serving (MS-LORA-01 to -05): adapters by name, and the gauge that tells which are in use.

The text speaks of adapters in GPU memory. Every engine that has the gauge lists those with requests in flight: that
passes. An engine lists nothing when idle, or keeps old series beside the newest one: both are right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from conformance.judges.episode_view import EpisodeView
from conformance.judges.findings import passed
from conformance.judges.model_server.api import OVERLOADED
from conformance.judges.registry import judge_of_episode
from conformance.judges.server_view import SHOWN, Scraped, ServerExchange, ServerView, held_for
from conformance.printable import plural
from conformance.reading.metrics_page import MetricReading, MetricSample
from conformance.reading.server_answer import ServerAnswer
from conformance.reading.server_metrics import MAX, RUNS, WAITS, adapters_of
from conformance.verdict import Finding, Verdict

SERVED, GAUGE, LABELS, NEWEST, WAITING = "MS-LORA-01", "MS-LORA-02", "MS-LORA-03", "MS-LORA-04", "MS-LORA-05"

DAY = 86_400.0
"""Seconds by which clocks may differ."""

UPDATES = 8
"""How often the gauge must have been set before that its list was never whole is no chance of when that was done."""

IN_TURN = 2.0
"""Seconds, in all, for which it must not have been whole."""

TIES = 2.0
"""Seconds after which a later change has another value, even where values are whole seconds."""


@judge_of_episode(SERVED, role="model-server")
def served(episode: EpisodeView) -> Iterator[Finding]:
    """A request for an adapter is served, and by the adapter: some servers serve any name from the base model."""
    view = episode.server
    asked = [one for one in view.exchanges if one.asked.adapter and one.answer is not None]
    doubtful: Finding | None = None
    for one in asked:
        if (answer := one.answer) is None or _has_choices(answer):
            continue
        expected, status = f"the adapter {one.asked.model} is served", answer.event.status
        if status not in OVERLOADED and (status, one.asked.api) != (400, "chat"):
            yield one.fail(SERVED, expected, answer.describe())
            return
        hint = "The server is overloaded, or its model has no chat template."
        doubtful = doubtful or one.fail(SERVED, expected, answer.describe(), hint=hint, verdict=Verdict.INCONCLUSIVE)
    if doubtful is not None:
        yield doubtful
        return
    if asked and not (_names_are_checked(view) or _answers_differ(view) or _gauge_names(view)):
        hint = "Unknown names are served, too, and the adapter answers as the base model does."
        expected = f"a sign that the adapter {asked[-1].asked.model} served the request"
        yield asked[-1].fail(SERVED, expected, "there is none", hint=hint, verdict=Verdict.INCONCLUSIVE)
    elif asked:
        yield passed(SERVED)


def _has_choices(answer: ServerAnswer) -> bool:
    body: Any = answer.json
    return answer.event.status == 200 and isinstance(body, dict) and isinstance(body.get("choices"), list)


def _names_are_checked(view: ServerView) -> bool:
    wrong = [one for one in view.exchanges if one.asked.wrong == "unknown-model" and one.answer is not None]
    return any(one.answer is not None and 400 <= (one.answer.event.status or 0) < 500 for one in wrong)


def _answers_differ(view: ServerView) -> bool:
    """Whether the adapter answers a prompt in other words than the base model, both at temperature 0."""
    by_prompt: dict[str, dict[bool, str | None]] = {}
    for one in view.exchanges:
        if not one.asked.wrong and one.asked.prompt:
            by_prompt.setdefault(str(one.asked.prompt["sha256"]), {})[one.asked.adapter] = _text(one)
    return any(len(texts) == 2 and texts[True] != texts[False] for texts in by_prompt.values())


def _text(one: ServerExchange) -> str | None:
    body: Any = one.answer.json if one.answer is not None else None
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return str(first.get("text")) if isinstance(first, dict) else None


def _gauge_names(view: ServerView) -> bool:
    known = set(view.claims.adapters)
    return any(known & adapters_of(sample, RUNS) for _, found in view.readings("lora") for sample in found.samples)


# -- the gauge ---------------------------------------------------------------------------------------------------------


@judge_of_episode(GAUGE, role="model-server")
def gauge(episode: EpisodeView) -> Iterator[Finding]:
    """The LoRA gauge under load of adapters: its type, its value, and that it changes."""
    view = episode.server
    if not _concerned(episode, GAUGE):
        return
    found = [(one, metric) for one, metric in view.readings("lora") if metric.samples]
    if not found:
        wanted = " or ".join(view.claims.names.lora) or "a gauge that tells which adapters are in use"
        hint = "Map its name in the profile (metrics: {names: {lora: […]}}) if it has another."
        yield view.fail(
            GAUGE, f"the page has {wanted}, at the latest with adapters in flight", "it has none", hint=hint
        )
        return
    for one, metric in found:
        if metric.type != "gauge":
            yield view.fail(GAUGE, f"{metric.selector} is of TYPE gauge", metric.type or "it has no TYPE", at=one)
            return
        for sample in metric.samples:
            if problem := _no_time(one, sample):
                yield view.fail(GAUGE, "the value is a Unix time in seconds", problem[0], at=one, hint=problem[1])
                return
    loaded = [(one, metric) for one, metric in found if one.loaded]
    first = loaded[0][0].at if loaded else 0
    before = max((_newest(metric).value for one, metric in found if one.at < first), default=0.0)
    if loaded and max(_newest(metric).value for _, metric in loaded) < before:
        yield view.fail(GAUGE, "the value is newer after a change", "it is older", at=loaded[-1][0])
    elif (stuck := _stuck(found)) is not None:
        actual = f"{_newest(stuck[1]).value:f}, as before there was a further series"
        yield view.fail(GAUGE, "the value is newer after a change", actual, at=stuck[0])
    elif loaded:
        yield passed(GAUGE)


def _stuck(found: Sequence[tuple[Scraped, MetricReading]]) -> tuple[Scraped, MetricReading] | None:
    """A page with a series that was not there before, although the newest value is the same.

    Whole seconds can't tell changes within one apart: they must have stayed for longer, or be long ago.
    """
    since: dict[float, int] = {}
    for (one, before), (after, now) in pairwise(found):
        value = _newest(before).value
        since.setdefault(value, one.t)
        further = {names_text(sample) for sample in now.samples} - {names_text(sample) for sample in before.samples}
        told = value != int(value) or one.t - since[value] >= TIES * 1e9 or value < after.event.at - DAY
        if further and told and _newest(now).value == value:
            return after, now
    return None


def _no_time(one: Scraped, sample: MetricSample) -> tuple[str, str] | None:
    now = one.event.at
    newest = sample.value
    if newest == 0 and names_text(sample) == ("", ""):
        return None  # as a gauge begins that was not updated yet
    if newest > now + DAY and abs(newest / now - round(newest / now)) < 0.01 and newest < 100 * now:
        return f"{newest:g}, {round(newest / now)} times the time", "Several API servers, whose times are added up?"
    if not 0 <= newest <= now + DAY:
        return f"{newest:g}", "Is it in milliseconds?" if abs(newest / 1000 - now) < DAY else ""
    if newest < now - 10 * 365 * DAY:
        return f"{newest:g}, long ago", "The value tells readers which series is the newest."
    return None


@judge_of_episode(LABELS, role="model-server")
def labels(episode: EpisodeView) -> Iterator[Finding]:
    """`max_lora` and `running_lora_adapters`, with the adapters that run, and no more of them than can."""
    view = episode.server
    if not _concerned(episode, LABELS):
        return
    for one, metric in view.readings("lora"):
        for sample in metric.samples:
            most = sample.labels.get(MAX)
            if RUNS not in sample.labels or most is None:
                missing = RUNS if RUNS not in sample.labels else MAX
                yield view.fail(LABELS, f"the series have the labels {MAX} and {RUNS}", f"no {missing}", at=one)
                return
            if not most.isdecimal() or (int(most) == 0 and sample.labels[RUNS]):
                yield view.fail(LABELS, f"{MAX} is a whole number above 0", repr(most), at=one)
                return
    if any(found.samples for one, found in view.readings("lora") if one.loaded and one.event.begun > 0):
        yield _run_together(view) or _left_out(view) or _too_many(view) or _in_turn(view) or _listed(view)


def _run_together(view: ServerView) -> Finding | None:
    """Adapters are named as if they were one, with something else than a comma between them."""
    known = set(view.claims.adapters)
    if not known:
        return None
    names = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
    together = re.compile(rf"({names})([^\w,-]+({names}))+")
    for one, found in view.readings("lora"):
        named = set().union(*(adapters_of(sample, label) for sample in found.samples for label in (RUNS, WAITS)))
        if joined := sorted(filter(together.fullmatch, named - known)):
            return view.fail(LABELS, "names are separated by commas", repr(joined[0]), at=one)
    return None


def _in_turn(view: ServerView) -> Finding | None:
    """Not all are named at a time, although each had its first token and was not at its end: at every such scrape,
    however often the gauge was set meanwhile."""
    known = set(view.claims.adapters)
    pages = [(one, _newest(found)) for one, found in view.readings("lora") if found.samples]
    run = [(one, top) for one, top in pages if _one_each(view, one) and one.event.begun >= len(known) > 1]
    if not run or view.metrics.engines(run[0][0].page) != 1:
        return None
    named = [adapters_of(top, RUNS) & known for _, top in run]
    if known in named or not any(named):  # a newest series that names none is another matter (MS-LORA-04)
        return None
    at = {one.at for one, _ in run}
    seconds = sum(after.t - one.t for one, after in pairwise(view.readable) if {one.at, after.at} <= at) / 1e9
    if len({top.value for _, top in run}) < UPDATES or seconds < IN_TURN:
        return None
    actual = f"never more than {max(map(len, named))} of {len(known)} at a time"
    expected = f"{RUNS} names all adapters that run"
    return view.fail(LABELS, expected, actual, at=run[-1][0], verdict=Verdict.WARN)


def _too_many(view: ServerView) -> Finding | None:
    """More adapters in GPU memory than can be, by the page itself. Several engines together may have more; and one may
    have more in memory than it takes into a batch, which is not what the text has, but nearly."""
    loaded = [one for one in view.readable if one.loaded]
    high = [(one, crowd) for one in loaded if (crowd := view.metrics.crowd(one.page)) is not None]
    expected = f"{RUNS} names no more adapters than {MAX} says"
    if held_for(view.readable, frozenset(one.at for one, _ in high)) < SHOWN:
        return view.unseen(LABELS, expected) if high else None
    one, (names, most) = high[-1]
    actual = f"{plural(names, 'name')}, and {MAX} is {most}"
    hint = "EPPs take a server for full that has as many."
    return view.fail(LABELS, expected, actual, at=one, hint=hint, verdict=Verdict.WARN)


def _left_out(view: ServerView) -> Finding | None:
    """An adapter is never named, although each had its first token, and was not at its end, for long enough."""
    known = view.claims.adapters
    run = [one for one in view.readable if _one_each(view, one) and one.event.begun >= len(known)]
    samples = [sample for _, found in view.readings("lora") for sample in found.samples]
    named, waited = ({name for one in samples for name in adapters_of(one, label)} for label in (RUNS, WAITS))
    missing = sorted(set(known) - named)
    if not missing or len(missing) == len(known):
        return None
    expected = f"{RUNS} names the adapters that run"
    if held_for(view.readable, frozenset(one.at for one in run)) < SHOWN:
        return view.unseen(LABELS, expected) if set(missing) - waited else None
    actual = f"it never named {missing[0]}, while answers of {len(known)} adapters were under way"
    return view.fail(LABELS, expected, actual, at=run[-1])


def _one_each(view: ServerView, one: Scraped) -> bool:
    """Whether each adapter had one request in flight all through a scrape: load has a place for each."""
    known = len(view.claims.adapters)
    return one.loaded and one.load is not None and one.load.level == known and one.event.sent >= known


def _listed(view: ServerView) -> Finding:
    pages = [(one, found) for one, found in view.readings("lora") if one.loaded and one.event.begun > 0]
    known = set(view.claims.adapters)
    if any(known & adapters_of(sample, RUNS) for _, found in pages for sample in found.samples):
        return passed(LABELS)
    last = pages[-1][0]
    expected = f"{RUNS} names the adapter that runs"
    brief = held_for(view.readable, frozenset(one.at for one, _ in pages)) < SHOWN
    actual = f"it never did, while {plural(last.event.begun, 'request')} for adapters ran"
    return (view.unseen(LABELS, expected) if brief else None) or view.fail(LABELS, expected, actual, at=last)


@judge_of_episode(WAITING, role="model-server")
def waiting(episode: EpisodeView) -> Iterator[Finding]:
    """`waiting_lora_adapters`: it is there, names what waits for others, and does not name what runs."""
    view = episode.server
    if not _concerned(episode, WAITING):
        return
    seen = False
    for one, metric in view.readings("lora"):
        for sample in metric.samples:
            seen = True
            if WAITS not in sample.labels:
                yield view.fail(WAITING, f"the series have the label {WAITS}", "it is not there", at=one)
                return
    for one, metric in view.readings("lora"):
        both = adapters_of(_newest(metric), RUNS) & adapters_of(_newest(metric), WAITS) if metric.samples else set()
        if one.loaded and both:
            actual = f"{min(both)} is in both"
            hint = "vLLM from 0.11.1 on writes every adapter in flight into both."
            expected = f"{WAITS} names what waits, and not what runs"
            yield view.fail(WAITING, expected, actual, at=one, hint=hint, verdict=Verdict.WARN)
            return
    if seen:
        yield _none_waits(view) or passed(WAITING)


def _none_waits(view: ServerView) -> Finding | None:
    """No adapter is ever named, although some had to wait, for long enough: as many as can run had begun."""
    held = []
    expected = f"{WAITS} names the adapters that wait to be served"
    must_wait = False
    for one, metric in view.readings("lora"):
        if any(adapters_of(sample, WAITS) for sample in metric.samples):
            return None
        if one.loaded and metric.samples and view.metrics.engines(one.page) == 1:
            most = _newest(metric).labels.get(MAX, "")
            fewer = most.isdecimal() and 0 < int(most) < len(view.claims.adapters)
            if fewer and _one_each(view, one) and one.event.begun < len(view.claims.adapters):
                must_wait = True
                if int(most) <= one.event.begun:
                    held.append((one, most))
    if held_for(view.readable, frozenset(one.at for one, _ in held)) < SHOWN:
        if not must_wait:
            return None
        actual = "none ever, and no adapter had to wait for long enough to prove that it is left out"
        return view.unseen(WAITING, expected) or view.fail(WAITING, expected, actual, verdict=Verdict.INCONCLUSIVE)
    one, most = held[-1]
    actual = f"none ever, while {len(view.claims.adapters)} had a request in flight, and {MAX} is {most}"
    return view.fail(WAITING, expected, actual, at=one)


@judge_of_episode(NEWEST, role="model-server")
def newest(episode: EpisodeView) -> Iterator[Finding]:
    """The series with the largest value names an adapter in flight, as long as one is."""
    view = episode.server
    if not _concerned(episode, NEWEST):
        return
    known = set(view.claims.adapters)
    pages = [(one, found) for one, found in view.readings("lora") if one.loaded and one.event.begun > 0]
    shown = [(one, found) for one, found in pages if known & _listed_anywhere(found)]
    for one, found in shown[1:]:  # at the first, the change is under way
        top = _newest(found)
        tied = [sample for sample in found.samples if sample.value == top.value]
        if len({(names_text(sample)) for sample in tied}) > 1:
            actual = f"{len(tied)} series have the same, largest value"
            hint = "Whole seconds can't tell changes within one apart."
            yield view.fail(NEWEST, "one series is the newest", actual, at=one, hint=hint)
            return
    if shown[1:]:
        yield _outdated(view, shown[1:]) or passed(NEWEST)


def _outdated(view: ServerView, shown: Sequence[tuple[Scraped, MetricReading]]) -> Finding | None:
    """The newest series names none of the adapters in use, for longer than until a page is brought up to date."""
    old = [(one, found) for one, found in shown if view.metrics.outdated(one.page)]
    expected = "the newest series names the adapters in use"
    if held_for(tuple(one for one, _ in shown), frozenset(one.at for one, _ in old)) < SHOWN:
        return view.unseen(NEWEST, expected) if old else None
    one, found = old[-1]
    actual = f"the newest of {len(found.samples)} series names none of them"
    return view.fail(NEWEST, expected, actual, at=one)


def _concerned(episode: EpisodeView, requirement: str) -> bool:
    return requirement in episode.context.requirements and any(one.loaded for one in episode.server.readable)


def _newest(metric: MetricReading) -> MetricSample:
    return max(metric.samples, key=lambda sample: sample.value)


def _listed_anywhere(metric: MetricReading) -> set[str]:
    return {name for sample in metric.samples for name in adapters_of(sample, RUNS) | adapters_of(sample, WAITS)}


def names_text(sample: MetricSample) -> tuple[str, str]:
    """Both lists as they stand there."""
    return sample.labels.get(RUNS, ""), sample.labels.get(WAITS, "")
