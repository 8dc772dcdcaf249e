"""The rows of `report.json`: scenarios as run with their findings, requirements with their verdicts, versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any

from pydantic import Field, field_validator

from conformance.outcome import GaugeFollowed, RequirementResult, ScenarioResult
from conformance.report.document.ai_gateway import AiGateway
from conformance.report.document.blocks import Block, EvidenceRef, Specification, Text
from conformance.requirements.schema import Effect, Kind, Level, Role
from conformance.verdict import Finding, Result, Verdict


class FindingRow(Block):
    """A finding as `conformance.verdict.Finding` has it."""

    requirement: str = Field(description="the requirement")
    verdict: Verdict = Field(description="what was found")
    expected: tuple[Text, ...] = Field((), description="what would have been right; several: any of them")
    actual: Text = Field("", description="what came")
    exchange: str | None = Field(None, description="the exchange in the evidence")
    seq: int | None = Field(None, description="the entry of the evidence that is at fault")
    hint: Text = Field("", description="what such a mistake comes from, or what to do")

    @classmethod
    def of(cls, finding: Finding) -> FindingRow:
        """The row of a judge's finding."""
        return cls.model_validate(finding, from_attributes=True)

    def finding(self) -> Finding:
        """What the row was made of."""
        return Finding(**dict(self))


class ScenarioRow(Block):
    """A scenario as run. `requirement`, `expected`, `actual`, `hint`, `exchange`, `seq` are of its decisive finding."""

    version: str = Field(description="the protocol version")
    id: str = Field(description="the scenario with its variables and, where several were driven, its body mode")
    scenario: str = Field(description="the scenario's id in its file")
    title: str = Field(description="what it is about")
    section: str = Field(description="the protocol's section")
    requirements: tuple[str, ...] = Field(description="the requirements that it names, and can fail on")
    mode: str = Field(description="the request body mode")
    verdict: Verdict = Field(description="its verdict")
    requirement: str | None = Field(description="the requirement of its decisive finding")
    expected: tuple[Text, ...] = Field(description="what would have been right; several: any of them")
    actual: Text = Field(description="what came")
    hint: Text = Field(description="what such a mistake comes from, or what to do")
    exchange: str | None = Field(description="the exchange in the evidence")
    seq: int | None = Field(description="the entry of the evidence that decided")
    reason: Text = Field(description="why it has this verdict, where its findings do not say it")
    provisional: bool = Field(description="whether it runs and is reported, and does not count yet")
    smoke: bool = Field(description="whether it is one of the smoke set")
    duration: Annotated[float, Field(ge=0, description="seconds")]
    reproduce: str = Field(description="the command that runs it again")
    source: str = Field(description="file and line of the scenario")
    evidence: EvidenceRef | None = Field(description="its line of the evidence; null if it did not run")
    gauges: tuple[GaugeFollowed, ...] = Field(
        (), description="whether load that the metrics of pods showed moved the picks of an endpoint picker"
    )
    findings: tuple[FindingRow, ...] = Field(
        description="every finding that has something to show, on all requirements"
    )
    passed: tuple[str, ...] = Field(description="requirements that passed in it and have nothing to show")
    not_applicable: tuple[str, ...] = Field(description="requirements that did not apply and have nothing to show")

    @classmethod
    def of(cls, version: str, result: ScenarioResult, evidence: EvidenceRef | None = None) -> ScenarioRow:
        """The row of a result of `version`."""
        decisive = result.decisive
        return cls(
            **{name: getattr(result, name) for name in _SAME},
            **{name: getattr(decisive or _NO_FINDING, name) for name in _OF_DECISIVE},
            requirement=decisive.requirement if decisive else next(iter(result.requirements), None),
            version=version,
            duration=round(result.duration, 3),
            evidence=evidence,
            **listed(result.findings),
        )

    def result(self) -> ScenarioResult:
        """What the row was made of, as far as roll-ups read it."""
        quiet = ((Verdict.PASS, self.passed), (Verdict.NOT_APPLICABLE, self.not_applicable))
        return ScenarioResult(
            **{name: getattr(self, name) for name in _SAME},
            duration=self.duration,
            findings=(
                *(row.finding() for row in self.findings),
                *(Finding(requirement=name, verdict=verdict) for verdict, names in quiet for name in names),
            ),
            evidence=self.evidence.episode if self.evidence else None,
        )


_SAME = (ScenarioRow.model_fields.keys() & {one.name for one in fields(ScenarioResult)}) - {
    "findings",
    "duration",
    "evidence",
}
"""The fields that a result and its row have alike."""

_OF_DECISIVE = ("expected", "actual", "hint", "exchange", "seq")
_NO_FINDING = Finding(requirement="", verdict=Verdict.UNTESTED)


def listed(findings: Sequence[Finding]) -> dict[str, Any]:
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
    """An entry of the catalogue with its verdict in one version."""

    version: str = Field(description="the protocol version")
    id: str = Field(description="its stable id")
    title: str = Field(description="it in a few words")
    area: str = Field(description="the part of the catalogue")
    level: Level = Field(description="how strong it is")
    kind: Kind = Field(description="`protocol`: a sentence of the document; `ext_proc`: a rule of its carrier")
    role: Role = Field(description="whose duty it is")
    effect: Effect = Field(description="what a violation comes to in this version")
    section: str = Field(description="the section of the document")
    statement: str = Field(description="the catalogue's own statement of it")
    reading: str = Field(description="how an ambiguity of the text is read")
    why: str = Field(description="how implementations come to break it")
    universal: bool = Field(description="whether it is judged on every exchange of every scenario")
    verdict: Verdict = Field(description="its verdict")
    scenarios: tuple[str, ...] = Field(description="the scenarios that spoke of it")
    blamed: tuple[str, ...] = Field(description="those that gave the verdict")
    note: str = Field(description="why it is not tested, or does not apply")

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
    """The result of one version."""

    version: str = Field(description="the protocol version")
    specification: Specification = Field(description="its document")
    claimed: bool = Field(description="whether the target claims it; only claimed versions decide the exit code")
    complete: bool = Field(description="whether everything ran that belongs to a full verdict")
    result: Result = Field(description="its result, over both kinds of requirements")
    kinds: dict[Kind, Result] = Field(description="the result of each kind of requirements")
    blockers: tuple[str, ...] = Field(description="the requirements that stand in the way of `conformant`")
    scenario_verdicts: dict[Verdict, int] = Field(description="how many scenarios had which verdict")
    requirement_verdicts: dict[Verdict, int] = Field(
        description="how many requirements of the target's role had which verdict"
    )
    envoy_ai_gateway: AiGateway | None = Field(
        None, description="with which configurations of Envoy AI Gateway the endpoint picker would work"
    )

    @field_validator("kinds")
    @classmethod
    def _has_the_protocol(cls, kinds: dict[Kind, Result]) -> dict[Kind, Result]:
        """Every role has requirements of the protocol, so pages look this kind up without asking."""
        if "protocol" not in kinds:
            raise ValueError("the kind 'protocol' is missing")
        return kinds
