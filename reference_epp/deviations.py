"""The registry of faults, which break one rule each, and of conforming variants, which keep all rules in another way.

Each is one subclass, or a few, of the parts in `server.Parts`, under a decorator that names it. What a fault breaks is
declared by hand, by the requirement's id, before it first runs. Importing `reference_epp.faults` and
`reference_epp.variants` fills the registry; this module imports neither.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import Any, Literal, TypeVar

ALL = ("0.2.0", "0.3.0", "0.4.0", "1.0.0", "next")
WITH_SUBSET = ALL[1:]
WITH_LISTS = ALL[2:]
WITH_MODELS = ("0.3.0", "0.4.0")
WITHOUT_MODELS = ("0.2.0", "1.0.0", "next")
WITH_SERVED = ("1.0.0", "next")
NEXT = ("next",)

Mode = Literal["none", "streamed", "buffered", "full-duplex"]
ANY: tuple[Mode, ...] = ("none", "streamed", "buffered", "full-duplex")
FULL_DUPLEX: tuple[Mode, ...] = ("full-duplex",)
BUFFERED: tuple[Mode, ...] = ("buffered",)
STREAMED: tuple[Mode, ...] = ("streamed",)

SILENT = {"ENV-16": "the stream falls silent"}
ENDED = {"ENV-16": "the stream ends where an answer is due"}
DEAD = {"ENV-27": "the process is gone"}
NOT_STEERED = {
    "EPP-DEST-01": "such a request goes on without the header",
    "EPP-DEST-02": "such a request goes on without the metadata",
}

_DEVIATING = ("reference_epp.faults", "reference_epp.variants")

C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True)
class Deviation:
    """An EPP that differs in one thing from the reference EPP. As a decorator it registers the class that does so."""

    name: str
    _: KW_ONLY
    why: str
    """What it does; of a variant also why that is right."""
    versions: tuple[str, ...] = ALL
    """The protocol versions in which it differs."""
    modes: tuple[Mode, ...] = ANY
    """The body modes in which it differs."""
    claims: Mapping[str, bool] = field(default_factory=dict)
    """What it claims otherwise than the correct EPP: `queues`."""
    noted: Mapping[str, str] = field(default_factory=dict)
    """What must be recorded of it, by requirement that only informs: words of the record."""
    classes: list[type] = field(default_factory=list)

    @property
    def overrides(self) -> frozenset[str]:
        """What its classes define that the EPP's part has, or does not have: `Picker.rank`."""
        found = set()
        for cls in self.classes:
            own = [one for one in cls.__mro__ if one.__module__.startswith(_DEVIATING)]
            part = next(one for one in cls.__mro__ if one not in own)
            names = {name for one in own for name in vars(one) if name == "__init__" or not name.startswith("__")}
            found |= {f"{part.__name__}.{name}" for name in names}
        return frozenset(found)

    def __call__(self, cls: C) -> C:
        """Register `cls` under this name."""
        known: dict[str, Any] = FAULTS if isinstance(self, Fault) else VARIANTS
        if known.setdefault(self.name, self) is not self:
            raise ValueError(f"two deviations are named {self.name}")
        self.classes.append(cls)
        return cls


@dataclass(frozen=True, slots=True)
class Variant(Deviation):
    """A conforming variant: an EPP that is right in another way."""

    _: KW_ONLY
    limits: bool = False
    """`modes` are the only ones that it supports."""
    without: tuple[str, ...] = ()
    """What the correct EPP claims and this one can't: `sheds`, `fallbackLists`."""


@dataclass(frozen=True, slots=True)
class Fault(Deviation):
    """An EPP with one mistake. `breaks` is the requirement that it is for, `also_breaks` others, with the reason."""

    _: KW_ONLY
    breaks: str
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    effect: Literal["fail", "warn"] = "fail"
    """What it deserves."""


FAULTS: dict[str, Fault] = {}
VARIANTS: dict[str, Variant] = {}

fault, variant = Fault, Variant


def part_of(name: str) -> Callable[[C], C]:
    """Register the decorated class as another part of the fault or variant `name`, which is declared before it."""

    def add(cls: C) -> C:
        (FAULTS if name in FAULTS else VARIANTS)[name].classes.append(cls)
        return cls

    return add


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


D = TypeVar("D", bound=Deviation)


def _named(kind: str, name: str, known: Mapping[str, D]) -> D:
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"--list-{kind}s names them all"
    raise DeviationError(f"no {kind} is named {name!r}; {hint}")


def describe_all(what: str) -> list[dict[str, Any]]:
    """All `faults` or all `variants` as JSON objects, sorted by module and place."""
    known: Mapping[str, Fault | Variant] = FAULTS if what == "faults" else VARIANTS
    return [
        {item.name: getattr(one, item.name) for item in fields(one) if item.name != "classes"}
        | {"overrides": sorted(one.overrides)}
        for one in known.values()
    ]
