"""What the results of a report must be: the plan computed again, and for each piece of work the row that it must have.

Everything in a row but its duration follows from the plan and from the episode's findings.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance.errors import ConformanceError
from conformance.evidence.episode import Episode
from conformance.outcome import GENERATED, ScenarioResult
from conformance.planning.plan import Plan, Skip, Work, make_plan
from conformance.planning.results import (
    GENERATED_ID,
    GENERATED_SECTION,
    HUNG_TOO_OFTEN,
    all_kept,
    not_done,
    not_reached,
    of_episode,
    shortest_broken,
    skipped,
)
from conformance.printable import printable
from conformance.report.document.basis import GENERATED_FILE, PlanBasis, is_generated
from conformance.report.document.model import Report
from conformance.report.verify.steps import short
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance, load
from conformance.scenario.pool import Pool
from conformance.verdict import Finding, Verdict

Key = tuple[str, str]
"""Protocol version and id of a result."""

_KEPT = re.compile(r"(\d{1,6}) conversations, seed \d+")
_SHORTEST = re.compile(r" \(in the shortest of (\d{1,6}) conversations, seed \d+\)$")


COMMAND = re.compile(r"""epp-conformance run( ([\w@%+=:,./-]|\[redacted:[\w:.-]*\]|'[^']*'|"'")+)*""", re.ASCII)
"""A command as the suite writes it: words as `shlex.join` quotes them, in which no secret is left."""


class UnplannableError(ConformanceError):
    """The report does not say what a plan is computed from, or says what can't be."""

    code = "usage.plan"
    exit_code = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A piece of work that the report must have a row for; `skip` if the target can't be asked."""

    version: str
    work: Work
    pool: Pool | None = None
    skip: Skip | None = None
    generated: bool = False


