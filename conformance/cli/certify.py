"""`epp-conformance certify`: the whole suite on every claimed version, and the folder that upstream takes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer

from conformance.cli import options
from conformance.cli.target_flags import Named


def certify(
    epp: options.Epp = None,
    profile: options.ProfileName = None,
    binary: options.Binary = None,
    role: options.Role = None,
    gateway: options.Gateway = None,
    epp_listen: options.EppListen = None,
    endpoints: options.Endpoints = None,
    endpoints_file: options.EndpointsFile = None,
    body_mode: options.BodyModes = None,
    tls: options.TlsMode = None,
    ca: options.Ca = None,
    protocol_version: options.ProtocolVersions = None,
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
    seed: options.Seed = None,
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
    named = Named(
        role=role,
        epp=epp,
        gateway=gateway,
        profile=profile,
        binary=binary,
        epp_listen=epp_listen,
        endpoints=endpoints,
        endpoints_file=endpoints_file,
        body_mode=body_mode,
        tls=tls,
        ca=ca,
    )
    resolved = named.resolve()
    _has_owner(resolved.profile.implementation)

    from conformance.cli.run_and_report import conduct
    from conformance.cli.show import show
    from conformance.run.session import RunSettings
    from conformance.targets.resolve import protocol_versions

    settings = RunSettings(
        profile=resolved.profile,
        versions=protocol_versions(resolved.profile, protocol_version or resolved.profile.protocol_versions),
        selection=options.selection(slow=True),
        seed=random.randrange(2**32) if seed is None else seed,
        jobs=jobs,
        values=resolved.values,
        command=named.command_line(),
        property_examples=property_examples if resolved.profile.role == "epp" else 0,
    )
    title = f"certifying {named.title}, seed {settings.seed}"
    done = conduct(settings, output, title=title, quiet=quiet)
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
