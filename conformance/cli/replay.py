"""`epp-conformance replay FILE`: recorded conversations, sent again to any endpoint picker."""

from __future__ import annotations

import fnmatch
import shlex
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from conformance.cli import options
from conformance.targets.flags import OF_OTHER_ROLES, TargetFlags

if TYPE_CHECKING:
    from conformance.errors import UsageError
    from conformance.evidence.episode import Context, Episode
    from conformance.reading.conversation import Conversation
    from conformance.run.engine import EngineThread
    from conformance.run.epp.replay import Replay, Replayed
    from conformance.targets.resolve import Resolved

_MARKS = {"same": "✓", "fixed": "✓", "different": "≠", "still failing": "✗", "fails now": "✗"}


@options.spelt_out
def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `tap --record` wrote, or a report's folder.")],
    target: Annotated[TargetFlags, options.Taken(without=OF_OTHER_ROLES)],
    exchange: Annotated[
        list[str] | None, typer.Option("--exchange", metavar="NAME", help="Only these conversations. Repeatable.")
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option("--scenario", "-k", metavar="ID|GLOB", help="Only those of these scenarios. Repeatable."),
    ] = None,
    requirement: Annotated[
        list[str] | None,
        typer.Option("--requirement", metavar="ID", help="Only those that break one of these rules. Repeatable."),
    ] = None,
    protocol_version: Annotated[
        str | None, typer.Option("--protocol-version", metavar="VERSION", help="Judge by this version.")
    ] = None,
    each: Annotated[int, typer.Option("--each", min=0, help="So many differences are shown in full.")] = 3,
    exact: Annotated[bool, typer.Option("--exact", help="A difference counts as a failure, too.")] = False,
    no_color: options.NoColor = False,
) -> None:
    """Send recorded conversations to an endpoint picker, and say of each: same, different, still failing, fixed.

    Record and replay are judged by today's rules, and compared without request ids, dates and addresses. Exit code 1
    if a rule is broken, 4 if one of the conversations could not be sent again.

    epp-conformance replay traffic.ndjson --epp 'cmd:./my-epp --port {port} --endpoints {endpointsFile}'

    epp-conformance replay conformance-report --requirement EPP-SUB-06 --profile my-epp.yaml
    """
    from conformance.cli.console import out, without_colour
    from conformance.errors import UsageError
    from conformance.requirements.catalogue import Catalogue
    from conformance.run.engine import EngineThread
    from conformance.targets.profile import Profile
    from conformance.targets.resolve import Resolved, protocol_versions

    if no_color:
        without_colour()
    resolved = target.resolve()
    if not isinstance(resolved, Resolved) or not isinstance(resolved.profile, Profile):
        raise UsageError("a replay is for an endpoint picker", hint="name one with --epp or --profile")
    version = protocol_versions(resolved.profile, (protocol_version,) if protocol_version else ())[-1]
    catalogue = Catalogue.load()
    rules = {catalogue.get(name).id for name in requirement or ()}
    refused: list[UsageError] = []
    wanted = [
        one
        for broken, one in _replays(file, version, exchange or [], scenario or [], refused)
        if not rules or rules & {*broken}
    ]
    if not wanted:
        raise nothing_chosen(file, rules)
    counts: Counter[str] = Counter()
    console = out()
    with EngineThread() as engine:
        for one, done in _sent(engine, resolved, version, wanted, refused):
            counts[done.outcome] += 1
            broken = ", ".join(dict.fromkeys(finding.requirement for finding in done.findings)) or ", ".join(one.broken)
            console.print(f"{_MARKS[done.outcome]} {done.outcome:13}  {one.title}  {broken}".rstrip())
            for what in one.recorded.unsaid:
                console.print(f"    sent without: {what}")
            if done.outcome != "same" and done.difference and each:
                each -= 1
                console.print("\n".join(f"    {line}" for line in done.difference))
    for problem in refused:
        console.print(f"? {'not sent':13}  {problem.message}")
    for hint in dict.fromkeys(problem.hint for problem in refused if problem.hint):
        console.print(f"    hint: {hint}")
    left_out = f"; {len(refused)} not sent" if refused else ""
    outcomes = ", ".join(f"{n} {name}" for name, n in counts.most_common())
    console.print(f"{sum(counts.values())} replayed: {outcomes}{left_out}")
    bad = counts["still failing"] + counts["fails now"] + (counts["different"] if exact else 0)
    raise typer.Exit(1 if bad else 4 if refused else 0)


