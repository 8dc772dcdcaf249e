"""What came out of a run, and the one place that counts it.

The runner gives one `ScenarioResult` per scenario instance, with every finding of its episode. From these alone
`requirement_results` and `version_outcome` are computed, so that a report can be checked by computing them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, SerializationInfo, ValidationInfo

from conformance.described import Described
from conformance.requirements.catalogue import Catalogue, Requirement
from conformance.requirements.schema import Role
from conformance.verdict import KINDS, Finding, Kind, Result, Verdict, result, worst


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeFollowed(Described):
    """Whether an endpoint picker moved its picks away from a pod whose metrics showed it busy: information, for the
    protocol does not say how it chooses."""

    engine: str
    """The model server that the pods were."""
    gauge: Literal["queue", "kv", "ranks"]
    """What showed the load: requests waiting, the KV cache in use, or that and more of all ranks but the first."""
    followed: Literal["yes", "no", "unclear"]
    """Whether picks moved away."""
    busy: int
    """Picks that the busy pod got."""
    picks: int
    """Picks in all."""
    why: str = ""
    """Why it is unclear."""


def _to_place(names: tuple[str, ...], info: SerializationInfo) -> int:
    lists: dict[tuple[str, ...], int] = info.context  # type: ignore[assignment]
    return lists.setdefault(names, len(lists))


def _from_place(value: Any, info: ValidationInfo) -> Any:
    if type(value) is not int:
        return value
    if not isinstance(info.context, list) or not 0 <= value < len(info.context):
        raise ValueError(f"there is no list {value}")
    return info.context[value]


Listed = Annotated[
    tuple[str, ...],
    PlainSerializer(_to_place),
    BeforeValidator(_from_place),
    Field(json_schema_extra=lambda schema: schema.pop("default", None)),
]
"""Names of requirements. Many results have the same: a report has each list once, and results refer to it by place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult(Described):
    """One scenario instance as run, from the judges to the page. Findings with nothing to show leave only a name."""

    version: str
    """The protocol version."""
    id: str
    """The scenario with its variables and, where several were driven, its body mode."""
    scenario: str
    """The scenario's id in its file."""
    title: str
    """What it is about."""
    section: str
    """The protocol's section."""
    requirements: tuple[str, ...]
    """The requirements that it names, and can fail on."""
    mode: str
    """The request body mode."""
    verdict: Verdict
    """Its verdict: the worst on the requirements that it names."""
    findings: tuple[Finding, ...] = ()
    """Every finding that has something to show, on all requirements."""
    passed: Listed = ()
    """The requirements that passed in it: the place of their list in `lists`."""
    not_applicable: Listed = ()
    """The requirements that did not apply and have nothing to show: the place of their list in `lists`."""
    reason: str = ""
    """Why it has this verdict, where its findings do not say it."""
    provisional: bool = False
    """Whether it runs and is reported, and does not count yet."""
    smoke: bool = False
    """Whether it is one of the smoke set."""
    duration: Annotated[float, Field(ge=0)] = 0.0
    """Seconds that it took."""
    evidence: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """SHA-256 of its line of the evidence, without the newline; null if it did not run."""
    gauges: tuple[GaugeFollowed, ...] = ()
    """Whether load that the metrics of pods showed moved the picks of an endpoint picker."""
    source: str = ""
    """File and line of the scenario."""

    def __post_init__(self) -> None:
        """Leave the names only of findings that have nothing to show, in one order for all results."""
        for name, verdict in (("passed", Verdict.PASS), ("not_applicable", Verdict.NOT_APPLICABLE)):
            quiet = {one.requirement for one in self.findings if one.verdict is verdict and _quiet(one)}
            object.__setattr__(self, name, tuple(sorted({*getattr(self, name), *quiet})))
        object.__setattr__(self, "findings", tuple(one for one in self.findings if not _quiet(one)))

    @property
    def decisive(self) -> Finding | None:
        """The finding that gave the verdict; None if it has nothing to show."""
        own = (one for one in self.findings if one.requirement in self.requirements)
        return next((one for one in own if one.verdict is self.verdict), None)

    @property
    def actual(self) -> str:
        """What came, or why it was not run."""
        return (self.decisive.actual if self.decisive else "") or self.reason

    @property
    def said(self) -> Iterator[tuple[str, Verdict]]:
        """Requirement and verdict of every finding."""
        yield from ((one.requirement, one.verdict) for one in self.findings)
        yield from ((name, Verdict.PASS) for name in self.passed)
        yield from ((name, Verdict.NOT_APPLICABLE) for name in self.not_applicable)


