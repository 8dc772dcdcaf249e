"""`epp-conformance list`: scenarios, requirements, schemas, and how much of each document is covered."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conformance.cli import options
from conformance.printable import plural
from conformance.targets.flags import RoleName, SelectionFlags, TargetFlags

if TYPE_CHECKING:
    from conformance.planning.plan import Selection
    from conformance.requirements.catalogue import Catalogue, Requirement
    from conformance.scenario.loader import Instance


ROLES = tuple(RoleName)
"""In this order: what is tested by default comes first."""


class Format(StrEnum):
    """How the list is written."""

    TABLE = "table"
    JSON = "json"
    IDS = "ids"


Wanted = Annotated[Format, typer.Option("--format", "-f", help="For people, for programs, or one id a line.")]
Version = Annotated[str | None, typer.Option("--protocol-version", metavar="VERSION", help="Only what this one has.")]


@options.spelt_out
def list_(
    requirements: Annotated[bool, typer.Option("--requirements", help="The requirements of the catalogue.")] = False,
    coverage: Annotated[bool, typer.Option("--coverage", help="How much of each document is tested.")] = False,
    schema: Annotated[bool, typer.Option("--schema", help="The JSON Schema of scenario files.")] = False,
    format: Wanted = Format.TABLE,  # noqa: A002 - the flag's name
    protocol_version: Version = None,
    *,
    whose: Annotated[TargetFlags, options.Taken(only=("role",))],
    what: Annotated[SelectionFlags, options.Taken(without=("protocol_version", "slow", "seed"))],
) -> None:
    """List scenarios (default), requirements, or the coverage of the protocol's documents."""
    from conformance.cli.console import print_json
    from conformance.planning.selection import section_name, selection
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.loader import load

    if schema:
        print_json(scenario_schema())
        return
    catalogue = Catalogue.load()
    if protocol_version is not None:
        catalogue.for_version(protocol_version)
    instances = tuple(sorted(load(catalogue, what.scenarios or ()), key=lambda one: ROLES.index(one.role)))
    if coverage:
        _coverage(catalogue, instances, format)
        return
    selected = selection(what)
    of_documents = {section_name(one.section) for one in catalogue} if requirements else set()
    sections = tuple(name for name in selected.sections if name not in of_documents)
    dataclasses.replace(selected, sections=sections).check(instances, catalogue)
    instances = tuple(one for one in instances if whose.role in (None, one.role))
    if requirements:
        wanted = catalogue.for_version(protocol_version, None) if protocol_version else tuple(catalogue)
        exercised = _exercised(selected, instances, catalogue)
        picked = [
            one
            for one in wanted
            if whose.role in (None, one.role)
            and (not selected.requirements or one.id in selected.requirements)
            and (not selected.levels or one.level in selected.levels)
            and (exercised is None or one.id in exercised or section_name(one.section) in selected.sections)
        ]
        _requirements(picked, instances, format)
        return
    chosen = [
        one
        for one in instances
        if selected.admits(one, catalogue)
        and (protocol_version is None or protocol_version in versions(one, catalogue))
    ]
    _scenarios(chosen, catalogue, format)


