"""What the result of a piece of work is, given what was found: for the runner, and again for a verifier."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.evidence.episode import Episode, HarnessTrouble, Unmet
from conformance.outcome import ScenarioResult, decisive, scenario_verdict
from conformance.planning.plan import Skip, Work
from conformance.printable import plural
from conformance.reading.gauges_followed import gauges_followed
from conformance.verdict import Finding, Verdict

GENERATED_SECTION = "generated"
GENERATED_ID = f"{GENERATED_SECTION}.conversations"
"""The result that stands for all generated conversations of a version."""

COUNTEREXAMPLE = "counterexample-{}.yaml"
"""The scenario file, in the folder of the report, of the generated conversation that failed in a version."""

INTERRUPTED = "the run was ended before its turn"
HUNG_TOO_OFTEN = "the target hung again and again and was started again each time, so that this was not tried any more"


def reproduce_command(command: str, seed: int, result: ScenarioResult) -> str:
    """The command line that runs just this again; `command` is its beginning. A generated conversation is in a file in
    the folder of the report.
    """
    generated = result.id == GENERATED_ID
    scenarios = f" --scenarios {COUNTEREXAMPLE.format(result.version)}" if generated else ""
    name = f"{GENERATED_SECTION}.*" if generated else result.id.removesuffix(f"@{result.mode}")
    return f"{command} --protocol-version {result.version} --seed {seed}{scenarios} --scenario '{name}'"


def skipped(skip: Skip) -> ScenarioResult:
    """The result of work that the plan has no place for."""
    return not_reached(skip.work, skip.verdict, skip.reason)


def not_done(work: Work, stopped: str = "") -> ScenarioResult:
    """The result of work whose turn did not come; `stopped` says what stopped the run, if Ctrl-C did not."""
    return not_reached(work, Verdict.INCONCLUSIVE, stopped or INTERRUPTED)


def not_reached(work: Work, verdict: Verdict, reason: str) -> ScenarioResult:
    """The result of work that was not executed."""
    scenario = work.instance.scenario
    return ScenarioResult(
        version=work.version,
        id=work.id,
        scenario=scenario.id,
        title=scenario.title,
        section=work.instance.section,
        requirements=scenario.requirements,
        mode=work.mode,
        verdict=verdict,
        reason=reason,
        provisional=scenario.provisional,
        smoke=scenario.smoke,
        source=f"{work.instance.file}:{work.instance.line}",
    )


def of_episode(
    work: Work,
    episode: Episode,
    findings: Sequence[Finding] | Exception,
    *,
    seconds: float,
) -> ScenarioResult:
    """The result of work that was executed and judged. A judge that failed makes it `error`: that is our defect."""
    scenario = work.instance.scenario
    reason = next((event.what for _, event in episode.of(Unmet)), "")
    if isinstance(findings, Exception):
        reason = f"a judge failed, which is a defect of the suite: {type(findings).__name__}: {findings}"
        findings = [Finding(requirement=name, verdict=Verdict.ERROR, actual=reason) for name in scenario.requirements]
    trouble = next((event.what for _, event in episode.of(HarnessTrouble)), "")
    found = decisive(findings, scenario.requirements)
    return ScenarioResult(
        version=work.version,
        id=work.id,
        scenario=scenario.id,
        title=scenario.title,
        section=work.instance.section,
        requirements=scenario.requirements,
        mode=work.mode,
        verdict=scenario_verdict(findings, scenario.requirements),
        findings=tuple(findings),
        reason=trouble or reason or (found.actual if found and found.verdict is not Verdict.PASS else ""),
        provisional=scenario.provisional,
        smoke=scenario.smoke,
        duration=round(seconds, 3),
        gauges=gauges_followed(scenario, episode),
        source=f"{work.instance.file}:{work.instance.line}",
    )


def all_kept(version: str, examples: int, seed: int) -> ScenarioResult:
    """The result of generated conversations of which none broke a rule."""
    return ScenarioResult(
        version=version,
        id=GENERATED_ID,
        scenario=GENERATED_ID,
        title="Generated conversations keep every rule",
        section=GENERATED_SECTION,
        requirements=(),
        mode="",
        verdict=Verdict.PASS,
        reason=f"{plural(examples, 'conversation')}, seed {seed}",
    )


def shortest_broken(result: ScenarioResult, broken: tuple[str, ...], examples: int, seed: int) -> dict[str, object]:
    """What the result of the shortest generated conversation that broke `broken` has otherwise than of a scenario."""
    return {
        "id": GENERATED_ID,
        "scenario": GENERATED_ID,
        "requirements": broken,
        "verdict": Verdict.FAIL,
        "reason": f"{result.reason} (in the shortest of {plural(examples, 'conversation')}, seed {seed})",
    }
