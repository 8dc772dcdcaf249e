"""The suite's items: one per scenario in the plan's order, then one per universal requirement."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from conformance.errors import ConformanceError
from conformance.outcome import RequirementResult, ScenarioResult
from conformance.planning.results import reproduce_command
from conformance.printable import without_orders
from conformance.report.document.failures import Concern, Occurrence, concern
from conformance.report.document.rows import RequirementRow
from conformance.requirements.catalogue import Requirement
from conformance.run.workers import SHARE
from conformance.verdict import Finding, Verdict

if TYPE_CHECKING:
    from conformance.evidence.episode import Episode
    from conformance.planning.plan import Plan, Work
    from conformance.pytest_plugin.suite import PluginSuite

NAME = "epp-conformance"
_SKIPPED = (Verdict.NOT_APPLICABLE, Verdict.SKIPPED, Verdict.ATTESTED, Verdict.UNTESTED)
_FAILED = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE)


class NotMetError(Exception):
    """A scenario or an invariant that did not pass; its text is the whole failure."""


class ConformanceCollector(pytest.Collector):
    """Holds the items; it stands for no file."""

    suite: PluginSuite
    with_invariants: bool

    @classmethod
    def of(cls, session: pytest.Session, suite: PluginSuite, *, with_invariants: bool) -> Self:
        """The collector of a session. Workers leave the invariants to the controller, which has all results."""
        node: Self = cls.from_parent(session, name=NAME, nodeid=NAME)
        node.suite, node.with_invariants = suite, with_invariants
        return node

    def collect(self) -> list[pytest.Item]:
        """Every item. Raises `UsageError` if the selection or a scenario file is wrong."""
        items: list[ScenarioItem | InvariantItem] = []
        versions = self.suite.settings.versions
        for version in versions:
            prefix = f"{version}::" if len(versions) > 1 else ""
            for work in _in_order(self.suite.session(version).plan):
                scenario: ScenarioItem = ScenarioItem.from_parent(self, name=prefix + work.id)
                scenario.about(self.suite, version, work)
                items.append(scenario)
            for requirement in universal(self.suite, version) if self.with_invariants else ():
                invariant: InvariantItem = InvariantItem.from_parent(self, name=f"{prefix}invariant::{requirement.id}")
                invariant.about(self.suite, version, requirement)
                items.append(invariant)
        for position, item in enumerate(items):
            item.position = position
        return list(items)


class ScenarioItem(pytest.Item):
    """A view on one result; running it runs the batch of the scenario, if it was not run yet."""

    suite: PluginSuite
    version: str
    work_id: str
    position: int = 0
    _source: tuple[Path, int]

    def about(self, suite: PluginSuite, version: str, work: Work) -> None:
        """Say which result it is."""
        self.suite, self.version, self.work_id = suite, version, work.id
        self._source = Path(work.instance.file), work.instance.line
        self.add_marker("epp_conformance")
        self.extra_keyword_matches.update([*work.instance.scenario.requirements, work.instance.section, work.mode])

    def runtest(self) -> None:
        """Pass, skip, or raise `NotMetError`."""
        try:
            result = self.suite.ensure(self.version, self.work_id, self)
            if self._is_last:
                result = self.suite.settle() or result
        except ConformanceError as problem:
            if self.suite.stopped_before(self):
                pytest.skip(f"the target was given up: {problem.message.splitlines()[0]}")
            raise NotMetError(str(problem)) from None
        self.user_properties.append(("verdict", result.verdict.value))
        self.user_properties += [("requirement", name) for name in result.requirements]
        decide(
            result.verdict,
            result.reason or result.actual,
            provisional=result.provisional,
            text=lambda: self._text(result),
        )
        if not result.provisional and (broken := self._broken_beside(result)):
            row = self.suite.requirement(self.version, broken[0])
            raise NotMetError(invariant_text(self.suite, self.version, row))
        if result.verdict is Verdict.WARN:
            self.add_report_section("call", NAME, without_orders(self._text(result)))

    @property
    def _is_last(self) -> bool:
        """Whether no other scenario of its version follows."""
        selected = [work_id for version, work_id in self.suite.selected if version == self.version]
        return selected[-1:] == [self.work_id]

    def _broken_beside(self, result: ScenarioResult) -> list[str]:
        """The requirements that it breaks though it is not about them, and that no invariant tells of."""
        told = {*result.requirements, *(one.id for one in universal(self.suite, self.version))}
        return [
            one.requirement for one in result.findings if one.verdict is Verdict.FAIL and one.requirement not in told
        ]

    def _text(self, result: ScenarioResult) -> str:
        return scenario_text(self.suite, self.version, result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """The failure block; for anything else the traceback, since it is the suite's own."""
        if isinstance(excinfo.value, NotMetError):
            return without_orders(str(excinfo.value))
        return super().repr_failure(excinfo, *args, **kwargs)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the scenario is written. Pytest writes a name that ends its id with `::` for each dot."""
        return self._source[0], self._source[1] - 1, f"scenario {self.name}"


class InvariantItem(pytest.Item):
    """A requirement that is judged on every exchange, over everything that was run."""

    suite: PluginSuite
    version: str
    requirement: Requirement
    position: int = 0

    def about(self, suite: PluginSuite, version: str, requirement: Requirement) -> None:
        """Say which requirement it is."""
        self.suite, self.version, self.requirement = suite, version, requirement
        self.add_marker("epp_conformance")
        self.extra_keyword_matches.update([requirement.id, requirement.area])

    def runtest(self) -> None:
        """Pass, skip, or raise `NotMetError`."""
        if self.suite.stopped_before(self):
            pytest.skip("the target was given up")
        for version, work_id in self.suite.selected or self._everything():
            if version == self.version:
                self.suite.ensure(version, work_id, self)
        self.suite.settle()
        row = self.suite.requirement(self.version, self.requirement.id)
        self.user_properties += [("verdict", row.verdict.value), ("requirement", self.requirement.id)]
        decide(row.verdict, _why_skipped(row), text=lambda: invariant_text(self.suite, self.version, row))

    @property
    def is_broken(self) -> bool:
        """Whether what was run breaks it, though the item itself was not."""
        return self.suite.requirement(self.version, self.requirement.id).verdict is Verdict.FAIL

    def _everything(self) -> Iterator[tuple[str, str]]:
        return ((self.version, work.id) for work in _in_order(self.suite.session(self.version).plan))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """The failure block; for anything else the traceback, since it is the suite's own."""
        if isinstance(excinfo.value, NotMetError | ConformanceError):
            return without_orders(str(excinfo.value))
        return super().repr_failure(excinfo, *args, **kwargs)

    def reportinfo(self) -> tuple[str, int | None, str]:
        """It is written in no file."""
        return NAME, None, f"universal requirement {self.requirement.id}"


