"""`epp-conformance certify`: the whole suite on every claimed version, and the folder that upstream takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from conformance.cli import options
from conformance.targets.flags import SelectionFlags, TargetFlags


@options.spelt_out
def certify(
    target: Annotated[TargetFlags, options.Taken(without=("data_plane",))],
    what: Annotated[SelectionFlags, options.Taken(only=("protocol_version", "seed"))],
    from_report: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="Certify this report instead of running again.")
    ] = None,
    submission: Annotated[
        Path, typer.Option("--submission", metavar="DIR", help="Where the folder for upstream goes.")
    ] = Path("reports"),
    mode: Annotated[
        str, typer.Option("--mode", help="Name of the way it was run, part of the file's name.")
    ] = "default",
    jobs: options.Jobs = None,
    property_examples: options.PropertyExamples = 50,
    output: options.Output = options.DEFAULT_OUTPUT,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Run everything, slow scenarios too, and write the folder of reports that upstream takes.

    A run that is filtered or incomplete, and a profile that does not say whose the target is, are refused. A violation
    is not: a report may say non-conformant.
    """
    from conformance.cli.console import without_colour

    if no_color:
        without_colour()
    if from_report is not None:
        from conformance.cli.report import read

        _write(read(from_report)[0], submission, mode)
        return
    from conformance.cli.run_and_report import run_and_report
    from conformance.cli.show import show
    from conformance.run.request import run_settings
    from conformance.targets.resolve import protocol_versions

    settings = run_settings(target, dataclasses.replace(what, slow=True))
    profile = settings.profile
    _has_owner(profile.implementation)
    settings = dataclasses.replace(
        settings,
        versions=protocol_versions(profile, what.protocol_version or profile.protocol_versions),
        jobs=jobs,
        property_examples=property_examples if profile.role == "epp" else 0,
    )
    title = f"certifying {target.title}, seed {settings.seed}"
    done = run_and_report(settings, output, title=title, quiet=quiet)
    show(done)
    if done.code in (0, 1):
        _write(done.report, submission, mode)
    raise typer.Exit(done.code)


def _has_owner(implementation: object) -> None:
    """Refuse at once what would be refused after the run."""
    from conformance.errors import UsageError

    names = ("organization", "project", "url", "version", "contact")
    missing = [name for name in names if not getattr(implementation, name)]
    if missing:
        raise UsageError(
            f"the profile does not say whose the target is: implementation.{', implementation.'.join(missing)}",
            hint="upstream's reports name organization, project, url, version and contact",
        )


def _write(report: object, submission: Path, mode: str) -> None:
    from conformance.report.document.model import Report
    from conformance.report.render.submission import write_submission

    assert isinstance(report, Report)
    for one in write_submission(report, submission, mode=mode):
        typer.echo(f"{one.version}: {one.report}")
