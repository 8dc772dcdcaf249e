"""`epp-conformance scenario from FILE`: recorded conversations as a scenario file."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from conformance.printable import plural

if TYPE_CHECKING:
    from conformance.reading.conversation import Conversation
    from conformance.reading.recorded import Recorded

_REQUIREMENT = "EPP-DEST-01"
"""What a conversation is about that breaks no rule: that it gets an endpoint, or none, in the protocol's way."""


@dataclasses.dataclass(slots=True)
class _Made:
    """A scenario, and what of the record it does not say."""

    scenario: dict[str, Any]
    unsaid: list[str]
    of: list[str]


def from_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `tap --record` wrote, or a report's folder.")],
    exchange: Annotated[
        list[str] | None, typer.Option("--exchange", metavar="NAME", help="Only these conversations. Repeatable.")
    ] = None,
    requirement: Annotated[
        list[str] | None,
        typer.Option("--requirement", metavar="ID", help="Only those that break one of these rules. Repeatable."),
    ] = None,
    section: Annotated[str, typer.Option("--section", metavar="NAME", help="The section of their ids.")] = "recorded",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The scenario file to write.")] = Path(
        "recorded.yaml"
    ),
) -> None:
    """Turn recorded conversations with an endpoint picker into scenarios: an existing file is kept.

    Requests that are alike become one scenario. What a scenario can't say, or the record does not have, is said in
    comments.
    """
    from conformance.cli.console import err
    from conformance.cli.replay import nothing_chosen
    from conformance.errors import UnknownNameError, UsageError
    from conformance.requirements.catalogue import Catalogue
    from conformance.scenario.loader import load
    from conformance.strict_yaml import MAX_BYTES

    catalogue = Catalogue.load()
    rules = {catalogue.get(name).id for name in requirement or ()}
    made, names = _scenarios(file, exchange or [], rules, section, catalogue)
    for name in exchange or ():
        if name not in names:
            raise UnknownNameError("conversation", name, names)
    if not made:
        raise nothing_chosen(file, rules)
    text = "".join(_text(file, section, made))
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(
            f"{file} makes {plural(len(made), 'scenario')}, more than the {MAX_BYTES // 1024} KiB that a file may have",
            hint="choose conversations with --exchange",
        )
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("x", encoding="utf-8") as opened:
            opened.write(text)
    except OSError as problem:
        raise UsageError(f"{output} can't be written: {problem.strerror}", hint="give another with --output") from None
    try:
        load(catalogue, [output])
    except UsageError:
        output.unlink()
        raise
    for one in made:
        for what in one.unsaid:
            err().print(f"{one.scenario['id']}: not said: {what}")
    command = f"epp-conformance run --scenarios {shlex.quote(str(output))} -k '{section}.*'"
    typer.echo(
        f"wrote {plural(len(made), 'scenario')} to {output}; run {'it' if len(made) == 1 else 'them'}: {command}"
    )


def _scenarios(
    file: Path, wanted: list[str], rules: set[str], section: str, catalogue: Any
) -> tuple[list[_Made], list[str]]:
    from conformance.cli.replay import recorded_conversations
    from conformance.reading.recorded import recorded_exchange
    from conformance.run.epp.replay import broken_rules

    made: dict[str, _Made] = {}
    names: list[str] = []
    for episode, conversations, context in recorded_conversations(file):
        names += [one.exchange for one in conversations]
        chosen = [one for one in conversations if not wanted or one.exchange in wanted]
        breaks = broken_rules(episode, context, catalogue) if chosen else {}
        for one in chosen:
            broken = [rule for rule in breaks.get(one.exchange, ()) if not rules or rule in rules]
            if rules and not broken:
                continue
            recorded = recorded_exchange(episode, one, subset_namespace=context.subset_namespace)
            key = json.dumps([recorded.exchange, recorded.pool], sort_keys=True)
            if key in made:
                made[key].of.append(one.exchange)
                continue
            name = f"{section}.{len(made) + 1}"
            scenario = _scenario(name, one, recorded, broken)
            made[key] = _Made(scenario, list(_unsaid(recorded)), [one.exchange])
    return list(made.values()), names


def _scenario(name: str, conversation: Conversation, recorded: Recorded, broken: list[str]) -> dict[str, Any]:
    exchange = recorded.exchange
    step: dict[str, Any] = {"exchange": dict(exchange)}
    response = conversation.client_response
    if not broken and response is not None and response[1].status is not None:
        step["expect"] = {"status": response[1].status}
    usual = recorded.pool == {"pods": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
    return {
        "id": name,
        "title": f"{exchange.get('method', 'POST')} {exchange.get('path', '')} as it was recorded",
        "requirements": broken or [_REQUIREMENT],
        **({} if usual else {"pool": dict(recorded.pool)}),
        "steps": [step],
    }


def _unsaid(recorded: Recorded) -> Iterator[str]:
    yield from recorded.unsaid
    yield from (f"{what}, which the record does not have" for what in recorded.missing)
    for name in recorded.secret:
        yield f"the header {name}, whose value was redacted: the profile's `headers` can have it"


def _text(file: Path, section: str, made: list[_Made]) -> Iterator[str]:
    from conformance.printable import printable
    from conformance.strict_yaml import dump

    yield f"# Written by `epp-conformance scenario from` of {printable(file.name)}. Change it as you like.\n"
    yield dump({"section": section}) + "scenarios:\n"
    for one in made:
        more = f" and {len(one.of) - 1} alike" if len(one.of) > 1 else ""
        yield f"  # {printable(one.of[0])}{more}\n"
        yield from (f"  # not said: {printable(what)}\n" for what in one.unsaid)
        lines = dump([_plain(one.scenario)]).splitlines()
        yield "".join(f"  {line}\n" if line else "\n" for line in lines)


def _plain(value: Any) -> Any:
    """Plain data, as YAML is written of it."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
