"""The report on a terminal: one failure on one screen, and a summary of at most twelve lines.

Both are `rich.text.Text`: print them with a rich console, or take `.plain` where there is no colour.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.report.failures import Occurrence
from conformance.report.marks import STYLE, SYMBOL, WORD, mark, plural, protocol
from conformance.report.messages import printable
from conformance.report.model import Report
from conformance.report.rows import RequirementRow, VersionRow
from conformance.report.transcript import Line, transcript
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from rich.text import Text

    from conformance.episode import Episode
    from conformance.report.verify import Verification

CONVERSATION_LINES = 14
"""How much of a conversation fits on a screen beside the rest."""

VERSION_LINES = 4
DETAILS = 6


def failure_text(
    requirement: RequirementRow, occurrence: Occurrence, episode: Episode | None = None, *, width: int = 100
) -> Text:
    """One failure, in this order: id and verdict, requirement, expected, actual, conversation, hint, command."""
    block = _Block(width)
    result, finding = occurrence.result, occurrence.finding
    block.line(f"{SYMBOL[finding.verdict]} {requirement.id} {WORD[finding.verdict]}", STYLE[finding.verdict])
    block.append(f"  {result.id}  (version {requirement.version})")
    block.field("requires", f"{requirement.level}: {requirement.statement} (section: {requirement.section})")
    if requirement.reading:
        block.field("reading", requirement.reading)
    for position, expected in enumerate(finding.expected):
        block.field("expected" if position == 0 else "or", expected)
    block.field("actual", finding.actual or result.reason or WORD[finding.verdict], STYLE[finding.verdict])
    if episode is not None:
        lines = transcript(episode, finding.exchange, finding.seq, limit=CONVERSATION_LINES)
        for position, line in enumerate(lines):
            block.conversation("conversation" if position == 0 else "", line)
    if hint := finding.hint or requirement.why:
        block.field("hint", hint)
    if result.reproduce:
        block.field("reproduce", result.reproduce, "bold")
    return block.text


class _Block:
    """Lines with a label at the left and text that is folded into the width."""

    LABEL = 13

    def __init__(self, width: int) -> None:
        from rich.text import Text

        self.text = Text()
        self.width = max(width, 40)

    def line(self, text: str, style: str = "") -> None:
        if self.text:
            self.text.append("\n")
        self.append(text, style)

    def append(self, text: str, style: str = "") -> None:
        self.text.append(printable(text), style)

    def field(self, label: str, text: str, style: str = "") -> None:
        import textwrap

        room = self.width - self.LABEL
        folded = textwrap.wrap(printable(text), room, break_on_hyphens=False) or [""]
        folded = folded if label != "reproduce" else [printable(text)]  # a command must stay in one piece
        for position, part in enumerate(folded):
            self.line(f"{label if position == 0 else '':{self.LABEL}}", "dim")
            self.append(part, style)

    def conversation(self, label: str, line: Line) -> None:
        room = self.width - self.LABEL - 2
        style = STYLE[Verdict.FAIL] if line.marked else ""
        text = f"{'▶' if line.marked else ' '} {line.who:12} {line.what}"
        shown = f"{text}: {line.summary}" if line.summary else text
        self.line(f"{label:{self.LABEL}}", "dim")
        self.append(_fit(shown, room), style)
        for detail in line.details[:DETAILS] if line.marked else ():
            self.line(f"{'':{self.LABEL}}    ")
            self.append(_fit(detail, room - 4), style)


def summary_text(report: Report, paths: Iterable[Path | str] = (), *, width: int = 100) -> Text:
    """What came out, in at most twelve lines: results of both kinds, versions with their blockers, counts, files."""
    block = _Block(width)
    name = " ".join(part for part in (report.implementation.project, report.implementation.version) if part)
    versions = ", ".join(row.version for row in report.versions) or report.specification.version
    block.line(f"{protocol(report.implementation.role, versions)}: {name or report.subject.name}", "bold")
    block.line("result       ", "dim")
    block.append(mark(report.result), STYLE[report.result])
    if report.stopped:
        block.append(_fit(f"  stopped early: {' '.join(report.stopped.split())}", block.width - 30))
    elif not report.complete:
        block.append("  (a selection only: no full verdict)")
    shown = report.versions if len(report.versions) <= VERSION_LINES else report.versions[: VERSION_LINES - 1]
    for row in shown:
        _version_line(block, row)
    if len(shown) < len(report.versions):
        rest = [f"{row.version} {mark(row.result)}" for row in report.versions[len(shown) :]]
        _one_line(block, "", ", ".join(rest))
    headline = report.headline()
    if headline is not None and headline.blockers:
        _one_line(block, "blockers", " ".join(headline.blockers))
    scenarios = Counter(row.verdict for row in report.results)
    provisional = sum(row.provisional for row in report.results)
    took = f"{len(report.results)} in {report.duration:.1f} s, seed {report.environment.seed}"
    extra = f", {provisional} provisional" if provisional else ""
    _one_line(block, "scenarios", f"{_counts(scenarios)} ({took}{extra})")
    if headline is not None:
        _one_line(block, "requirements", _counts(Counter(headline.requirement_verdicts)))
    if headline is not None and headline.envoy_ai_gateway is not None:
        _one_line(block, "AI Gateway", headline.envoy_ai_gateway.line())
    if report.waivers:
        waived = sum(len(one.matched) for one in report.waivers)
        wrong = [f"; {one.problem}" for one in report.waivers if one.problem]
        _one_line(block, "waivers", f"{len(report.waivers)} waive {waived} failures{''.join(wrong)}")
    if report.anomalies:
        first = report.anomalies[0].text
        _one_line(block, "anomalies", f"{len(report.anomalies)}: {first}")
    if found := [str(path) for path in paths]:
        block.line("report       ", "dim")
        block.append(" · ".join(found))
    return block.text


def _version_line(block: _Block, row: VersionRow) -> None:
    block.line(f"{row.version:{block.LABEL}}", "dim")
    block.append(mark(row.result), STYLE[row.result])
    for kind, result in row.kinds.items():
        block.append(f"  {kind} ")
        block.append(mark(result), STYLE[result])
    if row.blockers:
        block.append(f"  {plural(len(row.blockers), 'blocker')}")
    if not row.claimed:
        block.append("  (not claimed)", "dim")


def _one_line(block: _Block, label: str, text: str) -> None:
    block.line(f"{label:{block.LABEL}}", "dim")
    block.append(_fit(" ".join(text.split()), block.width - block.LABEL))


def _fit(line: str, length: int) -> str:
    return line if len(line) <= length else line[: max(length - 1, 1)] + "…"


def _counts(counts: Counter[Verdict]) -> str:
    return " · ".join(f"{counts[verdict]} {WORD[verdict]}" for verdict in Verdict if counts[verdict]) or "none"


def verification_text(verification: Verification) -> Text:
    """The steps of `report verify`, and what they prove."""
    block = _Block(120)
    styles = {"pass": STYLE[Verdict.PASS], "fail": STYLE[Verdict.FAIL], "unknown": STYLE[Verdict.INCONCLUSIVE]}
    symbols = {"pass": SYMBOL[Verdict.PASS], "fail": SYMBOL[Verdict.FAIL], "unknown": SYMBOL[Verdict.INCONCLUSIVE]}
    for step in verification.steps:
        block.line(f"{symbols[step.answer]} {step.answer:8}", styles[step.answer])
        block.append(f"{step.name:13}{step.text}")
        for detail in step.details:
            block.line(f"{'':23}- {printable(detail)}")
    block.line(verification.proves)
    return block.text
