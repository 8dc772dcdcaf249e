"""Covering arrays: rows of a matrix so few that they can be run, in which any two values still meet.

A rule that an endpoint picker breaks on one path only (chat requests that stream, say) is found if the scenario is run
for every kind of request; most such paths depend on one or two properties of the request. So for every two variables
each pair of their values stands in at least one row, as in the combinatorial testing of D. R. Kuhn and others (NIST
SP 800-142).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

Row = tuple[int, ...]
"""A row of the matrix: for each variable the index of its value."""


def left_of(matrix: Mapping[str, Sequence[Any]], without: Sequence[Mapping[str, Sequence[Any]]]) -> list[Row]:
    """The rows of `matrix` that no combination in `without` rules out, in the order of their values."""
    ruled_out: set[Row] = set()
    for one in without:
        if one.keys() <= matrix.keys():
            places = [
                [index for index, value in enumerate(values) if name not in one or value in one[name]]
                for name, values in matrix.items()
            ]
            ruled_out.update(itertools.product(*places))
    every = itertools.product(*(range(len(values)) for values in matrix.values()))
    return [row for row in every if row not in ruled_out]


def covering(rows: Sequence[Row], strength: int) -> list[Row]:
    """Some of `rows`, which cover all values of any `strength` variables that one of them has.

    With a strength of 2 each two values of two variables meet in a row, with 1 each value is in one. Greedy and without
    chance: in each step the row that covers most of what is left, the first of several. The same rows give the same
    ones in the same order.
    """
    bits: dict[tuple[tuple[int, int], ...], int] = {}
    meetings: list[int] = []
    for row in rows:
        met = 0
        for one in itertools.combinations(enumerate(row), min(strength, len(row))):
            met |= bits.get(one) or bits.setdefault(one, 1 << len(bits))
        meetings.append(met)
    left = (1 << len(bits)) - 1
    chosen: list[Row] = []
    queue = [(-met.bit_count(), place) for place, met in enumerate(meetings)]
    heapq.heapify(queue)
    while left:  # what a row covers of what is left only becomes less: the first that is up to date is the best
        covered, place = queue[0]
        now = -(meetings[place] & left).bit_count()
        if now != covered:
            heapq.heapreplace(queue, (now, place))
            continue
        chosen.append(rows[place])
        left &= ~meetings[place]
    return chosen
