"""Faults in how the items of a subset are compared with the pool."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import ClassVar

from reference_epp.deviations import WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.picker import Picker, Request


class ComparesText(Picker):
    """Compares the text of an endpoint with each item of a subset."""

    fits: ClassVar[Callable[[str, str], bool]]

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is None:
            return super().eligible(request)
        items = [item.text for item in request.subset]
        return [one for one in self.pool.endpoints if any(type(self).fits(one.text, item) for item in items)]


@fault(
    "subset-port-by-prefix",
    breaks="EPP-SUB-06",
    why="An item of the subset fits every endpoint whose text begins with it: port 800 allows port 8000.",
    also_breaks={
        "EPP-SUB-01": "the pick is outside the subset",
        "EPP-SUB-02": "an endpoint is given where none is left",
    },
    versions=WITH_SUBSET,
)
class SubsetPortByPrefix(ComparesText):
    fits = str.startswith


@fault(
    "subset-address-by-its-end",
    breaks="EPP-SUB-02",
    why="An item of the subset fits every endpoint whose text ends with it: 27.0.0.1:8000 allows 127.0.0.1:8000.",
    versions=WITH_SUBSET,
)
class SubsetAddressByItsEnd(ComparesText):
    fits = str.endswith


@fault(
    "ipv6-subset-opens-the-pool",
    breaks="EPP-SUB-07",
    why="A subset with an IPv6 endpoint is not understood and allows the whole pool, of which one is picked at random.",
    also_breaks={
        "EPP-SUB-01": "the pick is outside the subset",
        "EPP-SUB-02": "an endpoint is given where none is left",
    },
    versions=WITH_SUBSET,
)
class Ipv6SubsetOpensThePool(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        six = request.subset is not None and any(":" in item.ip for item in request.subset)
        return self.pool.endpoints if six else super().eligible(request)

    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        return random.sample(list(candidates), len(candidates))
