"""`epp-conformance scenario`: begin a scenario file, and check scenario files without running anything."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from conformance.cli import completion
from conformance.cli.commands import Commands
from conformance.cli.scenario_from import from_
from conformance.printable import plural

scenario = typer.Typer(
    cls=Commands, no_args_is_help=True, rich_markup_mode=None, help="Begin and check your own scenario files."
)
scenario.command("from")(from_)


@scenario.command()
def lint(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|FILE…", help="Scenario files, or folders of them.")],
) -> None:
    """Check scenario files: their form, their requirements, their ids. Exit 2 if something is wrong, with its place."""
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.loader import built_in_files, given_files, load

    catalogue = Catalogue.load()
    own = built_in_files()
    given = {str(file): own.get(file.resolve()) for path in paths for file in given_files(path)}
    names = {name or file for file, name in given.items()}
    others = [Path(file) for file, name in given.items() if name is None]
    found = [one for one in load(catalogue, others) if one.file in names]
    for group, file, line in dict.fromkeys((one.group, one.file, one.line) for one in found):
        count = sum(one.group == group for one in found)
        typer.echo(f"{group}  {file}:{line}" + (f"  {count} instances" if count > 1 else ""))
    groups = {one.group for one in found}
    typer.echo(f"{plural(len(groups), 'scenario')}, {plural(len(found), 'instance')}: well-formed")


@scenario.command()
def new(
    id: Annotated[str, typer.Argument(metavar="ID", help="Its id, such as acme.keeps-tenant.")],  # noqa: A002
    requirement: Annotated[
        str,
        typer.Option(
            "--requirement",
            metavar="ID",
            help="What it exercises.",
            autocompletion=completion.offering(completion.requirements),
        ),
    ],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: ID.yaml.")] = None,
    title: Annotated[str, typer.Option("--title", help="What holds if it passes.")] = "What holds if this passes",
) -> None:
    """Write a commented scenario to begin with. It runs as it is; an existing file is kept."""
    from conformance.errors import UsageError
    from conformance.requirements.catalogue import Catalogue
    from conformance.roles import ROLES

    path = output or Path(f"{id}.yaml")
    asked = Catalogue.load().get(requirement)
    text = _TEXT[asked.role].format(section=id.partition(".")[0], id=id, title=_quoted(title), name=asked.id)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise UsageError(f"{path} can't be written: {problem.strerror}", hint="give another with --output") from None
    try:
        lint([path])
    except UsageError:
        path.unlink()
        raise
    flags = ROLES[asked.role].example
    typer.echo(f"wrote {path}; run it: epp-conformance run {flags}--scenarios {shlex.quote(str(path))} -k {id}")


def _quoted(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)


_TEXT = {
    "epp": """\
# Scenarios for epp-conformance. `epp-conformance list --schema` has every key; keys left out have defaults.
section: {section}
scenarios:
  - id: {id}
    title: {title}
    requirements: [{name}] # it fails on these only; all others are judged, too
    # pool: {{pods: [{{name: a, queue: 8}}, {{name: b}}]}} # default: three idle pods a, b and c
    # matrix: {{only: [a, b, c]}} # an instance for each value; {{only}} stands for it below
    steps:
      - exchange: {{subset: ["{{b}}"], prompt: fresh, repeat: 3}} # requests; {{b}} is the endpoint of pod b
        expect: {{within: ["{{b}}"], status: 200}}
""",
    "data-plane": """\
# Scenarios for epp-conformance. `epp-conformance list --schema` has every key; keys left out have defaults.
section: {section}
role: data-plane
scenarios:
  - id: {id}
    title: {title}
    requirements: [{name}] # it fails on these only; all others are judged, too
    steps:
      - request: {{epp: {{pick: ["{{b}}"]}}}} # a request, and what its EPP answers; {{b}} is the endpoint of pod b
        expect: {{status: 200, servedBy: ["{{b}}"]}}
""",
    "model-server": """\
# Scenarios for epp-conformance. `epp-conformance list --schema` has every key; keys left out have defaults.
section: {section}
role: model-server
scenarios:
  - id: {id}
    title: {title}
    requirements: [{name}] # it fails on these only; all others are judged, too
    steps:
      - ask: {{api: completions, stream: true, includeUsage: true, repeat: 3}} # requests to the API
      - load: {{until: queued}} # requests in flight together, more and more, until some wait
      - scrape: {{times: 3}} # the page of metrics
""",
}
