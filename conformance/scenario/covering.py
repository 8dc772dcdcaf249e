"""Covering arrays: rows of a matrix so few that they can be run, in which any two values still meet.

A rule that an endpoint picker breaks on one path only (chat requests that stream, say) is found if the scenario is run
for every kind of request; most such paths depend on one or two properties of the request. So for every two variables
each pair of their values stands in at least one row, as in the combinatorial testing of D. R. Kuhn and others (NIST
SP 800-142).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = tuple[int, ...]
"""A row of the matrix: for each variable the index of its value."""


def covering(
    matrix: Mapping[str, Sequence[Any]], allowed: Callable[[Mapping[str, Any]], bool], strength: int
) -> list[dict[str, Any]]:
    """Rows of `matrix` that are `allowed`, and cover all values of any `strength` variables that some allowed row has.

    With a strength of 2 each two values of two variables meet in a row, with 1 each value is in one. Greedy and without
    chance: in each step the row that covers most of what is left, the first of several. The same matrix gives the same
    rows in the same order.
    """
    names = list(matrix)
    rows: dict[Row, int] = {}
    bits: dict[tuple[tuple[int, int], ...], int] = {}
    for row in itertools.product(*(range(len(values)) for values in matrix.values())):
        if allowed({name: matrix[name][index] for name, index in zip(names, row, strict=True)}):
            meetings = itertools.combinations(enumerate(row), min(strength, len(row)))
            rows[row] = sum(1 << bits.setdefault(one, len(bits)) for one in meetings)
    left = (1 << len(bits)) - 1
    chosen: list[Row] = []
    queue = [(-meetings.bit_count(), place, row) for place, (row, meetings) in enumerate(rows.items())]
    heapq.heapify(queue)
    while left:  # what a row covers of what is left only becomes less: the first that is up to date is the best
        covered, place, row = queue[0]
        now = -(rows[row] & left).bit_count()
        if now != covered:
            heapq.heapreplace(queue, (now, place, row))
            continue
        chosen.append(row)
        left &= ~rows[row]
    return [{name: matrix[name][index] for name, index in zip(names, row, strict=True)} for row in chosen]
