"""Which failures come first, and which are most likely only consequences of another one.

For readers: it changes no verdict and no blocker. A failure is a consequence only if everything that was seen of it is
explained: the same answer was missing as in the cause, or the cause was seen in the same scenario, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from conformance.judges.epp.isolation import OF_ANOTHER
from conformance.outcome import ScenarioResult
from conformance.verdict import Finding

FIRST = (
    "ENV-27",
    "ENV-16",
    "ENV-21",
    "ENV-01",
    "ENV-03",
    "ENV-04",
    "ENV-05",
    "ENV-06",
    "ENV-07",
    "ENV-11",
    "ENV-12",
    "ENV-13",
    "ENV-14",
    "EPP-DEST-01",
    "EPP-DEST-02",
)
"""What must hold before anything else can: the process, then the stream, then what Envoy takes from an answer."""

Seen = tuple[ScenarioResult, Finding]
Explains = Callable[[str, str], bool]

_SILENT = re.compile(r"no answer to (\w+)|\w+ before (\w+)")
_REFUSED = "ImmediateResponse 503"
_OUTSIDE = re.compile(r" is not in the list \(subset hint \[")


def _missing(actual: str) -> str:
    found = _SILENT.match(actual)
    return (found[1] or found[2]) if found else ""


def _same_silence(cause: str, consequence: str) -> bool:
    """Both miss the answer to the same message."""
    return _missing(cause) != "" and _missing(cause) == _missing(consequence)


def _subset_ignored(cause: str, consequence: str) -> bool:
    """Both picked outside of the subset."""
    return bool(_OUTSIDE.search(cause) and _OUTSIDE.search(consequence))


def _mixed_up(cause: str, consequence: str) -> bool:
    """Streams share their subsets, and the consequence is a pick or a refusal that another subset gives."""
    return cause.endswith(OF_ANOTHER) and bool(_OUTSIDE.search(consequence) or consequence.startswith(_REFUSED))


def _client_got(_: str, consequence: str) -> bool:
    return consequence.startswith("the client got 5")


def _any(_: str, __: str) -> bool:
    return True


_ALIKE: tuple[tuple[str, str, Explains], ...] = (
    ("ENV-16 ENV-21 ENV-03 ENV-05", "ENV-06 ENV-07 ENV-16 ENV-21 ENV-23 EPP-SRVD-01 EPP-STRM-03", _same_silence),
    ("ENV-07", "EPP-SUB-02 EPP-SUB-03 EPP-SUB-10 EPP-ERR-02 ENV-19", _same_silence),
    ("EPP-SUB-01", "EPP-SUB-02 EPP-SUB-03 EPP-SUB-05 EPP-SUB-06 EPP-SUB-07 EPP-SUB-08 EPP-SUB-09", _subset_ignored),
    (
        "ENV-21",
        "EPP-SUB-01 EPP-SUB-02 EPP-SUB-03 EPP-SUB-05 EPP-SUB-06 EPP-SUB-07 EPP-SUB-08 EPP-SUB-09 EPP-ERR-02",
        _mixed_up,
    ),
)
"""Causes, consequences, and what both look like, in whatever scenario."""

_TOGETHER: tuple[tuple[str, str, Explains], ...] = (
    ("ENV-27", "ENV-16 ENV-21 ENV-24 ENV-26", _any),
    ("ENV-21", "ENV-22", _any),
    ("ENV-11 ENV-12 ENV-13", "EPP-DEST-01 EPP-DEST-05", _any),
    ("ENV-14", "EPP-DEST-02", _any),
    ("EPP-SUB-05 EPP-SUB-06 EPP-SUB-07", "EPP-SUB-08", _subset_ignored),
    ("ENV-01 ENV-03 ENV-04 ENV-05 ENV-08 ENV-11 ENV-12 ENV-13", "", _client_got),
)
"""Causes, consequences (none named: any), and what these look like, where both were seen in the same scenario."""


def order(requirement: str) -> int:
    """The place of a requirement among those that failed; those that are not named in `FIRST` come after them."""
    return FIRST.index(requirement) if requirement in FIRST else len(FIRST)


def explains(cause: str, causes: Sequence[Seen], consequence: str, seen: Iterable[Seen]) -> bool:
    """Whether all that was `seen` of the requirement `consequence` has its explanation in what was seen of `cause`."""
    found = list(seen)
    return bool(found) and all(_explained(cause, causes, consequence, *one) for one in found)


def _explained(cause: str, causes: Sequence[Seen], consequence: str, row: ScenarioResult, finding: Finding) -> bool:
    alike = any(
        ask(other.actual, finding.actual)
        for ask in _asked(_ALIKE, cause, consequence)
        for other in {one.actual: one for _, one in causes}.values()
    )
    return alike or any(
        ask(other.actual, finding.actual)
        for ask in _asked(_TOGETHER, cause, consequence)
        for where, other in causes
        if where.id == row.id
    )


def _asked(table: Iterable[tuple[str, str, Explains]], cause: str, consequence: str) -> Iterable[Explains]:
    if cause == consequence:
        return ()
    return (
        ask
        for causes, consequences, ask in table
        if cause in causes.split() and (not consequences or consequence in consequences.split())
    )
