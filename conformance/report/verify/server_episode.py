"""Whether an episode has what its scenario asks a model server: requests, scrapes in number, load step by step.

Load is raised until a page shows it, so how far it was raised follows from the pages; how long each level was held
follows from the times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from conformance.evidence.episode import Episode, HarnessTrouble, ProcessExited, Unmet
from conformance.evidence.model_server import LoadPhase, MetricsPage, ModelServerFacts, ServerAnswered, ServerAsked
from conformance.planning.plan import Work
from conformance.printable import plural
from conformance.reading.server_metrics import ServerMetrics, page_of, too_long
from conformance.report.document.blocks import ModelServerTopology
from conformance.report.document.model import Report
from conformance.report.verify.steps import short
from conformance.scenario.model_server import API_PATHS, Ask, LoadStep
from conformance.scenario.seeded import shared_source_of, source_of
from conformance.scenario.server_stimulus import (
    CONTENT,
    HELD,
    HIDDEN,
    NOT_JSON,
    RUNG,
    TOP,
    WATCHED,
    content_of,
    described,
    halved,
    has_prompt,
    method_of,
    prompt_of,
    rungs,
    words_of,
)
from ext_proc.record import Entry

EARLY = 0.02
"""Seconds by which a level may seem to have ended early: two clocks, read one after the other."""


def stimulus(ask: Ask, asked: ServerAsked, work: Work, number: int, repeat: int, report: Report) -> Iterator[str]:
    """What speaks against `asked` being the request of step `number` of `work`."""
    seed, adapters = report.environment.seed, _claims(report).adapters
    wanted: dict[str, Any] = {
        "method": method_of(ask),
        "path": API_PATHS[ask.api],
        "api": ask.api,
        "stream": ask.stream,
        "include_usage": ask.include_usage,
        "tokens": ask.tokens,
        "wrong": ask.wrong,
        "adapter": asked.model in adapters,
    }
    if has_prompt(ask):
        own = source_of(seed, work.instance.id, work.mode, number, repeat)
        source = shared_source_of(seed, work.instance.id) if ask.prompt == "same" else own
        wanted["prompt"] = described(prompt_of(ask.prompt_words, source))
    if ask.model == "adapter":
        wanted["model"] = next(iter(adapters), "")
    for name, value in wanted.items():
        if getattr(asked, name) != value:
            yield f"its evidence has the {name} {short(getattr(asked, name))}, its scenario {short(value)}"
    if not _says(asked.body, ask, asked.model):
        yield "its body is not that of its scenario"


def _says(body: bytes, ask: Ask, model: str) -> bool:
    """Whether a body has what the scenario sends; what a profile adds to each is free."""
    if ask.api == "models":
        return body == b""
    if ask.wrong == "not-json":
        return body == NOT_JSON
    try:
        content = json.loads(body)
    except ValueError:
        return False
    return isinstance(content, dict) and content_of(ask, model, HIDDEN) == {
        name: value for name, value in content.items() if name in CONTENT
    }


# -- pages and load ----------------------------------------------------------------------------------------------------


def problems(work: Work, episode: Episode, report: Report) -> Iterator[str]:
    """What speaks against the pages and the load of `episode` being those of `work`."""
    if any(True for kind in (HarnessTrouble, ProcessExited) for _ in episode.of(kind)):
        return  # it ended early
    for name, entries in episode.exchanges.items():
        events = [entry.event for entry in entries]
        asked, answered = (sum(isinstance(one, kind) for one in events) for kind in (ServerAsked, ServerAnswered))
        if asked != answered and not any(True for _ in episode.of(Unmet)):
            yield f"{name}: its evidence has {answered} ends of a request to the server, not {asked}"
    left = [one for one in episode.entries if isinstance(one.event, LoadPhase | MetricsPage | Unmet)]
    for step in work.instance.scenario.steps:
        if step.scrape is not None:
            pages = _scraped(left, step.scrape.times)
            found = sum(1 + one.event.same for one in pages if isinstance(one.event, MetricsPage))
            if found != step.scrape.times:
                yield f"its evidence has {found} scrapes, its scenario {step.scrape.times}"
            if any(isinstance(one.event, MetricsPage) and one.event.gzip != step.scrape.gzip for one in pages):
                yield f"its evidence has scrapes {'without' if step.scrape.gzip else 'with'} gzip"
            left = left[len(pages) :]
        elif step.load is not None:
            before = _until(left, "rest")
            whole = _until(left[len(before) :], "rest") if _at_rest(before) else []
            left = left[len(before) + len(whole) :]
            if whole or _at_rest(before):
                yield from _load(step.load, whole, report)
            elif not before or not left or not isinstance(left.pop(0).event, Unmet):
                yield "its evidence does not say whether the server was at rest before the load"
    if any(isinstance(one.event, LoadPhase | MetricsPage) for one in left):
        yield "its evidence has more pages or load than its scenario"


def _scraped(entries: Sequence[Entry], times: int) -> list[Entry]:
    """The pages at the beginning, up to so many scrapes."""
    found: list[Entry] = []
    for one in entries:
        if times <= 0 or not isinstance(one.event, MetricsPage):
            break
        times -= 1 + one.event.same
        found.append(one)
    return found


def _at_rest(entries: Sequence[Entry]) -> bool:
    return bool(entries) and isinstance(entries[-1].event, LoadPhase) and entries[-1].event.met


def _until(entries: Sequence[Entry], phase: str) -> list[Entry]:
    """The entries up to and with the first phase of that name; none if there is none."""
    for number, one in enumerate(entries):
        if isinstance(one.event, LoadPhase) and one.event.phase == phase:
            return list(entries[: number + 1])
    return []


def _load(step: LoadStep, entries: Sequence[Entry], report: Report) -> Iterator[str]:
    topology = report.environment.topology
    assert isinstance(topology, ModelServerTopology), "the plan was computed with it"
    phases = [(one, one.event) for one in entries if isinstance(one.event, LoadPhase)]
    levels = list(rungs(step, topology, len(_claims(report).adapters)))
    raised = [event for _, event in phases if event.phase == "raised"]
    ended = "aborted" if step.end == "abort" else "released"
    order = [*("raised" for _ in raised), ended, "over", "rest"]
    longer = {number for number, (one, then) in enumerate(pairwise(raised)) if _too_long(one, then)}
    if [event.phase for _, event in phases] != order or not 0 < len(raised) - len(longer) <= len(levels):
        yield f"its evidence has the load {short([event.phase for _, event in phases])}"
        return
    words, left = words_of(step, topology), iter(levels)
    level, tokens = next(left)
    for number, event in enumerate(raised):
        if (event.level, event.tokens, event.words) != (level, tokens, words):
            was = (
                f"{plural(event.level, 'request')} of {plural(event.tokens, 'token')} and {plural(event.words, 'word')}"
            )
            yield f"its evidence has load of {was}, its scenario {level} of {tokens} and {words}"
        if number in longer:
            words = halved(words)
        else:
            level, tokens = next(left, (level, tokens))
    yield from _pages(step, entries, len(levels), _claims(report))


def _too_long(load: LoadPhase, after: LoadPhase) -> bool:
    return too_long(load, after.finished, after.refused)


def _pages(step: LoadStep, entries: Sequence[Entry], levels: int, claims: ModelServerFacts) -> Iterator[str]:
    """Each level has pages; all but the one that showed the load were held for their time, and showed nothing."""
    metrics = ServerMetrics(claims)
    before = [one.event for one in entries if isinstance(one.event, MetricsPage)][:1]
    marks = [number for number, one in enumerate(entries) if isinstance(one.event, LoadPhase)]
    raised = [(begin, end) for begin, end in pairwise(marks) if _phase(entries[begin]) == "raised"]
    if not before or (marks and marks[0] == 0):
        yield "its evidence has no page of the idle server before the load"
        return
    idle, number = page_of(before[0]), 0
    for begin, end in raised:
        pages = [(one.t, one.event) for one in entries[begin:end] if isinstance(one.event, MetricsPage)]
        load = entries[begin].event
        after = entries[end].event
        assert isinstance(load, LoadPhase)
        assert isinstance(after, LoadPhase)
        last = end == raised[-1][1]
        shortened = _too_long(load, after) and not last
        number += not shortened
        if any(not page.begun <= page.sent <= min(page.most, load.level) for _, page in pages):
            yield f"its evidence has more requests that had begun than were in flight, or more than load level {number}"
        shown = [t for t, one in pages if metrics.shows(one, load, step.until, idle)]
        held = (entries[end].t - entries[begin].t) / 1e9
        if not pages:
            yield f"its evidence has no page of load level {number}"
        elif shown and not last:
            yield f"its evidence has load raised further although level {number} showed"
        elif not shown and last and number < levels:
            yield f"its evidence has load that ended at level {number} of {levels}, and did not show"
        elif not shown and not shortened and held < (TOP if number == levels else RUNG) - EARLY:
            yield f"its evidence has load level {number} held for {held:.1f} s only, and it did not show"
        elif (
            shown
            and (watched := (entries[end].t - shown[0]) / 1e9) < WATCHED - EARLY
            and any(metrics.doubtful(one, load, step.until) for one in _last(pages))
        ):
            yield f"its evidence has load held for {watched:.1f} s only, although the gauges were in doubt"


def _last(pages: Sequence[tuple[int, MetricsPage]]) -> Iterator[MetricsPage]:
    """The pages of the last scrapes, which must be beyond doubt for load to end."""
    scrapes = 0
    for _, page in reversed(pages):
        if scrapes >= HELD:
            return
        scrapes += 1 + page.same
        yield page


def _phase(entry: Entry) -> str:
    return entry.event.phase if isinstance(entry.event, LoadPhase) else ""


def _claims(report: Report) -> ModelServerFacts:
    assert isinstance(report.claims, ModelServerFacts), "the plan was computed with them"
    return report.claims
