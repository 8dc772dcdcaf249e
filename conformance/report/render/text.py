"""The report on a terminal: one failure on one screen, and a summary of at most twelve lines.

Both are `rich.text.Text`: print them with a rich console, or take `.plain` where there is no colour.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.outcome import GENERATED, NOT_SELECTED, ScenarioResult
from conformance.printable import plural, printable
from conformance.report.document.blocks import Waiver
from conformance.report.document.failures import Occurrence, passing_but_blamed, waived_text, warnings
from conformance.report.document.model import Report
from conformance.report.document.rows import RequirementRow, VersionRow
from conformance.report.render.ai_gateway import ways_line
from conformance.report.render.gauges import gauges, gauges_line
from conformance.report.render.marks import STYLE, SYMBOL, WORD, mark, protocol
from conformance.report.render.transcript import Line, transcript
from conformance.verdict import UNSETTLED, Result, Verdict

if TYPE_CHECKING:
    from rich.text import Text

    from conformance.evidence.episode import Episode
    from conformance.report.verify.steps import Verification

CONVERSATION_LINES = 14
"""How much of a conversation fits on a screen beside the rest."""

ROWS = 2
"""Rows of a line of a conversation, unless the whole is wanted."""

SUMMARY_LINES = 12
DETAILS = 6


def failure_text(
    requirement: RequirementRow,
    occurrence: Occurrence,
    episode: Episode | None = None,
    *,
    width: int = 100,
    whole: bool = False,
    reproduce: str = "",
    see_all: str = "",
    waiver: Waiver | None = None,
) -> Text:
    """One failure, in this order: id and verdict, requirement, expected, actual, conversation, hint, command.

    The conversation is cut to what fits on a screen, unless the `whole` is wanted; the command `see_all` shows that.
    """
    block = _Block(width, whole=whole)
    result, finding = occurrence.result, occurrence.finding
    block.line(f"{SYMBOL[finding.verdict]} {requirement.id} {WORD[finding.verdict]}", STYLE[finding.verdict])
    block.append(f"  {result.id}  (version {requirement.version})")
    block.field("scenario", result.title)
    if waiver is not None:
        block.field("waived", waived_text(waiver).removeprefix("waived "), "bold")
    block.field("requires", f"{requirement.level}: {requirement.statement} (section: {requirement.section})")
    if requirement.reading:
        block.field("reading", requirement.reading)
    for position, expected in enumerate(finding.expected):
        block.field("expected" if position == 0 else "or", expected)
    block.field("actual", finding.actual or result.reason or WORD[finding.verdict], STYLE[finding.verdict])
    if episode is not None:
        limit = len(episode.entries) if whole else CONVERSATION_LINES
        for position, line in enumerate(transcript(episode, finding.exchange, finding.seq, limit=limit)):
            block.conversation("conversation" if position == 0 else "", line)
        if block.cut and see_all:
            block.line(f"{'':{block.LABEL}}  all of it: {see_all}", "dim")
    if hint := finding.hint or requirement.why:
        block.field("hint", hint)
    if reproduce:
        block.field("reproduce", reproduce, "bold")
    return block.text


def conversation_text(row: ScenarioResult, lines: Iterable[Line], *, width: int = 100, whole: bool = False) -> Text:
    """A scenario without a failure: its id and verdict, its title, what was said."""
    block = _Block(width, whole=whole)
    block.line(f"{SYMBOL[row.verdict]} {row.id} {WORD[row.verdict]}", STYLE[row.verdict])
    block.append(f"  (version {row.version})")
    block.field("scenario", row.title)
    if row.reason:
        block.field("reason", row.reason)
    for position, line in enumerate(lines):
        block.conversation("conversation" if position == 0 else "", line)
    return block.text


class _Block:
    """Lines with a label at the left and text that is folded into the width."""

    LABEL = 13

    def __init__(self, width: int, *, whole: bool = False) -> None:
        from rich.text import Text

        self.text = Text()
        self.width = max(width, 40)
        self.whole = whole
        self.cut = False
        """Whether a conversation has more than is shown."""

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
        details = line.details if self.whole else line.details[:DETAILS] if line.marked else ()
        if line.marked and line.summary and set(line.summary.split(", ")) <= set(details):
            shown = text  # the details say the same
        self.folded(f"{label:{self.LABEL}}", shown, room, style)
        self.cut = self.cut or line.what == "…"
        for detail in details:
            self.folded(f"{'':{self.LABEL}}    ", detail, room - 4, style)

    def folded(self, margin: str, text: str, room: int, style: str) -> None:
        """A line that is folded at the width: into two rows at most, or all that it takes where the whole is wanted."""
        import textwrap

        parts = textwrap.wrap(text, room, break_on_hyphens=False, subsequent_indent=" " * 6)
        if len(parts) > ROWS and not self.whole:
            parts[ROWS - 1 :] = [_fit(" ".join((parts[ROWS - 1], *map(str.strip, parts[ROWS:]))), room)]
            self.cut = True
        for position, part in enumerate(parts or [""]):
            self.line(margin if position == 0 else " " * len(margin), "dim")
            self.append(part, style)


def summary_text(report: Report, paths: Iterable[Path | str] = (), *, width: int = 100) -> Text:
    """What came out, in at most twelve lines: results of both kinds, versions with their blockers, counts, files."""
    block = _Block(width)
    versions = ", ".join(row.version for row in report.versions) or report.specification.version
    block.line(f"{protocol(report.implementation.role, versions)}: {report.name}", "bold")
    block.line(f"{'result':{block.LABEL}}", "dim")
    block.append(mark(report.result), STYLE[report.result])
    if report.stopped:
        block.append(_fit(f"  stopped early: {' '.join(report.stopped.split())}", block.width - 30))
    elif not report.complete:
        block.append("  (a selection only: no full verdict)")
    facts = list(_facts(report, [Path(path) for path in paths]))
    room = max(SUMMARY_LINES - 2 - len(facts), 2)
    shown = report.versions if len(report.versions) <= room else report.versions[: room - 1]
    for row in shown:
        _version_line(block, row, stopped=bool(report.stopped))
    if len(shown) < len(report.versions):
        rest = [f"{row.version} {mark(row.result)}" for row in report.versions[len(shown) :]]
        _one_line(block, "", ", ".join(rest))
    for label, text in facts:
        _one_line(block, label, text, cut=label in ("warnings", "gauges", "waivers", "anomalies"))
    return block.text


def _facts(report: Report, paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    headline = report.headline()
    if headline is not None and headline.blockers and not report.stopped:
        unsettled = report.result is Result.INCOMPLETE and (
            report.complete or any(row.verdict in UNSETTLED for row in report.results)
        )
        folder = f" {shlex.quote(str(paths[0].parent))}" if paths else ""
        why = f"  (why: epp-conformance report show{folder} --unsettled)" if unsettled else ""
        yield "blockers", " ".join(headline.blockers) + why
    provisional = sum(row.provisional for row in report.results)
    failing = sum(row.provisional and row.verdict is Verdict.FAIL for row in report.results)
    scenarios = Counter(row.verdict for row in report.results) - Counter({Verdict.FAIL: failing})
    took = f"{len(report.results)} in {report.duration:.1f} s, seed {report.environment.seed}"
    extra = f", {provisional} provisional" if provisional else ""
    extra += f" of which {failing} fail" if failing else ""
    generated = report.figures.get(GENERATED)
    extra += f", {generated} generated" if generated else ""
    yield "scenarios", f"{_counts(scenarios)} ({took}{extra})"
    if spoilt := passing_but_blamed(report):
        rules = " ".join(dict.fromkeys(name for _, name in spoilt))
        count = len({result for result, _ in spoilt})
        break_other = "breaks rules that it is" if count == 1 else "break rules that they are"
        yield "", f"{count} of those that pass {break_other} not about: {rules}"
    if headline is not None:
        yield "requirements", requirement_counts(report, headline)
        failing_rows = (row for row in report.requirements_of(headline.version) if row.verdict is Verdict.FAIL)
        if light := [row.id for row in failing_rows if row.effect != "fail"]:
            count_as = "counts as a warning" if len(light) == 1 else "count as warnings"
            yield "", f"of those that fail, {' '.join(light)} {count_as}"
    if found := warnings(report):
        first = f"{found[0].finding.requirement} in {found[0].result.id}: {found[0].finding.actual}"
        yield "warnings", f"{len(found)}: {first}" + (" …" if len(found) > 1 else "")
    if not report.stopped and (line := ways_line(report)):
        yield "AI Gateway", line
    if found_gauges := gauges(report):
        yield "gauges", gauges_line(found_gauges)
    if report.waivers:
        waived = sum(len(one.matched) for one in report.waivers)
        verb = "waives" if len(report.waivers) == 1 else "waive"
        wrong = [f"; {one.problem}" for one in report.waivers if one.problem]
        yield "waivers", f"{len(report.waivers)} {verb} {plural(waived, 'failure')}{''.join(wrong)}"
    if report.anomalies:
        counted = Counter(one.text for one in report.anomalies)
        yield "anomalies", "; ".join(f"{count} times: {text}" if count > 1 else text for text, count in counted.items())
    if paths:
        names = (path.name if path.parent == paths[0].parent else str(path) for path in paths[1:])
        yield "report", " · ".join((str(paths[0]), *names))


def _version_line(block: _Block, row: VersionRow, *, stopped: bool) -> None:
    block.line(f"{row.version:{block.LABEL}}", "dim")
    block.append(mark(row.result), STYLE[row.result])
    for kind, result in row.kinds.items():
        block.append(f"  {kind} ")
        block.append(mark(result), STYLE[result])
    if row.blockers and not stopped:  # what was not reached is no news then
        block.append(f"  {plural(len(row.blockers), 'blocker')}")
    if not row.claimed:
        block.append("  (not claimed)", "dim")


def _one_line(block: _Block, label: str, text: str, *, cut: bool = True) -> None:
    block.line(f"{label:{block.LABEL}}", "dim")
    block.append(_fit(" ".join(text.split()), block.width - block.LABEL) if cut else text)


def _fit(line: str, length: int) -> str:
    return line if len(line) <= length else line[: max(length - 1, 1)] + "…"


def requirement_counts(report: Report, row: VersionRow) -> str:
    """How many requirements of a version had which verdict; `untested` and not selected are two things."""
    left_out = sum(one.verdict is Verdict.UNTESTED and one.note == NOT_SELECTED
                   for one in report.requirements_of(row.version))  # fmt: skip
    counts = Counter(row.requirement_verdicts)
    counts[Verdict.UNTESTED] -= left_out
    return _counts(+counts) + (f" · {left_out} not selected" if left_out else "")


def _counts(counts: Counter[Verdict]) -> str:
    return " · ".join(f"{counts[verdict]} {WORD[verdict]}" for verdict in Verdict if counts[verdict]) or "none"


def verification_text(verification: Verification) -> Text:
    """The steps of `report verify`, and what they prove."""
    block = _Block(120)
    styles = {"pass": STYLE[Verdict.PASS], "fail": STYLE[Verdict.FAIL], "unknown": STYLE[Verdict.INCONCLUSIVE]}
    symbols = {"pass": SYMBOL[Verdict.PASS], "fail": SYMBOL[Verdict.FAIL], "unknown": SYMBOL[Verdict.INCONCLUSIVE]}
    for step in verification.steps:
        block.line(f"{symbols[step.answer]} {step.answer:8}", styles[step.answer])
        block.append(printable(f"{step.name:13}{step.text}"))
        for detail in step.details:
            block.line(f"{'':23}- {printable(detail)}")
    block.line(printable(verification.proves))
    for note in verification.notes:
        block.line(printable(note), "dim")
    return block.text
