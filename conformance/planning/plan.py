"""The plan: which scenario instances run against a target, in which body mode, in what order, and why others do not.

It is computed from the instances, the selection and the target's `Traits` alone, so that a verifier computes it again.

Instances that start from the same pool and do not change it share a batch and run concurrently. Those that change the
pool, the load or the target, and those marked `isolated`, are batches of one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from conformance.errors import UnknownNameError, UsageError, nearest
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.loader import Instance
from conformance.scenario.pool import Pool
from conformance.scenario.schema import BodyMode, Role, Scenario, Step
from conformance.verdict import Verdict

QUIET = 5.0
"""Seconds, about, in which a target is left alone after a change, where the scenario does not say."""

STREAMING = frozenset({"EPP-STRM-01", "EPP-STRM-02", "EPP-STRM-03"})
"""What a target that takes no bodies in full duplex does not keep, where it counts."""

Mode = BodyMode | Literal["gateway", "direct"]
"""A request body mode; `gateway` where it is the business of the gateway under test, `direct` where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One instance in one body mode: the unit that is run, judged and reported under `id`."""

    version: str
    id: str
    instance: Instance
    mode: Mode


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Work that can't be done on this target, with the verdict and the reason that its result will have."""

    work: Work
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why a scenario can't be run on a target or on this machine, and the verdict that this means."""

    verdict: Verdict
    reason: str


