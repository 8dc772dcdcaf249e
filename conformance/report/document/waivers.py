"""Waivers: known failures that must not fail a build. They change the exit code, never a verdict or a result.

A waiver names failing scenarios or requirements by a pattern, with a reason, an owner and an end. One that matches
nothing, has expired, or whose scenarios do not fail any more is itself an error: the file must not rot.
"""

from __future__ import annotations

import datetime as dt
import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from conformance.errors import did_you_mean
from conformance.outcome import RunOutcome, ScenarioResult, VersionOutcome, counts, exit_code
from conformance.planning.results import GENERATED_ID
from conformance.requirements.catalogue import Catalogue
from conformance.strict_yaml import Document, FileError, FileModel, Problem, load_located
from conformance.verdict import UNJUDGED, UNSETTLED, Result, Verdict


class KnownFailure(FileModel):
    """One known failure. `pattern` is a scenario id, a glob of them, or a requirement id."""

    pattern: str = Field(min_length=1, description="a scenario id, a glob of them, or a requirement id")
    reason: str = Field(min_length=1, description="why the failure is accepted")
    link: str = Field(min_length=1, description="where the failure is tracked")
    owner: str = Field(min_length=1, description="who answers for it")
    expires: dt.date = Field(description="the last day on which it holds, as 2026-12-31")


