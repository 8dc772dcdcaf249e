"""Two reports side by side: what got worse, what got better, and what differs only because the catalogue does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.errors import UsageError
from conformance.outcome import ScenarioResult
from conformance.printable import plural
from conformance.report.document.failures import concerns
from conformance.report.document.model import Report
from conformance.report.document.rows import RequirementRow
from conformance.report.render.marks import mark
from conformance.report.render.safe import safe
from conformance.verdict import UNSETTLED, Verdict

_RANK: Mapping[Verdict, int] = {
    Verdict.PASS: 0,
    Verdict.NOT_APPLICABLE: 0,
    Verdict.ATTESTED: 0,
    Verdict.WARN: 1,
    Verdict.UNTESTED: 2,
    Verdict.SKIPPED: 2,
    Verdict.INCONCLUSIVE: 2,
    Verdict.ERROR: 2,
    Verdict.FAIL: 3,
}
"""From settled well to settled badly; what was not found out stands between."""

_MEANING = ("level", "kind", "effect", "statement", "section", "reading")
"""The fields of an entry that change what is required."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictChange:
    """A requirement or scenario of a version whose verdict differs."""

    version: str
    id: str
    before: Verdict
    after: Verdict
    actual: str = ""

    def __str__(self) -> str:
        why = f": {self.actual}" if self.actual else ""
        return f"{self.version} {self.id}: {mark(self.before)} → {mark(self.after)}{why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueChange:
    """An entry that one report has and the other has not, or that asks for something else. `fields` differ."""

    version: str
    id: str
    what: str
    fields: tuple[str, ...] = ()
    before: Verdict | None = None
    after: Verdict | None = None

    def __str__(self) -> str:
        fields = f" ({', '.join(self.fields)})" if self.fields else ""
        verdicts = " → ".join(mark(one) for one in (self.before, self.after) if one is not None)
        return f"{self.version} {self.id}: {self.what}{fields}: {verdicts}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diff:
    """Requirements of the target's role that got worse, better, or just different; then what only one report has.

    A requirement of which the catalogue's entry changed is in `catalogue` and in no other list.
    """

    regressions: tuple[VerdictChange, ...]
    fixes: tuple[VerdictChange, ...]
    others: tuple[VerdictChange, ...]
    catalogue: tuple[CatalogueChange, ...]
    scenario_regressions: tuple[VerdictChange, ...]
    scenario_fixes: tuple[VerdictChange, ...]
    scenarios_added: tuple[str, ...]
    scenarios_removed: tuple[str, ...]
    versions_added: tuple[str, ...]
    versions_removed: tuple[str, ...]
    order: str
    """Whether the same ran in the same order."""

    @property
    def regressed(self) -> bool:
        """Whether anything got worse under the same rules."""
        return bool(self.regressions or self.scenario_regressions)

    def lines(self) -> tuple[str, ...]:
        """The differences as text, regressions first."""
        sections = (
            ("regressions", self.regressions),
            ("scenarios that got worse", self.scenario_regressions),
            ("fixes", self.fixes),
            ("scenarios that got better", self.scenario_fixes),
            ("other changes", self.others),
            ("the catalogue changed", self.catalogue),
            ("versions only in the second report", self.versions_added),
            ("versions only in the first report", self.versions_removed),
            ("scenarios only in the second report", self.scenarios_added),
            ("scenarios only in the first report", self.scenarios_removed),
        )
        found = [line for title, items in sections if items for line in (f"{title}:", *(f"  {item}" for item in items))]
        return (*(found or ("no differences in verdicts",)), self.order)


