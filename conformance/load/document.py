"""The result of a load run as a document (`load.json`) and as a few lines of text.

Verdicts are those of the judges over all exchanges. Figures are informational: they hang on the machine.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from conformance.evidence.store import EvidenceWriter
from conformance.folder import Folder
from conformance.load.churn import blind
from conformance.load.figures import FIRST_BYTE, LATENESS, PICK
from conformance.load.judgement import TELLING
from conformance.load.page import html
from conformance.load.recovery import Aftermath
from conformance.load.run import LoadRun
from conformance.printable import plural
from conformance.report.render.folder import LOAD, LOAD_EVIDENCE, LOAD_PAGE, LOAD_STATISTICS
from conformance.verdict import Verdict, worst

KIND = "EPPLoadReport"

LATE, NEVER_IDLE = 10.0, 0.01
"""Milliseconds, and a share: a generator whose requests begin so late at the 99th percentile, or that had no time to
spare for so many of them, is not read as a slow target."""

SOAK = 60
"""Seconds from which on a load is long enough for its growth to be shown."""

SHOWN = 20
"""Troubles that are told of on the terminal."""

CRASH = "ENV-27"
"""What the end of the target's process breaks."""

CONFORMANT, NON_CONFORMANT, TROUBLE, INCOMPLETE = 0, 1, 3, 4


def verdicts(run: LoadRun) -> Mapping[str, Mapping[Verdict, int]]:
    """How many exchanges said what of each requirement."""
    found: dict[str, dict[Verdict, int]] = {}
    for (requirement, verdict), count in sorted(run.tally.counts.items()):
        if count:
            found.setdefault(requirement, {})[verdict] = count
    if run.crashes:
        found.setdefault(CRASH, {})[Verdict.FAIL] = len(run.crashes)
    return found


def exit_code(run: LoadRun) -> int:
    """0 conformant, 1 non-conformant (or a limit of the file was exceeded), 3 harness error, 4 incomplete."""
    seen = {verdict for counts in verdicts(run).values() for verdict in counts}
    if Verdict.FAIL in seen or exceeded(run):
        return NON_CONFORMANT
    if Verdict.ERROR in seen:
        return TROUBLE
    unsettled = any(one.unsettled(run.start_time + run.seconds) for one in run.troubles.all)
    whole = run.complete and not run.unfinished and not unsettled and Verdict.PASS in seen
    return CONFORMANT if whole and Verdict.INCONCLUSIVE not in seen else INCOMPLETE


def exceeded(run: LoadRun) -> list[Aftermath]:
    """Trouble that was not recovered from within the limit of the load's file."""
    return [one for one in run.troubles.all if one.exceeded(run.start_time + run.seconds)]


def ended_early(run: LoadRun) -> str:
    """What ended the load before its time, in words, where that was not its target; "" if nothing did."""
    if run.cut_short or run.complete or not run.began or run.crashes or run.troubles.gone:
        return run.cut_short
    whole = run.settings.file.seconds
    if run.seconds < whole:
        return f"it was interrupted after {run.seconds:.1f} of {whole:g} s"
    return "it was interrupted while the last exchanges were awaited"


def result(run: LoadRun) -> str:
    """What came out, in words."""
    broken = any(Verdict.FAIL in counts for counts in verdicts(run).values())
    return _NOT_RECOVERED if exceeded(run) and not broken else _RESULTS[exit_code(run)]


def kept_up(run: LoadRun) -> bool:
    """Whether requests began when they were due, and answers were looked at when they came: otherwise times are the
    generator's as much as the target's."""
    lateness = run.figures.summary()[LATENESS]
    return not run.totals.left_out and lateness.get("p99", 0.0) <= LATE and never_idle(run) <= NEVER_IDLE


def never_idle(run: LoadRun) -> float:
    """The share of exchanges for which the generator, or the busiest of them, had no time to spare."""
    found = [one.get("neverIdle", 0.0) for one in run.generators]
    return max(found) if found else run.idleness.summary()["neverIdle"]