def decide(verdict: Verdict, reason: str, *, text: Any, provisional: bool = False) -> None:
    """What pytest makes of a verdict: `text` gives the failure when it is needed."""
    if verdict in _SKIPPED:
        pytest.skip(reason or verdict.value)
    if verdict in _FAILED:
        if provisional:
            pytest.xfail(f"provisional, does not count: {reason}")
        raise NotMetError(text())


def universal(suite: PluginSuite, version: str) -> tuple[Requirement, ...]:
    """The requirements of the role that are judged on every exchange in a version."""
    role = suite.settings.profile.role
    return tuple(one for one in suite.catalogue.for_version(version, role) if one.universal)


def invariant_reports(items: Iterable[InvariantItem]) -> Iterator[pytest.TestReport]:
    """Invariants as finished tests, for a controller of pytest-xdist: only it has the results of all workers."""
    for item in items:
        requirement = item.requirement
        if not item.suite.results[item.version]:
            continue
        row = item.suite.requirement(item.version, requirement.id)
        outcome: Any = "failed" if row.verdict in _FAILED else "skipped" if row.verdict in _SKIPPED else "passed"
        longrepr: Any = None
        if outcome == "failed":
            longrepr = without_orders(invariant_text(item.suite, item.version, row))
        elif outcome == "skipped":
            longrepr = (NAME, 0, f"Skipped: {_why_skipped(row)}")
        yield pytest.TestReport(
            nodeid=item.nodeid,
            location=item.reportinfo(),
            keywords={requirement.id: 1, "epp_conformance": 1},
            outcome=outcome,
            longrepr=longrepr,
            when="call",
            user_properties=[("verdict", row.verdict.value), ("requirement", requirement.id)],
        )


# -- failures in words -------------------------------------------------------------------------------------------------


def scenario_text(suite: PluginSuite, version: str, result: ScenarioResult) -> str:
    """The failure block of a scenario."""
    decisive = result.decisive
    requirement = suite.catalogue.get(decisive.requirement if decisive else result.requirements[0])
    finding = decisive or Finding(requirement=requirement.id, verdict=result.verdict, actual=result.reason)
    asked = RequirementRow.of(version, RequirementResult(requirement=requirement, verdict=result.verdict))
    return _block(suite, asked, Occurrence(result=result, finding=finding), suite.episode(version, result.id))


def invariant_text(suite: PluginSuite, version: str, row: RequirementResult) -> str:
    """The failure block of an invariant: its clearest occurrence, and where else it was seen.

    The conversation is left out if the item of its scenario shows it.
    """
    found: Concern = concern(RequirementRow.of(version, row), row.blamed)
    if not found.occurrences:
        return f"{row.requirement.id} {row.verdict}: {row.requirement.statement}"
    first, *others = found.occurrences
    shown = first.result.verdict in _FAILED and row.requirement.id in first.result.requirements
    text = _block(suite, found.requirement, first, None if shown else suite.episode(version, first.result.id))
    if others:
        text += "\nalso in      " + ", ".join(one.result.id for one in others[:5])
        text += f" and {len(others) - 5} more" if len(others) > 5 else ""
    return text


def _block(suite: PluginSuite, requirement: RequirementRow, occurrence: Occurrence, episode: Episode | None) -> str:
    from conformance.report.render.text import failure_text

    command = reproduce_command(suite.settings.command, suite.settings.seed, occurrence.result)
    return failure_text(requirement, occurrence, episode, reproduce=command).plain


def _why_skipped(row: RequirementResult) -> str:
    if row.verdict is Verdict.UNTESTED:
        return row.note or "no exchange had to do with it"
    return row.note or row.verdict.value


def _in_order(plan: Plan) -> Iterable[Work]:
    """Work in the order in which it is run best: batch by batch, then what is skipped."""
    for batch in plan.batches:
        yield from batch.work
    for skip in plan.skips:
        yield skip.work


def batches_by_item(suite: PluginSuite) -> dict[str, str]:
    """For the id of each scenario's item, the batch that it is run in."""
    several = len(suite.settings.versions) > 1
    found: dict[str, str] = {}
    for version in suite.settings.versions:
        prefix = f"{NAME}::{f'{version}::' if several else ''}"
        for number, batch in enumerate(suite.session(version).plan.batches):
            for at, work in enumerate(batch.work):
                found[prefix + work.id] = f"{version} batch {number}.{at // SHARE}"
    return found
