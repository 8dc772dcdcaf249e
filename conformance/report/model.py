"""`report.json`: the document as pydantic models with camelCase keys, and its published JSON Schema.

A report holds one or several protocol versions. Rows of `results` and `requirements` name theirs; `versions` has
the results of both kinds. The blocks at the top describe the run, and `specification` its headline version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from conformance.ai_gateway import AiGateway
from conformance.episode import Claims, Gateway
from conformance.outcome import RequirementResult, ScenarioResult
from conformance.report.canonical import ReportError, digest, read_document
from conformance.requirements.schema import Effect, Kind, Level, Role
from conformance.strict_yaml import FileModel, path_text
from conformance.verdict import Finding, Result, Verdict

API_VERSION = "conformance.epp/v1alpha1"
KIND = "EPPConformanceReport"
SCHEMA_ID = "https://conformance.epp/schemas/v1alpha1/report.json"


def well_formed(value: Any) -> Any:
    """Lone surrogates, which have no place in a JSON file, as escapes."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


Text = Annotated[str, pydantic.BeforeValidator(well_formed)]
"""What targets may have had a hand in: output, names, values."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, in hex")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Block(FileModel):
    """Base of the parts of a report: frozen, unknown keys refused, camelCase."""


class Suite(Block):
    """The suite that made the report."""

    name: str = "epp-conformance"
    version: str
    python: str


class CatalogueBlock(Block):
    """The requirements that were judged: their own version and the digest of their data."""

    version: str
    digest: Digest


class Specification(Block):
    """The protocol document: its name and version, where upstream has it, and its digest."""

    name: str = "endpoint-picker-protocol"
    version: str
    title: str
    date: str
    source: str
    digest: Digest


class ImplementationBlock(Block):
    """Who made the target, in the words of upstream's conformance reports."""

    organization: str
    project: str
    url: str
    version: str
    contact: tuple[str, ...]
    role: Role = "epp"


class Subject(Block):
    """How the target was run. `digest` is the image's, or that of the program's file; None where it is not known.

    `flags` are its own arguments, with the placeholders of the profile unresolved; of `env` only the names are kept.
    """

    kind: Literal["command", "image", "address"]
    name: str
    digest: Digest | None
    flags: tuple[str, ...]
    env: tuple[str, ...]
    address: str


class Platform(Block):
    """The machine that ran the suite."""

    system: str
    machine: str
    release: str


class Topology(Block):
    """What stood around the target."""

    discovery: Literal["kubernetes", "file", "fixed"]
    scrapes: bool
    tls: Literal["plaintext", "unverified", "verified"]
    connections: int
    body_modes: tuple[str, ...]
    data_plane: str = Field("fake", description="what carried the scenarios: fake, or envoy with its variant")


class GatewayTopology(Block):
    """What stood around a gateway: its pools, and how it speaks to the EPP of each."""

    pools: int
    tls: tuple[Literal["plaintext", "self-signed"], ...]


class Environment(Block):
    """What a second run needs to be the same."""

    seed: int
    platform: Platform
    topology: Topology | GatewayTopology


class EvidenceFile(Block):
    """The file of evidence; `sha256` and `bytes` are of its uncompressed lines, so that it may be packed anew."""

    file: str
    episodes: int
    bytes: int
    sha256: Sha256


class EvidenceRef(Block):
    """One line of the evidence: the episode's id and the digest of the line without its newline."""

    episode: str
    sha256: Sha256


class FindingRow(Block):
    """A finding as `conformance.verdict.Finding` has it."""

    requirement: str
    verdict: Verdict
    expected: tuple[Text, ...] = ()
    actual: Text = ""
    exchange: str | None = None
    seq: int | None = None
    hint: Text = ""

    @classmethod
    def of(cls, finding: Finding) -> FindingRow:
        """The row of a judge's finding."""
        return cls(
            requirement=finding.requirement,
            verdict=finding.verdict,
            expected=finding.expected,
            actual=finding.actual,
            exchange=finding.exchange,
            seq=finding.seq,
            hint=finding.hint,
        )


