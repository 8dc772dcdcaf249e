"""What needs a reader's attention: each requirement that is not fine, with the places where that was seen.

Every face (HTML, terminal, Markdown, pytest) shows failures from here, so that they agree on which and in what order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from conformance.outcome import ScenarioResult, blamed, ruled
from conformance.report.document import causes
from conformance.report.document.blocks import Waiver
from conformance.report.document.model import Report
from conformance.report.document.rows import RequirementRow
from conformance.verdict import PRECEDENCE, Finding, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """One place where a requirement was not met: the scenario's result, and the finding of its episode."""

    result: ScenarioResult
    finding: Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """A requirement and its occurrences, the clearest first: scenarios that are about it, then others."""

    requirement: RequirementRow
    occurrences: tuple[Occurrence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """What is most likely one mistake: the failure to begin with, and those that follow from it."""

    cause: Concern
    consequences: tuple[Concern, ...]


def concerns(report: Report, verdicts: Iterable[Verdict] = (Verdict.FAIL,)) -> tuple[Concern, ...]:
    """The requirements of the target's role with one of `verdicts`: newest version first, then those that count.

    Of these, what explains others comes first (`causes.FIRST`).
    """
    wanted = set(verdicts)
    order = {row.version: position for position, row in enumerate(reversed(report.versions))}
    rows = [row for row in report.requirements if row.verdict in wanted]
    rows.sort(
        key=lambda row: (
            order.get(row.version, 0),
            row.effect != "fail",
            PRECEDENCE.index(row.verdict),
            causes.order(row.id),
        )
    )
    said = {version: ruled(report.results_of(version)) for version in order}
    return tuple(concern(row, blamed(row.verdict, said.get(row.version, {}).get(row.id, ()))) for row in rows)


def defects(found: Iterable[Concern]) -> tuple[Defect, ...]:
    """`found` in its order, each of its failures that follows from an earlier one of its version put under that."""
    grouped: list[tuple[Concern, list[Concern]]] = []
    for one in found:
        cause = next((own for first, own in grouped if _explains(first, one)), None)
        if cause is None:
            grouped.append((one, []))
        else:
            cause.append(one)
    return tuple(Defect(cause=first, consequences=tuple(own)) for first, own in grouped)


def cause_of(report: Report, warned: Sequence[Occurrence]) -> str:
    """The failed requirement that explains warnings of one requirement and version; empty if none does."""
    seen = [(one.result, one.finding) for one in warned]
    first = warned[0]
    rows = (one for one in concerns(report) if one.requirement.version == first.result.version)
    name = first.finding.requirement
    return next((c.requirement.id for c in rows if causes.explains(c.requirement.id, _seen(c), name, seen)), "")


def _explains(cause: Concern, other: Concern) -> bool:
    first, second = cause.requirement, other.requirement
    if first.version != second.version or {first.verdict, second.verdict} != {Verdict.FAIL}:
        return False
    return causes.explains(first.id, _seen(cause), second.id, _seen(other))


def _seen(of: Concern) -> list[tuple[ScenarioResult, Finding]]:
    """Every finding of the requirement, not only the first of each scenario."""
    name, verdict = of.requirement.id, of.requirement.verdict
    return [
        (one.result, finding)
        for one in of.occurrences
        for finding in one.result.findings
        if finding.requirement == name and finding.verdict is verdict
    ]


def waiver_of(report: Report, requirement: str, result: str) -> Waiver | None:
    """The waiver that is for the failure of a requirement, or of a result; None if it is not waived."""
    sound = (one for one in report.waivers if not one.problem)
    return next((one for one in sound if {requirement, result} & {*one.matched}), None)


def waiver_of_concern(report: Report, one: Concern) -> Waiver | None:
    """The first waiver of a requirement's failures; None if one of them, in whichever scenario, is not waived."""
    results = [seen.result.id for seen in one.occurrences]
    return _first_if_all(waiver_of(report, one.requirement.id, name) for name in results or ("",))


def waiver_of_scenario(report: Report, row: ScenarioResult) -> Waiver | None:
    """The first waiver of a failing scenario; None if a failure of a requirement that it is about is not waived."""
    failing = [one for one in row.findings if one.verdict is Verdict.FAIL]
    broken = [one.requirement for one in failing if one.requirement in row.requirements]
    return _first_if_all(waiver_of(report, one, row.id) for one in broken or ("",))


def _first_if_all(waivers: Iterable[Waiver | None]) -> Waiver | None:
    found = [*waivers]
    return found[0] if all(found) else None


def waived_text(waiver: Waiver) -> str:
    """A waiver in words: until when, and why."""
    until = f" until {waiver.expires}" if waiver.expires else ""
    return f"waived{until}: {waiver.reason}" + (f" ({waiver.issue})" if waiver.issue else "")


def warnings(report: Report) -> tuple[Occurrence, ...]:
    """Every warning, with the scenario that it was seen in; of several with the same words the first."""
    found: dict[tuple[str, str, str], Occurrence] = {}
    for row in report.results:
        for finding in row.findings:
            if finding.verdict is Verdict.WARN:
                key = (row.version, finding.requirement, finding.actual)
                found.setdefault(key, Occurrence(result=row, finding=finding))
    return tuple(found.values())


def passing_but_blamed(report: Report) -> tuple[tuple[str, str], ...]:
    """Scenarios that pass, each with a failed requirement that was seen in them: of the headline version.

    They pass because they are not about that requirement.
    """
    return tuple(
        (seen.result.id, one.requirement.id)
        for one in concerns(report)
        for seen in one.occurrences
        if seen.result.version == report.specification.version and seen.result.verdict is Verdict.PASS
    )


def concern(requirement: RequirementRow, results: Sequence[ScenarioResult]) -> Concern:
    """A requirement with what `results` (those that it blames) have to say of it."""
    ordered = sorted(results, key=lambda result: requirement.id not in result.requirements)
    return Concern(
        requirement=requirement,
        occurrences=tuple(Occurrence(result=result, finding=_finding(requirement, result)) for result in ordered),
    )


def _finding(requirement: RequirementRow, result: ScenarioResult) -> Finding:
    """The finding of `result` that gave the requirement its verdict; of a scenario that was not reached, its reason."""
    for finding in result.findings:
        if finding.requirement == requirement.id and finding.verdict is requirement.verdict:
            return finding
    return Finding(requirement=requirement.id, verdict=result.verdict, actual=result.reason)
