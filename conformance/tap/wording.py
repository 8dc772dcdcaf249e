"""A finding on live traffic as text: what, where, expected, actual, and the conversation with the place marked."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator

from conformance.evidence.episode import Episode
from conformance.printable import printable
from conformance.report.render.marks import mark
from conformance.report.render.transcript import transcript
from conformance.requirements.catalogue import Catalogue
from conformance.verdict import Finding

WIDTH = 110
LINES = 12
"""Lines of a conversation that are shown."""

LABEL = 10


class Worth:
    """Which findings are worth printing: the first few of each requirement and verdict; the rest are counted."""

    def __init__(self, each: int = 3) -> None:
        self._each = each
        self._seen: Counter[tuple[str, str]] = Counter()

    def __call__(self, finding: Finding) -> bool:
        """Whether to print this one."""
        kind = (finding.requirement, finding.verdict.value)
        self._seen[kind] += 1
        return self._seen[kind] <= self._each

    def last(self, finding: Finding) -> bool:
        """Whether this was the last one that is printed of its kind."""
        return self._seen[finding.requirement, finding.verdict.value] == self._each


def finding_text(finding: Finding, episode: Episode, catalogue: Catalogue, *, note: str = "") -> str:
    """A finding in some lines, safe to print: control characters are escaped."""
    return "\n".join(printable(line) for line in _lines(finding, episode, catalogue, note))


def _lines(finding: Finding, episode: Episode, catalogue: Catalogue, note: str) -> Iterator[str]:
    requirement = catalogue.get(finding.requirement) if finding.requirement in catalogue else None
    title = f"  {requirement.title}" if requirement is not None else ""
    whose = "data plane, " if requirement is not None and requirement.role == "data-plane" else ""
    yield f"{mark(finding.verdict)}  {finding.requirement}{title}  ({whose}{episode.id})"
    for position, expected in enumerate(finding.expected):
        yield from _field("expected" if position == 0 else "or", expected)
    if finding.actual:
        yield from _field("actual", finding.actual)
    for position, line in enumerate(transcript(episode, finding.exchange, finding.seq, limit=LINES)):
        summary = f": {line.summary}" if line.summary else ""
        text = f"{'▶' if line.marked else ' '} {line.t:9.1f} ms  {line.who:11} {line.what}{summary}"
        yield f"  {'seen' if position == 0 else '':{LABEL}}{text if len(text) <= WIDTH else text[: WIDTH - 1] + '…'}"
    if finding.hint:
        yield from _field("hint", finding.hint)
    if note:
        yield from _field("note", note)


def _field(label: str, text: str) -> Iterator[str]:
    for position, line in enumerate(textwrap.wrap(text, WIDTH - LABEL, break_on_hyphens=False) or [""]):
        yield f"  {label if position == 0 else '':{LABEL}}{line}"
