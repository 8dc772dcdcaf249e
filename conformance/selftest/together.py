"""The trials of a selftest. Variants of the EPP that change different things of it are tried as one.

A variant runs nearly all scenarios, and a fault a few. An EPP that is odd in several ways is right, too, and if nothing
of it is accused then none of its oddities is. If something is, its variants are tried alone as well, to tell which.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from conformance.selftest.deviation import Deviation
from conformance.selftest.trial import Trial, attempt
from conformance.selftest.workers import try_each

AT_ONCE = 6
"""Variants that are tried as one: with more of them, one would more often hide what another does."""


def run_trials(
    chosen: Sequence[Deviation],
    report: Callable[[Trial], None],
    *,
    jobs: int | None = None,
    full: bool = False,
    alone: bool = True,
    begin: Mapping[str, tuple[str, ...]] | None = None,
    keep: Path | None = None,
) -> tuple[Trial, ...]:
    """Try each deviation, as `try_each` does; variants together unless they are to be tried `alone`.

    With `full` every fault runs every scenario. `begin` has, by name, the scenario instances that a trial begins with.
    Evidence of what is inexact goes to the folder `keep`. What was tried together and was inexact is among the trials.
    """
    once = functools.partial(try_each, attempt=functools.partial(attempt, full=full, begin=begin, keep=keep), jobs=jobs)
    done: dict[str, Trial] = {}

    def take(trial: Trial) -> None:
        parts = _apart(trial) if trial.exact else (trial,)
        for part in parts:
            done[part.name] = part
            report(part)

    subjects = chosen if alone else together(chosen)
    # Variants run longest: they begin.
    once(sorted(subjects, key=lambda one: one.breaks is not None), report=take)
    once([one for one in chosen if one.name not in done], report=take)
    return tuple(done.values())


def _apart(trial: Trial) -> Iterator[Trial]:
    """What an exact trial says of each that was tried."""
    for one in trial.deviation.members or (trial.deviation,):
        yield replace(trial, deviation=one)


def together(chosen: Iterable[Deviation]) -> list[Deviation]:
    """The deviations, with variants in as few as can be tried as one."""
    found: list[Deviation] = []
    for one in chosen:
        for place, other in enumerate(found):
            if (both := _joined(other, one)) is not None:
                found[place] = both
                break
        else:
            found.append(one)
    return found


def _joined(one: Deviation, other: Deviation) -> Deviation | None:
    """Both as one variant; None if they can't be: they change the same, or are not tried in the same way."""
    members = (*(one.members or (one,)), other)
    if one.breaks or other.breaks or not (one.overrides and other.overrides) or len(members) > AT_ONCE:
        return None
    if (one.version, one.modes) != (other.version, other.modes) or one.overrides & other.overrides:
        return None
    said, others = ({**dict.fromkeys(item.without, False), **item.claims} for item in (one, other))
    if one.noted.keys() & other.noted.keys() or any(said.get(name, value) != value for name, value in others.items()):
        return None
    return replace(
        one,
        name="+".join(member.name for member in members),
        why="Several variants at once.",
        versions=(one.version,),
        without=one.without + other.without,
        claims={**one.claims, **other.claims},
        noted={**one.noted, **other.noted},
        overrides=one.overrides | other.overrides,
        members=members,
    )
