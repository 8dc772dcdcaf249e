"""The page of mutants in the docs: the score, by operator, and what was not noticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.mutation.mutant import Mutant
from conformance.selftest.survey import Survey

_HEAD = """\
# Mutants

<!-- Written by `make mutants`. -->

[Faults](faults.md) show that known mistakes are seen. Mutants show what was not thought of: each is the reference EPP
with one small change in its source, made by an operator and not by hand. The suite runs against it until it is
noticed: a violation, a warning, or an EPP that never gets into service. [How to run
it](../how-to/mutants.md)."""

_COLUMNS = ("operator", "mutants", "failed", "warned", "not started", "not noticed", "recorded", "not reached")


def mutants_page(survey: Survey, command: str, seed: int) -> str:
    """The page. `command` is the one that writes it."""
    lines = [
        _HEAD,
        "",
        f"**{survey.score:.1%}** of {len(survey.trials)} were noticed. They were chosen by chance, with seed {seed}.",
        f"Not tried: {len(survey.recorded)} that are recorded as breaking nothing, and {len(survey.unreached)} whose",
        "statement no run reaches.",
        "",
        "```sh",
        command,
        "```",
        "",
        f"| {' | '.join(_COLUMNS)} |",
        "|---" * len(_COLUMNS) + "|",
        *_rows(survey),
        "",
        "## Not noticed",
        "",
        *(_unnoticed(survey) if survey.unnoticed else ["None.", ""]),
        "## Not reached",
        "",
        *_unreached(survey.unreached),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _rows(survey: Survey) -> Iterator[str]:
    for operator in sorted({one.operator for one in survey.chosen}):
        yield _row(operator, survey, [one for one in survey.chosen if one.operator == operator])
    yield _row("all", survey, survey.chosen)


def _row(name: str, survey: Survey, mutants: list[Mutant] | tuple[Mutant, ...]) -> str:
    outcomes = Counter(survey.trials[one.name].outcome for one in mutants if one.name in survey.trials)
    figures = (
        len(mutants),
        *(outcomes[outcome] for outcome in ("failed", "warned", "not started")),
        outcomes["incomplete"] + outcomes["survived"],
        sum(one.name in survey.recorded for one in mutants),
        sum(one in survey.unreached for one in mutants),
    )
    return f"| {name} | {' | '.join(map(str, figures))} |"


def _unnoticed(survey: Survey) -> Iterator[str]:
    for one in survey.unnoticed:
        trial = survey.trials[one.name]
        yield f"`{one.name}`" + (f", incomplete: {trial.text}" if trial.text else "")
        yield from ("", "```diff", one.diff().rstrip(), "```", "")


def _unreached(mutants: tuple[Mutant, ...]) -> Iterator[str]:
    if not mutants:
        yield "None."
        return
    yield from ("Statements that no scenario makes the EPP execute, by function, with the number of mutants.", "")
    counted = Counter(f"{one.module}.{one.function}" for one in mutants)
    yield from (f"- `{place}`: {number}" for place, number in sorted(counted.items()))
