"""Upstream's folder form of a report: what `certify` writes.

    reports/<protocol version>/<side>/<implementation>/<implementation version>-<mode>-<side>-report.yaml
    reports/<protocol version>/<side>/<implementation>/README.md

The side is `epp` or `gateway`. The YAML holds the whole report of that version: `report verify` reads it as well as
`report.json`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import UsageError
from conformance.report.document.blocks import Topology
from conformance.report.document.model import Report, read_report, seal
from conformance.report.render.markdown import readme
from conformance.roles import ROLES
from conformance.verdict import Result

BRANCHES = frozenset({"main", "master", "head", "latest", "dev", "devel", "develop", "trunk", "nightly", "snapshot"})
"""What people write where a version is asked for; a report must name something that others can fetch."""


class SubmissionRefusedError(UsageError):
    """A report that can't be submitted; `problems` says all that is in the way."""

    code = "usage.submission"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("this report can't be submitted: " + "; ".join(problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """The files of one protocol version."""

    version: str
    report: Path
    readme: Path


def problems(report: Report, mode: str = "default") -> tuple[str, ...]:
    """Everything that stands in the way of submitting; () if nothing does. A failed requirement does not."""
    found: list[str] = []
    who = report.implementation
    found += [
        f"implementation.{name} is missing: set it in the profile"
        for name in ("organization", "project", "url", "version", "contact")
        if not getattr(who, name)
    ]
    if who.version.lower() in BRANCHES:
        found.append(f"implementation.version {who.version!r} is a branch: name a release, a tag or a commit")
    if who.url and not who.url.startswith(("https://", "http://")):
        found.append(f"implementation.url {who.url!r} is no web address")
    for what, value in (("implementation.project", who.project), ("implementation.version", who.version)):
        if value and not _file_name(value):
            found.append(f"{what} {value!r} gives no file name")
    around = report.environment.topology
    if isinstance(around, Topology) and around.data_plane != "fake":
        found.append(f"it was made through {around.data_plane}, which can't carry out every scenario")
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", mode):
        found.append(f"mode {mode!r} is not a name of lower-case letters, digits and dashes")
    if report.stopped:
        found.append(f"the run stopped early ({report.stopped})")
    if not report.versions:
        found.append("no protocol version was run")
    for row in report.versions:
        if not row.complete:
            found.append(f"{row.version}: scenarios were left out; run without selection")
        elif row.result is Result.INCOMPLETE:
            found.append(f"{row.version}: no full verdict; open are {', '.join(row.blockers)}")
    return tuple(found)


def of_version(report: Report, version: str) -> Report:
    """The part of a report that is about one version, with a digest of its own."""
    row = next(row for row in report.versions if row.version == version)
    document = report.document()
    return seal(
        {
            **document,
            "specification": row.specification.model_dump(mode="json", by_alias=True),
            "result": row.result.value,
            "complete": row.complete and not report.stopped,
            **{
                name: [one for one in document[name] if one["version"] == version]
                for name in ("versions", "requirements", "results")
            },
        }
    )


def write_submission(report: Report, root: Path, *, mode: str = "default") -> tuple[Submission, ...]:
    """Write the folder below `root`, one report per version that was run. Reports of other versions of the
    implementation that are there already stay, and the README lists them. Raises `SubmissionRefusedError`.
    """
    if found := problems(report, mode):
        raise SubmissionRefusedError(found)
    name, version = _file_name(report.implementation.project), _file_name(report.implementation.version)
    side = ROLES[report.implementation.role].folder
    written: list[Submission] = []
    for row in report.versions:
        folder = root / row.version / side / name
        folder.mkdir(parents=True, exist_ok=True)
        part = of_version(report, row.version)
        path = folder / f"{version}-{mode}-{side}-report.yaml"
        path.write_text(to_yaml(part), encoding="utf-8")
        others = [(one.name, read_report(one)) for one in sorted(folder.glob(f"*-{side}-report.yaml"))]
        (folder / "README.md").write_text(readme(part, others), encoding="utf-8")
        written.append(Submission(version=row.version, report=path, readme=folder / "README.md"))
    return tuple(written)


def to_yaml(report: Report) -> str:
    """The report as YAML: the same document, with the same digest."""
    import yaml

    class Dumper(yaml.CSafeDumper):
        """Writes equal parts out each time, as a report has no aliases."""

        def ignore_aliases(self, _data: object) -> bool:
            return True

    text: str = yaml.dump(report.document(), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def _file_name(name: str) -> str:
    """A name for files: lower case, what is neither letter, digit, dot nor dash becomes a dash, no leading dots."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.")
