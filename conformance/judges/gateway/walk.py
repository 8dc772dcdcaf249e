"""A list of endpoints as a data plane walks it: which attempts it allows, and what is owed after a failed one.

What the protocol leaves open is allowed either way. "Valid" is not defined: an item that is an endpoint of the pool,
spelled as the grammar has it, surely is; one with blanks around it, in another spelling, or of no pool may be.
What happens when the list is used up is not defined.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from conformance.reading.endpoints import parse_list


class Sort(Enum):
    """What becomes of an item when its turn comes."""

    SURE = "it is an endpoint that takes requests"
    FAILING = "nothing listens there, or its requests fail: it is tried, or left out as one that failed before"
    MAYBE = "it may be taken as valid or not"
    INVALID = "it is no endpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedItem:
    """One item of the list: `endpoint` in its one spelling, empty if it is none."""

    text: str
    endpoint: str
    sort: Sort


def walked(text: str, known: Collection[str], conduct: Callable[[str], str]) -> tuple[WalkedItem, ...]:
    """The items of a destination list. `known` are the endpoints of the pool; empty: any well-formed item is one."""
    return tuple(
        WalkedItem(text=item.text, endpoint=item.canonical or "", sort=_sort(item.text, item.canonical, known, conduct))
        for item in parse_list(text).items
    )


def _sort(text: str, endpoint: str | None, known: Collection[str], conduct: Callable[[str], str]) -> Sort:
    if endpoint is None:
        return Sort.INVALID
    if text != endpoint or (known and endpoint not in known):
        return Sort.MAYBE
    return Sort.SURE if conduct(endpoint) == "serves" else Sort.FAILING


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """The attempt that is due: where it may go, and how many failed ones a walk may need to get there.

    `endpoint` is where it must arrive in the end; None if the list has no more to demand. `allowed` are all endpoints
    that may be tried on the way.
    """

    endpoint: str | None
    allowed: frozenset[str]
    cost: int


def due(items: Sequence[WalkedItem], start: int = 0) -> Due:
    """What is due from item number `start` on."""
    allowed: set[str] = set()
    cost = 0
    for item in items[start:]:
        if item.endpoint:
            allowed.add(item.endpoint)
        if item.sort is Sort.SURE:
            return Due(endpoint=item.endpoint, allowed=frozenset(allowed), cost=cost)
        cost += item.sort is not Sort.INVALID
    return Due(endpoint=None, allowed=frozenset(allowed), cost=cost)


def without(items: Sequence[WalkedItem], endpoint: str, start: int) -> tuple[WalkedItem, ...]:
    """The items, of which those from number `start` on that are `endpoint` need not be tried: it has failed."""
    return tuple(
        replace(item, sort=Sort.FAILING) if number >= start and item.endpoint == endpoint else item
        for number, item in enumerate(items)
    )


def position(items: Sequence[WalkedItem], endpoint: str, start: int) -> int:
    """The number of the item that `endpoint` is, from `start` on."""
    return next(number for number, item in enumerate(items) if number >= start and item.endpoint == endpoint)
