"""`epp-conformance run`: the main job."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import options
from conformance.cli.interrupt import nothing_to_interrupt
from conformance.printable import plural
from conformance.targets.flags import SelectionFlags, TargetFlags

if TYPE_CHECKING:
    from conformance.cli.run_and_report import ReportedRun


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
    last_failed: Annotated[
        bool, typer.Option("--last-failed", help="Only what failed in the report that --output has; all if none did.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit 0 whatever the verdict: for reporting only.")
    ] = False,
    accept_incomplete: Annotated[
        bool,
        typer.Option(
            "--accept-incomplete",
            help="Exit 0 instead of 4 if nothing is broken and something was left out, as by --smoke; not if something "
            "that was tried could not be judged, or the run stopped early, as at a target that does not answer.",
        ),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Run again when the program, the profile or scenario files change; what failed comes first."
        ),
    ] = False,
    watch_path: Annotated[
        list[Path] | None,
        typer.Option("--watch-path", metavar="PATH", help="A further file or folder for --watch. Repeatable."),
    ] = None,
) -> None:
    """Test an endpoint picker, a gateway or a model server, and write a report.

    Without a target, the endpoint picker that comes with the suite. Examples:

    epp-conformance run --epp 'cmd:./my-epp --port {port} --endpoints {endpointsFile}'

    epp-conformance run --profile gie-epp-1.5 --binary ./epp

    epp-conformance run --gateway http://127.0.0.1:8080 --epp-listen 127.0.0.1:9002 --endpoints 127.0.0.1:8000,…
    """
    from conformance.cli.console import err, without_colour

    if no_color:
        without_colour()
    if what.seed is None:
        what = dataclasses.replace(what, seed=random.randrange(2**32))
    if last_failed:
        what = _last_failed(what, output)

    def once(chosen: SelectionFlags) -> ReportedRun:
        if not quiet:
            err().print(f"epp-conformance: target {target.title}, seed {chosen.seed}")
        from conformance.cli.run_and_report import run_and_report  # half a second, in which something is there to read
        from conformance.run.request import run_settings

        settings = dataclasses.replace(run_settings(target, chosen), jobs=jobs, property_examples=property_examples)
        done = run_and_report(settings, output, waivers=waivers, quiet=quiet)
        return dataclasses.replace(done, code=0) if accept_incomplete and done.only_left_out else done

    if watch or watch_path:
        from conformance.cli.show import show
        from conformance.cli.watch import Watch
        from conformance.run.request import run_settings

        watching = Watch(once=once, show=show, what=what, named=watch_path or (), output=output)
        code = watching.until_interrupted(target, lambda chosen: run_settings(target, chosen))
    else:
        done = once(what)
        nothing_to_interrupt()
        from conformance.cli.show import show

        show(done)
        code = done.code
    raise typer.Exit(0 if exit_zero else code)


def _last_failed(what: SelectionFlags, output: Path) -> SelectionFlags:
    """The selection, narrowed to the scenarios that failed, or could not be judged, in the report in `output`."""
    from conformance.cli.console import err
    from conformance.cli.report import read
    from conformance.cli.watch import failed_scenarios
    from conformance.errors import UsageError
    from conformance.planning.results import GENERATED_ID
    from conformance.verdict import Verdict

    if what.scenario:
        raise UsageError("--last-failed and -k exclude each other", hint="leave one out")
    report = read(output)[0]
    names = failed_scenarios(report)
    count = f"{plural(len(names), 'scenario')} failed" if names else "no scenario failed: everything is run"
    if any(row.id == GENERATED_ID and row.verdict is Verdict.FAIL for row in report.results):
        count += "; generated conversations broke rules, and --property-examples tries others"
    err().print(f"epp-conformance: in the report in {output} {count}")
    return dataclasses.replace(what, scenario=names or None)
