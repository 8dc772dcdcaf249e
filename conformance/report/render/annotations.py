"""Failures as annotations of a change: GitHub's workflow commands, and GitLab's code quality report.

Both point at the profile, at the line that claims the version in which a requirement fails.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from conformance.printable import plural
from conformance.report.document.failures import concerns, waiver_of_concern
from conformance.report.document.model import Report
from conformance.report.render.safe import safe
from conformance.strict_yaml import parse
from conformance.verdict import UNSETTLED, Verdict

FATAL = (Verdict.FAIL, Verdict.ERROR)

MOST = 10
"""GitHub shows no more annotations of a kind for one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A requirement that is not fine in one version. `fatal` if it stands in the way of *conformant*."""

    requirement: str
    version: str
    fatal: bool
    title: str
    message: str
    line: int


def annotated(report: Report, profile: Path | None = None) -> list[Annotation]:
    """What failed and what was not settled, in the order of the report, without what is waived.

    `profile` is the file in which the lines are looked up; without one every line is 1. Raises `FileError` if it can't
    be read.
    """
    report = safe(report)
    lines = _claims(profile) if profile is not None else {}
    return [
        Annotation(
            requirement=row.id,
            version=row.version,
            fatal=row.verdict in FATAL and row.effect == "fail",
            title=f"{row.id} ({row.version}): {row.title}",
            message=_message(row.statement, [one.finding.actual for one in concern.occurrences] or [row.note]),
            line=lines.get(row.version, lines.get("", 1)),
        )
        for concern in concerns(report, (*FATAL, *UNSETTLED, Verdict.WARN))
        for row in (concern.requirement,)
        if waiver_of_concern(report, concern) is None
    ]


def github(report: Report, profile: Path | None = None) -> str:
    """Workflow commands, one a line: printed by a step, GitHub shows them beside the change."""
    found = annotated(report, profile)
    place = f"file={_property(profile.as_posix())}," if profile is not None else ""
    kinds = (("error", [one for one in found if one.fatal]), ("warning", [one for one in found if not one.fatal]))
    return "".join(line for kind, own in kinds for line in _commands(kind, place, own))


def gitlab(report: Report, profile: Path | None = None) -> str:
    """A code quality report (JSON), for `artifacts: reports: codequality`."""
    path = profile.as_posix() if profile is not None else "conformance-report/report.json"
    rows = [
        {
            "description": f"{one.title}. {one.message}",
            "check_name": one.requirement,
            "fingerprint": hashlib.sha256(f"{path} {one.requirement} {one.version}".encode()).hexdigest(),
            "severity": "major" if one.fatal else "minor",
            "location": {"path": path, "lines": {"begin": one.line}},
        }
        for one in annotated(report, profile)
    ]
    return json.dumps(rows, indent=2) + "\n"


def _commands(kind: str, place: str, found: list[Annotation]) -> Iterator[str]:
    shown = found if len(found) <= MOST else found[: MOST - 1]
    for one in shown:
        yield f"::{kind} {place}line={one.line},title={_property(one.title)}::{_data(one.message)}\n"
    if len(found) > len(shown):
        yield f"::{kind} ::{plural(len(found) - len(shown), 'further requirement')} in the report\n"


def _message(statement: str, actual: list[str]) -> str:
    said = next((text for text in actual if text), "")
    return f"{statement}\n{said}" if said else statement


def _claims(profile: Path) -> dict[str, int]:
    """The line that claims each version, and at "" the one for versions that the file does not name."""
    document = parse(profile)
    named = document.data.get("protocolVersions") if isinstance(document.data, dict) else None
    versions = named if isinstance(named, list) else []
    lines = {str(one): document.position(("protocolVersions", at))[0] for at, one in enumerate(versions)}
    return {**lines, "": document.position(("protocolVersions",), key=True)[0]}


def _data(text: str) -> str:
    """The text of a workflow command, which ends at the end of its line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
