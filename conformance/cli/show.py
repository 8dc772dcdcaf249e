"""A report on the terminal: its failures, one screen each, then its summary. For `run`, `certify` and `report show`."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli.console import WIDTH, out, width_of
from conformance.printable import plural
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from conformance.cli.run_and_report import ReportedRun
    from conformance.evidence.episode import Episode
    from conformance.report.document.failures import Concern, Defect
    from conformance.report.document.model import Report

BLOCKS = 3
"""Failures that are shown in full; of the others one line each. More would bury them."""

LINES = 20


def show(done: ReportedRun) -> None:
    """Print a run that is over: its failures, or why it stopped; the summary is last. Its verdict survives a reader
    who goes away."""
    from conformance.cli.console import show_error
    from conformance.cli.streams import reader_is_gone

    try:
        if done.stopped is None:
            show_failures(done.report, done.evidence)
        else:
            show_error(done.stopped)
        show_summary(done.report, list(done.paths))
    except (BrokenPipeError, SystemExit):
        reader_is_gone(sys.stdout)


def show_failures(
    report: Report,
    evidence: Path | None,
    *,
    verdicts: tuple[Verdict, ...] = (Verdict.FAIL, Verdict.ERROR),
    blocks: int = BLOCKS,
    whole: bool = False,
    scenario: str = "",
) -> None:
    """Print the requirements with one of `verdicts`: the first in full with the conversation, then one line each.

    Those that most likely only follow from another are named under it, unless more than `BLOCKS` are shown in full.
    With `whole`, conversations are not cut to what fits on a screen. `scenario` is the one that the report was
    narrowed to, for the command that shows the rest.
    """
    from conformance.report.document.failures import Defect, concerns, defects, waived_text, waiver_of_concern
    from conformance.report.render.marks import STYLE, WORD
    from conformance.report.render.safe import safe
    from conformance.report.render.text import failure_text

    report = safe(report)
    every = [one for one in concerns(report, verdicts) if one.occurrences]
    grouped = defects(every) if blocks <= BLOCKS else [Defect(cause=one, consequences=()) for one in every]
    found = [one.cause for one in grouped]
    console = out()
    command = f"epp-conformance report show {shlex.quote(str(evidence.parent))}" if evidence is not None else ""
    if command and scenario:
        command += f" --scenario {shlex.quote(scenario)}"
    episodes = _episodes(found[:blocks], evidence)
    for number, one in enumerate(found[:blocks]):
        first = one.occurrences[0]
        console.print(
            failure_text(
                one.requirement,
                first,
                episodes.get(first.result.evidence or ""),
                width=width_of(console),
                whole=whole,
                reproduce=report.reproduce(first.result),
                see_all=command and f"{command} --whole",
                waiver=waiver_of_concern(report, one),
            )
        )
        if more := len(one.occurrences) - 1:
            console.print(f"             seen in {plural(more, 'more scenario')}", style="dim")
        if folded := grouped[number].consequences:
            console.print(f"explains     {_folded(folded)}", style="dim")
        console.print()
    rest = found[blocks:]
    for at, one in enumerate(rest[:LINES], blocks):
        requirement, first = one.requirement, one.occurrences[0]
        waiver = waiver_of_concern(report, one)
        why = waived_text(waiver) if waiver is not None else first.finding.actual
        console.print(
            f"{WORD[requirement.verdict]:13}{requirement.id}  {first.result.id}: {_line(why)}{_more(grouped[at])}",
            style=STYLE[requirement.verdict],
        )
    if len(rest) > LINES:
        console.print(f"… and {plural(len(rest) - LINES, 'more requirement')}")
    show_warnings(report)
    if len(every) > len(found[:blocks]):
        if command:
            console.print(f"each in full: {command} --all", style="dim")
        console.print()


def show_scenario(report: Report, evidence: Path | None, scenario: str, *, whole: bool) -> None:
    """Print every failure of `scenario` in full; its conversation alone if there is none."""
    from conformance.cli.diagram import conversation, named
    from conformance.report.document.failures import concerns
    from conformance.report.render.safe import safe
    from conformance.report.render.text import conversation_text

    row, exchange, mark = named(safe(report), scenario)
    own = tuple(one for one in report.results if scenario in (one.id, one.scenario))
    only = report.model_copy(update={"results": own})
    verdicts = (Verdict.FAIL, Verdict.ERROR)
    if any(one.occurrences for one in concerns(only, verdicts)):
        show_failures(only, evidence, verdicts=verdicts, blocks=10_000, whole=whole, scenario=scenario)
        return
    limit = sys.maxsize if whole else LINES
    lines = conversation(evidence, row, exchange, mark, limit=limit)
    out().print(conversation_text(row, lines, width=width_of(out()), whole=whole))


def show_warnings(report: Report) -> None:
    """Print a line for each requirement with warnings: scenario and what was seen of the first, and how many more."""
    from conformance.report.document.failures import Occurrence, cause_of, warnings
    from conformance.report.render.marks import STYLE

    found: dict[tuple[str, str], list[Occurrence]] = {}
    for one in warnings(report):
        found.setdefault((one.result.version, one.finding.requirement), []).append(one)
    for (_, requirement), own in found.items():
        more = f" (and {len(own) - 1} more)" if len(own) > 1 else ""
        more += f" (follows from {cause})" if (cause := cause_of(report, own)) else ""
        line = f"{'warn':13}{requirement}  {own[0].result.id}: {_line(own[0].finding.actual)}{more}"
        out().print(line, style=STYLE[Verdict.WARN])


def _folded(consequences: tuple[Concern, ...]) -> str:
    """The failures that follow from one, and in how many scenarios each was seen."""
    each = [f"{one.requirement.id} ({plural(len(one.occurrences), 'scenario')})" for one in consequences]
    return (
        f"{plural(len(each), 'failure')} that most likely {'follow' if len(each) > 1 else 'follows'}: {', '.join(each)}"
    )


def _more(defect: Defect) -> str:
    return f" (explains {', '.join(one.requirement.id for one in defect.consequences)})" if defect.consequences else ""


def show_summary(report: Report, paths: list[Path]) -> None:
    """Print the summary."""
    from conformance.report.render.text import summary_text

    console = out()
    console.print(summary_text(report, paths, width=width_of(console)))


def _episodes(shown: list[Concern], evidence: Path | None) -> dict[str, Episode]:
    from conformance.evidence.store import EvidenceError, episodes

    wanted = {sha256 for one in shown if (sha256 := one.occurrences[0].result.evidence) is not None}
    if evidence is None or not evidence.is_file() or not wanted:
        return {}
    try:
        return dict(episodes(evidence, wanted))
    except EvidenceError:  # `report verify` says what is wrong with it; the failures are readable without
        return {}


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"
