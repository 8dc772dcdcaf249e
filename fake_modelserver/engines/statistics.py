"""What a rank has counted since it started: counters and histograms, by what they count."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping


class Histogram:
    """Observations by bucket: `counts[i]` are those up to `bounds[i]` and above the bound before, the last the rest."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """How many observations there were."""
        return sum(self.counts)

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Statistics:
    """Counters and histograms of one rank, all at zero to begin with.

    `bounds` gives the bounds of every histogram that a statistic has: engines show one in several families.
    """

    def __init__(self, bounds: Mapping[str, frozenset[tuple[float, ...]]] | None = None) -> None:
        self.version = 0
        """Rises with every change."""
        self._bounds = bounds or {}
        self._counters: dict[tuple[str, str], float] = {}
        self._histograms: dict[tuple[str, tuple[float, ...]], Histogram] = {}

    def add(self, statistic: str, amount: float = 1, *, label: str = "") -> None:
        """Raise a counter."""
        self.version += 1
        key = (statistic, label)
        self._counters[key] = self._counters.get(key, 0) + amount

    def observe(self, statistic: str, value: float) -> None:
        """Observe `value` in every histogram of `statistic`."""
        self.version += 1
        for bounds in self._bounds.get(statistic, ()):
            self.histogram(statistic, bounds).observe(value)

    def counter(self, statistic: str, label: str = "") -> float:
        """The value of a counter."""
        return self._counters.get((statistic, label), 0)

    def histogram(self, statistic: str, bounds: tuple[float, ...]) -> Histogram:
        """The histogram of `statistic` with those bounds."""
        found = self._histograms.get((statistic, bounds))
        if found is None:
            found = self._histograms[statistic, bounds] = Histogram(bounds)
        return found
