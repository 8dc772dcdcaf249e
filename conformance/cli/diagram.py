"""One conversation of a report: `report show --scenario`, and with `--format svg|mermaid` as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from conformance.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from conformance.outcome import ScenarioResult
    from conformance.report.document.model import Report
    from conformance.report.render.transcript import Line

LINES = 60


def diagram(report: Report, evidence: Path | None, scenario: str | None, *, mermaid: bool) -> str:
    """The conversation of the first failure, or of `scenario`, with the message at fault marked.

    Raises `UsageError` if there is no such conversation in the evidence.
    """
    from conformance.report.render.sequence import mermaid as as_mermaid
    from conformance.report.render.sequence import svg

    lines = conversation(evidence, *(_first_failure(report) if scenario is None else named(report, scenario)))
    return as_mermaid(lines) if mermaid else svg(lines) + "\n"


def conversation(
    evidence: Path | None, row: ScenarioResult, exchange: str | None, mark: int | None, *, limit: int = LINES
) -> tuple[Line, ...]:
    """What was said in a scenario's exchange. Raises `UsageError` if the evidence does not have it."""
    from conformance.evidence.store import episodes
    from conformance.report.render.transcript import transcript

    if evidence is None:
        raise UsageError("there is no evidence beside this report", hint="conversations are in evidence.ndjson.gz")
    if row.evidence is None:
        raise UsageError(f"{row.id} was not run: {row.reason}")
    found = dict(episodes(evidence, {row.evidence}))
    if row.evidence not in found:
        raise UsageError(f"{evidence} does not have the conversation of {row.id}", hint="`report verify` says more")
    return transcript(found[row.evidence], exchange, mark, limit=limit)


def _first_failure(report: Report) -> tuple[ScenarioResult, str | None, int | None]:
    from conformance.report.document.failures import concerns
    from conformance.verdict import Verdict

    for one in concerns(report, (Verdict.FAIL, Verdict.ERROR)):
        for seen in one.occurrences:
            return seen.result, seen.finding.exchange, seen.finding.seq
    raise UsageError("nothing failed in this report", hint="name a scenario: --scenario ID")


def named(report: Report, scenario: str) -> tuple[ScenarioResult, str | None, int | None]:
    """The result of `scenario`, one with a finding first; the exchange and the entry that it is about."""
    rows = [row for row in report.results if scenario in (row.id, row.scenario)]
    if not rows:
        raise UnknownNameError("scenario", scenario, [row.id for row in report.results])
    found = ((row, row.decisive) for row in rows)
    told = ((row, one.exchange, one.seq) for row, one in found if one is not None and one.seq is not None)
    return next(told, (rows[-1], None, None))
