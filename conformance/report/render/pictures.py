"""Small pictures of the report's page: requirements by area and version with bars of their verdicts, and of an episode
the picks per pod, and its exchanges and waits on a line of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal, TypeAlias

from conformance.evidence.episode import Episode
from conformance.printable import printable
from conformance.report.document.rows import RequirementRow
from conformance.report.render.marks import WORD
from conformance.report.render.messages import fitting
from conformance.verdict import Result, Verdict
from ext_proc.record import UpstreamRequest, Wait

Glance: TypeAlias = "list[tuple[str, list[tuple[RequirementRow, ...]]]]"
"""Each area with its requirements in each version."""


def glance(rows: Iterable[RequirementRow], versions: Sequence[str]) -> Glance:
    """The requirements by area, in the order of the catalogue."""
    areas: dict[str, dict[str, list[RequirementRow]]] = {}
    for row in rows:
        areas.setdefault(row.area, {}).setdefault(row.version, []).append(row)
    return [(area, [tuple(own.get(version, ())) for version in versions]) for area, own in areas.items()]


def bar(rows: Sequence[RequirementRow], word: Mapping[Verdict | Result, str] = WORD) -> str:
    """A bar (SVG) whose parts are as long as verdicts are frequent."""
    counted = Counter(row.verdict for row in rows)
    parts, at = [], 0
    for verdict in Verdict:
        if counted[verdict]:
            parts.append(f'<rect class="v-{verdict.value}" x="{at}" y="0" width="{counted[verdict]}" height="1"/>')
            at += counted[verdict]
    said = ", ".join(f"{counted[one]} {word[one]}" for one in Verdict if counted[one])
    return (
        f'<svg class="bar" role="img" aria-label="{said}" viewBox="0 0 {at} 1" preserveAspectRatio="none">'
        f"{''.join(parts)}</svg>"
    )


# -- one episode -------------------------------------------------------------------------------------------------------

MOST = 16
"""Rows of a picture of an episode; of more, the last ones are left out, and that is said."""

WIDE, LINE, TITLE = 960, 20, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Something that lasted: milliseconds since the record began, and whether it is a wait that expired."""

    name: str
    start: float
    end: float
    kind: Literal["exchange", "met", "expired"]


def picks(episode: Episode) -> dict[str, int]:
    """How many requests went to each pod at the first attempt, which is where the target sent them."""
    return dict(Counter(one.endpoint for _, one in episode.of(UpstreamRequest) if one.attempt == 1).most_common())


def spans(episode: Episode) -> list[Span]:
    """The exchanges of an episode and its waits, in order of their beginning."""
    found = [
        Span(name=f"exchange {name}", start=entries[0].t / 1e6, end=entries[-1].t / 1e6, kind="exchange")
        for name, entries in episode.exchanges.items()
    ]
    for entry, wait in episode.of(Wait):
        end = entry.t / 1e6
        name = f"wait: {wait.what}"
        found.append(Span(name=name, start=max(0.0, end - wait.seconds * 1e3), end=end, kind=wait.outcome))
    return sorted(found, key=lambda one: (one.start, one.end))


def picks_svg(counted: Mapping[str, int]) -> str:
    """Bars: one pod each."""
    top = max(counted.values())
    rows = [(name, 0.0, number / top, "exchange", f" {number}") for name, number in counted.items()]
    return _bars("Picks per pod", rows)


def spans_svg(found: Sequence[Span]) -> str:
    """Exchanges and waits on a line of time."""
    first = min(one.start for one in found)
    whole = max(max(one.end for one in found) - first, 0.001)
    rows = [
        (one.name, (one.start - first) / whole, (one.end - one.start) / whole, one.kind, _lasted(one)) for one in found
    ]
    return _bars(f"Exchanges and waits over {whole:.1f} ms", rows)


def _lasted(one: Span) -> str:
    return f" {one.end - one.start:.1f} ms{' (expired)' if one.kind == 'expired' else ''}"


def _bars(title: str, rows: Sequence[tuple[str, float, float, str, str]]) -> str:
    """Rows of name, beginning and length (parts of the width), class, and what is written behind the bar."""
    room = WIDE - TITLE - 150
    drawn = []
    for number, (name, start, length, kind, said) in enumerate(rows[:MOST]):
        y, x, width = LINE * (number + 1), TITLE + start * room, max(2.0, length * room)
        drawn.append(
            f'<text x="4" y="{y + 12}">{escape(fitting(printable(name), 42))}</text>'
            f'<rect class="{kind}" x="{x:.1f}" y="{y + 3}" width="{width:.1f}" height="11"/>'
            f'<text class="number" x="{x + width + 2:.1f}" y="{y + 12}">{escape(printable(said))}</text>'
        )
    if more := len(rows) - MOST:
        drawn += [f'<text class="number" x="4" y="{LINE * (MOST + 1) + 12}">{more} more</text>'] if more > 0 else []
    height = LINE * (min(len(rows), MOST + 1) + 1)
    return (
        f'<svg class="sequence spans" role="img" aria-label="{escape(title)}" viewBox="0 0 {WIDE} {height}">'
        f'<text class="number" x="4" y="12">{escape(title)}</text>{"".join(drawn)}</svg>'
    )
