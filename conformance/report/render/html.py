"""The report as one HTML file: readable by someone who has never seen the tool, and needing no network.

Whatever came from the target is escaped by Jinja2. Beyond that, the page's content security policy names its only
script and its only style sheet by digest and forbids every request, so that nothing else could run or leave.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from conformance.evidence.store import episodes
from conformance.outcome import NOT_SELECTED, ScenarioResult
from conformance.printable import plural
from conformance.report.document.failures import Concern, Occurrence, concerns, waived_text, waiver_of
from conformance.report.document.model import Report
from conformance.report.document.rows import RequirementRow
from conformance.report.render.ai_gateway import ways
from conformance.report.render.gauges import NAME, gauges, seen
from conformance.report.render.marks import MEANING, SUBJECT, SYMBOL, WORD
from conformance.report.render.page import asset, policy, template
from conformance.report.render.pictures import bar, glance, picks, picks_svg, spans, spans_svg
from conformance.report.render.safe import safe
from conformance.report.render.sequence import svg
from conformance.report.render.transcript import Line, transcript
from conformance.report.verify.steps import PROVES
from conformance.verdict import PRECEDENCE, UNSETTLED, Finding, Result, Verdict

if TYPE_CHECKING:
    from conformance.evidence.episode import Episode

OCCURRENCES = 3
"""Conversations shown per requirement that is not fine; further places are listed."""

PASSES = 5
"""Passing scenarios whose conversation is shown, as examples of what is sent."""

LINES = 48
"""Lines of a conversation."""

Row = TypeVar("Row", RequirementRow, ScenarioResult)
Conversations: TypeAlias = "dict[tuple[Any, ...], ShownConversation]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownConversation:
    """A conversation: its lines, and pictures of the episode that it is from, where there is something to see."""

    lines: tuple[Line, ...]
    pictures: tuple[str, ...]

    @classmethod
    def of(cls, episode: Episode, exchange: str | None, seq: int | None) -> ShownConversation:
        """That of `exchange`, or about the entry `seq`."""
        counted, lasted = picks(episode), spans(episode)
        pictures = [picks_svg(counted)] if sum(counted.values()) > 1 else []
        pictures += [spans_svg(lasted)] if len(lasted) > 1 else []
        return cls(lines=transcript(episode, exchange, seq, limit=LINES), pictures=tuple(pictures))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """An occurrence with its conversation, as far as there is evidence."""

    occurrence: Occurrence
    talk: ShownConversation | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A requirement that is not fine, as the page shows it: once, with the versions in which that is so."""

    requirement: RequirementRow
    versions: tuple[str, ...]
    shown: tuple[Shown, ...]
    elsewhere: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Across(Generic[Row]):
    """A requirement, or all instances of a scenario: the newest row, and that of each version of the report."""

    row: Row
    rows: tuple[Row, ...]
    by_version: tuple[Row | None, ...]

    @property
    def telling(self) -> tuple[Row, ...]:
        """Those that did not pass."""
        return tuple(one for one in self.rows if one.verdict is not Verdict.PASS)