class Expected:
    """The plan of every version of a report. Raises `UnplannableError`."""

    def __init__(self, report: Report, catalogue: Catalogue, built_in: Sequence[Instance]) -> None:
        if report.plan is None:
            raise UnplannableError("the report does not say what its plan was computed from")
        self.report = report
        self.basis: PlanBasis = report.plan
        self._own = _own_instances(self.basis, catalogue)
        self.planned: dict[Key, Planned] = {}
        self.complete: dict[str, bool] = {}
        """By version, whether nothing was left out by selection."""
        own = [one for one in self._own if one.section != GENERATED_SECTION]
        self.own = tuple(one.id for one in own)
        """The ids of scenarios that are not of the certified set."""
        instances = (*built_in, *own)
        try:
            traits = self.basis.traits(report.environment.topology, report.claims)
            if traits.role != report.implementation.role:
                raise ValueError(f"the plan is of role {traits.role}")
            for version in dict.fromkeys(row.version for row in report.versions):
                plan = make_plan(instances, catalogue, version, traits, self.basis.chosen())
                self.complete[version] = plan.complete
                self._take(version, plan)
        except (ConformanceError, ValueError, KeyError, TypeError) as problem:
            raise UnplannableError(f"no plan can be computed from the report: {problem}") from problem
        for row in report.results:
            if row.id == GENERATED_ID:
                self._generated(row, catalogue)

    def _take(self, version: str, plan: Plan) -> None:
        for batch in plan.batches:
            for work in batch.work:
                self.planned[version, work.id] = Planned(version=version, work=work, pool=batch.pool)
        for skip in plan.skips:
            self.planned[version, skip.work.id] = Planned(version=version, work=skip.work, skip=skip)

    def _generated(self, row: ScenarioResult, catalogue: Catalogue) -> None:
        """Generated conversations are in no plan: their row stands for itself, and for its source if it failed."""
        found = [one for one in self._own if one.file == f"{GENERATED_FILE}-{row.version}"]
        if row.verdict is Verdict.FAIL and found:
            universal = tuple(one.id for one in catalogue.for_version(row.version) if one.universal and one.testable)
            scenario = found[0].scenario.model_copy(update={"requirements": universal})
            instance = dataclasses.replace(found[0], scenario=scenario, file=GENERATED_SECTION, line=0)
            work = Work(version=row.version, id=instance.id, instance=instance, mode=row.mode)  # type: ignore[arg-type]
            self.planned[row.version, row.id] = Planned(version=row.version, work=work, generated=True)

    # -- the report against it -----------------------------------------------------------------------------------------

    def problems(self) -> Iterator[str]:
        """Rows that are missing, there twice, or in no plan."""
        if not self.report.versions and not self.report.stopped:
            yield "no version was run, and nothing says why"
        if not COMMAND.fullmatch(self.basis.command):
            yield f"the command that reproduces it is none of the suite's: {short(printable(self.basis.command))}"
        seen: set[Key] = set()
        incomplete = {row.version for row in self.report.versions if not row.complete}
        for result in self.report.results:
            key = (result.version, result.id)
            if key in seen:
                yield f"{result.version} {result.id}: is there twice"
            seen.add(key)
            if key not in self.planned and not _all_kept(result, self.report):
                yield f"{result.version} {result.id}: no complete run of this target has such a result"
        for version, name in self.planned:
            if (version, name) not in seen and version not in incomplete:
                yield f"{version} {name}: is missing"
        for row in self.report.versions:
            missing = any(key[0] == row.version and key not in seen for key in self.planned)
            interrupted = self.report.stopped == "interrupted"
            complete = self.complete.get(row.version, False) and not missing and not interrupted
            if row.complete != complete:
                yield f"{row.version}: complete is {row.complete}, by its results it is {complete}"
        yield from self._figures()

    def _figures(self) -> Iterator[str]:
        tried = [examples for row in self.report.results if (examples := examples_of(row)) is not None]
        wanted = {GENERATED: sum(tried)} if tried else {}
        if dict(self.report.figures) != wanted:
            yield f"figures are {dict(self.report.figures)}, the results give {wanted}"

    def row(
        self, row: ScenarioResult, episode: Episode | None, findings: Sequence[Finding] | Exception | None
    ) -> ScenarioResult | None:
        """The row that must stand in place of `row`, given its episode judged again; None if it is in no plan.

        Without findings (no evidence was given) those of the row are taken as they are.
        """
        if _all_kept(row, self.report):
            return row
        planned = self.planned.get((row.version, row.id))
        if planned is None:
            return None
        result = self._result(planned, row, episode, findings)
        return dataclasses.replace(result, duration=row.duration)

    def _result(
        self,
        planned: Planned,
        row: ScenarioResult,
        episode: Episode | None,
        findings: Sequence[Finding] | Exception | None,
    ) -> ScenarioResult:
        if planned.skip is not None:
            return skipped(planned.skip)
        if row.evidence is None:
            stopped = row.reason if row.reason == HUNG_TOO_OFTEN else self.report.stopped
            return not_done(planned.work, "" if stopped == "interrupted" else stopped)
        if episode is None or findings is None:
            result = dataclasses.replace(
                not_reached(planned.work, row.verdict, row.reason),
                findings=row.findings,
                passed=row.passed,
                not_applicable=row.not_applicable,
                gauges=row.gauges,
            )
        else:
            result = of_episode(planned.work, episode, findings, seconds=row.duration)
        result = dataclasses.replace(result, evidence=row.evidence)
        if planned.generated:
            examples = examples_of(row) or 0
            broken = next(
                one for one in self._own if one.file == f"{GENERATED_FILE}-{row.version}"
            ).scenario.requirements
            if episode is not None and findings is not None:
                told = shortest_broken(result, broken, examples, self.report.environment.seed)
            else:
                told = {"id": row.id, "scenario": row.scenario, "requirements": broken}
            result = dataclasses.replace(result, **told)  # type: ignore[arg-type]
        return result


def examples_of(row: ScenarioResult) -> int | None:
    """How many generated conversations a row says were tried; None if it is about a scenario."""
    if row.id != GENERATED_ID:
        return None
    found = _KEPT.fullmatch(row.reason) or _SHORTEST.search(row.reason)
    return int(found[1]) if found else 0


def _all_kept(row: ScenarioResult, report: Report) -> bool:
    """Whether a row says, and no more, that generated conversations broke no rule."""
    examples = examples_of(row)
    if examples is None or report.implementation.role != "epp":
        return False
    return row == all_kept(row.version, examples, report.environment.seed)


def _own_instances(basis: PlanBasis, catalogue: Catalogue) -> tuple[Instance, ...]:
    """The instances of the files that travel with the report. Raises `UnplannableError`."""
    if not basis.sources:
        return ()
    with tempfile.TemporaryDirectory() as folder:
        names: Mapping[str, str] = {
            str(Path(folder) / f"{number}.yaml"): source.file for number, source in enumerate(basis.sources)
        }
        for path, source in zip(names, basis.sources, strict=True):
            Path(path).write_text(source.text, encoding="utf-8", errors="surrogatepass")
        try:
            found = load(catalogue, [Path(path) for path in names])
        except ConformanceError as problem:
            raise UnplannableError(f"scenarios of the report can't be read: {problem.message}") from problem
    own = tuple(dataclasses.replace(one, file=names[one.file]) for one in found if one.file in names)
    if disguised := [one.file for one in own if is_generated(one.file) and one.section != GENERATED_SECTION]:
        raise UnplannableError(f"{disguised[0]} has no generated conversation, as its name says, but other scenarios")
    return own
