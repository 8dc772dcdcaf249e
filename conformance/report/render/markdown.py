"""Markdown: the step summary of a CI job, and the README of a submission."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.report.document.blocks import GatewayTopology, Topology
from conformance.report.document.failures import Concern, concerns
from conformance.report.document.model import Report
from conformance.report.document.rows import VersionRow
from conformance.report.render.marks import SUBJECT, WORD, mark, plural
from conformance.report.render.safe import safe
from conformance.report.verify.steps import PROVES
from conformance.requirements.schema import VERSIONS
from conformance.verdict import KINDS, UNSETTLED, Verdict

MOST = 20
"""Failures written out; GitHub cuts step summaries at 1 MiB."""


def summary(report: Report) -> str:
    """Results, failures with expected and actual, and what is unsettled."""
    report = safe(report)
    lines = [f"## {_title(report)}: {mark(report.result)}", ""]
    if report.stopped:
        lines += [f"The run stopped early: {_text(report.stopped)}", ""]
    lines += [*_versions(report), *_ai_gateway(report)]
    failed = concerns(report)
    if failed:
        lines += [f"### {plural(len(failed), 'failure')}", ""]
        for one in failed[:MOST]:
            lines += _failure(one)
        if len(failed) > MOST:
            lines += [f"… and {len(failed) - MOST} more in the report.", ""]
    unsettled = concerns(report, UNSETTLED)
    if unsettled:
        lines += ["<details><summary>Not settled</summary>", "", "| requirement | verdict | why |", "|---|---|---|"]
        for one in unsettled:
            why = one.occurrences[0].finding.actual if one.occurrences else one.requirement.note
            lines.append(f"| {_id(report, one)} | {mark(one.requirement.verdict)} | {_cell(why)} |")
        lines += ["", "</details>", ""]
    lines += _footer(report)
    return "\n".join(lines) + "\n"


def readme(report: Report, files: Sequence[tuple[str, Report]]) -> str:
    """The README of a submission folder: what was tested, how, with what result, and how to check it.

    `files` are the reports in the folder, this one and others, by file name.
    """
    report = safe(report)
    who, subject = report.implementation, report.subject
    lines = [
        f"# {_text(who.project)}",
        "",
        f"Conformance of the {SUBJECT[who.role]} [{_text(who.project)}]({_url(who.url)}) by {_text(who.organization)} "
        "to the Endpoint Picker Protocol.",
        "",
        "| | |",
        "|---|---|",
        f"| implementation | {_cell(who.project)} {_cell(who.version)} |",
        f"| contact | {_cell(', '.join(who.contact))} |",
        f"| how it was run | {subject.kind} `{_cell(subject.name)}` |",
        *([f"| digest | `{subject.digest}` |"] if subject.digest else []),
        *([f"| its own flags | `{_cell(' '.join(subject.flags))}` |"] if subject.flags else []),
        *_topology(report.environment.topology),
        f"| suite | {report.suite.name} {report.suite.version}, catalogue {report.catalogue.version} |",
        f"| run | {report.started_at}, seed {report.environment.seed} |",
        "",
        *_versions(report),
        *_ai_gateway(report),
        "Reports:",
        "",
        *(f"- [`{_text(name)}`]({_url(name)}): {_outcome(one)}" for name, one in files),
        "",
    ]
    lines += _reproduce(report)
    failed = concerns(report)
    if failed:
        lines += ["## Failures", ""]
        for one in failed[:MOST]:
            lines += _failure(one)
    lines += _footer(report)
    return "\n".join(lines) + "\n"


def _outcome(report: Report) -> str:
    blockers = ", ".join(name for row in report.versions for name in row.blockers)
    return mark(report.result) + (f" ({blockers})" if blockers else "")


def _title(report: Report) -> str:
    return f"Endpoint Picker Protocol conformance of {_text(report.name)}"


def _versions(report: Report) -> list[str]:
    lines = ["| version | result | protocol | ext_proc | requirements | blockers |", "|---|---|---|---|---|---|"]
    for row in sorted(report.versions, key=_age):
        counts = ", ".join(f"{number} {WORD[verdict]}" for verdict, number in row.requirement_verdicts.items())
        kinds = " | ".join(mark(row.kinds[kind]) if kind in row.kinds else "–" for kind in KINDS)
        claimed = "" if row.claimed else " (not claimed)"
        blockers = ", ".join(row.blockers) or "none"
        lines.append(f"| {row.version}{claimed} | **{mark(row.result)}** | {kinds} | {counts} | {blockers} |")
    return [*lines, ""]


def _age(row: VersionRow) -> int:
    return VERSIONS.index(row.version) if row.version in VERSIONS else len(VERSIONS)


def _ai_gateway(report: Report) -> list[str]:
    """With which configurations of Envoy AI Gateway the target would work: of the headline version."""
    headline = report.headline()
    found = headline.envoy_ai_gateway if headline is not None else None
    if found is None:
        return []
    rows = [("routing", one) for one in found.routing] + [("request body", one) for one in found.body_modes]
    lines = ["| Envoy AI Gateway | | would work | why |", "|---|---|---|---|"]
    lines += [f"| {what} | {one.way} | {one.works} | {_cell(one.why)} |" for what, one in rows]
    return [*lines, ""]


def _failure(one: Concern) -> list[str]:
    row = one.requirement
    lines = [f"#### {mark(row.verdict)}: {row.id} ({row.version})", "", f"{row.level}: {_text(row.statement)}", ""]
    if not one.occurrences:
        return lines
    first = one.occurrences[0]
    lines += [f"- expected: {' — or — '.join(map(_text, first.finding.expected)) or 'see the requirement'}"]
    lines += [f"- actual: {_text(first.finding.actual or first.result.reason)}"]
    if hint := first.finding.hint or row.why:
        lines += [f"- hint: {_text(hint)}"]
    lines += [
        f"- seen in `{first.result.id}`" + (f" and {len(one.occurrences) - 1} more" if one.occurrences[1:] else "")
    ]
    if first.result.reproduce:
        lines += ["", *_code(first.result.reproduce)]
    return [*lines, ""]


def _reproduce(report: Report) -> list[str]:
    return [
        "To check the report offline, with its evidence:",
        "",
        *_code(
            f"pip install {report.suite.name}=={report.suite.version}\n"
            "epp-conformance report verify report.json evidence.ndjson.gz"
        ),
        "",
        f"Its digest is `{report.digest}`"
        + (f", that of the evidence's lines `sha256:{report.evidence.sha256}`." if report.evidence else "."),
        "",
    ]


def _topology(around: Topology | GatewayTopology) -> list[str]:
    if isinstance(around, GatewayTopology):
        return [f"| its pools | {around.pools} |", f"| TLS to their EPPs | {', '.join(around.tls)} |"]
    return [
        f"| discovery | {around.discovery} |",
        f"| body modes | {', '.join(around.body_modes)} |",
        f"| data plane | {around.data_plane} |",
    ]


def _footer(report: Report) -> list[str]:
    counted = sum(row.verdict is not Verdict.UNTESTED for row in report.requirements)
    return [
        f"{plural(counted, 'requirement verdict')} from {plural(len(report.results), 'scenario')} by "
        f"{report.suite.name} {report.suite.version} (catalogue {report.catalogue.version}). {PROVES}",
    ]


def _id(report: Report, one: Concern) -> str:
    return one.requirement.id if len(report.versions) == 1 else f"{one.requirement.id} ({one.requirement.version})"


def _code(text: str) -> list[str]:
    fence = "```"
    while fence in text:
        fence += "`"
    return [f"{fence}sh", text, fence]


def _text(text: str) -> str:
    """Text that came from outside, on one line and without any markup."""
    line = " ".join(text.split())
    return "".join(f"\\{one}" if one in "\\`*_[]<>|#&" else one for one in line)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("`", "'")


def _url(url: str) -> str:
    from urllib.parse import quote

    safe = url if url.startswith(("http://", "https://")) or ":" not in url else ""
    return quote(safe, safe="/:#?&=@%+~._-")
