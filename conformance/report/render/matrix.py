"""Reports side by side: implementations by protocol versions, then by requirements; each verdict leads to its report.

Gateways and endpoint pickers are apart. `matrix` puts the reports in order, `markdown` and `html` show them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.report.document.model import Report
from conformance.report.document.rows import RequirementRow, VersionRow
from conformance.report.render.marks import MEANING, SUBJECT, SYMBOL, WORD, mark
from conformance.report.render.markup import cell, link, text
from conformance.report.render.page import asset, policy, template
from conformance.report.render.readme import age
from conformance.report.render.safe import safe
from conformance.roles import ROLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """One implementation in one version and mode, by protocol version: its report, and where that is."""

    name: str
    reports: dict[str, tuple[Report, str]]

    def result(self, version: str) -> VersionRow | None:
        """The result in a protocol version; None if there is no report of it."""
        found = self.reports.get(version)
        return next((row for row in found[0].versions if row.version == version), None) if found else None

    def requirement(self, version: str, name: str) -> RequirementRow | None:
        """The verdict of a requirement in a protocol version; None if there is none."""
        found = self.reports.get(version)
        rows = found[0].requirements_of(version) if found else ()
        return next((row for row in rows if row.id == name), None)

    def link(self, version: str, anchor: str = "") -> str:
        """Where the report of a version is, from the page."""
        where = link(self.reports[version][1])
        return f"{where}#{anchor}" if anchor and where.endswith(".html") else where


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """All that was tested of one role."""

    role: str
    versions: tuple[str, ...]
    tested: tuple[Tested, ...]

    def requirements(self, version: str) -> tuple[RequirementRow, ...]:
        """The requirements of a protocol version, in the catalogue's order, as any of its reports has them."""
        found: dict[str, RequirementRow] = {}
        for one in self.tested:
            if version in one.reports:
                for row in one.reports[version][0].requirements_of(version):
                    found.setdefault(row.id, row)
        return tuple(found.values())

    def of(self, version: str) -> tuple[Tested, ...]:
        """What was tested in a protocol version."""
        return tuple(one for one in self.tested if version in one.reports)


def matrix(reports: Sequence[tuple[Report, str]]) -> tuple[Side, ...]:
    """The reports, each with where it is from the page, by role. Reports of the same thing stand apart."""
    sides: dict[str, dict[str, Tested]] = {role: {} for role in ROLES}
    for report, where in sorted(reports, key=lambda one: one[0].started_at):
        shown = safe(report)
        own, name = sides[shown.implementation.role], shown.name
        if name in own and own[name].reports.keys() & {row.version for row in shown.versions}:
            name = f"{name}, {where}"
        tested = own.setdefault(name, Tested(name=name, reports={}))
        tested.reports.update({row.version: (shown, where) for row in shown.versions})
    return tuple(
        Side(
            role=role,
            versions=tuple(sorted({name for one in own.values() for name in one.reports}, key=age)),
            tested=tuple(sorted(own.values(), key=lambda one: one.name.lower())),
        )
        for role, own in sides.items()
        if own
    )


def markdown(sides: Sequence[Side]) -> str:
    """The page as Markdown."""
    lines = ["# Conformance to the Endpoint Picker Protocol", ""]
    for side in sides:
        lines += [f"## {_title(side)}", "", _row(["", *side.versions]), _row(["---"] * (len(side.versions) + 1))]
        for one in side.tested:
            results = (_linked(one, version) for version in side.versions)
            lines.append(_row([text(one.name), *results]))
        lines.append("")
        for version in side.versions:
            own = side.of(version)
            lines += [f"### {_title(side)}, requirements of {cell(version)}", ""]
            lines += [_row(["", *(text(one.name) for one in own)]), _row(["---"] * (len(own) + 1))]
            lines += [
                _row([f"{cell(row.id)} {text(row.title)}", *(_verdict(one, version, row.id) for one in own)])
                for row in side.requirements(version)
            ]
            lines.append("")
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _title(side: Side) -> str:
    return f"{SUBJECT[side.role].capitalize()}s"


def _linked(one: Tested, version: str) -> str:
    row = one.result(version)
    return f"[{mark(row.result)}]({one.link(version)})" if row is not None else "–"


def _verdict(one: Tested, version: str, name: str) -> str:
    row = one.requirement(version, name)
    return f"[{mark(row.verdict)}]({one.link(version)})" if row is not None else "–"


def html(sides: Sequence[Side]) -> str:
    """The page as one HTML file that needs no network and runs no script."""
    style = asset("page.css") + asset("matrix.css")
    return template("matrix.html.j2").render(
        sides=sides,
        title=_title,
        style=style,
        policy=policy(style=style),
        symbol=SYMBOL,
        word=WORD,
        meaning=MEANING,
    )