class Traits(Protocol):
    """What of a target, and of this machine, decides which scenarios it can run: one class per role."""

    @property
    def role(self) -> Role:
        """The role whose scenarios are planned."""

    @property
    def body_modes(self) -> tuple[BodyMode, ...]:
        """The request body modes that the suite's data plane drives; empty: the data plane is what is tested."""

    @property
    def first_pool(self) -> Pool:
        """The pool that the target starts with."""

    def modes(self, scenario: Scenario) -> tuple[Mode, ...]:
        """The body modes in which a scenario is run; empty if it makes no sense in any that the target has."""

    def start(self, scenario: Scenario) -> Pool | Obstacle:
        """The pool from which a scenario starts on this target, or why it can't be run on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Work that starts from one pool; concurrent unless it is a single piece."""

    pool: Pool
    work: tuple[Work, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything about one protocol version."""

    version: str
    batches: tuple[Batch, ...]
    skips: tuple[Skip, ...]
    complete: bool
    """False if a selection left scenarios out."""

    @property
    def total(self) -> int:
        """How many results there will be."""
        return sum(len(batch.work) for batch in self.batches) + len(self.skips)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What the user asked for. Patterns are ids or globs of scenarios; empty tuples select everything."""

    scenarios: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    smoke: bool = False
    with_smoke: bool = False
    """The smoke set, besides what the rest selects; what only it selects runs in the first body mode."""
    smoke_once: bool = False
    """The smoke set in the first body mode only."""
    slow: bool = False
    turn: int | None = None
    """One instance of each scenario, whatever its matrix: the one whose turn it is at this number."""
    whole: tuple[str, ...] = ()
    """Requirements whose scenarios are run with all of their matrix, also where the others take turns."""

    @property
    def everything(self) -> bool:
        """True if nothing that belongs to a full verdict is left out."""
        narrowed = self.scenarios or self.exclude or self.requirements or self.levels or self.sections or self.smoke
        return not narrowed and self.turn is None

    def check(self, instances: Sequence[Instance], catalogue: Catalogue) -> None:
        """Raises `UnknownNameError` or `UsageError` for anything that selects nothing, offering the nearest name."""
        names = [name for one in instances for name in _names(one)]
        for pattern in (*self.scenarios, *self.exclude):
            if not any(_matches(name, pattern) for name in names):
                raise UnknownNameError("scenario", pattern, names, hint=_near(pattern, names))
        for requirement in self.requirements:
            catalogue.get(requirement)
        for level in self.levels:
            if level not in {entry.level for entry in catalogue}:
                raise UnknownNameError("level", level, {entry.level for entry in catalogue})
        for section in self.sections:
            if section not in {one.section for one in instances}:
                raise UnknownNameError("section", section, {one.section for one in instances})

    def admits(self, instance: Instance, catalogue: Catalogue) -> bool:
        """Whether an instance is selected."""
        if self.with_smoke and instance.scenario.smoke:
            return True
        return self.names(instance, catalogue)

    def names(self, instance: Instance, catalogue: Catalogue) -> bool:
        """Whether an instance is selected by what was asked for, and not only as one of the smoke set."""
        names = _names(instance)
        levels = {catalogue.get(name).level for name in instance.scenario.requirements}
        return (
            (not self.scenarios or any(_matches(name, pattern) for name in names for pattern in self.scenarios))
            and not any(_matches(name, pattern) for name in names for pattern in self.exclude)
            and (not self.requirements or bool(set(self.requirements) & set(instance.scenario.requirements)))
            and (not self.levels or bool(levels & set(self.levels)))
            and (not self.sections or instance.section in self.sections)
            and (not self.smoke or instance.scenario.smoke)
        )


def make_plan(
    instances: Iterable[Instance], catalogue: Catalogue, version: str, traits: Traits, selection: Selection
) -> Plan:
    """The plan for one version. Raises `UsageError` if the selection leaves nothing of this version."""
    skips: list[Skip] = []
    shared: dict[Pool, list[Work]] = {}
    alone: list[Batch] = []
    own = (one for one in instances if one.role == traits.role)
    for instance in selected(own, catalogue, version, selection):
        modes = traits.modes(instance.scenario)
        once = selection.smoke_once and instance.scenario.smoke
        if once or (selection.with_smoke and not selection.names(instance, catalogue)):
            modes = modes[:1]
        for mode in modes or instance.scenario.modes[:1]:
            name = instance.id if len(modes) < 2 else f"{instance.id}@{mode}"
            work = Work(version=version, id=name, instance=instance, mode=mode)
            pool = traits.start(instance.scenario) if modes else _not_driven(instance.scenario, version, catalogue)
            if isinstance(pool, Obstacle):
                skips.append(Skip(work=work, verdict=pool.verdict, reason=pool.reason))
            elif instance.scenario.isolated or any(_changes(step) for step in instance.scenario.steps):
                alone.append(Batch(pool=pool, work=(work,)))
            else:
                shared.setdefault(pool, []).append(work)
    batches = [Batch(pool=pool, work=tuple(sorted(work, key=_haste))) for pool, work in shared.items()] + alone
    batches.sort(key=_order)
    return Plan(version=version, batches=tuple(batches), skips=tuple(skips), complete=selection.everything)


def selected(
    instances: Iterable[Instance], catalogue: Catalogue, version: str, selection: Selection
) -> tuple[Instance, ...]:
    """The instances of a version that the selection takes. Raises `UsageError` if there are none."""
    applicable = (one for one in instances if version in _versions(one, catalogue))
    chosen = [one for one in applicable if selection.admits(one, catalogue)]
    if not selection.slow:
        chosen = [one for one in chosen if not one.scenario.slow or one.id in selection.scenarios]
    if selection.turn is not None:
        whole = [one for one in chosen if not {*selection.whole}.isdisjoint(one.scenario.requirements)]
        due = {one.id for one in (*whole, *_in_turn(chosen, selection.turn))}
        chosen = [one for one in chosen if one.id in due]
    if not chosen:
        raise UsageError(
            f"the selection leaves no scenario of version {version}", hint="`epp-conformance list` shows them"
        )
    return tuple(chosen)


def _in_turn(instances: Iterable[Instance], turn: int) -> list[Instance]:
    """One instance of each scenario."""
    groups: dict[str, list[Instance]] = {}
    for one in instances:
        groups.setdefault(one.group, []).append(one)
    return [group[turn % len(group)] for group in groups.values()]


def _names(instance: Instance) -> tuple[str, ...]:
    return (instance.id, instance.scenario.id, *instance.scenario.aliases)


def _near(pattern: str, names: Sequence[str]) -> str:
    """A hint for a pattern that matches no scenario."""
    part = pattern.strip("*")
    inside = [name for name in names if part and part in name]
    if inside and part == pattern:
        return f"a part of a name is given as a glob: '*{part}*' matches {min(inside, key=len)}"
    best = nearest(part, names)
    start = f"did you mean {best!r}? " if best else ""
    return f"{start}`epp-conformance list` shows them all; a glob such as 'subset.*' takes several"


def _matches(name: str, pattern: str) -> bool:
    return name == pattern or fnmatch.fnmatchcase(name, pattern.replace("[", "[[]"))


def _versions(instance: Instance, catalogue: Catalogue) -> set[str]:
    if instance.scenario.versions is not None:
        return set(instance.scenario.versions)
    return {version for name in instance.scenario.requirements for version in catalogue.get(name).effects}


def _changes(step: Step) -> bool:
    return bool(step.pool or step.gauges or step.kubernetes or step.models or step.restart)


def _order(batch: Batch) -> tuple[float, ...]:
    """First what many share; then what pauses, what starts from the usual pool, and the rest."""
    return (0,) if len(batch.work) > 1 else (1, _haste(batch.work[0]), batch.pool != Pool())


def _haste(work: Work) -> float:
    """What pauses comes first: everything else is done meanwhile."""
    return -sum(_pause(step) for step in work.instance.scenario.steps)


def _pause(step: Step) -> float:
    """Seconds in which a step does nothing, about."""
    if step.pool is not None and step.pool.settle == "quietly":
        return step.pool.convergence or QUIET
    one = step.exchange
    return one.gap_seconds + one.reply.pause if one is not None else 0


def _not_driven(scenario: Scenario, version: str, catalogue: Catalogue) -> Obstacle:
    wanted = " or ".join(scenario.modes)
    reason = f"only meaningful in body mode {wanted}, which is not among the target's body modes"
    demanded = [name for name in scenario.requirements if name in STREAMING and catalogue.get(name).counts(version)]
    if demanded:
        reason = f"{reason}; version {version} demands it ({demanded[0]})"
    return Obstacle(verdict=Verdict.SKIPPED if demanded else Verdict.NOT_APPLICABLE, reason=reason)
