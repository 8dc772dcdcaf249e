"""The page of a pod: its families in order, for all of its ranks, with what does not change made once."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from fake_modelserver.engines.families import Family, Identity, Labels, line
from fake_modelserver.engines.generation import Generation
from fake_modelserver.engines.process import process
from fake_modelserver.engines.statistics import Statistics
from fake_modelserver.gauges import Decoy, Gauges
from fake_modelserver.lora import LoraForm

STARTED = time.time()
"""When this process started serving (Unix time, seconds): pods that were never restarted started then."""


@dataclass(slots=True, kw_only=True)
class Rank:
    """What one engine behind a page says at this instant. `updated`: when its gauges were set (Unix time, seconds).

    `touched`: something has been served or set; some engines show no series before.
    """

    number: int = 0
    gauges: Gauges = field(default_factory=Gauges)
    updated: float = 0.0
    statistics: Statistics = field(default_factory=Statistics)
    touched: bool = True


class Page:
    """Makes the page of one pod. `real`: all families of the release; else only those that the protocol names."""

    def __init__(
        self, generation: Generation, identity: Identity, *, real: bool = False, lora: LoraForm | None = None
    ) -> None:
        self.generation = generation
        self.identity = identity
        self.decoys: tuple[Decoy, ...] = ()
        self.started = STARTED
        self.lora = lora or generation.lora
        self._real = real
        self._counted: dict[tuple[int, bool], tuple[tuple[tuple[int, int], ...], bytes]] = {}

    def statistics(self) -> Statistics:
        """Statistics at zero, with the histograms that the page shows."""
        return Statistics(_bounds(self.generation.engine, self.generation.name, self.generation.families))

    def render(self, ranks: Sequence[Rank], *, openmetrics: bool = False) -> bytes:
        """The page that shows `ranks`."""
        parts = []
        for index, (moves, families) in enumerate(_runs(self.generation, self._real, self.started)):
            if moves:
                parts.append(self._text(families, ranks, openmetrics))
            else:
                parts.append(self._unchanged(index, families, ranks, openmetrics))
        if openmetrics:
            parts.append(b"# EOF\n")
        return b"".join(parts)

    def _unchanged(self, index: int, families: tuple[Family, ...], ranks: Sequence[Rank], openmetrics: bool) -> bytes:
        """A stretch of the page that no gauge is in: the same text until something is counted."""
        versions = tuple([(rank.number, rank.statistics.version) for rank in ranks])
        if any(version for _, version in versions):
            made, text = self._counted.get((index, openmetrics), ((), b""))
            if made != versions:
                text = self._text(families, ranks, openmetrics)
                self._counted[index, openmetrics] = (versions, text)
            return text
        generation = self.generation
        key = (
            generation.engine,
            generation.name,
            self._real,
            self.started,
            self.identity,
            versions,
            index,
            openmetrics,
        )
        if key not in _IDLE:
            if len(_IDLE) >= _MOST_IDLE:
                _IDLE.clear()
            _IDLE[key] = self._text(families, ranks, openmetrics)
        return _IDLE[key]

    def _text(self, families: tuple[Family, ...], ranks: Sequence[Rank], openmetrics: bool) -> bytes:
        lines = itertools.chain.from_iterable(self._family(family, ranks, openmetrics) for family in families)
        text = "\n".join(lines)
        return (text + "\n").encode() if text else b""

    def _family(self, family: Family, ranks: Sequence[Rank], openmetrics: bool) -> list[str]:
        touched = self.generation.touched
        shown = [rank for rank in ranks if rank.touched or not touched]
        lines: list[str] = []
        if family.meaning == "lora":
            if not any(rank.gauges.has_lora for rank in ranks):
                return []
            lines = self._lora(family, [rank for rank in shown if rank.touched])
        else:
            for rank in shown[:1] if family.process else shown:
                labels = self.generation.labels(self.identity, rank.number)
                if family.statistic:
                    lines += family.counted(rank.statistics, labels, touched=touched)
                elif family.meaning and self.decoys and not family.bare:
                    lines += self._among_decoys(family, rank, labels)
                else:
                    lines += family.samples(self.identity, rank.gauges, labels)
        if touched and not lines:
            return []
        lines[:0] = family.header(openmetrics=openmetrics)
        if self.generation.created and family.kind != "gauge" and family.statistic:
            lines += self._created(family, ranks)
        return lines

    def _created(self, family: Family, ranks: Sequence[Rank]) -> list[str]:
        created = replace(family, name=f"{family.name.removesuffix('_total')}_created", kind="gauge")
        if family.kind == "histogram":  # whose name may end in _total for all that
            created = replace(created, name=f"{family.name}_created")
        lines = created.header()
        key, values = family.label or ("", ("",))
        for rank in ranks[:1] if family.process else ranks:
            own = {} if family.bare else self.generation.labels(self.identity, rank.number)
            lines += [line(created.name, own | ({key: value} if key else {}), self.started) for value in values]
        return lines

    def _lora(self, family: Family, ranks: Sequence[Rank]) -> list[str]:
        if not ranks or self.lora is None:
            return []
        first = ranks[0]
        gauges, updated = first.gauges, first.updated
        if len(ranks) > 1:  # the server in front of the ranks shows what is in flight at any of them
            running = tuple(dict.fromkeys(name for rank in ranks for name in rank.gauges.running_loras))
            waiting = tuple(dict.fromkeys(name for rank in ranks for name in rank.gauges.waiting_loras))
            stale = tuple(one for one in gauges.stale_loras if (one.running, one.waiting) != (running, waiting))
            gauges = replace(gauges, running_loras=running, waiting_loras=waiting, stale_loras=stale)
            updated = max(rank.updated for rank in ranks)
        return [line(family.name, labels, value) for labels, value in self.lora.series(gauges, updated)]

    def _among_decoys(self, family: Family, rank: Rank, labels: Labels) -> list[str]:
        decoys = [decoy for decoy in self.decoys if family.meaning in decoy.families]
        own = labels | {decoy.label: decoy.own for decoy in decoys if decoy.own is not None}
        lines = {"before": list[str](), "after": list[str]()}
        for decoy in decoys:
            labelled = own | {decoy.label: decoy.value}
            lines[decoy.place] += family.samples(self.identity, decoy.gauges, labelled)
        return [*lines["before"], *family.samples(self.identity, rank.gauges, own), *lines["after"]]


_IDLE: dict[tuple[object, ...], bytes] = {}
"""Stretches in which nothing was counted yet: pods of one kind share them."""
_MOST_IDLE = 256


@functools.lru_cache(maxsize=256)
def _runs(generation: Generation, real: bool, started: float) -> tuple[tuple[bool, tuple[Family, ...]], ...]:
    """The families of a page in order, in stretches that do or do not hold gauges of load."""
    families = [one for one in generation.families if (one.minimal != "only" if real else one.minimal)]
    if real and generation.created:
        families[:0] = process(started)
    grouped = itertools.groupby(families, lambda one: one.gauge is not None or one.meaning == "lora")
    return tuple((moves, tuple(group)) for moves, group in grouped)


@functools.cache
def _bounds(_engine: str, _name: str, families: tuple[Family, ...]) -> dict[str, frozenset[tuple[float, ...]]]:
    found: dict[str, set[tuple[float, ...]]] = {}
    for family in families:
        if family.kind == "histogram":
            found.setdefault(family.statistic, set()).add(family.bounds)
    return {statistic: frozenset(bounds) for statistic, bounds in found.items()}
