"""`epp-conformance judge FILE`: judge recorded transcripts offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conformance.cli import options

if TYPE_CHECKING:
    from conformance.requirements.catalogue import Catalogue
    from conformance.tap.files import Transcript
    from conformance.tap.judging import JudgedExchange

DAMAGES = 3
"""Lines that are no transcript and are shown; others are counted."""


def judge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Transcripts of `tap --record`, or reports' folders.")
    ],
    protocol_version: Annotated[
        str | None,
        typer.Option("--protocol-version", metavar="VERSION", help="Judge by another version than recorded."),
    ] = None,
    exchange: Annotated[
        list[str] | None, typer.Option("--exchange", metavar="NAME", help="Only these, by name. Repeatable.")
    ] = None,
    each: Annotated[int, typer.Option("--each", min=1, help="Findings of a kind that are shown in full.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Every finding as a line of JSON instead.")] = False,
    no_color: options.NoColor = False,
) -> None:
    """Judge recorded conversations again, offline: of a tap's transcripts both sides, of evidence the one under test.

    Exit code 1 if a rule was broken, 3 if something could not be read or judged.
    """
    from conformance.cli.console import err, out, without_colour
    from conformance.errors import UnknownNameError, UsageError
    from conformance.printable import plural
    from conformance.report.render.folder import evidence_of
    from conformance.requirements.catalogue import Catalogue
    from conformance.requirements.schema import VERSIONS
    from conformance.tap.files import Damage, read
    from conformance.tap.metrics import Tally
    from conformance.tap.wording import Worth
    from conformance.verdict import Verdict

    if no_color:
        without_colour()
    if protocol_version is not None and protocol_version not in VERSIONS:
        raise UnknownNameError("protocol version", protocol_version, VERSIONS)
    catalogue, tally, worth, damaged, runs = Catalogue.load(), Tally(), Worth(each), 0, 0
    results, remarks = out(), err()
    seen: set[str] = set()
    for path in map(evidence_of, files):
        for one in read(path):
            if isinstance(one, Damage):
                damaged += not one.harmless
                what = "ends in the middle of an exchange" if one.harmless else f"is no transcript: {one.what}"
                if damaged <= DAMAGES:
                    remarks.print(f"{path}, line {one.line}: {what}")
                continue
            seen.add(one.episode.id)
            if not exchange or one.episode.id in exchange:
                judged = _judge(one, protocol_version, catalogue)
                tally.add(judged)
                runs += "." in one.context.scenario  # as in a scenario's id; a tap and a load have none
                if judged.problem:
                    remarks.print(f"{path}, line {one.line}: {one.episode.id} could not be judged: {judged.problem}")
                _show(one, judged, catalogue, worth, results.print, json=json)
    for name in exchange or ():
        if name not in seen:
            raise UnknownNameError("exchange", name, seen)
    if damaged > DAMAGES:
        remarks.print(f"… and {plural(damaged - DAMAGES, 'line more that is', 'lines more that are')} no transcript")
    if not seen:
        recorded = "name files that `tap --record` wrote, or a run's evidence.ndjson.gz"
        nothing = "was anything recorded? A load keeps only exchanges in which something was found"
        hint = recorded if damaged else nothing
        raise UsageError(f"there is no exchange in {', '.join(map(str, files))}", hint=hint)
    undecided = tally.of(Verdict.ERROR)
    if not json:
        counts = ((tally.judged - runs, "exchange"), (runs, "scenario run"))
        what = " and ".join(plural(count, noun) for count, noun in counts if count) or "no exchange"
        results.print(f"{what} judged, {tally.violating} with a broken rule")
        for requirement, count in tally.of(Verdict.FAIL):
            results.print(f"  {count:6} × {requirement}")
        for requirement, count in undecided:
            results.print(f"  {count:6} × {requirement} (not decided: trouble on the suite's side)")
    raise typer.Exit(1 if tally.violating else 3 if damaged or tally.problems or undecided else 0)


def _judge(one: Transcript, version: str | None, catalogue: Catalogue) -> JudgedExchange:
    from dataclasses import replace

    from conformance.tap.judging import BOTH, SCENARIO, judged

    context = one.context if version is None else replace(one.context, version=version)
    heard_by_a_tap = context.scenario == SCENARIO
    return judged(one.episode, context, catalogue, roles=BOTH if heard_by_a_tap else ())


def _show(one: Transcript, judged: JudgedExchange, catalogue: Catalogue, worth: Any, show: Any, *, json: bool) -> None:
    from conformance.tap.wording import finding_text

    for finding in judged.findings:
        if json:
            show(_json(one, finding))
        elif worth(finding):
            note = "more of these are counted, not shown" if worth.last(finding) else ""
            show(finding_text(finding, one.episode, catalogue, note=note))


def _json(one: Transcript, finding: Any) -> str:
    import json
    from dataclasses import asdict

    return json.dumps({"episode": one.episode.id, "version": one.context.version, **asdict(finding)})