def _quiet(finding: Finding) -> bool:
    """Whether a finding has nothing to show: it passed, or it did not apply and points at nothing."""
    return finding.verdict is Verdict.PASS or (finding.verdict is Verdict.NOT_APPLICABLE and finding.exchange is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementResult:
    """A catalogue entry with its verdict for one version."""

    requirement: Requirement
    verdict: Verdict
    blamed: tuple[ScenarioResult, ...] = ()
    """The results whose findings gave the verdict, when it is not `pass`."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionOutcome:
    """Everything about one protocol version."""

    version: str
    results: tuple[ScenarioResult, ...]
    requirements: tuple[RequirementResult, ...]
    kinds: Mapping[Kind, Result]
    result: Result
    claimed: bool = True
    complete: bool = True
    """False when scenarios were left out by selection, or the run was interrupted."""

    @property
    def blockers(self) -> tuple[str, ...]:
        """The requirements that stand between this version and `conformant`."""
        weighty = (row for row in self.requirements if row.requirement.effects[self.version] == "fail")
        return tuple(row.requirement.id for row in weighty if counts(row) and row.verdict in BLOCKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """Something a reader of the report should know, that is no finding: a 429 while idle, a restart, a late loop."""

    code: str
    text: str
    scenario: str | None = None


NOT_SELECTED = "no scenario about it was selected"
"""The note of a requirement that has scenarios, none of which was part of the run."""

NOT_ARISEN = "its condition did not arise"
"""The note of a requirement that did not apply to what was run."""

GENERATED = "generatedConversations"
"""The figure that says how many generated conversations were tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """A whole run: one or several versions, and what happened besides."""

    versions: tuple[VersionOutcome, ...]
    seed: int
    started_at: str
    finished_at: str
    duration: float
    anomalies: tuple[Anomaly, ...] = ()
    figures: Mapping[str, float | int | str] = field(default_factory=dict)
    counterexamples: Mapping[str, str] = field(default_factory=dict)
    """By version, a generated conversation that failed: the text of a scenario file that reproduces it."""
    interrupted: bool = False
    image: str | None = None
    """The digest of the image that the target ran from."""


BLOCKING = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.SKIPPED)


def decisive(findings: Iterable[Finding], requirements: Sequence[str]) -> Finding | None:
    """The worst finding on `requirements`; the first of several."""
    named = [finding for finding in findings if finding.requirement in requirements]
    verdict = worst(finding.verdict for finding in named)
    return next((finding for finding in named if finding.verdict is verdict), None)


def scenario_verdict(findings: Iterable[Finding], requirements: Sequence[str]) -> Verdict:
    """The verdict of a scenario: the worst finding on the requirements that it names, and on no other.

    A scenario about whose requirements no judge had anything to say was not reached: `inconclusive`.
    """
    found = decisive(findings, requirements)
    return found.verdict if found else Verdict.INCONCLUSIVE


def counts(row: RequirementResult) -> bool:
    """Whether a requirement has a say in the result: one that can be tested."""
    return row.verdict is not Verdict.UNTESTED