def _replays(
    file: Path, version: str, exchanges: list[str], scenarios: list[str], refused: list[UsageError]
) -> Iterator[tuple[tuple[str, ...], Replay | UsageError]]:
    """The conversations that are chosen, each with the rules that it breaks, or why it can't be sent again. Lines that
    are no conversation are `refused`."""
    import dataclasses

    from conformance.errors import UsageError
    from conformance.requirements.catalogue import Catalogue
    from conformance.run.epp.replay import broken_rules, replayable

    catalogue = Catalogue.load()
    for episode, conversations, recorded_in in recorded_conversations(file, refused):
        if scenarios and not any(_is_of(recorded_in.scenario, pattern) for pattern in scenarios):
            continue
        chosen = [one for one in conversations if not exchanges or one.exchange in exchanges]
        if not chosen:
            continue
        context = dataclasses.replace(recorded_in, version=version)
        every = broken_rules(episode, context, catalogue)
        for one in chosen:
            broken = every.get(one.exchange, ())
            try:
                yield broken, replayable(episode, one, context, broken)
            except UsageError as problem:
                yield broken, problem


def _is_of(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name.partition("@")[0].partition("[")[0], pattern)


def nothing_chosen(file: Path, rules: Collection[str]) -> UsageError:
    """That there is none among the conversations of a record that were asked for."""
    from conformance.errors import UsageError

    which = f" that breaks {' or '.join(sorted(rules))}" if rules else ""
    return UsageError(
        f"no conversation in {file} is chosen{which}",
        hint=f"`epp-conformance judge {shlex.quote(str(file))}` says what is broken, and where",
    )


def recorded_conversations(
    file: Path, refused: list[UsageError] | None = None
) -> Iterator[tuple[Episode, list[Conversation], Context]]:
    """The conversations of a record or of a report's evidence, by episode. Raises `UsageError` for what is none, or
    adds it to `refused` where there are others."""
    from conformance.errors import UsageError
    from conformance.reading.conversation import conversations
    from conformance.report.render.folder import evidence_of
    from conformance.tap.files import Damage, read

    path = evidence_of(file)
    found = False
    for one in read(path):
        if isinstance(one, Damage):
            if not one.harmless:
                hint = "name what `tap --record` or a run wrote; `epp-conformance judge` reads as much as there is"
                problem = UsageError(f"{path}:{one.line}: no recorded conversation: {one.what}", hint=hint)
                if refused is None:
                    raise problem
                refused.append(problem)
            continue
        if one.context.role != "epp":
            raise UsageError(
                f"{path} is the record of a {one.context.role}, and replay is for those of endpoint pickers",
                hint=f"run the scenarios again instead: epp-conformance run --role {one.context.role}",
            )
        # Those that only wait for the target to settle are not worth keeping.
        asked = [each for each in conversations(one.episode) if each.asked and not each.note.get("settling")]
        if asked:
            found = True
            yield one.episode, asked, one.context
    if not found:
        if refused:
            raise refused[0]
        raise UsageError(f"there is no conversation in {path}", hint="was anything recorded?")


def _sent(
    engine: EngineThread,
    resolved: Resolved,
    version: str,
    wanted: list[Replay | UsageError],
    refused: list[UsageError],
) -> Iterator[tuple[Replay, Replayed]]:
    """Those that can be sent, and what came of them; why the others can't is added to `refused`. Raises `UsageError` if
    none can."""
    from conformance.errors import UsageError
    from conformance.requirements.catalogue import Catalogue
    from conformance.run.epp.replay import check_secrets, send_again
    from conformance.run.epp.runner import EppRunner

    catalogue = Catalogue.load()
    lane = EppRunner(resolved.profile, version, dict(resolved.values), seed=0, lag=engine.lag, status=lambda _: None)
    ready: list[Replay] = []
    for one in wanted:
        try:
            if isinstance(one, UsageError):
                raise one
            check_secrets(one, lane)
            ready.append(one)
        except UsageError as problem:
            refused.append(problem)
    sent = False
    if ready:
        engine.call(lane.__aenter__())
    try:
        for one in ready:
            try:
                yield one, engine.call(send_again(one, lane, catalogue))
                sent = True
            except UsageError as problem:
                refused.append(problem)
    finally:
        engine.call(lane.close())
    if not sent:
        raise refused[0]
