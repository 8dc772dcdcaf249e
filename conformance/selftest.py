"""The proof that the suite bites: the reference EPP with each of its faults, and with its odd but right variants.

A fault declares by hand which requirement it breaks. Run against the suite, exactly that one (and those it declares to
break as well) must be accused: nothing missed, nothing accused wrongly. A variant must not be accused at all.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, get_args

from pydantic.alias_generators import to_camel

from conformance.episode import Claims
from conformance.errors import HarnessError, UnknownNameError
from conformance.requirements.catalogue import Catalogue
from conformance.run.engine import Engine
from conformance.run.plan import Selection
from conformance.run.session import RunSettings, Session
from conformance.scenario.schema import BodyMode
from conformance.targets.profile import Profile, Timeouts
from conformance.targets.resolve import REFERENCE, load_profile
from conformance.verdict import Verdict

AT_A_TIME = 3
"""Faulty EPPs that run side by side: while one is waited for, another is asked."""

PATIENCE = Timeouts(answer=3, convergence=1.5, scrape=1, start=30)
"""Many faults never answer, or never follow a change: waiting for the full default each time would tell no more."""

PREFERRED = "1.0.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """A fault or a variant of the reference EPP, as it lists them. A variant breaks nothing."""

    name: str
    why: str
    versions: tuple[str, ...]
    modes: tuple[BodyMode, ...]
    breaks: str | None = None
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    effect: str = "fail"
    without: tuple[str, ...] = ()
    """Claims of the reference EPP that do not hold for it."""

    @property
    def declared(self) -> frozenset[str]:
        """Every requirement that may be accused."""
        return frozenset(self.also_breaks) | ({self.breaks} if self.breaks is not None else set())

    @property
    def version(self) -> str:
        """The version it is tried in."""
        return PREFERRED if PREFERRED in self.versions else self.versions[-1]


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
        """Caught, nothing accused wrongly, and nothing left unjudged."""
        return self.caught and not self.wrongly and not self.trouble


def deviations(kind: str) -> tuple[Deviation, ...]:
    """The `faults` or `variants` of the reference EPP, asked from its command line: nothing of it is imported."""
    command = [sys.executable, "-m", "reference_epp", f"--list-{kind}"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if listed.returncode != 0:
        raise HarnessError(f"the reference EPP does not list its {kind}: {listed.stderr.strip()[-500:]}")
    return tuple(_deviation(entry) for entry in json.loads(listed.stdout))


def select(known: Sequence[Deviation], names: Iterable[str]) -> tuple[Deviation, ...]:
    """The deviations with these names; none given: all. Raises `UnknownNameError`."""
    wanted = tuple(names)
    for name in wanted:
        if name not in {one.name for one in known}:
            raise UnknownNameError("fault or variant", name, [one.name for one in known])
    return tuple(one for one in known if not wanted or one.name in wanted)


def run_trials(
    chosen: Sequence[Deviation], engine: Engine, report: Callable[[Trial], None], *, full: bool = False
) -> tuple[Trial, ...]:
    """Try each deviation; `report` gets each result as it comes.

    A fault runs the scenarios that name what it breaks and the smoke set; with `full`, and for variants, everything.
    """
    return engine.call(_all(chosen, engine, report, full=full))


async def _all(
    chosen: Sequence[Deviation], engine: Engine, report: Callable[[Trial], None], *, full: bool
) -> tuple[Trial, ...]:
    queue = iter(chosen)
    trials: dict[str, Trial] = {}

    async def worker() -> None:
        for deviation in queue:
            trial = await _try(deviation, engine, full=full)
            if trial.trouble:  # ours, or the machine's: a busy one is no reason to doubt a judge
                trial = await _try(deviation, engine, full=full)
            trials[deviation.name] = trial
            report(trial)

    await asyncio.gather(*(worker() for _ in range(AT_A_TIME)))
    return tuple(trials[deviation.name] for deviation in chosen)


async def _try(deviation: Deviation, engine: Engine, *, full: bool) -> Trial:
    everything = full or deviation.breaks is None
    selection = (
        Selection() if everything else Selection(requirements=tuple(sorted(deviation.declared)), with_smoke=True)
    )
    settings = RunSettings(
        profile=_profile(deviation), versions=(deviation.version,), selection=selection, seed=1, jobs=1
    )
    session = Session(settings, engine)
    await session.run()
    accused: dict[str, list[str]] = {}
    strong: set[str] = set()
    trouble: list[str] = [] if session.stopped is None else [session.stopped.message]
    for result in session.results.values():
        for finding in result.findings:
            if finding.verdict in (Verdict.FAIL, Verdict.WARN):
                accused.setdefault(finding.requirement, []).append(result.id)
            if finding.verdict is Verdict.FAIL:
                strong.add(finding.requirement)
        if result.verdict in (Verdict.ERROR, Verdict.INCONCLUSIVE):
            trouble.append(f"{result.id}: {result.verdict}: {result.reason}")
    return Trial(
        deviation=deviation,
        version=deviation.version,
        accused={name: tuple(dict.fromkeys(results)) for name, results in sorted(accused.items())},
        weak=frozenset(accused) - strong,
        trouble=tuple(trouble),
    )


def _profile(deviation: Deviation) -> Profile:
    profile = load_profile(REFERENCE)
    flag = f"--{'variant' if deviation.breaks is None else 'fault'}={deviation.name}"
    start = profile.start
    assert start.command is not None
    modes = tuple(mode for mode in profile.body_modes if mode in deviation.modes) or deviation.modes[:1]
    return profile.model_copy(
        update={
            "start": start.model_copy(update={"command": (*start.command, flag)}),
            "body_modes": modes,
            "claims": _claims(profile.claims, deviation.without),
            "timeouts": PATIENCE,
        }
    )


def _claims(claims: Claims, without: Sequence[str]) -> Claims:
    """The claims, less those that the deviation does not keep, by their names in a profile."""
    changes: dict[str, Any] = {field.name: False for field in fields(claims) if to_camel(field.name) in without}
    return replace(claims, **changes)


def _deviation(entry: Mapping[str, object]) -> Deviation:
    def texts(name: str) -> tuple[str, ...]:
        value = entry[name]
        assert isinstance(value, list)
        return tuple(str(item) for item in value)

    also = entry.get("also_breaks") or {}
    assert isinstance(also, dict)
    breaks = entry.get("breaks")
    return Deviation(
        name=str(entry["name"]),
        why=str(entry["why"]),
        versions=texts("versions"),
        modes=tuple(mode for mode in get_args(BodyMode) if mode in texts("modes")),
        breaks=None if breaks is None else str(breaks),
        also_breaks={str(name): str(reason) for name, reason in also.items()},
        effect=str(entry.get("effect", "fail")),
        without=texts("without") if "without" in entry else (),
    )


def table(trials: Sequence[Trial], catalogue: Catalogue) -> str:
    """Declared beside observed, as a Markdown page for the docs."""
    faults = sorted((one for one in trials if one.deviation.breaks), key=_place)
    variants = [one for one in trials if not one.deviation.breaks]
    lines = [
        "# Faults",
        "",
        "<!-- Written by `make selftest`. -->",
        "",
        "The proof that the suite bites. Each fault is one deviation of the reference EPP",
        "(`reference-epp --fault NAME`) that declares what it breaks; exactly that must be accused.",
        "`epp-conformance selftest` tries them, and the odd but right variants, which must not be accused.",
        "",
        f"{len(faults)} faults, {sum(one.exact for one in faults)} exact"
        + (f"; {len(variants)} variants, {sum(one.exact for one in variants)} exact." if variants else "."),
        "",
        "| fault | what it does | breaks | may also break | accused | exact |",
        "|---|---|---|---|---|---|",
    ]
    for one in faults:
        deviation = one.deviation
        also = ", ".join(sorted(deviation.also_breaks)) or "-"
        accused = ", ".join(one.accused) or "nothing"
        lines.append(
            f"| `{deviation.name}` | {_cell(deviation.why)} | {deviation.breaks} | {also} | {accused} | {_mark(one)} |"
        )
    if variants:
        lines += ["", "| variant | what is odd about it | exact |", "|---|---|---|"]
    lines += [f"| `{one.deviation.name}` | {_cell(one.deviation.why)} | {_mark(one)} |" for one in variants]
    broken = {one.deviation.breaks for one in faults}
    without = [one.id for one in catalogue if one.role == "epp" and one.testable and one.id not in broken]
    lines += ["", f"Requirements without a fault of their own: {', '.join(without) or 'none'}."]
    return "\n".join(lines) + "\n"


def _place(trial: Trial) -> tuple[str, str]:
    return trial.deviation.breaks or "", trial.deviation.name


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _mark(trial: Trial) -> str:
    if trial.exact:
        return "yes"
    parts = [] if trial.caught else ["missed"]
    parts += [f"wrongly accused: {', '.join(trial.wrongly)}"] if trial.wrongly else []
    parts += [f"not judged: {len(trial.trouble)}"] if trial.trouble else []
    return "; ".join(parts)