def ruled(results: Iterable[ScenarioResult]) -> dict[str, list[tuple[Verdict, ScenarioResult]]]:
    """By requirement, what the results that count say of it.

    A requirement that a scenario names and no finding is about has the scenario's verdict; where that passed for other
    reasons, it was not reached: skipped, unless another scenario reached it.
    """
    found: dict[str, list[tuple[Verdict, ScenarioResult]]] = {}
    for one in results:
        if one.provisional:
            continue
        said = list(one.said)
        silent = set(one.requirements) - {name for name, _ in said}
        reached = one.verdict in (Verdict.PASS, Verdict.WARN)
        said += [(name, Verdict.SKIPPED if reached else one.verdict) for name in silent]
        for name, verdict in said:
            found.setdefault(name, []).append((verdict, one))
    return found


def requirement_results(
    catalogue: Catalogue, version: str, results: Sequence[ScenarioResult], role: Role = "epp"
) -> tuple[RequirementResult, ...]:
    """Every entry of the catalogue that the version has for the role, exactly once, in the catalogue's order."""
    found = ruled(results)
    return tuple(_row(entry, found.get(entry.id, [])) for entry in catalogue.for_version(version, role))


def _row(entry: Requirement, said: Sequence[tuple[Verdict, ScenarioResult]]) -> RequirementResult:
    if not said:
        untested = Verdict.ATTESTED if entry.untestable else Verdict.UNTESTED
        return RequirementResult(
            requirement=entry, verdict=untested, note=entry.untestable or entry.pending or NOT_SELECTED
        )
    verdict = worst(verdict for verdict, _ in said)
    note = ""
    if verdict is Verdict.NOT_APPLICABLE:
        silent = [one.reason for _, one in said if all(name != entry.id for name, _ in one.said)]
        note = "; ".join(dict.fromkeys(silent)) if len(silent) == len(said) else NOT_ARISEN
    return RequirementResult(requirement=entry, verdict=verdict, blamed=blamed(verdict, said), note=note)


def blamed(verdict: Verdict, said: Iterable[tuple[Verdict, ScenarioResult]]) -> tuple[ScenarioResult, ...]:
    """The results that gave a requirement its verdict, when that is not `pass`."""
    if verdict is Verdict.PASS:
        return ()
    return tuple({one.id: one for own, one in said if own is verdict}.values())


def version_outcome(
    catalogue: Catalogue,
    version: str,
    results: Sequence[ScenarioResult],
    *,
    role: Role = "epp",
    claimed: bool = True,
    complete: bool = True,
) -> VersionOutcome:
    """Roll the results of one version up."""
    rows = requirement_results(catalogue, version, results, role)
    kinds: dict[Kind, Result] = {}
    for kind in (kind for kind in KINDS if any(row.requirement.kind == kind for row in rows)):
        counted = [row for row in rows if counts(row) and row.requirement.kind == kind]
        verdicts = [row.verdict for row in counted if catalogue.effect(row.requirement.id, version) == "fail"]
        kinds[kind] = result(verdicts)
        if kinds[kind] is Result.CONFORMANT and Verdict.PASS not in verdicts:
            kinds[kind] = Result.INCOMPLETE  # nothing was seen to hold
    overall = _both(kinds.values())
    return VersionOutcome(
        version=version,
        results=tuple(results),
        requirements=rows,
        kinds=kinds,
        result=overall if complete or overall is Result.NON_CONFORMANT else Result.INCOMPLETE,
        claimed=claimed,
        complete=complete,
    )


def _both(results: Iterable[Result]) -> Result:
    seen = set(results)
    for decisive_one in (Result.NON_CONFORMANT, Result.INCOMPLETE):
        if decisive_one in seen:
            return decisive_one
    return Result.CONFORMANT


def exit_code(outcome: RunOutcome) -> int:
    """0 conformant, 1 non-conformant, 3 harness error, 4 incomplete, over the versions that the target claims.

    A finding outweighs our own trouble: a run that found a violation is 1 even if parts of it erred.
    """
    counted = [version for version in outcome.versions if version.claimed] or list(outcome.versions)
    if not counted:
        return 4
    if any(version.result is Result.NON_CONFORMANT for version in counted):
        return 1
    if any(one.verdict is Verdict.ERROR for version in counted for one in version.results):
        return 3
    if outcome.interrupted or any(version.result is Result.INCOMPLETE for version in counted):
        return 4
    return 0
