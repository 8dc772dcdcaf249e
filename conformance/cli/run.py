"""`epp-conformance run`: the main job."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from conformance.cli import options
from conformance.targets.flags import SelectionFlags, TargetFlags


@options.spelt_out
def run(
    target: TargetFlags,
    what: SelectionFlags,
    jobs: options.Jobs = None,
    property_examples: options.PropertyExamples = 0,
    waivers: options.Waivers = None,
    output: options.Output = options.DEFAULT_OUTPUT,
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit 0 whatever the verdict: for reporting only.")
    ] = False,
) -> None:
    """Test an endpoint picker, or a gateway, and write a report.

    Without a target, the endpoint picker that comes with the suite. Examples:

    epp-conformance run --epp 'cmd:./my-epp --port {port} --endpoints {endpointsFile}'

    epp-conformance run --profile gie-epp-1.5 --binary ./epp

    epp-conformance run --gateway http://127.0.0.1:8080 --epp-listen 127.0.0.1:9002 --endpoints 127.0.0.1:8000,…
    """
    from conformance.cli.console import without_colour

    if no_color:
        without_colour()
    from conformance.cli.run_and_report import run_and_report
    from conformance.cli.show import show
    from conformance.run.request import run_settings

    settings = dataclasses.replace(run_settings(target, what), jobs=jobs, property_examples=property_examples)
    title = f"target {target.title}, seed {settings.seed}"
    done = run_and_report(settings, output, title=title, waivers=waivers, quiet=quiet)
    show(done)
    raise typer.Exit(0 if exit_zero else done.code)
