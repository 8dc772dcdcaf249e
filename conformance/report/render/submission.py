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
from conformance.evidence.store import extract
from conformance.outcome import GENERATED
from conformance.report.document.basis import is_generated
from conformance.report.document.blocks import EvidenceFile, Topology
from conformance.report.document.model import Report, read_report, seal
from conformance.report.render.readme import readme
from conformance.report.verify.expected import examples_of
from conformance.roles import ROLES
from conformance.verdict import Result

BRANCHES = frozenset({"main", "master", "head", "latest", "dev", "devel", "develop", "trunk", "nightly", "snapshot"})
"""What people write where a version is asked for; a report must name something that others can fetch."""


OWNER = ("organization", "project", "url", "version", "contact")
"""What a report says of whose the target is."""


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


def problems(report: Report, mode: str = "default", *, observed: bool = False) -> tuple[str, ...]:
    """Everything that stands in the way of submitting; () if nothing does. A failed requirement does not.

    What is `observed`, and not submitted by its makers, needs no contact.
    """
    found: list[str] = []
    who = report.implementation
    found += [
        f"implementation.{name} is missing: set it in the profile"
        for name in OWNER
        if not getattr(who, name) and not (observed and name == "contact")
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
    own = [one.file for one in report.plan.sources if not is_generated(one.file)] if report.plan else []
    if own:
        found.append(f"it was made with scenarios that are not of the certified set ({', '.join(own)})")
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


def of_version(
    report: Report, version: str, mode: str = "", evidence: EvidenceFile | None = None, *, observed: bool = False
) -> Report:
    """The part of a report that is about one version, with its own digest; `evidence` is the file of that part."""
    row = next(row for row in report.versions if row.version == version)
    document = report.document()
    tried = [found for one in report.results_of(version) if (found := examples_of(one)) is not None]
    return seal(
        {
            **document,
            "specification": row.specification.model_dump(mode="json", by_alias=True),
            "mode": mode,
            "observed": observed,
            "result": row.result.value,
            "complete": row.complete and not report.stopped,
            "figures": {GENERATED: sum(tried)} if tried else {},
            "waivers": [],
            "evidence": None if evidence is None else evidence.model_dump(mode="json", by_alias=True),
            **{
                name: [one for one in document[name] if one["version"] == version]
                for name in ("versions", "requirements", "results")
            },
        }
    )


def write_submission(
    report: Report, root: Path, *, mode: str = "default", evidence: Path | None = None, observed: bool = False
) -> tuple[Submission, ...]:
    """Write the folder below `root`: one report per version that was run, each with its part of the evidence.

    Reports of the implementation in other versions and modes stay; the README is made from all of them. Raises
    `SubmissionRefusedError`, and `EvidenceError` if the evidence is not that of the report.
    """
    if found := problems(report, mode, observed=observed):
        raise SubmissionRefusedError(found)
    name, version = _file_name(report.implementation.project), _file_name(report.implementation.version)
    side = ROLES[report.implementation.role].folder
    written: list[Submission] = []
    for row in report.versions:
        folder = root / row.version / side / name
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{version}-{mode}-{side}-report.yaml"
        kept = None
        if evidence is not None:
            wanted = {one.evidence for one in report.results_of(row.version) if one.evidence is not None}
            kept = extract(evidence, wanted, path.with_name(path.name.replace("-report.yaml", "-evidence.ndjson.xz")))
        path.write_text(to_yaml(of_version(report, row.version, mode, kept, observed=observed)), encoding="utf-8")
        all_of_them = [(one.name, read_report(one)) for one in sorted(folder.glob(f"*-{side}-report.yaml"))]
        (folder / "README.md").write_text(readme(all_of_them), encoding="utf-8")
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
