"""One trial: the suite against the reference EPP, or the gateway, with one deviation."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from conformance.errors import UsageError
from conformance.events import RunEvent, ScenarioFinished
from conformance.evidence.episode import Claims
from conformance.evidence.store import EvidenceWriter
from conformance.judges import judge
from conformance.outcome import ScenarioResult
from conformance.planning.plan import Selection
from conformance.report.render.folder import make_folder
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import EngineThread
from conformance.run.session import RunSettings, Session
from conformance.scenario.loader import load
from conformance.selftest.deviation import Deviation
from conformance.selftest.gateway import gateway_profile
from conformance.selftest.model_server import server_profile
from conformance.targets.gateway import AnyProfile
from conformance.targets.profile import Profile, Timeouts
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import ACCUSING, UNJUDGED, Verdict

PATIENCE = Timeouts(answer=3, convergence=1.5, scrape=1, start=30)
"""Many faults never answer, or never follow a change: waiting for the full default each time would tell no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the suite said of one deviation."""

    deviation: Deviation
    version: str
    accused: Mapping[str, tuple[str, ...]]
    """Requirement to the results that accuse it (`fail`, or `warn` where that is all it can be)."""
    weak: frozenset[str] = frozenset()
    """Of these, the requirements that got no more than a warning."""
    trouble: tuple[str, ...] = ()
    """Results that could not be judged, with the reason."""
    naming: tuple[str, ...] = ()
    """Results of scenarios that name what it breaks, with their verdicts."""
    unrecorded: tuple[str, ...] = ()
    """Requirements that only inform, of which the record does not say what was declared."""
    noticed_by: tuple[str, ...] = ()
    """Scenario instances that found what it breaks, with the weight it deserves; quickest first."""
    doubts: tuple[str, ...] = ()
    """Of a trial that is not exact: what the findings behind that say, a line each."""
    evidence: Path | None = None
    """And the file with their episodes, for `epp-conformance judge`."""

    @property
    def name(self) -> str:
        """The deviation's name."""
        return self.deviation.name

    @property
    def caught(self) -> bool:
        """Whether what it breaks was found, with the weight it deserves."""
        broken = self.deviation.breaks
        if broken is None:
            return True
        return broken in self.accused and (self.deviation.effect != "fail" or broken not in self.weak)

    @property
    def wrongly(self) -> tuple[str, ...]:
        """Requirements that were accused and are not declared."""
        return tuple(sorted(set(self.accused) - self.deviation.declared))

    @property
    def exact(self) -> bool:
        """Caught, nothing accused wrongly, nothing left unjudged and nothing unrecorded."""
        return self.caught and not self.wrongly and not self.trouble and not self.unrecorded


async def attempt(
    deviation: Deviation,
    engine: EngineThread,
    *,
    full: bool,
    begin: Mapping[str, tuple[str, ...]] | None = None,
    keep: Path | None = None,
) -> Trial:
    """Try a deviation, on the engine's loop. What made it inexact goes to a file in the folder `keep`.

    `begin` names scenario instances by deviation. If these make an exact trial, it is all that is tried: what the
    deviation breaks was found, and they accuse nothing else. Only the complete trial, which follows otherwise, shows
    that no other scenario accuses it wrongly.

    A fault runs the scenarios that name what it may break and, for wrong accusations, the smoke set. A variant runs
    every scenario. What need not be on record runs in one body mode and with one choice of its matrix: other deviations
    try the others. A fault that shows in none of them is tried with all. With `full` everything is run in all body
    modes.
    """
    if instances := (begin or {}).get(deviation.name):
        with contextlib.suppress(UsageError):  # they may be gone, or be of other versions
            trial, _ = await _attempt(deviation, engine, Selection(scenarios=instances))
            if trial.exact:
                return trial
    for selection in _selections(deviation, full=full):
        trial, suspects = await _attempt(deviation, engine, selection)
        if trial.caught or trial.trouble:
            break
    if trial.exact:
        return trial
    return replace(trial, doubts=tuple(_doubts(trial, suspects)), evidence=_keep(trial, suspects, keep))


def _selections(deviation: Deviation, *, full: bool) -> Iterator[Selection]:
    """What is run, in turn, until the deviation is caught."""
    turn = zlib.crc32(deviation.name.encode())
    if full:
        yield Selection()
    elif deviation.breaks is None:
        slow = any(map(_only_in_slow_scenarios, deviation.noted))
        yield Selection(smoke_once=True, turn=turn, whole=tuple(deviation.noted), slow=slow)
    else:
        declared = tuple(sorted(deviation.declared))
        slow = _only_in_slow_scenarios(deviation.breaks)
        some = Selection(requirements=declared, with_smoke=True, turn=turn, slow=slow)
        yield from (some, replace(some, whole=declared))


async def _attempt(
    deviation: Deviation, engine: EngineThread, selection: Selection
) -> tuple[Trial, list[ScenarioFinished]]:
    profile = _PROFILES[deviation.role](deviation)
    settings = RunSettings(profile=profile, versions=(deviation.version,), selection=selection, seed=1, jobs=1)
    suspects: list[ScenarioFinished] = []
    recorded: set[str] = set()

    def see(event: RunEvent) -> None:
        if isinstance(event, ScenarioFinished):
            recorded.update(_recorded(deviation, event))
            if _suspicious(deviation, event.result):
                suspects.append(event)

    session = Session(settings, engine, see)
    await session.run()
    return _told(deviation, session, recorded), suspects


