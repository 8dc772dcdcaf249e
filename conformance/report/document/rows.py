"""The rows of `report.json` beside the results: requirements with their verdicts, and versions."""

from __future__ import annotations

from pydantic import Field, field_validator

from conformance.outcome import RequirementResult
from conformance.report.document.ai_gateway import AiGateway
from conformance.report.document.blocks import Block, Specification
from conformance.requirements.schema import Effect, Kind, Level, Role
from conformance.verdict import Result, Verdict


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
