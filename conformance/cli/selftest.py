"""`epp-conformance selftest`: mutation tests of the suite: each fault is found, and nothing else accused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import completion, options
from conformance.errors import UsageError
from conformance.printable import plural
from conformance.targets.flags import RoleName, TargetFlags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.scenario.schema import Role
    from conformance.selftest.deviation import Deviation
    from conformance.selftest.trial import Trial

SHOWN = 10
"""Findings behind an inexact trial that are shown."""


@options.spelt_out
def selftest(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]…",
            help="Only these faults or variants.",
            autocompletion=completion.offering(completion.deviations),
        ),
    ] = None,
    faults: Annotated[bool, typer.Option("--faults", help="Only the faults.")] = False,
    variants: Annotated[bool, typer.Option("--variants", help="Only the variants.")] = False,
    *,
    of: Annotated[TargetFlags, options.Taken(only=("role",))],
    mutants: Annotated[
        int | None,
        typer.Option("--mutants", metavar="N", min=1, help="Instead, so many mutations of the EPP's source."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Which mutations; default: by chance.")] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Every scenario for every fault; mutations that are recorded as harmless, too."),
    ] = False,
    alone: Annotated[
        bool,
        typer.Option("--alone", help="Each variant alone, not with others that change other things of the EPP."),
    ] = False,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Begin with instances that noticed the fault before: enough if they are exact."),
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Update the record of instances that noticed each fault, for --quick.")
    ] = False,
    share: Annotated[
        str | None,
        typer.Option("--share", metavar="I/N", help="One of N parts of all deviations; each NAME besides."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", metavar="N", min=1, help="Processes; default: one per core.")
    ] = None,
    table: Annotated[Path | None, typer.Option("--table", metavar="FILE", help="Write the table as Markdown.")] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="FILE",
            help="Mutations noticed according to FILE are not tried again; it gets the others.",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where evidence of what is inexact goes.")
    ] = options.DEFAULT_OUTPUT / "selftest",
    no_color: options.NoColor = False,
) -> None:
    """Try the suite on the bundled endpoint picker with each of its faults, and with each conforming variant.

    With `--role data-plane` on the bundled gateway, and on a real Envoy, configured wrongly in as many ways; with
    `--role model-server` on fake model servers. With `--mutants` on the endpoint picker with small changes of its
    source, made by chance; NAME… may be names of such.

    A fault declares which requirement it breaks; exactly that must be found. A variant must be called conformant. With
    `--quick` two recorded scenario instances are enough for a fault if they find exactly that: whether others accuse it
    wrongly is shown by a trial without `--quick`. Exit codes: 0 if everything is exact, or each mutation noticed, 1 if
    something was missed or accused wrongly.
    """
    from conformance.cli.console import err, out, without_colour

    if no_color:
        without_colour()
    whose: Role = (of.role or RoleName.EPP).value
    of_mutants = [name for name in names or () if ":" in name]
    if quick and (full or record):
        raise UsageError("--quick leaves out what --full and --record need", hint="leave out --quick")
    if mutants is not None or of_mutants or seed is not None or resume is not None:
        other = faults or variants or whose != "epp" or quick or record or share is not None
        _check_mutants(names or [], of_mutants, mutants, seed, resume, other=other)
        from conformance.cli.selftest_mutants import run_mutants

        _make_room(table)
        right = run_mutants(of_mutants, mutants, seed, full=full, jobs=jobs, table=table, resume=resume)
        raise typer.Exit(0 if right else 1)
    from conformance.requirements.catalogue import Catalogue
    from conformance.selftest.deviation import deviations, part, select
    from conformance.selftest.record import beginnings, load_record, save_record, updated
    from conformance.selftest.table import page
    from conformance.selftest.together import run_trials

    kinds = [kind for kind, wanted in (("faults", faults), ("variants", variants)) if wanted or faults == variants]
    known = [one for kind in kinds for one in deviations(kind, whose)]
    if share is None:
        chosen = select(known, names or ())
    else:
        wanted = {one.name for one in (*part(known, share), *(select(known, names) if names else ()))}
        chosen = select(known, sorted(wanted)) if wanted else ()
    chosen = _possible(chosen)
    _make_room(table)
    err().print(f"selftest: {plural(len(chosen), 'deviation')} of role {whose}")
    console = out()
    begin = beginnings(load_record(), chosen) if quick else {}

    def show(trial: Trial) -> None:
        if record:
            save_record(updated(load_record(), trial))
        console.print(line(trial), style=None if trial.exact else "bold red")

    alone = alone or full or (bool(names) and share is None)
    trials = run_trials(chosen, show, jobs=jobs, full=full, alone=alone, begin=begin, keep=output)
    if table is not None:
        table.write_text(page(Catalogue.load(), whose, table, trials), encoding="utf-8")
    inexact = [trial for trial in trials if not trial.exact]
    missed = sum(not trial.caught for trial in trials)
    wrong = sum(bool(trial.wrongly) for trial in trials)
    broken = [trial for trial in trials if trial.deviation.breaks]
    for trial in inexact:
        console.print(line(trial), style="bold red")
        console.print(details(trial), highlight=False)
    console.print(
        f"selftest     {plural(len(broken), 'fault')}: {len(broken) - missed} caught, {missed} missed · "
        f"{wrong} of {len(trials)} wrongly accused · {len(inexact) or 'none'} inexact",
        style="bold red" if inexact else "bold green",
    )
    raise typer.Exit(1 if inexact else 0)


def _make_room(table: Path | None) -> None:
    """Make the folder of the table. Raises `UsageError` if it can't be written: before the minutes that it takes."""
    if table is None:
        return
    try:
        table.parent.mkdir(parents=True, exist_ok=True)
        is_new = not table.exists()
        table.open("a").close()
        if is_new:
            table.unlink()
    except OSError as problem:
        raise UsageError(
            f"--table: {table} can't be written: {problem.strerror}", hint="name a file in a folder that you may write"
        ) from None


