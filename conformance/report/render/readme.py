"""The README of an implementation's folder: upstream's table, the results, how to reproduce them, what fails."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from conformance.report.document.failures import concerns
from conformance.report.document.model import Report
from conformance.report.render.marks import SUBJECT, mark
from conformance.report.render.markup import cell, code, link, text
from conformance.report.render.safe import safe
from conformance.report.verify.steps import PROVES
from conformance.requirements.schema import VERSIONS
from conformance.roles import ROLES

MOST = 20
"""Failures listed for each report."""


def readme(files: Sequence[tuple[str, Report]]) -> str:
    """The README of a folder with these reports, each of one protocol version, by their file names."""
    reports = [(name, safe(report)) for name, report in files]
    first = reports[0][1]
    who = first.implementation
    side = ROLES[who.role].profile
    lines = [
        f"# {text(who.project)}",
        "",
        f"Conformance of the {SUBJECT[who.role]} [{text(who.project)}]({link(who.url)}) by {text(who.organization)} "
        "to the Endpoint Picker Protocol.",
        "",
        *_observed(reports),
        "| Extension Version Tested | Profile Tested | Implementation Version | Mode | Report |",
        "|---|---|---|---|---|",
        *(
            f"| {one.specification.version} | {side} | {cell(one.implementation.version)} | {_mode(one)} "
            f"| [report]({link(name)}) |"
            for name, one in reports
        ),
        "",
        "| Version | Mode | Result | Blockers |",
        "|---|---|---|---|",
        *(
            f"| {cell(one.implementation.version)} | {_mode(one)} | {mark(one.result)} "
            f"| {', '.join(name for row in one.versions for name in row.blockers) or 'none'} |"
            for _, one in reports
        ),
        "",
        *_reproduce(reports),
        *_failures(reports),
        f"{PROVES}",
    ]
    return "\n".join(lines) + "\n"


def _observed(reports: Sequence[tuple[str, Report]]) -> list[str]:
    if not any(one.observed for _, one in reports):
        return []
    return ["**Observed by the project epp-conformance, not submitted by those who make it.**", ""]


def _mode(report: Report) -> str:
    return cell(report.mode or "default")


def _reproduce(reports: Sequence[tuple[str, Report]]) -> list[str]:
    lines = ["## Reproduce", "", "Each report is checked offline, by judging its evidence again:", ""]
    suites = sorted({one.suite.version for _, one in reports})
    lines += code("\n".join("pip install " + shlex.quote(f"epp-conformance=={one}") for one in suites[-1:]))
    lines += code("\n".join(f"epp-conformance report verify {shlex.quote(name)}" for name, _ in reports))
    lines += ["", "Its target is run again, and compared verdict by verdict, by:", ""]
    lines += code("\n".join(f"epp-conformance report reproduce {shlex.quote(name)}" for name, _ in reports))
    return [*lines, "", *how_run([one for _, one in reports]), ""]


def how_run(reports: Sequence[Report]) -> list[str]:
    """A table that says of each report how its target was run."""
    lines = ["| Mode | How it was run | Digest of the program | Run | Seed |", "|---|---|---|---|---|"]
    for one in reports:
        flags = f" {' '.join(one.subject.flags)}" if one.subject.flags else ""
        digest = f"`{one.subject.digest}`" if one.subject.digest else "not known"
        lines.append(
            f"| {_mode(one)} | {one.subject.kind} `{cell(one.subject.name + flags)}` | {digest} "
            f"| {cell(one.started_at)} | {one.environment.seed} |"
        )
    return lines


def _failures(reports: Sequence[tuple[str, Report]]) -> list[str]:
    lines: list[str] = []
    for _, report in reports:
        failed = concerns(report)
        if not failed:
            continue
        lines += [f"### {text(report.name)}, {report.specification.version}: {len(failed)} failed", ""]
        for one in failed[:MOST]:
            seen = one.occurrences[0].finding.actual if one.occurrences else ""
            lines.append(f"- {one.requirement.id}: {text(one.requirement.statement)} Seen: {text(seen)}")
        lines += [f"- … and {len(failed) - MOST} more"] if len(failed) > MOST else []
        lines.append("")
    return ["## Failures", "", *lines] if lines else []


def age(version: str) -> int:
    """The place of a protocol version among all, the oldest first; unknown ones come last."""
    return VERSIONS.index(version) if version in VERSIONS else len(VERSIONS)
