"""`epp-conformance selftest --mutants`: how many small mutations of the reference EPP the suite notices."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli.console import err, out
from conformance.printable import plural

if TYPE_CHECKING:
    from conformance.mutation.mutant import Mutant
    from conformance.selftest.mutant_trial import MutantTrial


def run_mutants(
    names: list[str],
    number: int | None,
    seed: int | None,
    *,
    full: bool,
    jobs: int | None,
    table: Path | None,
    resume: Path | None,
) -> bool:
    """Try the mutants of these names, or else a number of them by chance. True if all were noticed.

    With `full` those that are recorded as breaking nothing are tried, too. Those that were noticed according to the
    file `resume` are not; it gets the new trials. Raises `UsageError`, `FileError` for a wrong record, `HarnessError`.
    """
    from conformance.selftest.equivalents import load_equivalents
    from conformance.selftest.kept_trials import keep, noticed_before
    from conformance.selftest.mutants import all_mutants, by_name, sample
    from conformance.selftest.mutants_page import mutants_page
    from conformance.selftest.survey import measure_reach, survey

    mutants = all_mutants()
    recorded = load_equivalents(mutants)
    chance = random.randrange(2**32) if seed is None else seed
    chosen = by_name(mutants, names) if number is None else sample(mutants, number, chance)
    said = "" if number is None else f", by chance with seed {chance}"
    err().print(f"selftest: {len(chosen)} of {len(mutants)} mutants of the reference EPP{said}")
    before = noticed_before(resume) if resume else {}
    console = out()

    def show(mutant: Mutant, trial: MutantTrial) -> None:
        if resume is not None:
            keep(resume, trial)
        console.print(line(trial), style=None if trial.noticed else "bold red")
        if not trial.noticed:
            console.print(mutant.diff(), end="")

    reach = None
    if number is not None:
        err().print("selftest: a run of each version without a mutation, to see what is reached")
        reach = measure_reach(jobs)
    surveyed = survey(chosen, () if full else recorded, show, reach=reach, jobs=jobs, before=before)
    if table is not None:
        command = f"make mutants MUTANTS={len(chosen)} SEED={chance}"
        table.write_text(mutants_page(surveyed, command, chance), encoding="utf-8")
    counts = surveyed.outcomes
    console.print(
        f"selftest     {plural(len(surveyed.trials), 'mutant')}: {counts['failed']} failed, {counts['warned']} warned, "
        f"{counts['not started']} not started, {len(surveyed.unnoticed)} not noticed · score {surveyed.score:.1%} · "
        f"{len(surveyed.recorded)} recorded, {len(surveyed.unreached)} not reached",
        style="bold red" if surveyed.unnoticed else "bold green",
    )
    return not surveyed.unnoticed


def line(trial: MutantTrial) -> str:
    """One trial on one line."""
    said = f"{trial.outcome:12}{trial.name}"
    if not trial.text:
        return said
    accused = f"{trial.requirement} by {trial.result}: " if trial.requirement else ""
    return f"{said}  {trial.version}: {accused}{trial.text.splitlines()[0]}"
