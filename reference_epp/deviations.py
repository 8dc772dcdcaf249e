"""The registry of faults, which break one rule each, and of conforming variants, which keep all rules in another way.

Each is one subclass, or a few, of the parts in `server.Parts`, under a decorator that names it. What a fault breaks is
declared by hand, by the requirement's id, before it first runs. Importing `reference_epp.faults` and
`reference_epp.variants` fills the registry; this module imports neither.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

ALL = ("0.2.0", "0.3.0", "0.4.0", "1.0.0", "next")
WITH_SUBSET = ALL[1:]
WITH_LISTS = ALL[2:]
WITH_MODELS = ("0.3.0", "0.4.0")
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

C = TypeVar("C", bound=type)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A conforming variant: an EPP that is right in another way. `why` says what it does and why that is right."""

    name: str
    why: str
    versions: tuple[str, ...] = ALL
    modes: tuple[Mode, ...] = ANY
    """The body modes in which it differs from the reference EPP; or, if `limits`, the only ones that it supports."""
    limits: bool = False
    without: tuple[str, ...] = ()
    """What the correct EPP claims and this one can't: `sheds`, `fallbackLists`."""
    claims: Mapping[str, bool] = field(default_factory=dict)
    """What this one claims otherwise: `queues`."""
    noted: Mapping[str, str] = field(default_factory=dict)
    """What must be recorded of it, by requirement that only informs: words of the record."""
    classes: tuple[type, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An EPP with one mistake. `breaks` is the requirement that it is for, `also_breaks` others, with the reason."""

    name: str
    breaks: str
    why: str
    also_breaks: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ALL
    """The protocol versions in which it breaks that requirement."""
    modes: tuple[Mode, ...] = ANY
    """The body modes in which it shows."""
    effect: Literal["fail", "warn"] = "fail"
    """What it deserves."""
    claims: Mapping[str, bool] = field(default_factory=dict)
    """As of a `Variant`."""
    noted: Mapping[str, str] = field(default_factory=dict)
    """As of a `Variant`."""
    classes: tuple[type, ...] = ()


FAULTS: dict[str, Fault] = {}
VARIANTS: dict[str, Variant] = {}


class UnknownDeviationError(Exception):
    """There is no fault or variant of that name; the message has the nearest one."""


def fault(
    name: str,
    *,
    breaks: str,
    why: str,
    also: Mapping[str, str] | None = None,
    versions: tuple[str, ...] = ALL,
    modes: tuple[Mode, ...] = ANY,
    effect: Literal["fail", "warn"] = "fail",
    claims: Mapping[str, bool] | None = None,
    noted: Mapping[str, str] | None = None,
) -> Callable[[C], C]:
    """Declare the decorated class a fault. Several classes under one name are declared by `part_of` after the first."""

    def declare(cls: C) -> C:
        if name in FAULTS:
            raise ValueError(f"two faults are named {name}")
        FAULTS[name] = Fault(
            name=name,
            breaks=breaks,
            why=why,
            also_breaks=dict(also or {}),
            versions=versions,
            modes=modes,
            effect=effect,
            claims=dict(claims or {}),
            noted=dict(noted or {}),
            classes=(cls,),
        )
        return cls

    return declare


def part_of(name: str) -> Callable[[C], C]:
    """Declare the decorated class another part of the fault `name`."""

    def declare(cls: C) -> C:
        FAULTS[name] = replace(FAULTS[name], classes=(*FAULTS[name].classes, cls))
        return cls

    return declare


def variant(
    name: str,
    *,
    why: str,
    versions: tuple[str, ...] = ALL,
    modes: tuple[Mode, ...] = ANY,
    limits: bool = False,
    without: tuple[str, ...] = (),
    claims: Mapping[str, bool] | None = None,
    noted: Mapping[str, str] | None = None,
) -> Callable[[C], C]:
    """Declare the decorated class a conforming variant."""

    def declare(cls: C) -> C:
        if name in VARIANTS:
            raise ValueError(f"two variants are named {name}")
        VARIANTS[name] = Variant(
            name=name,
            why=why,
            versions=versions,
            modes=modes,
            limits=limits,
            without=without,
            claims=dict(claims or {}),
            noted=dict(noted or {}),
            classes=(cls,),
        )
        return cls

    return declare


def find(fault_name: str | None, variant_name: str | None) -> Fault | Variant:
    """The fault or the variant of that name. Raises `UnknownDeviationError`."""
    kind, name, known = (
        ("fault", fault_name, FAULTS) if fault_name is not None else ("variant", variant_name or "", VARIANTS)
    )
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"--list-{kind}s names them all"
    raise UnknownDeviationError(f"no {kind} is named {name!r}; {hint}")


def describe_all(what: str) -> list[dict[str, Any]]:
    """All `faults` or all `variants` as JSON objects, sorted by module and place."""
    if what == "faults":
        return [
            {
                "name": item.name,
                "breaks": item.breaks,
                "also_breaks": dict(item.also_breaks),
                "why": item.why,
                "versions": list(item.versions),
                "modes": list(item.modes),
                "effect": item.effect,
                "claims": dict(item.claims),
                "noted": dict(item.noted),
            }
            for item in FAULTS.values()
        ]
    return [
        {
            "name": item.name,
            "why": item.why,
            "versions": list(item.versions),
            "modes": list(item.modes),
            "limits": item.limits,
            "without": list(item.without),
            "claims": dict(item.claims),
            "noted": dict(item.noted),
        }
        for item in VARIANTS.values()
    ]
