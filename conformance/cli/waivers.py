"""`epp-conformance waivers`: files of known failures."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Annotated

import typer

from conformance.cli.commands import Commands
from conformance.errors import UsageError

waivers = typer.Typer(cls=Commands, no_args_is_help=True, help="Known failures that do not fail a build.")


@waivers.command()
def suggest(
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="report.json, or the folder that has it.")],
    owner: Annotated[str, typer.Option("--owner", help="Who looks after these failures.")],
    link: Annotated[str, typer.Option("--link", metavar="URL", help="Where they are tracked.")],
    days: Annotated[int, typer.Option("--days", min=1, max=365, help="How long the waivers hold.")] = 30,
) -> None:
    """Print a waiver file for every failure of a report. Edit the reasons before you use it."""
    from conformance.cli.report import read
    from conformance.report.document.waivers import suggest as waive
    from conformance.strict_yaml import dump

    for flag, text in (("--owner", owner), ("--link", link)):
        if not text.strip():
            raise UsageError(f"{flag} is empty", hint="say who answers for the waivers, and where it is discussed")
    expires = dt.datetime.now(dt.UTC).date() + dt.timedelta(days=days)
    file = waive(read(report)[0].results, owner=owner, link=link, expires=expires)
    typer.echo(dump(file.model_dump(mode="json", by_alias=True)), nl=False)


@waivers.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A waiver file.")],
    scenarios: Annotated[
        list[Path] | None,
        typer.Option("--scenarios", metavar="DIR|FILE", help="Your own scenario files, as well. Repeatable."),
    ] = None,
) -> None:
    """Check a waiver file without running anything: its form, its patterns, its dates."""
    from conformance.printable import plural
    from conformance.report.document.waivers import load_waivers
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.loader import load

    catalogue = Catalogue.load()
    ids = [name for one in load(catalogue, scenarios or ()) for name in (one.id, one.scenario.id)]
    found = load_waivers(file, catalogue, ids)
    today = dt.datetime.now(dt.UTC).date()
    expired = [waiver for waiver in found if waiver.expires < today]
    for waiver in expired:
        typer.echo(f"{waiver.pattern}: expired on {waiver.expires}")
    typer.echo(f"{plural(len(found), 'waiver')}, {len(expired) or 'none'} expired")
    raise typer.Exit(1 if expired else 0)
