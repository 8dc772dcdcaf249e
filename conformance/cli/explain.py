"""`epp-conformance explain ID`: all that is known of a requirement or a scenario."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from conformance.cli import completion, options
from conformance.cli.completion import offering
from conformance.targets.flags import SelectionFlags

if TYPE_CHECKING:
    from conformance.requirements.catalogue import Catalogue, Requirement
    from conformance.scenario.loader import Instance

WIDTH = 100


@options.spelt_out
def explain(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A requirement (EPP-SUB-01) or a scenario.",
            autocompletion=offering(completion.requirements, completion.scenarios),
        ),
    ],
    source: Annotated[bool, typer.Option("--source", help="Also list the suite's files: judges and faults.")] = False,
    *,
    files: Annotated[SelectionFlags, options.Taken(only=("scenarios",))],
) -> None:
    """Explain a requirement or a scenario: the rule, how it is observed, the messages sent."""
    from conformance.errors import UnknownNameError
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.loader import load

    catalogue = Catalogue.load()
    instances = load(catalogue, files.scenarios or ())
    name = name.removeprefix("invariant::")
    if name in catalogue:
        requirement = catalogue.get(name)
        typer.echo(requirement_text(requirement, instances, source=source))
        return
    found = [one for one in instances if name.split("@")[0] in (one.id, one.scenario.id, *one.scenario.aliases)]
    if not found:
        known = [*catalogue.requirements, *(one.scenario.id for one in instances)]
        raise UnknownNameError("requirement or scenario", name, known, hint=_hint(name, known))
    typer.echo(scenario_text(found, catalogue))


def requirement_text(requirement: Requirement, instances: tuple[Instance, ...], *, source: bool = False) -> str:
    """A requirement with its text in the catalogue and its scenarios.

    With `source`, also its places in the suite: catalogue, judges, and the faults of the selftest that break it.
    """
    effects = ", ".join(f"{version} {effect}" for version, effect in requirement.effects.items())
    named = {one.group: f"{one.file}:{one.line}" for one in instances if requirement.id in one.scenario.requirements}
    parts = [
        f"{requirement.id}  {requirement.title}",
        f"{requirement.level}, {requirement.kind}, role {requirement.role}; section “{requirement.section}”",
        _field("Statement", requirement.statement),
        _field("A violation counts", effects),
        _field("Observed", requirement.observed),
        _field("Reading", requirement.reading),
        _field("Common causes", requirement.why),
        _field("Recording", requirement.recording),
        _field("Not tested", requirement.untestable or requirement.pending),
        _field("Aliases", ", ".join(requirement.aliases)),
        _field("Judged", "on every exchange of every scenario" if requirement.universal else None),
        _field(
            "Condition",
            "its not arising is neutral: it is the target's own choice" if requirement.conditional else None,
        ),
        _field("Scenarios", _with_places(named)),
    ]
    return "\n".join(part for part in (*parts, *(_sources(requirement) if source else ())) if part)


def _sources(requirement: Requirement) -> list[str]:
    """Where the requirement is written, judged and broken on purpose."""
    from conformance.judges.places import places

    return [
        _field("Written", f"conformance/{requirement.place}"),
        _field("Judges", "\n".join(places(requirement.id))),
        _field("Faults", _with_places(_broken_by(requirement))),
    ]


def _broken_by(requirement: Requirement) -> Mapping[str, str]:
    """The faults that break a requirement, and where they are declared."""
    from conformance.scenario.schema import Role
    from conformance.selftest.deviation import deviations, places

    role = next((role for role in get_args(Role) if role == requirement.role), None)
    faults = [one for one in deviations("faults", role) if one.breaks == requirement.id] if role else []
    return places(faults)


def _with_places(named: Mapping[str, str]) -> str:
    width = max(map(len, named), default=0)
    return "\n".join(f"{name:{width}}  {place}" for name, place in named.items())


def scenario_text(found: list[Instance], catalogue: Catalogue) -> str:
    """A scenario: its requirements, where it is written, and what is done and expected in each step."""
    from conformance.cli.list import versions
    from conformance.roles import ROLES
    from conformance.strict_yaml import dump

    one = found[0]
    scenario = one.scenario
    requirements = [catalogue.get(name) for name in scenario.requirements]
    flags = [name for name in ("smoke", "slow", "isolated", "provisional") if getattr(scenario, name)]
    flags += ["off-contract: judged only for crash, hang and membership"] if scenario.stimulus == "off-contract" else []
    data = scenario.model_dump(mode="json", by_alias=True, exclude_unset=True)
    shown = {key: data[key] for key in ("needs", "modes", "pool", "steps") if data.get(key)}
    parts = [
        f"{scenario.id}  {scenario.title}",
        f"section {one.section}, {one.file}:{one.line}",
        _field("Requirements", "\n".join(f"{r.id} ({r.level}) {r.title}" for r in requirements)),
        _field("Versions", ", ".join(versions(one, catalogue))),
        _field("Kind", ", ".join(flags)),
        _field("Instances", "\n".join(instance.id for instance in found) if len(found) > 1 else None),
        "",
        "What is done" + (f", as {one.id}:" if len(found) > 1 else ":"),
        textwrap.indent(dump(_plain(shown)).rstrip(), "  "),
        "",
        f"Run it: epp-conformance run {ROLES[one.role].example}-k '{scenario.id}'",
    ]
    return "\n".join(part for part in parts if part is not None and (part or part == ""))


def _field(name: str, text: str | None) -> str:
    if not text:
        return ""
    indent = " " * 20
    lines = [line for part in text.splitlines() for line in _wrapped(part, WIDTH - len(indent))]
    return "\n".join(f"{name:<20}{line}" if at == 0 else indent + line for at, line in enumerate(lines))


def _wrapped(text: str, width: int) -> list[str]:
    """Prose in lines of at most `width`; a name with its place stays on one."""
    return [text] if "  " in text else textwrap.wrap(text, width) or [""]


def _hint(name: str, known: list[str]) -> str:
    from conformance.errors import nearest

    best = nearest(name, known)
    return (
        f"did you mean {best!r}?"
        if best
        else "`epp-conformance list` shows scenarios, with --requirements the catalogue"
    )


def _plain(value: Any) -> Any:
    """Without nulls, which say nothing here."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else value
