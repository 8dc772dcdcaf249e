"""The registry of faults, which break one rule each, and of variants, which conform in another way.

A deviation is one row: its name, what it breaks, why, and the parts that it exchanges, made by
`changes` or written as classes under the row. What a fault breaks is declared by hand before it
first runs. Importing `reference_epp.faults` and `reference_epp.variants` fills the registry; this
module imports neither.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from reference_epp.changes import deviating, limited

ALL = ("0.2.0", "0.3.0", "0.4.0", "1.0.0", "next")
BEFORE_SUBSET = ALL[:1]
WITH_SUBSET = ALL[1:]
WITH_LISTS = ALL[2:]
WITH_FALLBACK = ("0.3.0",)
WITH_MODELS = ("0.3.0", "0.4.0")
WITHOUT_MODELS = ("0.2.0", "1.0.0", "next")
WITH_SERVED = ("1.0.0", "next")
NEXT = ("next",)

Mode = Literal["none", "streamed", "buffered", "full-duplex"]
ANY: tuple[Mode, ...] = ("none", "streamed", "buffered", "full-duplex")
FULL_DUPLEX: tuple[Mode, ...] = ("full-duplex",)
BUFFERED: tuple[Mode, ...] = ("buffered",)
STREAMED: tuple[Mode, ...] = ("streamed",)
WHOLE_BODY: tuple[Mode, ...] = ("full-duplex", "buffered")
"""Modes in which the body is there before the choice."""
PLAIN_BODY: tuple[Mode, ...] = ("streamed", "buffered")

SILENT = {"ENV-16": "the stream falls silent"}
ENDED = {"ENV-16": "the stream ends where an answer is due"}
DEAD = {"ENV-27": "the process is gone"}
NOT_STEERED = {
    "EPP-DEST-01": "such a request goes on without the header",
    "EPP-DEST-02": "such a request goes on without the metadata",
}

C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """An EPP that differs in one thing from the reference EPP. As a decorator it takes the class that does so."""

    name: str
    why: str
    """What it does; of a variant also why that is right."""
    breaks: str | None = None
    """The requirement that it is for; None for a variant."""
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    """Others that it can't help breaking, with the reason."""
    effect: Literal["fail", "warn"] = "fail"
    """What it deserves."""
    versions: tuple[str, ...] = ALL
    """The protocol versions in which it differs."""
    modes: tuple[Mode, ...] = ANY
    """The body modes in which it differs."""
    claims: Mapping[str, bool] = field(default_factory=dict)
    """What it claims otherwise than the correct EPP: `queues`."""
    without: tuple[str, ...] = ()
    """What the correct EPP claims and this one can't: `sheds`, `fallbackLists`."""
    limits: bool = False
    """`modes` are the only ones that it supports."""
    noted: Mapping[str, str] = field(default_factory=dict)
    """What must be recorded of it, by requirement that only informs: words of the record."""
    when: Callable[[Any], object] | None = None
    """Asked of the part; where it is not true, the part is the correct one."""
    classes: list[type] = field(default_factory=list)

    @property
    def overrides(self) -> frozenset[str]:
        """What its classes define that the EPP's part has, or does not have: `Picker.rank`."""
        return frozenset(
            f"{part.__name__}.{name}" for cls in self.classes for part, names in [deviating(cls)] for name in names
        )

    def __call__(self, cls: C) -> C:
        """Take `cls`, before the parts that the row gave."""
        self.classes.insert(0, cls if self.when is None else limited(cls, self.when))
        return cls

    def listed(self) -> dict[str, Any]:
        """It as `--list-faults` and `--list-variants` print it."""
        told = [item.name for item in fields(self) if item.name not in ("classes", "when")]
        return {name: getattr(self, name) for name in told} | {"overrides": sorted(self.overrides)}


FAULTS: dict[str, Deviation] = {}
VARIANTS: dict[str, Deviation] = {}


def fault(
    name: str, breaks: str, why: str, *parts: type, also: Mapping[str, str] | None = None, **declared: Any
) -> Deviation:
    """Declare an EPP with one mistake; the keywords are the fields of `Deviation`."""
    return _declare(FAULTS, parts, name=name, breaks=breaks, why=why, also_breaks=also or {}, **declared)


def variant(name: str, why: str, *parts: type, **declared: Any) -> Deviation:
    """Declare an EPP that is right in another way."""
    return _declare(VARIANTS, parts, name=name, why=why, **declared)


def _declare(known: dict[str, Deviation], parts: Sequence[type], **declared: Any) -> Deviation:
    made = Deviation(**declared)
    if known.setdefault(made.name, made) is not made:
        raise ValueError(f"two deviations are named {made.name}")
    for part in reversed(parts):
        made(part)
    return made


class DeviationError(Exception):
    """There is no fault or variant of that name; the message has the nearest one. Or two do not go together."""


def find(fault_name: str | None, variant_names: Sequence[str] = ()) -> tuple[type, ...]:
    """The classes of the fault, or of the variants, with these names.

    Raises `DeviationError`, also where two variants override the same: one would do without the other.
    """
    if fault_name is not None:
        return tuple(_named("fault", fault_name, FAULTS).classes)
    chosen = [_named("variant", name, VARIANTS) for name in variant_names]
    for number, one in enumerate(chosen):
        for other in chosen[:number]:
            if both := sorted(one.overrides & other.overrides):
                raise DeviationError(f"the variants {other.name!r} and {one.name!r} both change {both[0]}; give one")
    return tuple(cls for one in chosen for cls in one.classes)


def _named(kind: str, name: str, known: Mapping[str, Deviation]) -> Deviation:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"--list-{kind}s names them all"
    raise DeviationError(f"no {kind} is named {name!r}; {hint}")


def describe_all(what: str) -> list[dict[str, Any]]:
    """All `faults` or all `variants` as JSON objects, sorted by module and place."""
    return [one.listed() for one in (FAULTS if what == "faults" else VARIANTS).values()]
