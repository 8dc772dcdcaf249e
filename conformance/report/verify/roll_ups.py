"""Whether what a report sums up follows from its results: requirements, versions, result, headline, waivers, times."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator

from pydantic import BaseModel

from conformance.outcome import RunOutcome, VersionOutcome, version_outcome
from conformance.report.document.build import overall, version_row
from conformance.report.document.model import Report
from conformance.report.document.rows import RequirementRow
from conformance.report.document.waivers import KnownFailure, apply
from conformance.report.verify.steps import short
from conformance.requirements.catalogue import Catalogue

APART = 2.0
"""Seconds by which the times of a report may differ: two are whole seconds, one is not."""


def requirement_problems(report: Report, catalogue: Catalogue) -> Iterator[str]:
    """Entries of the catalogue that are missing, there twice, or strange."""
    run = [row.version for row in report.versions]
    for version in dict.fromkeys([*run, *(row.version for row in report.requirements)]):
        if version not in catalogue.documents or version not in run:
            yield f"{version}: not a version of this report"
            continue
        rows = Counter(row.id for row in report.requirements_of(version))
        wanted = [entry.id for entry in catalogue.for_version(version, report.implementation.role)]
        yield from (f"{version}: {name} is missing" for name in wanted if name not in rows)
        yield from (f"{version}: {name} is there {count} times" for name, count in rows.items() if count > 1)
        yield from (f"{version}: {name} is no requirement of this version" for name in rows if name not in wanted)


def roll_up_problems(report: Report, catalogue: Catalogue) -> Iterator[str]:
    """Sums that do not follow from the results."""
    versions = [row.version for row in report.versions]
    yield from (f"{row.version} {row.id}: no such version in this report" for row in report.results
                if row.version not in versions)  # fmt: skip
    yield from (f"version {name} is there twice" for name, count in Counter(versions).items() if count > 1)
    outcomes: list[VersionOutcome] = []
    for row in report.versions:
        if row.version not in catalogue.documents:
            continue
        outcome = version_outcome(
            catalogue,
            row.version,
            report.results_of(row.version),
            role=report.implementation.role,
            claimed=row.claimed,
            complete=row.complete,
        )
        outcomes.append(outcome)
        if (computed := version_row(catalogue, outcome)) != row:
            yield from _differences(f"version {row.version}", row, computed)
        yield from _rows(report, outcome)
    complete = bool(report.versions) and not report.stopped
    if report.complete != (complete and all(row.complete for row in report.versions)):
        yield f"complete is {report.complete}, by its versions it is {not report.complete}"
    if (result := overall(report.versions, complete=complete)) != report.result:
        yield f"result is {report.result}, its versions give {result}"
    claimed = [row for row in report.versions if row.claimed] or list(report.versions)
    if claimed and report.specification != claimed[-1].specification:
        yield f"the headline is {report.specification.version}, must be {claimed[-1].version}"
    yield from _times(report)
    if len(outcomes) == len(report.versions):
        yield from _waivers(report, outcomes)


def _rows(report: Report, outcome: VersionOutcome) -> Iterator[str]:
    stated = {row.id: row for row in report.requirements_of(outcome.version)}
    for row in outcome.requirements:
        computed = RequirementRow.of(outcome.version, row)
        found = stated.get(computed.id)
        if found is not None and found != computed:
            yield from _differences(f"{outcome.version} {computed.id}", found, computed)


def _differences(where: str, stated: BaseModel, computed: BaseModel) -> Iterator[str]:
    said, own = stated.model_dump(mode="json"), computed.model_dump(mode="json")  # words as the report has them
    for name in type(computed).model_fields:
        if getattr(stated, name) != getattr(computed, name):
            yield f"{where}: {name} is {short(said[name])}, computed {short(own[name])}"


# -- times and waivers -------------------------------------------------------------------------------------------------


def _times(report: Report) -> Iterator[str]:
    try:
        started, finished = _instant(report.started_at), _instant(report.finished_at)
    except ValueError as problem:
        yield f"startedAt or finishedAt is no time in UTC: {problem}"
        return
    took = (finished - started).total_seconds()
    if took < 0 or abs(took - report.duration) > APART + 0.05 * report.duration:
        yield f"it began at {report.started_at} and ended at {report.finished_at}, but took {report.duration} s"
    if started > dt.datetime.now(dt.UTC) + dt.timedelta(days=1):
        yield f"it began at {report.started_at}, which is yet to come"
    longest = max((row.duration for row in report.results), default=0)
    if longest > report.duration + APART:
        yield f"a scenario took {longest} s, the run {report.duration} s"


def _instant(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    if found.utcoffset() != dt.timedelta(0):
        raise ValueError(f"{short(text)} is not in UTC")
    return found


def _waivers(report: Report, outcomes: list[VersionOutcome]) -> Iterator[str]:
    """What each waiver matched, and what is wrong with it, follows from the results and the day."""
    if not report.waivers:
        return
    try:
        known = [
            KnownFailure(
                pattern=one.pattern,
                reason=one.reason,
                link=one.issue,
                owner=one.owner,
                expires=dt.date.fromisoformat(one.expires or ""),
            )
            for one in report.waivers
        ]
        today = _instant(report.finished_at).date()
    except ValueError as problem:
        yield f"a waiver is not what a file of waivers has: {short(problem)}"
        return
    outcome = RunOutcome(
        versions=tuple(outcomes), seed=report.environment.seed, started_at="", finished_at="", duration=0.0
    )
    for stated, computed in zip(report.waivers, apply(known, outcome, today), strict=True):
        if (stated.matched, stated.problem) != (computed.waived, computed.problem):
            yield f"waiver {short(stated.pattern)}: says {short(stated.matched)} {stated.problem}; the results give " \
                  f"{short(computed.waived)} {computed.problem}"  # fmt: skip
