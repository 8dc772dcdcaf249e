"""The commands put together. Heavy imports are inside of the commands, so that help comes at once."""

from __future__ import annotations

from typing import Annotated

import typer

from conformance.cli.certify import certify
from conformance.cli.commands import Commands
from conformance.cli.doctor import doctor
from conformance.cli.drift import drift
from conformance.cli.explain import explain
from conformance.cli.judge import judge
from conformance.cli.kube import kube
from conformance.cli.list import list_
from conformance.cli.load import load
from conformance.cli.load_worker import load_worker
from conformance.cli.pool import pool
from conformance.cli.profile import profile
from conformance.cli.proxy import proxy
from conformance.cli.replay import replay
from conformance.cli.report import report
from conformance.cli.run import run
from conformance.cli.scenario import scenario
from conformance.cli.selftest import selftest
from conformance.cli.tap import tap
from conformance.cli.waivers import waivers

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,  # rich help costs 0.2 s
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(run)
app.command("list")(list_)
app.command()(explain)
app.add_typer(scenario, name="scenario")
app.add_typer(report, name="report")
app.command()(certify)
app.command()(selftest)
app.add_typer(waivers, name="waivers")
app.command()(drift)
app.add_typer(profile, name="profile")
app.command()(doctor)
app.command()(kube)
app.command()(pool)
app.command()(tap)
app.command()(load)
app.command("load-worker")(load_worker)
app.command()(judge)
app.command()(replay)
app.command()(proxy)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"epp-conformance {version('epp-conformance')}")
        raise typer.Exit


@app.callback()
def epp_conformance(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the suite's version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Test endpoint pickers against the Endpoint Picker Protocol.

    Without a target, `run` tests the endpoint picker that comes with the suite. Exit codes: 0 conformant, 1 not
    conformant, 2 wrong use, 3 harness error, or a problem of the machine, 4 incomplete.
    """
