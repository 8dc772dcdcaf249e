"""`epp-conformance certify`: the whole suite on every claimed version, and the folder that upstream takes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import options
from conformance.cli.interrupt import nothing_to_interrupt
from conformance.targets.flags import SelectionFlags, TargetFlags
from conformance.verdict import Result

if TYPE_CHECKING:
    from conformance.report.document.model import Report


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
    pull_request: Annotated[
        Path | None,
        typer.Option("--pull-request", metavar="DIR", help="Write what a pull request to upstream has, too."),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", help="Name of the way it was run, part of the file's name.")
    ] = "default",
    observed: Annotated[
        bool, typer.Option("--observed", help="Say that those who make the implementation did not submit this.")
    ] = False,
    jobs: options.Jobs = None,
    property_examples: options.PropertyExamples = 50,
    output: options.Output = options.DEFAULT_OUTPUT,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Run everything, slow scenarios too, and write the folder of reports that upstream takes.

    A run that is filtered or incomplete, and a profile that does not say whose the target is, are refused. A violation
    is not: a report may say non-conformant. Without a target, the endpoint picker that comes with the suite is
    certified.
    """
    from conformance.cli.console import err, without_colour

    if no_color:
        without_colour()
    if pull_request is not None and observed:
        from conformance.errors import UsageError

        raise UsageError(
            "--pull-request goes with no --observed: at upstream the implementation owns its folder",
            hint="only those who make it submit a report",
        )
    if from_report is not None:
        from conformance.cli.report import read
        from conformance.cli.reproduce import reproducing_command

        report, path = read(from_report)
        _check(report, path, mode, observed=observed)
        _write(report, path, submission, pull_request, mode, observed=observed)
        typer.echo(f"to check it against the target itself: {reproducing_command(report)}")
        raise typer.Exit(0 if report.result is Result.CONFORMANT else 1)
    from conformance.cli.run_and_report import run_and_report
    from conformance.cli.show import show
    from conformance.run.request import run_settings
    from conformance.targets.resolve import protocol_versions

    settings = run_settings(target, dataclasses.replace(what, slow=True))
    profile = settings.profile
    _has_owner(profile.implementation, observed=observed)
    settings = dataclasses.replace(
        settings,
        versions=protocol_versions(profile, what.protocol_version or profile.protocol_versions),
        jobs=jobs,
        property_examples=property_examples if profile.role == "epp" else 0,
    )
    if not quiet:
        err().print(f"epp-conformance: certifying {target.title}, seed {settings.seed}")
    done = run_and_report(settings, output, quiet=quiet)
    nothing_to_interrupt()
    show(done)
    if done.code in (0, 1):
        _write(done.report, done.paths[1], submission, pull_request, mode, observed=observed)
    raise typer.Exit(done.code)


def _has_owner(implementation: object, *, observed: bool) -> None:
    """Refuse at once what would be refused after the run."""
    from conformance.errors import UsageError
    from conformance.report.render.submission import OWNER

    missing = [name for name in OWNER if not getattr(implementation, name) and not (observed and name == "contact")]
    if missing:
        raise UsageError(
            f"the profile does not say whose the target is: implementation.{', implementation.'.join(missing)}",
            hint="upstream's reports name organization, project, url, version and contact",
        )


def _check(report: Report, path: Path, mode: str, *, observed: bool) -> None:
    """Refuse a report that does not follow from its evidence: what is written of it is sealed again, and in
    upstream's form there is no evidence that could tell. Raises `SubmissionRefusedError`."""
    from conformance.report.render.submission import SubmissionRefusedError, problems
    from conformance.report.verify.verification import verify

    found = problems(report, mode, observed=observed)
    if not found:
        steps = verify(path).steps
        found = tuple(f"{one.name}: {one.text}" for one in steps if one.answer != "pass")
    if found:
        raise SubmissionRefusedError(found)


def _write(
    report: Report, path: Path, submission: Path, pull_request: Path | None, mode: str, *, observed: bool
) -> None:
    from conformance.report.render.pull_request import write_pull_request
    from conformance.report.render.submission import write_submission

    evidence = report.evidence_beside(path)
    written = write_submission(report, submission, mode=mode, evidence=evidence, observed=observed)
    for one in written:
        typer.echo(f"{one.version}: {one.report}")
    if pull_request is not None:
        for file in write_pull_request([one.report.parent for one in written], pull_request):
            typer.echo(f"pull request: {file}")
