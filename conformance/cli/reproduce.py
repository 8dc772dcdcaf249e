"""`epp-conformance report reproduce`: run the target of a report again, and compare verdict by verdict."""

from __future__ import annotations

import dataclasses
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import options
from conformance.targets.flags import REPRODUCED, TargetFlags, flags

if TYPE_CHECKING:
    from conformance.report.document.model import Report
    from conformance.run.session import RunSettings

_HARMLESS = frozenset({"role", "profile", "body_mode", "tls", "data_plane"})
"""Flags that are taken from a report, which may come from strangers: with a shipped profile they start nothing else."""


@options.spelt_out
def reproduce(
    where: Annotated[Path, typer.Argument(metavar="REPORT", help="report.json, or the folder that has it.")],
    target: Annotated[TargetFlags, options.Taken()],
    jobs: options.Jobs = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the report of the second run goes.")
    ] = Path(REPRODUCED),
    quiet: options.Quiet = False,
    no_color: options.NoColor = False,
) -> None:
    """Run the target of a report again with its versions, selection and seed, and say verdict by verdict: same,
    different, not reached.

    Name the target as for `run`. A report of a profile that is shipped here says it itself; its program is given with
    --binary. Nothing else that a report names is ever started.
    """
    from conformance.cli.console import err, without_colour
    from conformance.cli.run_and_report import run_and_report
    from conformance.report.document.model import read_report
    from conformance.report.verify.reproduction import compare

    if no_color:
        without_colour()
    report = read_report(where / "report.json" if where.is_dir() else where)
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(report, _target(report, target), Path(folder))
        settings = dataclasses.replace(settings, jobs=jobs)
        if not quiet:
            err().print(f"epp-conformance: running {report.name} again")
        done = run_and_report(settings, output, quiet=quiet)
    found = compare(report, done.report)
    typer.echo("\n".join(found.lines()))
    raise typer.Exit(found.exit_code)


def reproducing_command(report: Report) -> str:
    """The command that reproduces a report, as far as the report says it."""
    named = _from(report)
    binary = " --binary PATH" if named is not None and named.profile not in (None, "reference") else ""
    words = shlex.join(_words(named)) if named is not None else "--profile FILE"
    return f"epp-conformance report reproduce DIR {words}{binary}".replace("  ", " ").rstrip()


def _words(named: TargetFlags) -> list[str]:
    return [word for flag in flags(TargetFlags) for word in flag.words(getattr(named, flag.name))]


def _target(report: Report, given: TargetFlags) -> TargetFlags:
    """What the user names; of what they do not, what the report says, if that is harmless. Raises `UsageError`."""
    from conformance.errors import UsageError
    from conformance.printable import printable

    told = [flag.name for flag in flags(TargetFlags) if getattr(given, flag.name) != flag.default]
    if set(told) - {"binary"}:
        return given
    named = _from(report)
    if named is None:
        said = printable(report.plan.command) if report.plan is not None else "nothing"
        raise UsageError(
            "the report does not say by a shipped profile what its target is",
            hint=f"name it as for `run`, with --profile or --epp; what runs it again, by the report: {said}",
        )
    return dataclasses.replace(named, binary=given.binary)


def _from(report: Report) -> TargetFlags | None:
    """The target that the report's command names; None if that is not a profile shipped here, and nothing more."""
    from conformance.targets.resolve import shipped

    try:
        words = shlex.split(report.plan.command)[2:] if report.plan is not None else []
    except ValueError:
        return None
    known = {flag.option: flag for flag in flags(TargetFlags)}
    found: dict[str, object] = {}
    while words and words != ["-o", REPRODUCED]:
        flag = known.get(words.pop(0))
        if flag is None or not words:
            return None
        value = words.pop(0)
        if flag.name == "binary":
            continue
        if flag.name not in _HARMLESS:
            return None
        found[flag.name] = [*found.get(flag.name, []), value] if flag.repeated else value  # type: ignore[misc]
    if found.get("profile", "reference") not in shipped():
        return None
    return TargetFlags(**found)  # type: ignore[arg-type]


def _settings(report: Report, target: TargetFlags, folder: Path) -> RunSettings:
    from conformance.errors import UsageError
    from conformance.outcome import GENERATED
    from conformance.report.document.basis import is_generated
    from conformance.run.request import run_settings
    from conformance.targets.flags import SelectionFlags

    if report.plan is None:
        raise UsageError("the report does not say what was selected", hint="it was made by an older suite")
    own = []
    for number, source in enumerate(report.plan.sources):
        if not is_generated(source.file):
            own.append(folder / f"{number}.yaml")
            own[-1].write_text(source.text, encoding="utf-8")
    settings = run_settings(target, SelectionFlags(seed=report.environment.seed, scenarios=own or None))
    versions = tuple(row.version for row in report.versions)
    tried = report.figures.get(GENERATED, 0)
    return dataclasses.replace(
        settings,
        versions=versions,
        selection=report.plan.chosen(),
        property_examples=int(tried) // max(len(versions), 1),
    )
