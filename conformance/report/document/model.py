"""`report.json`: the document as pydantic models with camelCase keys, and its published JSON Schema.

A report holds one or several protocol versions. Rows of `results` and `requirements` name theirs; `versions` has
the results of both kinds. The blocks at the top describe the run, and `specification` its headline version.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import Field

from conformance.evidence.episode import Claims, GatewayFacts
from conformance.evidence.model_server import ModelServerFacts
from conformance.outcome import ScenarioResult
from conformance.planning.results import reproduce_command
from conformance.report.document.basis import PlanBasis
from conformance.report.document.blocks import (
    AnomalyRow,
    Block,
    CatalogueBlock,
    Digest,
    Environment,
    EvidenceFile,
    ImplementationBlock,
    Redaction,
    Specification,
    Subject,
    Suite,
    Waiver,
)
from conformance.report.document.canonical import ReportError, digest, read_document
from conformance.report.document.rows import RequirementRow, VersionRow
from conformance.strict_yaml import path_text
from conformance.verdict import Result

API_VERSION = "conformance.epp/v1alpha2"
KIND = "EPPConformanceReport"
SCHEMA_ID = f"urn:epp-conformance:{API_VERSION}:{KIND}"
"""A name and no address: `epp-conformance report schema` prints the schema."""


class Report(Block):
    """The whole document. `build` makes it, `read_report` reads it."""

    api_version: Literal["conformance.epp/v1alpha2"] = Field(
        "conformance.epp/v1alpha2", description="version of this format"
    )
    kind: Literal["EPPConformanceReport"] = Field("EPPConformanceReport", description="what the document is")
    suite: Suite = Field(description="the suite that made it")
    catalogue: CatalogueBlock = Field(description="the requirements that were judged")
    specification: Specification = Field(description="the document of the version that the report is about first")
    implementation: ImplementationBlock = Field(description="who made the target")
    mode: str = Field("", description="the name of the way in which the target was set up, if it has several")
    observed: bool = Field(
        False, description="observed by this project, and not submitted by those who make the implementation"
    )
    subject: Subject = Field(description="how the target was run")
    environment: Environment = Field(description="what a second run needs to be the same")
    plan: PlanBasis | None = Field(None, description="what decided which scenarios were run")
    claims: Claims | GatewayFacts | ModelServerFacts = Field(
        description="what the vendor says of the target, as far as a rule depends on it"
    )
    started_at: str = Field(description="when the run began, UTC")
    finished_at: str = Field(description="when it ended, UTC")
    duration: float = Field(description="seconds that it took")
    result: Result = Field(description="the result over the claimed versions")
    complete: bool = Field(description="whether everything ran that belongs to a full verdict")
    stopped: str = Field(description="why the run ended before its plan was done; empty if it did not")
    versions: tuple[VersionRow, ...] = Field(description="the result of each version")
    requirements: tuple[RequirementRow, ...] = Field(
        description="every requirement of each version, once, with its verdict"
    )
    results: tuple[ScenarioResult, ...] = Field(description="every scenario of each version, as run")
    lists: tuple[tuple[str, ...], ...] = Field((), description="lists of requirements that results refer to by place")
    waivers: tuple[Waiver, ...] = Field(description="known failures, and what became of them")
    anomalies: tuple[AnomalyRow, ...] = Field(description="what is worth knowing and no finding")
    figures: dict[str, float | int | str] = Field(description="measurements, for information")
    redactions: tuple[Redaction, ...] = Field(description="secrets that were replaced in all that is kept")
    evidence: EvidenceFile | None = Field(description="the file of evidence beside the report")
    digest: Digest = Field(description="SHA-256 of this document in canonical form, without this key")

    @property
    def name(self) -> str:
        """What the target is called: as its vendor has it, else by the program, image or address that was run."""
        named = f"{self.implementation.project} {self.implementation.version}".strip()
        named = named if self.implementation.project else self.subject.short
        return f"{named} ({self.mode})" if self.mode not in ("", "default") else named

    def document(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        lists: dict[tuple[str, ...], int] = {}
        document: dict[str, Any] = self.model_dump(mode="json", by_alias=True, context=lists)
        return {**document, "lists": [list(names) for names in lists]}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Report:
        """The report of plain JSON values. Raises pydantic's error."""
        return cls.model_validate(document, context=document.get("lists"))

    def reproduce(self, result: ScenarioResult) -> str:
        """The command that runs a result again; empty if the report does not say how its target was run."""
        return reproduce_command(self.plan.command, self.environment.seed, result) if self.plan else ""

    def evidence_beside(self, path: Path) -> Path | None:
        """The file of its evidence, if that is beside the report, whose file is `path`."""
        if self.evidence is None:
            return None
        try:
            beside = path.with_name(Path(self.evidence.file).name)
            return beside if beside.is_file() else None
        except (OSError, ValueError):  # no file can have that name
            return None

    def headline(self) -> VersionRow | None:
        """The row of the version that `specification` names; None if the run did not get to it."""
        return next((row for row in self.versions if row.version == self.specification.version), None)

    def results_of(self, version: str) -> tuple[ScenarioResult, ...]:
        """The scenarios of one version."""
        return tuple(row for row in self.results if row.version == version)

    def requirements_of(self, version: str) -> tuple[RequirementRow, ...]:
        """The requirements of one version."""
        return tuple(row for row in self.requirements if row.version == version)


def seal(document: Mapping[str, Any]) -> Report:
    """The report of a document without digest, or with any; the digest is computed. Raises pydantic's error."""
    report = Report.of({**document, "digest": "sha256:" + "0" * 64})
    return report.model_copy(update={"digest": digest(report.document())})


def read_report(path: Path) -> Report:
    """The report in a JSON or YAML file. Raises `ReportError`, also for one that was changed and not sealed again."""
    document = read_document(path)
    report = parse_report(document, str(path))
    if digest(document) != report.digest:
        raise ReportError(
            f"{path} was changed after it was made: its digest is not that of its content",
            hint="`epp-conformance report verify` says what does not follow; get it again from whom it is from",
        )
    return report


def parse_report(document: Mapping[str, Any], name: str) -> Report:
    """The report of a document that came from the file `name`. Raises `ReportError` with the first few problems."""
    if document.get("apiVersion") != API_VERSION or document.get("kind") != KIND:
        found = repr(f"{document.get('apiVersion')} {document.get('kind')}"[:200])
        if not document.keys() & {"apiVersion", "kind"}:
            found = "a document without apiVersion and kind"
        raise ReportError(f"{name}: {found} is not {API_VERSION} {KIND}", hint="is it the report of another suite?")
    try:
        return Report.of(document)
    except pydantic.ValidationError as error:
        problems = [
            f"{path_text(problem['loc'])}: {problem['msg'].removeprefix('Value error, ')}"[:300]
            for problem in error.errors()
        ]
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ReportError(f"{name}: not a valid report: {'; '.join(problems[:5])}{more}") from error


def report_text(report: Report) -> str:
    """`report.json`: the same document as is hashed, with a line for each row, for people and for `diff`."""
    import json

    dumps = functools.partial(json.dumps, ensure_ascii=False, allow_nan=False)
    parts = []
    for name, value in report.document().items():
        text = "[\n  " + ",\n  ".join(map(dumps, value)) + "\n ]" if isinstance(value, list) and value else dumps(value)
        parts.append(f" {dumps(name)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def write_report(report: Report, path: Path) -> None:
    """Write `report.json`."""
    path.write_bytes(report_text(report).encode())


def report_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `report.json`."""
    schema = Report.model_json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID, **schema}
