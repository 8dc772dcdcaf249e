"""The survey of mutants: which are never reached, which are recorded as breaking nothing, and what came of the rest."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import HarnessError
from conformance.mutation.mutant import Mutant
from conformance.requirements.schema import VERSIONS
from conformance.selftest.deviation import PREFERRED
from conformance.selftest.equivalents import Equivalent, reason_for
from conformance.selftest.mutant_trial import MutantRun, MutantTrial, Outcome, attempt_mutant
from conformance.selftest.mutants import PROGRAM
from conformance.selftest.workers import try_each

IN_TURN = (PREFERRED, *(version for version in VERSIONS if version != PREFERRED))
"""The protocol versions in which a mutant is tried: of the ones after the first, only what it takes."""

Reach = Mapping[str, frozenset[tuple[str, int]]]
"""By protocol version, module and line of each statement of a function that a run executes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What came of a choice of mutants."""

    chosen: tuple[Mutant, ...]
    unreached: tuple[Mutant, ...]
    """No run executes what they change."""
    recorded: Mapping[str, str]
    """By name of those that were not tried: why they break nothing."""
    trials: Mapping[str, MutantTrial]
    """By name of those that were tried."""

    @property
    def outcomes(self) -> Counter[Outcome]:
        """How many came out how."""
        return Counter(one.outcome for one in self.trials.values())

    @property
    def unnoticed(self) -> tuple[Mutant, ...]:
        """The mutants that the suite does not tell from a right EPP."""
        return tuple(one for one in self.chosen if one.name in self.trials and not self.trials[one.name].noticed)

    @property
    def score(self) -> float:
        """The share of those tried that was noticed; 1 if none was tried."""
        return 1 - len(self.unnoticed) / len(self.trials) if self.trials else 1.0


def survey(
    chosen: Sequence[Mutant],
    equivalents: Sequence[Equivalent],
    report: Callable[[Mutant, MutantTrial], None],
    *,
    reach: Reach | None = None,
    jobs: int | None = None,
    before: Mapping[str, MutantTrial] | None = None,
) -> Survey:
    """Try the mutants, those aside that are recorded or never reached; `report` gets each trial as it comes.

    Without `reach` each is taken to be reached in every version. `before` has trials by mutant that are taken as they
    are. Raises `HarnessError`.
    """
    before = before or {}
    versions = {one.name: _versions(one, reach) for one in chosen}
    reasons = {one.name: reason_for(one, equivalents) for one in chosen if versions[one.name]}
    runs = [
        MutantRun(name=one.name, specification=one.specification(), versions=versions[one.name])
        for one in chosen
        if versions[one.name] and reasons[one.name] is None
    ]
    known = {one.name: one for one in chosen}
    new = [one for one in runs if one.name not in before]
    trials = try_each(new, attempt_mutant, lambda trial: report(known[trial.name], trial), jobs) if new else ()
    return Survey(
        chosen=tuple(chosen),
        unreached=tuple(one for one in chosen if not versions[one.name]),
        recorded={name: reason for name, reason in reasons.items() if reason is not None},
        trials={one.name: before[one.name] for one in runs if one.name in before}
        | {trial.name: trial for trial in trials},
    )


def measure_reach(jobs: int | None = None) -> Reach:
    """What the suite reaches of the EPP, by a run of each version without a mutation.

    Raises `HarnessError` if one of them is not conformant and without warnings: then no mutant could be told from it.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = {version: Path(folder) / version for version in IN_TURN}
        runs = [
            MutantRun(name=version, specification={"probe": PROGRAM, "file": str(path)}, versions=(version,))
            for version, path in files.items()
        ]
        for trial in try_each(runs, attempt_mutant, lambda _: None, jobs):
            if trial.outcome != "survived":
                raise HarnessError(
                    f"{PROGRAM} without a mutation, version {trial.name}: {trial.outcome}: "
                    f"{trial.requirement} {trial.result} {trial.text}"
                )
        return {version: frozenset(_places(path.read_text("utf-8").split())) for version, path in files.items()}


def _places(lines: Iterable[str]) -> Iterable[tuple[str, int]]:
    for line in lines:
        module, _, number = line.partition(":")
        yield module, int(number)


def _versions(mutant: Mutant, reach: Reach | None) -> tuple[str, ...]:
    """The versions in which what it changes is executed. What import executes, each version does."""
    if reach is None or not mutant.statement:
        return IN_TURN
    return tuple(version for version in IN_TURN if (mutant.module, mutant.statement) in reach[version])
