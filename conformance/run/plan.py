"""The plan: which scenario instances run against a target, in which body mode, in what order, and why others do not.

Instances that start from the same pool and do not change it share a batch and run concurrently. Those that change the
pool, the load or the target, and those marked `isolated`, are batches of one.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from conformance.errors import UnknownNameError, UsageError, nearest
from conformance.requirements.catalogue import Catalogue
from conformance.run.data_plane.plane import Choice
from conformance.run.epp.fixed import fitted
from conformance.scenario.loader import Instance
from conformance.scenario.pool import Pod, Pool
from conformance.scenario.schema import BodyMode, Scenario, Step
from conformance.targets.profile import Profile
from conformance.verdict import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One instance in one body mode: the unit that is run, judged and reported under `id`."""

    id: str
    instance: Instance
    mode: BodyMode | Literal["gateway"]
    """`gateway` where the body mode is the business of the gateway under test."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Work that can't be done on this target, with the verdict and the reason that its result will have."""

    work: Work
    verdict: Verdict
    reason: str


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
    instances: Iterable[Instance],
    catalogue: Catalogue,
    version: str,
    profile: Profile,
    selection: Selection,
    *,
    ipv6: bool = True,
    data_plane: Choice | None = None,
) -> Plan:
    """The plan for one version. Raises `UsageError` if the selection leaves nothing of this version."""
    skips: list[Skip] = []
    shared: dict[Pool, list[Work]] = {}
    alone: list[Batch] = []
    for instance in selected(instances, catalogue, version, selection):
        modes = _modes(instance.scenario, profile)
        once = selection.smoke_once and instance.scenario.smoke
        if once or (selection.with_smoke and not selection.names(instance, catalogue)):
            modes = modes[:1]
        for mode in modes or instance.scenario.modes[:1]:
            work = Work(id=instance.id if len(modes) < 2 else f"{instance.id}@{mode}", instance=instance, mode=mode)
            skip = None if modes else _not_driven(work)
            skip = skip or _impossible(work, profile, ipv6=ipv6) or _beyond(work, data_plane)
            pool = instance.scenario.pool
            if skip is None and profile.discovery.fixed is not None:
                fit = fitted(instance.scenario, len(profile.discovery.fixed.endpoints))
                if isinstance(fit, Pool):
                    pool = fit
                else:
                    skip = Skip(work=work, verdict=Verdict.SKIPPED, reason=fit)
            if skip:
                skips.append(skip)
            elif instance.scenario.isolated or any(_changes(step) for step in instance.scenario.steps):
                alone.append(Batch(pool=pool, work=(work,)))
            else:
                shared.setdefault(pool, []).append(work)
    batches = [Batch(pool=pool, work=tuple(sorted(work, key=_haste))) for pool, work in shared.items()]
    batches += sorted(alone, key=lambda batch: batch.pool != Pool())
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


def _modes(scenario: Scenario, profile: Profile) -> tuple[BodyMode, ...]:
    """The body modes to run a scenario in: those it is about; for the smoke set all that are driven, else the first."""
    if scenario.modes:
        return tuple(mode for mode in profile.body_modes if mode in scenario.modes)
    return profile.body_modes if scenario.smoke else profile.body_modes[:1]


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
    return bool(step.pool or step.gauges or step.kubernetes or step.restart)


def _haste(work: Work) -> float:
    """What pauses comes first: everything else is done meanwhile."""
    replies = [step.exchange.reply for step in work.instance.scenario.steps if step.exchange]
    return -sum(reply.gap_seconds * (reply.events + 1) for reply in replies)


def _not_driven(work: Work) -> Skip:
    wanted = " or ".join(work.instance.scenario.modes)
    reason = f"only meaningful in body mode {wanted}, which is not among the target's body modes"
    return Skip(work=work, verdict=Verdict.NOT_APPLICABLE, reason=reason)


def _impossible(work: Work, profile: Profile, *, ipv6: bool) -> Skip | None:
    """Why this target, or this machine, can't run it; None if it can."""
    scenario = work.instance.scenario
    pods = (*scenario.pool.pods, *(pod for step in scenario.steps if step.pool for pod in step.pool.add))

    def skip(verdict: Verdict, reason: str) -> Skip:
        return Skip(work=work, verdict=verdict, reason=reason)

    claims = profile.claims
    unclaimed = {
        "shedding": claims.sheds is not True,
        "queueing": not claims.queues,
        "fallback-lists": claims.fallback_lists is not True,
        "reporter": claims.reporter is not True,
        **{mode: mode not in profile.body_modes for mode in ("full-duplex", "buffered", "streamed")},
    }
    for need in scenario.needs:
        if unclaimed.get(need):
            return skip(Verdict.NOT_APPLICABLE, f"the profile does not claim {need}")
    if "models" in scenario.needs and not _knows_models(profile):
        reason = "nothing says which models the target knows: its profile has no requests.unknownModel"
        return skip(Verdict.SKIPPED, reason)
    if not ipv6 and any(pod.family == "ipv6" for pod in pods):
        return skip(Verdict.SKIPPED, "this machine has no IPv6 loopback address")
    if not claims.ipv6 and any(pod.family == "ipv6" for pod in pods):
        return skip(Verdict.NOT_APPLICABLE, "the profile says that the target knows IPv4 endpoints only")
    ports = max(scenario.pool.ports, *(step.pool.ports or 1 for step in scenario.steps if step.pool), 1)
    if ports > 1 and not claims.several_ports:
        return skip(Verdict.NOT_APPLICABLE, "the profile says that its pools have one port only")
    discovery = profile.discovery
    if discovery.kubernetes is None:
        if "kubernetes" in scenario.needs or any(step.kubernetes for step in scenario.steps):
            return skip(Verdict.NOT_APPLICABLE, "only meaningful for a target that watches the Kubernetes API")
        if any(_only_in_kubernetes(pod) for pod in pods):
            return skip(Verdict.NOT_APPLICABLE, "other namespaces and labels exist only in Kubernetes")
    if any(step.restart for step in scenario.steps) and not profile.started_by_us:
        return skip(Verdict.SKIPPED, "the suite did not start the target, so it can't restart it")
    return None


def _beyond(work: Work, data_plane: Choice | None) -> Skip | None:
    if data_plane is None or data_plane.variant is None:
        return None
    from conformance.run.data_plane.envoy.limits import beyond

    reason = beyond(work.instance.scenario, data_plane)
    return None if reason is None else Skip(work=work, verdict=Verdict.NOT_APPLICABLE, reason=reason)


def _knows_models(profile: Profile) -> bool:
    """Whether the target can tell a model that nobody serves: from InferenceModels, or because its vendor says so."""
    return profile.discovery.kubernetes is not None or "unknown_model" in profile.requests.model_fields_set


def _only_in_kubernetes(pod: Pod) -> bool:
    return pod.namespace == "other" or pod.shares_name_with is not None or pod.active_ports is not None