def _check_mutants(
    names: Sequence[str],
    of_mutants: Sequence[str],
    number: int | None,
    seed: int | None,
    resume: Path | None,
    *,
    other: bool,
) -> None:
    """Raises `UsageError` for arguments that do not go with mutants."""
    if other:
        raise UsageError("mutants are of the reference EPP", hint="leave out the options of faults and variants")
    if number is not None and names:
        raise UsageError("--mutants chooses by chance, and names are given", hint="leave out one of them")
    if number is None and seed is not None:
        raise UsageError("--seed is for --mutants N", hint="add --mutants, or leave out --seed")
    if number is None and resume is not None:
        raise UsageError("--resume is for --mutants N", hint="add --mutants and the same --seed, or leave out --resume")
    if len(names) > len(of_mutants):
        raise UsageError("names of mutants and of deviations do not go together", hint="use two commands")


def _possible(chosen: Sequence[Deviation]) -> tuple[Deviation, ...]:
    """Without those that need a real Envoy, where there is none to be had, which is said."""
    from conformance.cli.console import err

    of_envoy = [one for one in chosen if one.envoy is not None]
    if of_envoy:
        from real_envoy import EnvoyError, find_envoy

        try:
            find_envoy()
        except EnvoyError as problem:
            err().print(f"selftest: {len(of_envoy)} of a real Envoy are left out: {problem.what}; {problem.hint}")
            return tuple(one for one in chosen if one.envoy is None)
    return tuple(chosen)


def line(trial: Trial) -> str:
    """One trial on one line: what it breaks, what was accused, and what is wrong with that."""
    deviation = trial.deviation
    said = (
        f"{'exact' if trial.exact else 'WRONG':6}{deviation.name:36} {deviation.breaks or 'right':13} {trial.version}"
    )
    if trial.exact:
        return said
    parts = [] if trial.caught else [f"missed by {', '.join(trial.naming) or 'no scenario at all'}"]
    parts += [f"wrongly accused: {name} by {trial.accused[name][0]}" for name in trial.wrongly]
    parts += [f"not judged: {what}" for what in trial.trouble[:2]]
    parts += [f"not recorded: {trial.deviation.noted[name]!r} of {name}" for name in trial.unrecorded]
    return f"{said}  {'; '.join(parts)}"


def details(trial: Trial) -> str:
    """Why a trial is not exact: what the findings say, and where their evidence is."""
    lines = [*trial.doubts[:SHOWN], *([f"and {len(trial.doubts) - SHOWN} more"] if len(trial.doubts) > SHOWN else [])]
    if trial.evidence is not None:
        lines.append(f"what was sent and came: epp-conformance judge {trial.evidence}")
    return "\n".join(f"      {text}" for text in lines)