def across(rows: Iterable[Row], versions: Sequence[str], name: Callable[[Row], str]) -> list[Across[Row]]:
    """Rows put together by their `name`. What stands for a version is the worst of it."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(name(row), []).append(row)
    return [
        Across(row=own[-1], rows=tuple(own), by_version=tuple(_worst(own, version) for version in versions))
        for own in groups.values()
    ]


def _worst(rows: Iterable[Row], version: str) -> Row | None:
    own = (row for row in rows if row.version == version)
    return min(own, key=lambda row: PRECEDENCE.index(row.verdict), default=None)


def html(report: Report, evidence: Path | None = None) -> str:
    """The page. Conversations are taken from the file of evidence, of those scenarios only that are shown."""
    report = safe(report)
    failed = concerns(report)
    unsettled = concerns(report, (*UNSETTLED, Verdict.WARN))
    provisional = [row for row in report.results if row.provisional and row.verdict is not Verdict.PASS]
    examples = _examples(report)
    conversations = _conversations([*failed, *unsettled], examples, evidence)
    counted = Counter(row.verdict for row in report.results)
    versions = [row.version for row in report.versions]
    word, meaning = _words(report)
    script, style = asset("page.js"), asset("page.css")
    return template("page.html.j2").render(
        report=report,
        headline=report.headline(),
        failed=_cards(failed, conversations),
        unsettled=_cards(unsettled, conversations),
        provisional=provisional,
        examples=[(row, conversations.get(_key(row))) for row in examples],
        subject=SUBJECT[report.implementation.role],
        counts={verdict: counted[verdict] for verdict in Verdict if counted[verdict]},
        verdicts=[verdict for verdict in Verdict if any(row.verdict is verdict for row in report.requirements)],
        several=len(report.versions) > 1,
        requirements=across(report.requirements, versions, lambda row: row.id),
        judged=_judged(report),
        about=_about(report),
        scenarios=across(report.results, versions, lambda row: row.scenario),
        meaning=meaning,
        symbol=SYMBOL,
        word=word,
        plural=plural,
        waived=lambda requirement, result: (
            waived_text(found) if (found := waiver_of(report, requirement, result)) is not None else ""
        ),
        proves=PROVES,
        drawing=lambda lines: svg(lines, alone=False),
        glance=glance(report.requirements, versions),
        bar=lambda rows: bar(rows, word),
        ways=ways(report),
        gauges=gauges(report),
        gauge_name=NAME,
        seen=seen,
        policy=policy(style=style, script=script),
        script=script,
        style=style,
    )


def _judged(report: Report) -> Mapping[str, int]:
    """In how many scenarios of the headline version each requirement was judged."""
    said = ((name, row.id) for row in report.results_of(report.specification.version) for name, _ in row.said)
    return Counter(name for name, _ in dict.fromkeys(said))


def _about(report: Report) -> Mapping[str, Mapping[str, None]]:
    """The scenarios that name each requirement."""
    found: dict[str, dict[str, None]] = {}
    for row in report.results:
        for name in row.requirements:
            found.setdefault(name, {})[row.scenario] = None
    return found


def _words(report: Report) -> tuple[Mapping[Verdict | Result, str], Mapping[Verdict, str]]:
    """The words for verdicts, and what they mean: as in the terminal, what was left out is not selected."""
    untested = [row for row in report.requirements if row.verdict is Verdict.UNTESTED]
    if any(row.note != NOT_SELECTED for row in untested):
        return WORD, MEANING
    return {**WORD, Verdict.UNTESTED: "not selected"}, {**MEANING, Verdict.UNTESTED: NOT_SELECTED}


def _cards(found: Sequence[Concern], conversations: Conversations) -> list[Card]:
    """One card for each requirement: the conversations are those of the newest version in which it is not fine."""
    groups: dict[str, list[Concern]] = {}
    for concern in found:
        groups.setdefault(concern.requirement.id, []).append(concern)
    return [_card(own, conversations) for own in groups.values()]


def _card(concerns: Sequence[Concern], conversations: Conversations) -> Card:
    newest = concerns[0]
    shown = tuple(
        Shown(
            occurrence=one,
            talk=conversations.get(_key(one.result, one.finding)),
        )
        for one in newest.occurrences[:OCCURRENCES]
    )
    names = dict.fromkeys(one.result.id for concern in concerns for one in concern.occurrences)
    seen = {one.occurrence.result.id for one in shown}
    return Card(
        requirement=newest.requirement,
        versions=tuple(reversed([concern.requirement.version for concern in concerns])),
        shown=shown,
        elsewhere=tuple(name for name in names if name not in seen),
    )


def _examples(report: Report) -> list[ScenarioResult]:
    """A few short passing scenarios, each of another section."""
    passed = [row for row in report.results if row.verdict is Verdict.PASS and row.evidence]
    by_section: dict[str, ScenarioResult] = {}
    for row in sorted(passed, key=lambda row: (not row.smoke, row.duration)):
        by_section.setdefault(row.section, row)
    return list(by_section.values())[:PASSES]


def _key(row: ScenarioResult, finding: Finding | None = None) -> tuple[Any, ...]:
    return (row.evidence, finding.exchange, finding.seq) if finding else (row.evidence, None, None)


def _conversations(
    shown: Sequence[Concern], examples: Sequence[ScenarioResult], evidence: Path | None
) -> Conversations:
    """Every conversation on the page; one pass over the evidence, one episode in memory at a time."""
    if evidence is None:
        return {}
    wanted = {_key(one.result, one.finding) for concern in shown for one in concern.occurrences[:OCCURRENCES]} | {
        _key(row) for row in examples
    }
    by_line: dict[str, list[tuple[Any, ...]]] = {}
    for key in wanted:
        if key[0] is not None:
            by_line.setdefault(key[0], []).append(key)
    return {
        key: ShownConversation.of(episode, key[1], key[2])
        for sha256, episode in episodes(evidence, set(by_line))
        for key in by_line[sha256]
    }
