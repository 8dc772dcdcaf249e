"""Curve charts as SVG, drawn here and not by a script, so that a page shows and prints them without one.

Colours come from the page's style sheet. Lines differ in their dashes too, so that colour carries no meaning alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

from conformance.printable import printable

WIDE, HIGH = 960, 240
_SAID = 10
"""Bands that are said in words, too."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 34, 46, 44
_ROW = 18
"""The height of a row of the legend; `_TOP` holds one."""
_NOTHING = 1e-9
"""Values up to it are drawn as zero."""
_STYLES = 6
"""Kinds of lines that the style sheet has."""

Point: TypeAlias = "tuple[float, float | None]"
"""Without a value, the line is interrupted there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One line of a chart."""

    name: str
    points: Sequence[Point]


def chart(
    title: str,
    lines: Sequence[Curve],
    *,
    unit: str,
    along: str = "seconds",
    log: bool = False,
    ticks: Sequence[tuple[float, str]] | None = None,
    last: float = 0.0,
    notes: Sequence[float] = (),
    bands: Sequence[tuple[float, float, str]] = (),
) -> str:
    """The chart, or nothing if no line has a point.

    `unit` is that of the values; with `log` they stand on a logarithmic scale. `along` says what the other axis is, and
    `ticks` are its places and their labels (default: round numbers). The axis goes on until `last` at least. `notes`
    are short strokes at the axis, `bands` are shaded from one place to another, each with its name.
    """
    values = [value for line in lines for _, value in line.points if value is not None]
    if not values:
        return ""
    right = max(last, *(x for line in lines for x, _ in line.points))
    right = right if right > _NOTHING else 1.0
    low, high = _decades(values) if log else (0.0, _round_up(max(values)))
    levels = [10.0**n for n in range(round(math.log10(low)), round(math.log10(high)) + 1)] if log else _steps(high)

    legend, rows = _legend([line.name for line in lines])
    top = _TOP + _ROW * (rows - 1)
    floor = top + HIGH - _TOP - _BOTTOM

    def across(x: float) -> float:
        return _LEFT + (WIDE - _LEFT - _RIGHT) * min(max(x / right, 0.0), 1.0)

    def up(value: float) -> float:
        share = math.log(max(value, low) / low) / math.log(high / low) if log else value / high
        return floor - (floor - top) * share

    drawn = [f'<text class="title" x="4" y="14">{_text(title)}</text>']
    drawn += [
        f'<rect class="band" x="{across(first):.1f}" y="{top}" width="{max(across(end) - across(first), 1):.1f}" '
        f'height="{floor - top}"><title>{_text(name)}</title></rect>'
        for first, end, name in bands
    ]
    drawn += [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDE - _RIGHT}" y1="{up(one):.1f}" y2="{up(one):.1f}"/>'
        f'<text class="end" x="{_LEFT - 6}" y="{up(one) + 4:.1f}">{one:,g}</text>'
        for one in levels
    ]
    drawn += [
        f'<line class="axis" x1="{across(x):.1f}" x2="{across(x):.1f}" y1="{floor}" y2="{floor + 4}"/>'
        f'<text class="middle" x="{across(x):.1f}" y="{floor + 28}">{_text(label)}</text>'
        for x, label in (ticks if ticks is not None else [(one, f"{one:,g}") for one in _steps(right) if one <= right])
    ]
    drawn += [f'<line class="change" x1="{x:.1f}" x2="{x:.1f}" y1="{floor + 5}" y2="{floor + 13}"/>'
              for x in sorted({round(across(one), 1) for one in notes})]  # fmt: skip
    for number, line in enumerate(lines):
        places = [(across(x), up(y) if y is not None else None) for x, y in line.points]
        drawn.append(f'<path class="line line-{number % _STYLES}" d="{_path(places)}"/>')
    drawn += legend
    bottom = floor + _BOTTOM
    drawn.append(f'<text class="end soft" x="{WIDE - _RIGHT}" y="{bottom - 4}">{_text(along)}</text>')
    drawn.append(f'<text class="soft" x="4" y="{bottom - 4}">{_text(unit)}</text>')
    said = f"{title}, {unit}: " + "; ".join(_said(line) for line in lines)
    said += "".join(f"; {name} from {first:,.4g} to {end:,.4g}" for first, end, name in bands[:_SAID])
    return (
        f'<svg class="chart" role="img" aria-label="{_text(said)}" viewBox="0 0 {WIDE} {bottom}">{"".join(drawn)}</svg>'
    )


def _legend(names: Sequence[str]) -> tuple[list[str], int]:
    """The legend, and in how many rows it stands."""
    drawn: list[str] = []
    x, row = float(_LEFT), 0
    for number, name in enumerate(names):
        width = 56 + 7 * len(name)
        if x + width > WIDE and x > _LEFT:
            x, row = float(_LEFT), row + 1
        y = 26 + _ROW * row
        drawn.append(
            f'<path class="line line-{number % _STYLES}" d="M{x:.0f} {y}h26"/>'
            f'<text x="{x + 32:.0f}" y="{y + 4}">{_text(name)}</text>'
        )
        x += width
    return drawn, row + 1


def _path(points: Iterable[tuple[float, float | None]]) -> str:
    """A path through the points; one alone is a dot (the line's ends are round)."""
    parts = []
    for there, run in itertools.groupby(points, key=lambda point: point[1] is not None):
        if there:
            own = [f"{x:.1f} {y:.1f}" for x, y in run]
            parts.append(f"M{own[0]}" + ("L" + " ".join(own[1:]) if len(own) > 1 else "h0"))
    return "".join(parts)


def _said(line: Curve) -> str:
    """A line in words, for those who don't see it."""
    values = [value for _, value in line.points if value is not None]
    return f"{line.name} {min(values):,.4g} to {max(values):,.4g}" if values else f"{line.name} none"


def _text(text: str) -> str:
    return escape(printable(text))


def _round_up(value: float) -> float:
    """The next round number."""
    if value <= _NOTHING:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(value))
    return next(one * scale for one in (1, 2, 4, 5, 8, 10) if one * scale >= value * (1 - 1e-9))


def _steps(high: float) -> list[float]:
    """Four to eight round places from 0 to `high`."""
    scale = 10.0 ** math.floor(math.log10(high / 4))
    step = next(one * scale for one in (1, 2, 2.5, 5, 10) if high / (one * scale) <= 8)
    return [round(number * step, 10) for number in range(int(high / step + 1e-9) + 1)]


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Powers of ten around the values; at most six."""
    high = 10.0 ** math.ceil(math.log10(max(*values, 1e-3)) + 1e-9)
    low = 10.0 ** math.floor(math.log10(max(min(values), 1e-3)))
    return max(min(low, high / 10), high / 1e6), high
