"""Whether an exchange carried the subset hint of its scenario, and no other: picks are judged by it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from google.protobuf.message import DecodeError

from conformance.report.verify.steps import short
from conformance.scenario import references
from conformance.scenario.schema import Exchange
from ext_proc.headers import plain
from ext_proc.messages import ProcessingRequest
from ext_proc.protocol import SUBSET
from ext_proc.record import Author, Entry, Message

ANY = "\0\0"
"""Begins an endpoint that only the run knew: that of a pod that is in no state of the pool, or of none. Two characters,
so that one is left where a reference leaves out the first (`{nobody.late-address}`)."""

_KEY = SUBSET.encode()

Hints: TypeAlias = dict[str, Any]
"""By metadata namespace."""


def problems(
    exchange: Exchange, repeat: int, entries: Sequence[Entry], endpoints: Mapping[str, tuple[str, ...]], namespace: str
) -> Iterator[str]:
    """What speaks against the hints in the `entries` of the so many'th `repeat` of `exchange`, whose references stand
    for `endpoints`. `namespace` is where hints are if the scenario does not say it."""
    wanted = references.resolve(_wanted(exchange, repeat, namespace), endpoints)
    asked = [
        one.event.raw for one in entries if isinstance(one.event, Message) and one.event.author is Author.DATA_PLANE
    ]
    found = [*_found(asked)]
    for hints in found:
        if not same(hints, wanted, filler=exchange.hint_filler):
            yield f"its evidence has the subset hint {short(hints)}, its scenario {short(wanted or 'none')}"
            return
    if asked and wanted and not found and exchange.hint_on != "body":
        yield f"its evidence has no subset hint, its scenario {short(wanted)}"


def _wanted(exchange: Exchange, repeat: int, namespace: str) -> Hints:
    if exchange.metadata_context == "absent":
        return {}
    hints: Hints = {name: values[SUBSET] for name, values in exchange.metadata.items() if SUBSET in values}
    name = exchange.hint_namespace or namespace
    if exchange.subsets:
        hints[name] = [*exchange.subsets[repeat % len(exchange.subsets)]]
    elif exchange.subset is not None:
        hints[name] = [*exchange.subset]
    elif "hint" in exchange.model_fields_set:
        hints[name] = exchange.hint
    return hints


def _found(asked: Sequence[bytes]) -> Iterator[Hints]:
    """The hints of each message that carries any."""
    for raw in asked:
        if _KEY not in raw:
            continue
        try:
            metadata = ProcessingRequest.FromString(raw).metadata_context.filter_metadata
        except DecodeError:  # a scenario may have sent what is none
            continue
        hints = {name: plain(one.fields[SUBSET]) for name, one in metadata.items() if SUBSET in one.fields}
        if hints:
            yield hints


def same(found: Any, wanted: Any, *, filler: int = 0) -> bool:
    """Whether what the evidence has is what the scenario wants, where that is known. Lists may begin with `filler`
    items more."""
    match wanted:
        case Mapping():
            return (
                isinstance(found, Mapping)
                and found.keys() == wanted.keys()
                and all(same(found[name], value, filler=filler) for name, value in wanted.items())
            )
        case list() | tuple():
            return (
                isinstance(found, list | tuple)
                and len(found) == filler + len(wanted)
                and all(map(same, found[filler:], wanted))
            )
        case str() if ANY[0] in wanted:
            return isinstance(found, str)
        case _:
            return bool(found == wanted)