def document(run: LoadRun, *, command: str) -> dict[str, Any]:
    """The whole result as plain data."""
    settings = run.settings
    profile, totals, churn = settings.profile, run.totals, run.churn
    return {
        "apiVersion": "conformance.epp/v1alpha1",
        "kind": KIND,
        "suite": {"version": installed("epp-conformance")},
        "implementation": profile.implementation.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "environment": {"python": platform.python_version(), "platform": platform.platform(), "seed": settings.seed},
        "command": command,
        "version": settings.version,
        "load": settings.file.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "complete": run.complete,
        **({"cutShort": why} if (why := ended_early(run)) else {}),
        "exitCode": exit_code(run),
        "result": result(run),
        "exchanges": {
            "begun": run.begun,
            "judged": run.tally.exchanges,
            "failed": run.tally.failed,
            "undecided": run.tally.undecided,
            "byRequest": dict(sorted(run.by_shape.items())),
            "unfinished": run.unfinished,
            "lostWithTheProcess": run.lost_with_process,
            "lostToTrouble": run.troubles.lost,
            "refusedAndOpenedAgain": totals.refused,
            "waitedForAStream": totals.waited,
        },
        "requirements": [
            {
                "id": name,
                "verdict": worst(counts).value,
                "exchanges": {verdict.value: count for verdict, count in counts.items()},
            }
            for name, counts in verdicts(run).items()
        ],
        "findings": [
            {
                "requirement": one.finding.requirement,
                "verdict": one.finding.verdict.value,
                "expected": list(one.finding.expected),
                "actual": one.finding.actual,
                "hint": one.finding.hint,
                "request": one.shape,
                "second": round(one.second, 3),
                "episode": one.episode,
            }
            for one in run.examples.all
        ],
        "crashes": [{"code": one.code, "output": one.output} for one in run.crashes],
        "pool": {
            "changes": dict(churn.done) if churn is not None else {},
            "late": churn.late if churn is not None else 0,
            "blind": [{"change": change, "why": why} for change, why in _blind(run)],
        },
        "troubles": [one.plain(run.start_time) for one in run.troubles.all],
        "generator": {
            "processes": settings.of,
            **({"workers": run.workers} if run.workers else {}),
            "due": totals.due,
            "notBegun": totals.crowded_out + totals.left_out,
            "tooManyUnderWay": totals.crowded_out,
            "neverIdle": never_idle(run),
            "keptUp": kept_up(run),
        },
        "memory": _memory(run),
        "figures": {
            "informational": True,
            "seconds": round(run.seconds, 3),
            "course": [one.plain() for one in run.course.stretches],
            "target": run.target_vitals.summary(),
            "suite": run.own_vitals.summary(),
            **({"generators": run.generators} if run.generators else {}),
            "judgedPerSecond": round(run.tally.exchanges / run.seconds, 1) if run.seconds else 0,
            "milliseconds": run.figures.summary(),
            "histogramsInMicroseconds": run.figures.encoded(),
        },
    }


def _blind(run: LoadRun) -> Iterator[tuple[str, str]]:
    file = run.settings.file
    return blind(file.churn, grace=run.settings.grace_time, seconds=file.seconds)


def _memory(run: LoadRun) -> dict[str, Any]:
    counts = run.totals.memory
    return {
        "hitRate": round(counts.hit_rate, 6),
        "remembered": counts.exchanges,
        "judgedInFull": counts.judged,
        "dependedOnTheirId": counts.opaque,
        "forgotten": counts.forgotten,
        "bytes": run.totals.memory_bytes,
    }


