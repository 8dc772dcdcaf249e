"""Markdown: the step summary of a CI job."""

from __future__ import annotations

from conformance.printable import plural
from conformance.report.document.failures import Concern, concerns, waived_text, waiver_of_concern, warnings
from conformance.report.document.model import Report
from conformance.report.render.ai_gateway import ways
from conformance.report.render.gauges import NAME, gauges, seen
from conformance.report.render.marks import mark
from conformance.report.render.markup import cell, code, text
from conformance.report.render.readme import age
from conformance.report.render.safe import safe
from conformance.report.render.text import requirement_counts
from conformance.report.verify.steps import PROVES
from conformance.verdict import KINDS, UNSETTLED, Verdict

MOST = 20
"""Failures written out; GitHub cuts step summaries at 1 MiB."""


def summary(report: Report) -> str:
    """Results, failures with expected and actual, and what is unsettled."""
    report = safe(report)
    lines = [f"## {_title(report)}: {mark(report.result)}", ""]
    if report.stopped:
        lines += [f"The run stopped early: {text(report.stopped)}", ""]
    lines += [*_versions(report), *_ai_gateway(report), *_gauges(report)]
    failed = concerns(report)
    if failed:
        lines += [f"### {plural(len(failed), 'failure')}", ""]
        for one in failed[:MOST]:
            lines += _failure(report, one)
        if len(failed) > MOST:
            lines += [f"… and {len(failed) - MOST} more in the report.", ""]
    lines += _warnings(report)
    unsettled = concerns(report, UNSETTLED)
    if unsettled:
        lines += ["<details><summary>Not settled</summary>", "", "| requirement | verdict | why |", "|---|---|---|"]
        for one in unsettled:
            why = one.occurrences[0].finding.actual if one.occurrences else one.requirement.note
            lines.append(f"| {_id(report, one)} | {mark(one.requirement.verdict)} | {cell(why)} |")
        lines += ["", "</details>", ""]
    lines += _footer(report)
    return "\n".join(lines) + "\n"


def _title(report: Report) -> str:
    return f"Endpoint Picker Protocol conformance of {text(report.name)}"


def _versions(report: Report) -> list[str]:
    lines = ["| version | result | protocol | ext_proc | requirements | blockers |", "|---|---|---|---|---|---|"]
    for row in sorted(report.versions, key=lambda row: age(row.version)):
        counts = requirement_counts(report, row).replace(" · ", ", ")
        kinds = " | ".join(mark(row.kinds[kind]) if kind in row.kinds else "–" for kind in KINDS)
        claimed = "" if row.claimed else " (not claimed)"
        blockers = ", ".join(row.blockers) or "none"
        lines.append(f"| {row.version}{claimed} | **{mark(row.result)}** | {kinds} | {counts} | {blockers} |")
    return [*lines, ""]


def _ai_gateway(report: Report) -> list[str]:
    """With which configurations of Envoy AI Gateway the target would work: of the headline version."""
    found = ways(report)
    if not found:
        return []
    lines = ["| Envoy AI Gateway | | would work | why |", "|---|---|---|---|"]
    lines += [f"| {one.what} | {one.name} | {one.works} | {cell(one.why)} |" for one in found]
    return [*lines, ""]


def _gauges(report: Report) -> list[str]:
    """Whether the gauges of model servers that it claims to read move its picks."""
    found = gauges(report)
    if not found:
        return []
    lines = ["| gauges of | what shows the load | followed | seen |", "|---|---|---|---|"]
    lines += [f"| {one.engine} | {NAME[one.gauge]} | {one.followed} | {cell(seen(one))} |" for one in found]
    return [*lines, ""]


def _failure(report: Report, one: Concern) -> list[str]:
    row = one.requirement
    lines = [f"#### {mark(row.verdict)}: {row.id} ({row.version})", "", f"{row.level}: {text(row.statement)}", ""]
    if not one.occurrences:
        return lines
    first = one.occurrences[0]
    if (waiver := waiver_of_concern(report, one)) is not None:
        lines += [f"- **{text(waived_text(waiver))}**"]
    lines += [f"- expected: {' — or — '.join(map(text, first.finding.expected)) or 'see the requirement'}"]
    lines += [f"- actual: {text(first.finding.actual or first.result.reason)}"]
    if hint := first.finding.hint or row.why:
        lines += [f"- hint: {text(hint)}"]
    lines += [
        f"- seen in `{first.result.id}`" + (f" and {len(one.occurrences) - 1} more" if one.occurrences[1:] else "")
    ]
    if command := report.reproduce(first.result):
        lines += ["", *code(command)]
    return [*lines, ""]


def _warnings(report: Report) -> list[str]:
    found = warnings(report)
    if not found:
        return []
    lines = [f"### {plural(len(found), 'warning')}", "", "| requirement | scenario | what was seen |", "|---|---|---|"]
    lines += [
        f"| {one.finding.requirement} ({one.result.version}) | `{cell(one.result.id)}` | {cell(one.finding.actual)} |"
        for one in found
    ]
    return [*lines, ""]


def _footer(report: Report) -> list[str]:
    counted = sum(row.verdict is not Verdict.UNTESTED for row in report.requirements)
    return [
        f"{plural(counted, 'requirement verdict')} from {plural(len(report.results), 'scenario')} by "
        f"{report.suite.name} {report.suite.version} (catalogue {report.catalogue.version}). {PROVES}",
    ]


def _id(report: Report, one: Concern) -> str:
    return one.requirement.id if len(report.versions) == 1 else f"{one.requirement.id} ({one.requirement.version})"