def _recorded(deviation: Deviation, event: ScenarioFinished) -> Iterator[str]:
    """The requirements of which the declared record was made. A result keeps of such records the names alone."""
    if deviation.noted and event.episode is not None and event.context is not None:
        for finding in judge(event.episode, event.context, Catalogue.load()):
            if deviation.noted.get(finding.requirement, finding.actual) in finding.actual:
                yield finding.requirement


def _only_in_slow_scenarios(requirement: str) -> bool:
    """Whether all scenarios that name the requirement are run only when they are asked for."""
    naming = [one for one in load(Catalogue.load()) if requirement in one.scenario.requirements]
    return all(one.scenario.slow for one in naming)


def _told(deviation: Deviation, session: Session, recorded: Set[str]) -> Trial:
    """What the session's results say of the deviation."""
    accused: dict[str, list[str]] = {}
    strong: set[str] = set()
    trouble: list[str] = [] if session.stopped is None else [session.stopped.message]
    for result in session.results.values():
        for finding in result.findings:
            if finding.verdict in ACCUSING:
                accused.setdefault(finding.requirement, []).append(result.id)
            if finding.verdict is Verdict.FAIL:
                strong.add(finding.requirement)
        if result.verdict in UNJUDGED and not (deviation.unjudged and deviation.unjudged in result.reason):
            trouble.append(f"{result.id}: {result.verdict}: {result.reason}")
    return Trial(
        deviation=deviation,
        version=deviation.version,
        accused={name: tuple(dict.fromkeys(results)) for name, results in sorted(accused.items())},
        weak=frozenset(accused) - strong,
        trouble=tuple(trouble),
        naming=tuple(
            f"{result.id} {result.verdict}"
            for result in session.results.values()
            if deviation.breaks in result.requirements
        ),
        unrecorded=tuple(sorted(set(deviation.noted) - recorded)),
        noticed_by=tuple(_noticing(deviation, session)),
    )


def _noticing(deviation: Deviation, session: Session) -> Iterator[str]:
    enough = {Verdict.FAIL} if deviation.effect == "fail" else ACCUSING
    instances = {work.id: work.instance.id for batch in session.plan.batches for work in batch.work}
    for result in sorted(session.results.values(), key=lambda one: one.duration):
        if any(one.requirement == deviation.breaks and one.verdict in enough for one in result.findings):
            yield instances[result.id]


def _suspicious(deviation: Deviation, result: ScenarioResult) -> bool:
    """Whether a result may be behind an inexact trial: it accuses wrongly, could not be judged, or should accuse."""
    return (
        result.verdict in UNJUDGED
        or deviation.breaks in result.requirements
        or any(one.verdict in ACCUSING and one.requirement not in deviation.declared for one in result.findings)
    )


def _doubts(trial: Trial, suspects: Sequence[ScenarioFinished]) -> Iterator[str]:
    for result in (one.result for one in suspects):
        for finding in result.findings:
            if finding.verdict in ACCUSING and finding.requirement in trial.wrongly:
                wanted = f", expected {' or '.join(finding.expected)}" if finding.expected else ""
                yield f"{result.id}, {finding.exchange}: {finding.requirement}: {finding.actual}{wanted}"
    if not trial.caught:
        yield from (f"{name}: should have accused {trial.deviation.breaks}" for name in trial.naming)
    yield from trial.trouble


def _keep(trial: Trial, suspects: Sequence[ScenarioFinished], folder: Path | None) -> Path | None:
    if folder is None or not any(one.episode for one in suspects):
        return None
    path = folder / f"{trial.deviation.name}.ndjson.gz"
    make_folder(folder)
    with contextlib.closing(EvidenceWriter(path)) as writer:
        for one in suspects:
            if one.episode is not None and one.context is not None:
                writer.add(one.result.id, one.episode, one.context)
    return path


def _profile(deviation: Deviation) -> Profile:
    profile = load_profile(REFERENCE)
    start = profile.start
    assert start.command is not None
    modes = tuple(mode for mode in profile.body_modes if mode in deviation.modes) or deviation.modes[:1]
    return profile.model_copy(
        update={
            "start": start.model_copy(update={"command": (*start.command, *deviation.flags)}),
            "body_modes": modes,
            "claims": _claims(profile.claims, deviation),
            "timeouts": PATIENCE,
        }
    )


def _claims(claims: Claims, deviation: Deviation) -> Claims:
    """The claims, less those that the deviation does not keep and with its own, by their names in a profile."""
    said = dict.fromkeys(deviation.without, False) | dict(deviation.claims)
    names = {field.name: to_camel(field.name) for field in fields(claims)}
    changes: dict[str, Any] = {name: said[alias] for name, alias in names.items() if alias in said}
    return replace(claims, **changes)


_PROFILES: Mapping[str, Callable[[Deviation], AnyProfile]] = {
    "epp": _profile,
    "data-plane": gateway_profile,
    "model-server": server_profile,
}
