"""A report beside a second run of its target: verdict by verdict the same, different, or not reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conformance.printable import printable
from conformance.report.document.model import Report
from conformance.verdict import UNSETTLED, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A scenario instance of the report with its verdict there, and in the second run; None if it has none there."""

    version: str
    id: str
    stated: Verdict
    found: Verdict | None
    reason: str = ""

    def __str__(self) -> str:
        found = self.found.value if self.found is not None else "no result"
        reason = f" ({self.reason})" if self.reason else ""
        return printable(f"{self.version} {self.id}: the report says {self.stated}, now {found}{reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """All scenario instances of the report, by how they came out."""

    same: tuple[Compared, ...]
    different: tuple[Compared, ...]
    not_reached: tuple[Compared, ...]
    results: tuple[tuple[str, str, str], ...]
    """By version: the result that the report states, and that of the second run."""

    @property
    def exit_code(self) -> int:
        """0 if all is the same, 1 if a verdict differs, 4 if some were not reached."""
        return 1 if self.different else 4 if self.not_reached else 0

    def lines(self) -> Iterator[str]:
        """In words, what differs first."""
        for title, found in (("different", self.different), ("not reached", self.not_reached)):
            if found:
                yield f"{title}:"
                yield from (f"  {one}" for one in found)
        for version, stated, found_now in self.results:
            yield f"{version}: the report says {stated}, now {found_now}"
        yield f"{len(self.same)} the same, {len(self.different)} different, {len(self.not_reached)} not reached"


def compare(report: Report, second: Report) -> Reproduction:
    """What a second run says of the results of a report."""
    now = {(row.version, row.id): row for row in second.results}
    same: list[Compared] = []
    different: list[Compared] = []
    not_reached: list[Compared] = []
    for row in report.results:
        other = now.get((row.version, row.id))
        compared = Compared(
            version=row.version,
            id=row.id,
            stated=row.verdict,
            found=other.verdict if other is not None else None,
            reason=other.actual if other is not None and other.verdict is not row.verdict else "",
        )
        if other is not None and other.verdict is row.verdict:
            same.append(compared)
        elif other is None or other.verdict in UNSETTLED:
            not_reached.append(compared)
        else:
            different.append(compared)
    results = {row.version: row.result.value for row in second.versions}
    return Reproduction(
        same=tuple(same),
        different=tuple(different),
        not_reached=tuple(not_reached),
        results=tuple((row.version, row.result.value, results.get(row.version, "not run")) for row in report.versions),
    )