def _exercised(selected: Selection, instances: tuple[Instance, ...], catalogue: Catalogue) -> set[str] | None:
    """The requirements of the scenarios that are selected by their own names; None if none are."""
    if not (selected.scenarios or selected.exclude or selected.smoke or selected.sections):
        return None
    chosen = dataclasses.replace(selected, requirements=(), levels=())
    return {
        catalogue.get(name).id
        for one in instances
        if chosen.admits(one, catalogue)
        for name in one.scenario.requirements
    }


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema of scenario files, for editors."""
    from conformance.scenario.schema import ScenarioFile

    schema = ScenarioFile.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "EPP conformance scenarios"}


def versions(instance: Instance, catalogue: Catalogue) -> tuple[str, ...]:
    """The protocol versions that a scenario belongs to, oldest first."""
    from conformance.requirements.schema import VERSIONS

    if instance.scenario.versions is not None:
        return tuple(instance.scenario.versions)
    named = {version for name in instance.scenario.requirements for version in catalogue.get(name).effects}
    return tuple(version for version in VERSIONS if version in named)


def tested(instances: tuple[Instance, ...], catalogue: Catalogue) -> set[str]:
    """The requirements that something tests: a scenario names them, or they are judged on every exchange."""
    named = {catalogue.get(name).id for one in instances for name in one.scenario.requirements}
    return named | {one.id for one in catalogue if one.universal and one.testable}


def _scenarios(chosen: list[Instance], catalogue: Catalogue, format: Format) -> None:  # noqa: A002
    from conformance.cli.console import print_json, print_table

    groups: dict[str, list[Instance]] = {}
    for one in chosen:
        groups.setdefault(one.group, []).append(one)
    rows: list[dict[str, Any]] = [
        {
            "id": name,
            "title": group[0].scenario.title,
            "role": group[0].role,
            "section": group[0].section,
            "requirements": list(group[0].scenario.requirements),
            "versions": list(versions(group[0], catalogue)),
            "smoke": group[0].scenario.smoke,
            "slow": group[0].scenario.slow,
            "provisional": group[0].scenario.provisional,
            "instances": [one.id for one in group],
            "source": f"{group[0].file}:{group[0].line}",
        }
        for name, group in groups.items()
    ]
    match format:
        case Format.JSON:
            print_json(rows)
        case Format.IDS:
            typer.echo("\n".join(groups))
        case Format.TABLE:
            print_table(
                ["ID", "N", "VERSIONS", "REQUIREMENTS", "TITLE"],
                [
                    [
                        row["id"],
                        str(len(row["instances"])),
                        _range(row["versions"]),
                        " ".join(row["requirements"]),
                        row["title"],
                    ]
                    for row in rows
                ],
            )
            typer.echo(
                f"{plural(len(rows), 'scenario')}, {plural(len(chosen), 'instance')}. "
                "`epp-conformance explain ID` says more."
            )


def _requirements(picked: list[Requirement], instances: tuple[Instance, ...], format: Format) -> None:  # noqa: A002
    from conformance.cli.console import print_json, print_table

    named = {name for one in instances for name in one.scenario.requirements}
    rows = [
        {
            "id": one.id,
            "title": one.title,
            "role": one.role,
            "level": one.level,
            "kind": one.kind,
            "section": one.section,
            "effects": dict(one.effects),
            "tested": _how_tested(one, named),
            "note": one.untestable or one.pending or "",
        }
        for one in picked
    ]
    match format:
        case Format.JSON:
            print_json(rows)
        case Format.IDS:
            typer.echo("\n".join(one.id for one in picked))
        case Format.TABLE:
            print_table(
                ["ID", "ROLE", "LEVEL", "VERSIONS", "TESTED", "TITLE"],
                [
                    [one.id, one.role, one.level, _range(list(one.effects)), _how_tested(one, named), one.title]
                    for one in picked
                ],
            )
            typer.echo(f"{plural(len(picked), 'requirement')}. `epp-conformance explain ID` says more.")


def _how_tested(requirement: Requirement, named: set[str]) -> str:
    if requirement.untestable:
        return "can't be"
    if requirement.pending:
        return "not yet"
    if requirement.universal:
        return "every exchange"
    return "scenarios" if requirement.id in named else "no scenario"


def _coverage(catalogue: Catalogue, instances: tuple[Instance, ...], format: Format) -> None:  # noqa: A002
    from conformance.cli.console import print_json, print_table
    from conformance.requirements.drift import coverage

    done = tested(instances, catalogue)
    found = [coverage(name, done, catalogue) for name in catalogue.documents]
    columns = ["DOCUMENT", "DATE", "NORMATIVE", "TESTED", "NOT YET", "CAN'T BE", "NO REQUIREMENT", "TITLE"]
    rows = [
        [
            one.specification.name,
            one.specification.date,
            str(one.normative),
            str(len(one.tested)),
            str(len(one.pending)),
            str(len(one.untestable)),
            str(len(one.no_requirement)),
            one.specification.title,
        ]
        for one in found
    ]
    match format:
        case Format.JSON:
            print_json(
                [
                    {
                        "document": one.specification.name,
                        "date": one.specification.date,
                        "title": one.specification.title,
                        "normative": one.normative,
                        "tested": len(one.tested),
                        "pending": len(one.pending),
                        "untestable": len(one.untestable),
                        "noRequirement": len(one.no_requirement),
                    }
                    for one in found
                ]
            )
        case Format.IDS:
            typer.echo("\n".join(one.specification.name for one in found))
        case Format.TABLE:
            print_table(columns, rows)
            typer.echo("Normative sentences of each document. `list --requirements` says why some can't be tested.")


def _range(names: list[str]) -> str:
    """`0.3.0-next` for versions without a gap, else each of them."""
    from conformance.requirements.schema import VERSIONS

    if len(names) < 3:
        return " ".join(names)
    at = [VERSIONS.index(name) for name in VERSIONS if name in names]
    return f"{VERSIONS[at[0]]}-{VERSIONS[at[-1]]}" if len(at) == at[-1] - at[0] + 1 else " ".join(names)