class ScenarioRow(Block):
    """A scenario as run. `requirement`, `expected`, `actual`, `hint`, `exchange`, `seq` are of its decisive finding.

    `findings` has in full every finding of its episode that has something to show, on all requirements; `passed` and
    `notApplicable` name those of which nothing more is to be said.
    """

    version: str
    id: str
    scenario: str
    title: str
    section: str
    requirements: tuple[str, ...]
    mode: str
    verdict: Verdict
    requirement: str | None
    expected: tuple[Text, ...]
    actual: Text
    hint: Text
    exchange: str | None
    seq: int | None
    reason: Text
    provisional: bool
    smoke: bool
    duration: Annotated[float, Field(ge=0, description="seconds")]
    reproduce: str
    source: str
    evidence: EvidenceRef | None
    findings: tuple[FindingRow, ...]
    passed: tuple[str, ...]
    not_applicable: tuple[str, ...]

    @classmethod
    def of(cls, version: str, result: ScenarioResult, evidence: EvidenceRef | None = None) -> ScenarioRow:
        """The row of a result of `version`."""
        decisive = result.decisive
        return cls(
            version=version,
            id=result.id,
            scenario=result.scenario,
            title=result.title,
            section=result.section,
            requirements=result.requirements,
            mode=result.mode,
            verdict=result.verdict,
            requirement=decisive.requirement if decisive else next(iter(result.requirements), None),
            expected=decisive.expected if decisive else (),
            actual=decisive.actual if decisive else "",
            hint=decisive.hint if decisive else "",
            exchange=decisive.exchange if decisive else None,
            seq=decisive.seq if decisive else None,
            reason=result.reason,
            provisional=result.provisional,
            smoke=result.smoke,
            duration=round(result.duration, 3),
            reproduce=result.reproduce,
            source=result.source,
            evidence=evidence,
            **said(result.findings),
        )

    def result(self) -> ScenarioResult:
        """What the row was made of, as far as roll-ups read it."""
        quiet = ((Verdict.PASS, self.passed), (Verdict.NOT_APPLICABLE, self.not_applicable))
        return ScenarioResult(
            id=self.id,
            scenario=self.scenario,
            title=self.title,
            section=self.section,
            requirements=self.requirements,
            mode=self.mode,
            verdict=self.verdict,
            findings=(
                *(Finding(**finding.model_dump()) for finding in self.findings),
                *(Finding(requirement=name, verdict=verdict) for verdict, names in quiet for name in names),
            ),
            reason=self.reason,
            provisional=self.provisional,
            smoke=self.smoke,
            duration=self.duration,
            evidence=self.evidence.episode if self.evidence else None,
            reproduce=self.reproduce,
            source=self.source,
        )


def said(findings: Sequence[Finding]) -> dict[str, Any]:
    """The fields `findings`, `passed` and `not_applicable` of a row."""
    loud = [finding for finding in findings if not _quiet(finding)]

    def named(verdict: Verdict) -> tuple[str, ...]:
        quiet = (finding.requirement for finding in findings if finding.verdict is verdict and _quiet(finding))
        return tuple(dict.fromkeys(quiet))

    return {
        "findings": tuple(FindingRow.of(finding) for finding in loud),
        "passed": named(Verdict.PASS),
        "not_applicable": named(Verdict.NOT_APPLICABLE),
    }


def _quiet(finding: Finding) -> bool:
    """Whether a finding has nothing to show: it passed, or it did not apply and points at nothing."""
    nothing_to_show = finding.verdict is Verdict.NOT_APPLICABLE and finding.exchange is None
    return finding.verdict is Verdict.PASS or nothing_to_show


class RequirementRow(Block):
    """An entry of the catalogue with its verdict in one version. `scenarios` spoke of it, `blamed` gave the verdict.

    `why` says how implementations come to break it, `reading` how an ambiguity of the text is read, `note` why it is
    not tested.
    """

    version: str
    id: str
    title: str
    area: str
    level: Level
    kind: Kind
    role: Role
    effect: Effect
    section: str
    statement: str
    reading: str
    why: str
    universal: bool
    verdict: Verdict
    scenarios: tuple[str, ...]
    blamed: tuple[str, ...]
    note: str

    @classmethod
    def of(cls, version: str, row: RequirementResult) -> RequirementRow:
        """The row of a requirement's result in `version`."""
        entry = row.requirement
        return cls(
            version=version,
            id=entry.id,
            title=entry.title,
            area=entry.area,
            level=entry.level,
            kind=entry.kind,
            role=entry.role,
            effect=entry.effects[version],
            section=entry.section,
            statement=entry.statement,
            reading=entry.reading or "",
            why=entry.why or "",
            universal=entry.universal,
            verdict=row.verdict,
            scenarios=row.scenarios,
            blamed=row.blamed,
            note=row.note,
        )