class WaiverFile(FileModel):
    """A file of waivers."""

    waivers: tuple[KnownFailure, ...] = Field(description="the waivers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A waiver with what it waives in a run, and what is wrong with it, if anything."""

    waiver: KnownFailure
    waived: tuple[str, ...]
    """Ids of failing results and requirements."""
    problem: str = ""


def load_waivers(path: Path, catalogue: Catalogue, scenario_ids: Iterable[str]) -> tuple[KnownFailure, ...]:
    """The waivers of a file. Raises `FileError` for wrong files, doubled patterns and patterns that name nothing."""
    file, document = load_located(path, WaiverFile)
    known = [*scenario_ids, *catalogue.requirements]
    problems: list[Problem] = []
    seen: set[str] = set()
    for index, waiver in enumerate(file.waivers):
        problems += _wrong(document, index, waiver, known, seen)
        seen.add(waiver.pattern)
    if problems:
        raise FileError(problems)
    return file.waivers


def _wrong(
    document: Document, index: int, waiver: KnownFailure, known: Sequence[str], seen: set[str]
) -> Iterable[Problem]:
    place = ("waivers", index, "pattern")
    if waiver.pattern in seen:
        yield document.problem(place, f"the pattern {waiver.pattern!r} is here twice")
    if not any(_matches(name, waiver.pattern) for name in known):
        hint = f"{did_you_mean(waiver.pattern, known)} --scenarios names files with your own scenarios"
        yield document.problem(place, f"{waiver.pattern!r} names no scenario and no requirement", hint)


def apply(waivers: Sequence[KnownFailure], outcome: RunOutcome, today: dt.date) -> tuple[Applied, ...]:
    """What each waiver does in this run."""
    return tuple(_apply(waiver, outcome, today) for waiver in waivers)


def exit_code_after(outcome: RunOutcome, applied: Sequence[Applied]) -> int:
    """The exit code with waivers: that without the failures if all are waived, 1 if one is not or a waiver is wrong."""
    code = exit_code(outcome)
    if any(one.problem for one in applied):
        return code if code == 3 else 1
    if code != 1:
        return code
    waived = {name for one in applied for name in one.waived}
    claimed = [version for version in outcome.versions if version.claimed] or list(outcome.versions)
    if any(not _all_waived(version, waived) for version in claimed):
        return 1
    if any(one.verdict is Verdict.ERROR for version in claimed for one in version.results):
        return 3
    settled = all(
        version.complete and version.result is not Result.INCOMPLETE and not _open(version) for version in claimed
    )
    return 0 if settled and not outcome.interrupted else 4


def suggest(results: Iterable[ScenarioResult], *, owner: str, link: str, expires: dt.date) -> WaiverFile:
    """A file that waives every failing result, and requirements that were broken in scenarios that are not about them,
    or in generated conversations; to be edited: reasons are the findings' own words."""
    reasons: dict[str, str] = {}
    for result in results:
        if result.verdict is Verdict.FAIL and result.id != GENERATED_ID:
            reasons[result.id] = (result.decisive.actual if result.decisive else "") or result.title
        elif not result.provisional:
            broken = (one for one in result.findings if one.verdict is Verdict.FAIL)
            reasons.update({one.requirement: one.actual or f"broken in {result.id}" for one in broken})
    waivers = (
        KnownFailure(pattern=pattern, reason=reason, link=link, owner=owner, expires=expires)
        for pattern, reason in reasons.items()
    )
    return WaiverFile(waivers=tuple(waivers))


def _apply(waiver: KnownFailure, outcome: RunOutcome, today: dt.date) -> Applied:
    matched = [one for version in outcome.versions for one in version.results if _matches_result(waiver, one)]
    named = [one.id for one in matched if _names(waiver, one) and one.verdict is Verdict.FAIL]
    requirements = tuple(
        dict.fromkeys(
            row.requirement.id
            for version in outcome.versions
            for row in version.requirements
            if row.verdict is Verdict.FAIL and _matches(row.requirement.id, waiver.pattern)
        )
    )
    problem = ""
    if waiver.expires < today:
        problem = f"the waiver {waiver.pattern!r} expired on {waiver.expires}: fix the failure, or extend it"
    elif not matched and all(version.complete for version in outcome.versions):  # a selection leaves most out
        problem = f"the waiver {waiver.pattern!r} matches nothing that was run; remove it"
    elif any(one.verdict not in UNSETTLED for one in matched) and not any(_fails(waiver, one) for one in matched):
        problem = f"what the waiver {waiver.pattern!r} waives does not fail any more; remove it"
    return Applied(waiver=waiver, waived=(*dict.fromkeys(named), *requirements), problem=problem)


def _fails(waiver: KnownFailure, result: ScenarioResult) -> bool:
    if _names(waiver, result):
        return result.verdict is Verdict.FAIL
    return any(one.verdict is Verdict.FAIL and _matches(one.requirement, waiver.pattern) for one in result.findings)


def _matches_result(waiver: KnownFailure, result: ScenarioResult) -> bool:
    spoken_of = {*result.requirements, *(name for name, _ in result.said)}
    return _names(waiver, result) or any(_matches(name, waiver.pattern) for name in spoken_of)


def _names(waiver: KnownFailure, result: ScenarioResult) -> bool:
    return _matches(result.id, waiver.pattern) or _matches(result.scenario, waiver.pattern)


def _all_waived(version: VersionOutcome, waived: set[str]) -> bool:
    """Whether all failures of a version are waived."""
    for row in version.requirements:
        if counts(row) and row.verdict is Verdict.FAIL and row.requirement.counts(version.version):
            failing = {one.id for one in version.results if _breaks(one, row.requirement.id)}
            if row.requirement.id not in waived and not failing <= waived:
                return False
    return True


def _open(version: VersionOutcome) -> bool:
    """Whether something was not found out that a full verdict needs, be it behind a failure."""
    rows = [row for row in version.requirements if counts(row) and row.requirement.counts(version.version)]
    behind = {row.requirement.id for row in rows if row.verdict is Verdict.FAIL}
    return any(row.verdict in UNSETTLED for row in rows) or any(
        not behind.isdisjoint(_unjudged(one)) for one in version.results if not one.provisional
    )


def _unjudged(result: ScenarioResult) -> set[str]:
    """The requirements of which a scenario should have said something, and could not."""
    found = {one.requirement for one in result.findings if one.verdict in UNJUDGED}
    spoken_of = {name for name, _ in result.said}
    return found | ({*result.requirements} - spoken_of if result.verdict in UNJUDGED else set())


def _breaks(result: ScenarioResult, requirement: str) -> bool:
    return any(one.requirement == requirement and one.verdict is Verdict.FAIL for one in result.findings)


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))