def write(made: Mapping[str, Any], run: LoadRun, folder: Folder, statistics: str = "") -> tuple[Path, ...]:
    """Write the document `made` of `run`, its page, the evidence and Locust's `statistics`, if there are any, into the
    `folder`. What an earlier load left there is kept until all are written. Raises `OSError` with the path."""
    pieces = {
        LOAD: json.dumps(made, indent=2, ensure_ascii=False) + "\n",
        LOAD_PAGE: html(made, made["result"]),
        **({LOAD_STATISTICS: statistics} if statistics else {}),
    }
    with contextlib.ExitStack() as moved_together:
        file = moved_together.enter_context(folder.writing(LOAD_EVIDENCE))
        with EvidenceWriter(folder.path / LOAD_EVIDENCE, file) as evidence:
            for name, one in run.examples.shown.items():
                evidence.add(name, one.episode, one.context)
        for name, text in pieces.items():
            file = moved_together.enter_context(folder.writing(name))
            file.write(text.encode())
            file.flush()
    if not statistics:
        folder.remove(LOAD_STATISTICS)  # those of an earlier load are none of this one
    names = (LOAD, LOAD_PAGE, LOAD_EVIDENCE, *((LOAD_STATISTICS,) if statistics else ()))
    return tuple(folder.path / name for name in names)


# -- in words ----------------------------------------------------------------------------------------------------------

_RESULTS = {
    CONFORMANT: "conformant under this load",
    NON_CONFORMANT: "NOT conformant under this load",
    TROUBLE: "harness error",
    INCOMPLETE: "incomplete",
}
_NOT_RECOVERED = "no requirement broken, but NOT recovered from trouble within the limit"


def summary(run: LoadRun) -> Iterator[str]:
    """The result in a few lines."""
    found = verdicts(run)
    for name, said in found.items():
        for verdict in (one for one in TELLING if one in said):
            if run.crashes and (name, verdict) == (CRASH, Verdict.FAIL):
                continue  # no exchange: it is told below
            example = next(
                (one for one in run.examples.all if (one.finding.requirement, one.finding.verdict) == (name, verdict)),
                None,
            )
            what = f": {example.finding.actual} ({example.shape}, {example.episode})" if example is not None else ""
            yield f"{verdict.upper()} {name} in {said[verdict]} of {plural(run.tally.exchanges, 'exchange')}{what}"
    for crash in run.crashes:
        last = crash.output.strip().splitlines()[-1:] or ["no output"]
        yield f"FAIL {CRASH}: the target's process ended with {crash.code} ({last[0]})"
    if why := ended_early(run):
        yield f"the load ended before its time: {why}"
    yield from _troubles(run)
    for change, why in _blind(run):
        yield f"after churn `{change}` no pick could be wrong: {why}"
    yield from _untried(run)
    holds = sum(1 for said in found.values() if worst(said) is Verdict.PASS)
    undecided = f", {run.tally.undecided} undecided" if run.tally.undecided else ""
    yield (
        f"{result(run)}: {plural(run.tally.exchanges, 'exchange')} judged, {run.tally.failed} failed{undecided}; "
        f"{plural(holds, 'requirement was', 'requirements were')} seen to hold"
    )
    times = run.figures.summary()
    for name, what in ((PICK, "time to pick"), (FIRST_BYTE, "added time to first byte")):
        if times[name]["count"]:
            yield f"{what}: {_times(times[name])} ms, from when each request was due"
    if waited := run.totals.waited:
        yield (
            f"{plural(waited, 'exchange')} waited for a stream, which is in the times above: connections were full "
            "(SETTINGS_MAX_CONCURRENT_STREAMS of the target) or had to be made"
        )
    if refused := run.totals.refused:
        yield f"{plural(refused, 'stream was', 'streams were')} refused by the target and opened again"
    yield from _generator(run, times[LATENESS])
    if run.began:
        counts = run.totals.memory
        yield f"{counts.hit_rate:.2%} of the verdicts were remembered, {counts.judged} judged in full"
    yield from _growth(run)
    if run.unfinished:
        yield f"{plural(run.unfinished, 'exchange was', 'exchanges were')} still under way"
    if run.lost_with_process:
        yield f"{plural(run.lost_with_process, 'exchange was', 'exchanges were')} lost with the process"