class VersionRow(Block):
    """The result of one version: of both kinds, and of all; what stands in its way; and how many gave which verdict.

    `requirementVerdicts` counts the entries of the target's own role.
    """

    version: str
    specification: Specification
    claimed: bool
    complete: bool
    result: Result
    kinds: dict[Kind, Result]
    blockers: tuple[str, ...]
    scenario_verdicts: dict[Verdict, int]
    requirement_verdicts: dict[Verdict, int]
    envoy_ai_gateway: AiGateway | None = Field(
        None, description="with which configurations of Envoy AI Gateway the endpoint picker would work"
    )


class Waiver(Block):
    """A known failure that the user does not want to fail their build for. It never makes a version conformant."""

    pattern: str
    reason: str
    issue: str = ""
    owner: str = ""
    expires: str | None = None
    matched: tuple[str, ...] = ()
    problem: str = ""
    """What is wrong with the waiver itself: it matches nothing, has expired, or what it waives passes."""


class AnomalyRow(Block):
    """Something worth knowing that is no finding."""

    code: str
    text: Text
    scenario: str | None


class Redaction(Block):
    """A secret that was replaced in all that is kept: what it was, and in how many places."""

    kind: str
    name: str
    count: int


class Report(Block):
    """The whole document. `build` makes it, `read_report` reads it."""

    api_version: Literal["conformance.epp/v1alpha1"] = "conformance.epp/v1alpha1"
    kind: Literal["EPPConformanceReport"] = "EPPConformanceReport"
    suite: Suite
    catalogue: CatalogueBlock
    specification: Specification
    implementation: ImplementationBlock
    subject: Subject
    environment: Environment
    claims: Claims | Gateway
    started_at: str
    finished_at: str
    duration: float
    result: Result
    complete: bool
    stopped: Text
    """Why the run ended before its plan was done; empty if it did not."""
    versions: tuple[VersionRow, ...]
    requirements: tuple[RequirementRow, ...]
    results: tuple[ScenarioRow, ...]
    waivers: tuple[Waiver, ...]
    anomalies: tuple[AnomalyRow, ...]
    figures: dict[str, float | int | str]
    redactions: tuple[Redaction, ...]
    evidence: EvidenceFile | None
    digest: Digest

    def document(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        document: dict[str, Any] = self.model_dump(mode="json", by_alias=True)
        return document

    def headline(self) -> VersionRow | None:
        """The row of the version that `specification` names; None if the run did not get to it."""
        return next((row for row in self.versions if row.version == self.specification.version), None)

    def results_of(self, version: str) -> tuple[ScenarioRow, ...]:
        """The scenarios of one version."""
        return tuple(row for row in self.results if row.version == version)

    def requirements_of(self, version: str) -> tuple[RequirementRow, ...]:
        """The requirements of one version."""
        return tuple(row for row in self.requirements if row.version == version)


def seal(document: Mapping[str, Any]) -> Report:
    """The report of a document without digest, or with any; the digest is computed. Raises pydantic's error."""
    return Report.model_validate({**document, "digest": digest(document)})


def read_report(path: Path) -> Report:
    """The report in a JSON or YAML file; its digest is not checked. Raises `ReportError`."""
    return parse_report(read_document(path), str(path))


def parse_report(document: Mapping[str, Any], name: str) -> Report:
    """The report of a document that came from the file `name`. Raises `ReportError` with the first few problems."""
    if document.get("apiVersion") != API_VERSION or document.get("kind") != KIND:
        found = f"{document.get('apiVersion')} {document.get('kind')}"
        raise ReportError(f"{name}: {found!r} is not {API_VERSION} {KIND}", hint="is it the report of another suite?")
    try:
        return Report.model_validate(document)
    except pydantic.ValidationError as error:
        problems = [f"{path_text(problem['loc'])}: {problem['msg']}" for problem in error.errors()]
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ReportError(f"{name}: not a valid report: {'; '.join(problems[:5])}{more}") from error


def write_report(report: Report, path: Path) -> None:
    """Write `report.json`: the same document as is hashed, indented for people and for `diff`."""
    import json

    text = json.dumps(report.document(), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_bytes(text.encode() + b"\n")


def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `report.json`."""
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
