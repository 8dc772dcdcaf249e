"""The report as one HTML file: readable by someone who has never seen the tool, and needing no network.

Whatever came from the target is escaped by Jinja2. Beyond that, the page's content security policy names its only
script and its only style sheet by digest and forbids every request, so that nothing else could run or leave.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.report.evidence import episodes
from conformance.report.failures import UNSETTLED, Concern, Occurrence, concerns
from conformance.report.marks import MEANING, SUBJECT, SYMBOL, WORD, plural
from conformance.report.model import Report
from conformance.report.rows import RequirementRow, ScenarioRow
from conformance.report.transcript import Line, transcript
from conformance.report.verify import PROVES
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from jinja2 import Template

OCCURRENCES = 3
"""Conversations shown per requirement that is not fine; further places are listed."""

PASSES = 5
"""Passing scenarios whose conversation is shown, as examples of what is sent."""

LINES = 48
"""Lines of a conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An occurrence with its conversation, as far as there is evidence."""

    occurrence: Occurrence
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A requirement that is not fine, as the page shows it."""

    requirement: RequirementRow
    shown: tuple[Shown, ...]
    elsewhere: tuple[str, ...]


def html(report: Report, evidence: Path | None = None) -> str:
    """The page. Conversations are taken from the file of evidence, of those scenarios only that are shown."""
    failed = concerns(report)
    unsettled = concerns(report, (*UNSETTLED, Verdict.WARN))
    provisional = [row for row in report.results if row.provisional and row.verdict is not Verdict.PASS]
    examples = _examples(report)
    conversations = _conversations([*failed, *unsettled], examples, evidence)
    counted = Counter(row.verdict for row in report.results)
    script, style = _asset("page.js"), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src '{_source(script)}'; style-src '{_source(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return _template().render(
        report=report,
        headline=report.headline(),
        failed=[_card(one, conversations) for one in failed],
        unsettled=[_card(one, conversations) for one in unsettled],
        provisional=provisional,
        examples=[(row, conversations.get(_key(row, row.exchange, row.seq), ())) for row in examples],
        subject=SUBJECT[report.implementation.role],
        counts={verdict: counted[verdict] for verdict in Verdict if counted[verdict]},
        verdicts=[verdict for verdict in Verdict if any(row.verdict is verdict for row in report.requirements)],
        several=len(report.versions) > 1,
        anchor=functools.partial(_anchor, len(report.versions) > 1),
        meaning=MEANING,
        symbol=SYMBOL,
        word=WORD,
        plural=plural,
        proves=PROVES,
        policy=policy,
        script=script,
        style=style,
        document=_embedded(report),
    )


def _anchor(several: bool, row: RequirementRow) -> str:
    """The fragment of a requirement; with its version where the page has several."""
    return f"{row.id}@{row.version}" if several else row.id


def _card(concern: Concern, conversations: dict[tuple[Any, ...], tuple[Line, ...]]) -> Card:
    first = concern.occurrences[:OCCURRENCES]
    return Card(
        requirement=concern.requirement,
        shown=tuple(
            Shown(
                occurrence=one,
                lines=conversations.get(_key(one.result, one.finding.exchange, one.finding.seq), ()),
            )
            for one in first
        ),
        elsewhere=tuple(one.result.id for one in concern.occurrences[OCCURRENCES:]),
    )


def _examples(report: Report) -> list[ScenarioRow]:
    """A few short passing scenarios, each of another section."""
    passed = [row for row in report.results if row.verdict is Verdict.PASS and row.evidence]
    by_section: dict[str, ScenarioRow] = {}
    for row in sorted(passed, key=lambda row: (not row.smoke, row.duration)):
        by_section.setdefault(row.section, row)
    return list(by_section.values())[:PASSES]


def _key(row: ScenarioRow, exchange: str | None, seq: int | None) -> tuple[Any, ...]:
    return (row.evidence.sha256 if row.evidence else None, exchange, seq)


def _conversations(
    shown: Sequence[Concern], examples: Sequence[ScenarioRow], evidence: Path | None
) -> dict[tuple[Any, ...], tuple[Line, ...]]:
    """The lines of every conversation on the page; one pass over the evidence, one episode in memory at a time."""
    if evidence is None:
        return {}
    wanted = {
        _key(one.result, one.finding.exchange, one.finding.seq)
        for concern in shown
        for one in concern.occurrences[:OCCURRENCES]
    } | {_key(row, row.exchange, row.seq) for row in examples}
    by_line: dict[str, list[tuple[Any, ...]]] = {}
    for key in wanted:
        if key[0] is not None:
            by_line.setdefault(key[0], []).append(key)
    return {
        key: transcript(episode, key[1], key[2], limit=LINES)
        for sha256, episode in episodes(evidence, set(by_line))
        for key in by_line[sha256]
    }


def _embedded(report: Report) -> str:
    """The canonical JSON in a form that can't end the script element it stands in."""
    text = json.dumps(report.document(), separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _source(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_asset("page.html.j2"))
