"""What came out of a run, and the one place that counts it.

The runner gives one `ScenarioResult` per scenario instance, with every finding of its episode. From these alone
`requirement_results` and `version_outcome` are computed, so that a report can be checked by computing them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioResult:
    """One scenario instance as run. `findings` are all that its episode gave, also on requirements it does not name.

    `evidence` is the id of the episode, None if nothing was sent. `reason` says why it was skipped, or what was unmet.
    `reproduce` is the command line that runs just this again.
    """

    id: str
    scenario: str
    title: str
    section: str
    requirements: tuple[str, ...]
    mode: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    provisional: bool = False
    smoke: bool = False
    duration: float = 0.0
    evidence: str | None = None
    gauges: tuple[GaugeFollowed, ...] = ()
    reproduce: str = ""
    source: str = ""
    """Where the scenario is written, `file:line`."""

    @property
    def decisive(self) -> Finding | None:
        """The finding that gave the verdict, if one did."""
        return decisive(self.findings, self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementResult:
    """A catalogue entry with its verdict for one version, and the scenarios that say so."""

    requirement: Requirement
    verdict: Verdict
    scenarios: tuple[str, ...] = ()
    blamed: tuple[str, ...] = ()
    """Ids of the results whose findings gave the verdict, when it is not `pass`."""
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


def requirement_results(
    catalogue: Catalogue, version: str, results: Sequence[ScenarioResult], role: Role = "epp"
) -> tuple[RequirementResult, ...]:
    """Every entry of the catalogue that the version has for the role, exactly once, in the catalogue's order.

    A requirement that a scenario names and no finding is about has the scenario's verdict; where that passed for other
    reasons, it was not reached: skipped, unless another scenario reached it.
    """
    ruled: dict[str, list[tuple[Verdict, str]]] = {}
    left_out: dict[str, list[str]] = {}
    for one in results:
        if one.provisional:
            continue
        spoken_of = {finding.requirement for finding in one.findings}
        for finding in one.findings:
            ruled.setdefault(finding.requirement, []).append((finding.verdict, one.id))
        reached = one.verdict in (Verdict.PASS, Verdict.WARN)
        for requirement in one.requirements:
            if requirement not in spoken_of:
                ruled.setdefault(requirement, []).append((Verdict.SKIPPED if reached else one.verdict, one.id))
                left_out.setdefault(requirement, []).append(one.reason)
    rows = catalogue.for_version(version, role)
    return tuple(_row(entry, ruled.get(entry.id, []), left_out.get(entry.id, [])) for entry in rows)


def _row(entry: Requirement, ruled: Sequence[tuple[Verdict, str]], left_out: Sequence[str]) -> RequirementResult:
    scenarios = tuple(dict.fromkeys(name for _, name in ruled))
    if not ruled:
        untested = Verdict.ATTESTED if entry.untestable else Verdict.UNTESTED
        return RequirementResult(
            requirement=entry, verdict=untested, note=entry.untestable or entry.pending or NOT_SELECTED
        )
    verdict = worst(verdict for verdict, _ in ruled)
    blamed = tuple(dict.fromkeys(name for one, name in ruled if one is verdict and verdict is not Verdict.PASS))
    note = ""
    if verdict is Verdict.NOT_APPLICABLE:
        note = "; ".join(dict.fromkeys(left_out)) if len(left_out) == len(ruled) else NOT_ARISEN
    return RequirementResult(requirement=entry, verdict=verdict, scenarios=scenarios, blamed=blamed, note=note)


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