def _untried(run: LoadRun) -> Iterator[str]:
    """What the load was to show and did not come to pass, though it came to its end."""
    if not run.complete or run.crashes:
        return
    if not run.totals.due:
        yield "no request was due: at so low a rate the first comes when the load is over"
        return
    for kind in (one.name for one in run.settings.file.mix):
        if not run.by_shape[kind]:
            yield f"no request `{kind}` was judged: its share is too small for so few requests, or all were lost"
    done = run.churn.done if run.churn is not None else {}
    for change in sorted({one.change for one in run.settings.file.churn if one.change not in done}):
        yield f"churn `{change}` never happened: no pod was free for it, or other changes took its time"
    file = run.settings.file
    stays = all(one.change == "saturate" for one in file.churn)
    for asked in file.mix:
        if stays and asked.subset_of is not None and asked.subset_of >= run.settings.endpoints:
            yield f"no pick for `{asked.name}` could be outside of its hint: it names all endpoints of the pool"
    planned = Counter(one.kind for one in file.trouble for _ in one.begins(file.seconds))
    for kind, left in sorted((planned - Counter(one.kind for one in run.troubles.all)).items()):
        yield f"trouble `{kind}` came {planned[kind] - left} of {planned[kind]} times: what was before it took its time"


def _troubles(run: LoadRun) -> Iterator[str]:
    found = run.troubles.all
    for one in found[:SHOWN]:
        yield _trouble(one, run)
    if len(found) > SHOWN:
        yield f"trouble: {len(found) - SHOWN} more in {LOAD}"


def _trouble(one: Aftermath, run: LoadRun) -> str:
    begun, end = one.begun - run.start_time, run.start_time + run.seconds
    limit = f", {one.limit:g} s were allowed" if one.exceeded(end) else ""
    if one.unsettled(end):
        limit = f"; the load was over before the {one.limit:g} s that are allowed"
    if one.problem:
        how = f"NOT recovered from: {one.problem}"
    elif one.recovered is not None:
        how = f"recovered from after {one.recovered:.2f} s{limit}"
    elif one.untried:
        how = f"no exchange after it and before the next trouble tells{limit}"
    else:
        how = f"NOT recovered from{limit}" if one.ended is not None else f"it did not end{limit}"
    until = f" to {one.ended - run.start_time:.1f}" if one.ended is not None else ""
    broken = [
        f"{count} {name} {when}"
        for when, counts in (("during", one.during), ("after", one.after))
        for name, count in sorted((+counts).items())
    ]
    lost = f"; {plural(one.lost, 'exchange was', 'exchanges were')} lost to it" if one.kind == "kill-target" else ""
    return f"trouble: {one.kind} at {begun:.1f}{until} s: {how}{lost}; violations: {', '.join(broken) or 'none'}"


def _growth(run: LoadRun) -> Iterator[str]:
    for what, vitals in (("target", run.target_vitals), ("suite", run.own_vitals)):
        found = vitals.summary()
        if found.get("samples", 0) >= SOAK:
            yield (
                f"memory of the {what}: {found['firstMiB']:.0f} to {found['lastMiB']:.0f} MiB, "
                f"{found['growthMiBPerHour']:+.1f} MiB an hour; {found['firstDescriptors']:.0f} to "
                f"{found['lastDescriptors']:.0f} descriptors, {found['growthDescriptorsPerHour']:+.0f} an hour"
            )


def _generator(run: LoadRun, lateness: Mapping[str, float]) -> Iterator[str]:
    if not lateness["count"]:
        return
    if crowded_out := run.totals.crowded_out:
        yield (
            f"{plural(crowded_out, 'request was', 'requests were')} not begun, as {run.settings.at_once} were under "
            "way (`--at-once`): the target was that far behind, and their times are missing above"
        )
    if kept_up(run):
        yield f"the generator kept up: requests began {_times(lateness)} ms after they were due"
        return
    left_out = run.totals.left_out
    left = f"{plural(left_out, 'was', 'were')} not begun, as the time was over; " if left_out else ""
    if (busy := never_idle(run)) > NEVER_IDLE:
        left += f"it had no time to spare for {busy:.0%} of the exchanges; "
    yield (
        f"the generator did NOT keep up: {left}requests began {_times(lateness)} ms late; "
        "read no time above as the target's alone"
    )


def _times(values: Mapping[str, float]) -> str:
    return f"p50 {values['p50']:.2f}, p99 {values['p99']:.2f}, max {values['max']:.2f}"