def diff(before: Report, after: Report) -> Diff:
    """What differs from `before` to `after`, in the versions that both have.

    Raises `UsageError` for reports of two roles: they have no requirement in common.
    """
    before, after = safe(before), safe(after)
    roles = (before.implementation.role, after.implementation.role)
    if roles[0] != roles[1]:
        raise UsageError(f"one report is of role {roles[0]}, the other of role {roles[1]}: there is nothing to compare")
    first, second = [row.version for row in before.versions], [row.version for row in after.versions]
    both = set(first) & set(second)
    old = {(row.version, row.id): row for row in before.requirements if row.version in both}
    new = {(row.version, row.id): row for row in after.requirements if row.version in both}
    changed = [(old[key], new[key], _fields(old[key], new[key])) for key in old if key in new]
    seen = {
        (one.requirement.version, one.requirement.id): one.occurrences[0].finding.actual
        for one in concerns(after, Verdict)
        if one.occurrences
    }
    verdicts = [
        VerdictChange(
            version=b.version, id=b.id, before=b.verdict, after=a.verdict, actual=seen.get((a.version, a.id), "")
        )
        for b, a, fields in changed
        if b.verdict is not a.verdict and not fields
    ]
    catalogue = [
        CatalogueChange(
            version=b.version, id=b.id, what="entry changed", fields=fields, before=b.verdict, after=a.verdict
        )
        for b, a, fields in changed
        if fields
    ]
    added = [row for key, row in new.items() if key not in old]
    removed = [row for key, row in old.items() if key not in new]
    catalogue += [CatalogueChange(version=r.version, id=r.id, what="new entry", after=r.verdict) for r in added]
    catalogue += [CatalogueChange(version=r.version, id=r.id, what="entry removed", before=r.verdict) for r in removed]
    old_runs = {(row.version, row.id): row for row in before.results if row.version in both}
    new_runs = {(row.version, row.id): row for row in after.results if row.version in both}
    runs = [_run(old_runs[key], new_runs[key]) for key in old_runs if key in new_runs]
    return Diff(
        regressions=tuple(one for one in verdicts if _worse(one) > 0),
        fixes=tuple(one for one in verdicts if _worse(one) < 0),
        others=tuple(one for one in verdicts if _worse(one) == 0),
        catalogue=tuple(catalogue),
        scenario_regressions=tuple(one for one in runs if one and _worse(one) > 0),
        scenario_fixes=tuple(one for one in runs if one and _worse(one) < 0),
        scenarios_added=tuple(f"{version} {name}" for version, name in new_runs if (version, name) not in old_runs),
        scenarios_removed=tuple(f"{version} {name}" for version, name in old_runs if (version, name) not in new_runs),
        versions_added=tuple(version for version in second if version not in both),
        versions_removed=tuple(version for version in first if version not in both),
        order=_order(_ran(before), _ran(after)),
    )


def _ran(report: Report) -> list[str]:
    """What was run, in the order in which it was done."""
    return [f"{row.version} {row.id}" for row in report.results if row.evidence is not None]


def _order(before: Sequence[str], after: Sequence[str]) -> str:
    """Both orders in words, each with a digest, by which it is known again among other reports."""
    if before == after:
        return f"ran: the same {plural(len(after), 'scenario')} in the same order ({_digest(after)})"
    digests = f"({_digest(before)}, then {_digest(after)})"
    if sorted(before) != sorted(after):
        return f"ran: other scenarios, {len(before)}, then {len(after)} {digests}"
    at = next(at for at, (one, two) in enumerate(zip(before, after, strict=True)) if one != two)
    return f"ran: the same {len(after)} scenarios in another order, from {after[at]} on {digests}"


def _digest(ran: Sequence[str]) -> str:
    return "order " + hashlib.sha256("\n".join(ran).encode()).hexdigest()[:12]


def _fields(before: RequirementRow, after: RequirementRow) -> tuple[str, ...]:
    return tuple(name for name in _MEANING if getattr(before, name) != getattr(after, name))


def _worse(change: VerdictChange) -> int:
    if change.before is Verdict.UNTESTED and change.after is not Verdict.FAIL:
        return 0  # it was not known before: that is no fix
    if change.before is Verdict.FAIL and change.after in (Verdict.UNTESTED, *UNSETTLED):
        return 0  # nor is it one that it was not tried
    return _RANK[change.after] - _RANK[change.before]


def _run(before: ScenarioResult, after: ScenarioResult) -> VerdictChange | None:
    """A scenario whose verdict differs; None if it does not, or if it came to be about other requirements."""
    if before.verdict is after.verdict or before.requirements != after.requirements:
        return None
    return VerdictChange(
        version=after.version, id=after.id, before=before.verdict, after=after.verdict, actual=after.actual
    )
