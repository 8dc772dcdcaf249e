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
from conformance.evidence.model_server import LoadPhase, MetricsPage, ModelServerFacts, ServerAsked
from conformance.planning.plan import Work
from conformance.reading.server_metrics import ServerMetrics, page_of
from conformance.report.document.blocks import ModelServerTopology
from conformance.report.document.model import Report
from conformance.report.verify.steps import short
from conformance.scenario.model_server import API_PATHS, Ask, LoadStep
from conformance.scenario.seeded import shared_source_of, source_of
from conformance.scenario.server_stimulus import (
    CONTENT,
    HIDDEN,
    NOT_JSON,
    RUNG,
    TOP,
    content_of,
    described,
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
    steps = work.instance.scenario.steps
    if loads := [one.load for one in steps if one.load is not None]:
        yield from _loads(loads, episode, report)
        return
    wanted = sum(one.scrape.times for one in steps if one.scrape is not None)
    found = sum(1 + page.same for _, page in episode.of(MetricsPage))
    if found != wanted or any(True for _ in episode.of(LoadPhase)):
        yield f"its evidence has {found} scrapes, its scenario {wanted} and no load"


def _loads(steps: Sequence[LoadStep], episode: Episode, report: Report) -> Iterator[str]:
    """Of each load: at rest, raised level by level, ended, over, at rest again."""
    entries = [one for one in episode.entries if isinstance(one.event, LoadPhase | MetricsPage | Unmet)]
    for step in steps:
        first = _until(entries, "rest")
        if not first:
            yield "its evidence does not say whether the server was at rest before the load"
            return
        begin = first[-1].event
        assert isinstance(begin, LoadPhase)
        if not begin.met:
            if any(isinstance(one.event, LoadPhase | MetricsPage) for one in entries[len(first) :]):
                yield "its evidence has load although the server was not at rest"
            if not any(isinstance(one.event, Unmet) for one in entries[len(first) :]):
                yield "its evidence does not say that the server was not at rest"
            return
        whole = _until(entries[len(first) :], "rest")
        yield from _load(step, whole, report)
        entries = entries[len(first) + len(whole) :]
    if any(isinstance(one.event, LoadPhase | MetricsPage) for one in entries):
        yield "its evidence has more load than its scenario"


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
    if [event.phase for _, event in phases] != order or not 0 < len(raised) <= len(levels):
        yield f"its evidence has the load {short([event.phase for _, event in phases])}"
        return
    words = words_of(step, topology)
    for event, (level, tokens) in zip(raised, levels, strict=False):
        if (event.level, event.tokens, event.words) != (level, tokens, words):
            was = f"{event.level} requests of {event.tokens} tokens and {event.words} words"
            yield f"its evidence has load of {was}, its scenario {level} of {tokens} and {words}"
    yield from _pages(step, entries, len(levels), _claims(report))


def _pages(step: LoadStep, entries: Sequence[Entry], levels: int, claims: ModelServerFacts) -> Iterator[str]:
    """Each level has pages; all but the one that showed the load were held for their time, and showed nothing."""
    metrics = ServerMetrics(claims)
    before = [one.event for one in entries if isinstance(one.event, MetricsPage)][:1]
    marks = [number for number, one in enumerate(entries) if isinstance(one.event, LoadPhase)]
    raised = [(begin, end) for begin, end in pairwise(marks) if _phase(entries[begin]) == "raised"]
    if not before or (marks and marks[0] == 0):
        yield "its evidence has no page of the idle server before the load"
        return
    idle = page_of(before[0])
    for number, (begin, end) in enumerate(raised, start=1):
        pages = [one.event for one in entries[begin:end] if isinstance(one.event, MetricsPage)]
        shown = any(metrics.shows(page_of(one), step.until, idle) for one in pages)
        last = number == len(raised)
        held = (entries[end].t - entries[begin].t) / 1e9
        if not pages:
            yield f"its evidence has no page of load level {number}"
        elif shown and not last:
            yield f"its evidence has load raised further although level {number} showed"
        elif not shown and last and number < levels:
            yield f"its evidence has load that ended at level {number} of {levels}, and did not show"
        elif not shown and held < (TOP if number == levels else RUNG) - EARLY:
            yield f"its evidence has load level {number} held for {held:.1f} s only, and it did not show"


def _phase(entry: Entry) -> str:
    return entry.event.phase if isinstance(entry.event, LoadPhase) else ""


def _claims(report: Report) -> ModelServerFacts:
    assert isinstance(report.claims, ModelServerFacts), "the plan was computed with them"
    return report.claims
