"""How long things took, in HdrHistograms, counted from when each request was due: a stall is not left out of them.

The generator's own lateness is measured beside, so that a slow harness is not read as a slow EPP.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.errors import UsageError

PICK, FIRST_BYTE, LATENESS = "timeToPick", "addedTimeToFirstByte", "lateness"
"""From due to decided; from due to the client's first byte, without the model server's time; from due to begun."""

PERCENTILES = (50.0, 90.0, 99.0, 99.9)
_HIGHEST = 3_600_000_000  # an hour, in µs


class Figures:
    """Times of a load in µs, by name. `add` is cheap; `fold` puts what was added into the histograms."""

    def __init__(self) -> None:
        try:
            from hdrh.histogram import HdrHistogram
        except ImportError as problem:
            raise UsageError(
                "load measures with HdrHistograms, which are not installed", hint="pip install 'epp-conformance[load]'"
            ) from problem
        names = (PICK, FIRST_BYTE, LATENESS)
        self._histograms: dict[str, Any] = {name: HdrHistogram(1, _HIGHEST, 3) for name in names}
        self._latest: Any = HdrHistogram(1, _HIGHEST, 3)  # used again and again: each has 200 kB, in a circle
        self._added = {name: array("d") for name in names}

    def add(self, name: str, seconds: float) -> None:
        """Count a time."""
        self._added[name].append(seconds)

    def include(self, times: Mapping[str, array[float]]) -> None:
        """Count the times of others, in seconds."""
        for name, own in times.items():
            self._added[name].extend(own)

    def fold(self) -> Mapping[str, Mapping[str, float]]:
        """Put what was added into the histograms; what it came to alone, in milliseconds."""
        latest = {}
        for name, added in self._added.items():
            histogram = self._latest
            histogram.reset()
            for seconds in added:
                histogram.record_value(min(_HIGHEST, max(1, round(seconds * 1e6))))
            del added[:]
            self._histograms[name].add(histogram)
            latest[name] = _summary(histogram)
        return latest

    def summary(self) -> Mapping[str, Mapping[str, float]]:
        """Everything until now, in milliseconds."""
        self.fold()
        return {name: _summary(histogram) for name, histogram in self._histograms.items()}

    def buckets(self, bounds: Sequence[float]) -> Mapping[str, tuple[Mapping[float, int], int, float]]:
        """By name: how many times were at most each of `bounds` (seconds, rising), how many in all, and their sum."""
        self.fold()
        return {name: _buckets(histogram, bounds) for name, histogram in self._histograms.items()}

    def encoded(self) -> Mapping[str, str]:
        """The histograms in µs in HdrHistogram's own compressed form, to be merged and drawn elsewhere."""
        self.fold()
        return {name: histogram.encode().decode() for name, histogram in self._histograms.items()}


class KeptTimes(Figures):
    """Times that another process puts into its histograms, which takes long: `taken` gives them."""

    def fold(self) -> Mapping[str, Mapping[str, float]]:
        """Nothing is put into histograms here."""
        return {}

    def taken(self) -> Mapping[str, array[float]]:
        """What was added since the last call, in seconds."""
        taken, self._added = self._added, {name: array("d") for name in self._added}
        return taken


def curve(encoded: str) -> Iterator[tuple[float, float]]:
    """Milliseconds by percentile, of a histogram as `encoded` gives it. A percentile is its number of nines (90 is 1,
    99 is 2), in tenths up to where the histogram has an exchange for it."""
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram.decode(encoded)
    total = histogram.get_total_count()
    for tenths in range(41):
        nines = tenths / 10
        if total and 10**nines <= total:
            yield nines, histogram.get_value_at_percentile(100 * (1 - 10**-nines)) / 1000


def _buckets(histogram: Any, bounds: Sequence[float]) -> tuple[Mapping[float, int], int, float]:
    counts = dict.fromkeys(bounds, 0)
    total, seconds = 0, 0.0
    for one in histogram.get_recorded_iterator():
        value = one.value_iterated_to / 1e6
        total += one.count_added_in_this_iter_step
        seconds += value * one.count_added_in_this_iter_step
        for bound in bounds:
            if value <= bound:
                counts[bound] += one.count_added_in_this_iter_step
    return counts, total, seconds


def _summary(histogram: Any) -> Mapping[str, float]:
    if not histogram.get_total_count():
        return {"count": 0}
    values = {f"p{one:g}": histogram.get_value_at_percentile(one) / 1000 for one in PERCENTILES}
    return {"count": histogram.get_total_count(), **values, "max": histogram.get_max_value() / 1000}
