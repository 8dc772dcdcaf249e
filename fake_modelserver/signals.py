"""Scripted values of a gauge: what it shows as time passes, instead of what requests make of it."""

from __future__ import annotations

import bisect
import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Signal(Protocol):
    """A value over time."""

    def at(self, seconds: float) -> float:
        """The value so many seconds after it was set."""

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value that it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """Always `value`."""

    value: float

    def at(self, seconds: float) -> float:  # noqa: ARG002 - as every signal
        """The value."""
        return self.value

    @property
    def range(self) -> tuple[float, float]:
        """The value, twice."""
        return self.value, self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """From `start` to `stop` in `seconds`; then it stays there, or with `repeat` begins again."""

    start: float
    stop: float
    seconds: float
    repeat: bool = False

    def __post_init__(self) -> None:
        _positive("seconds", self.seconds)

    def at(self, seconds: float) -> float:
        """The value so many seconds after it was set."""
        share = seconds / self.seconds
        share = share % 1 if self.repeat else min(share, 1.0)
        return self.start + (self.stop - self.start) * share

    @property
    def range(self) -> tuple[float, float]:
        """The lower and the higher end."""
        return min(self.start, self.stop), max(self.start, self.stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """`high` for the share `duty` of every `period` seconds, then `low`."""

    low: float
    high: float
    period: float
    duty: float = 0.5

    def __post_init__(self) -> None:
        _positive("period", self.period)
        if not 0 <= self.duty <= 1:
            raise ValueError(f"duty is {self.duty!r}; it is a share from 0 to 1")

    def at(self, seconds: float) -> float:
        """The value so many seconds after it was set."""
        return self.high if seconds % self.period < self.duty * self.period else self.low

    @property
    def range(self) -> tuple[float, float]:
        """The lower and the higher value."""
        return min(self.low, self.high), max(self.low, self.high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Recorded `points`, each seconds and the value from then on; with `repeat` again after the last one's time."""

    points: tuple[tuple[float, float], ...]
    repeat: bool = False

    def __post_init__(self) -> None:
        times = [seconds for seconds, _ in self.points]
        if not times or times != sorted(set(times)) or times[0] < 0 or not all(map(math.isfinite, times)):
            raise ValueError(f"points have the times {times[:5]!r}; there is at least one, and they rise from 0 on")
        if self.repeat and times[-1] == 0:
            raise ValueError("points end at 0 seconds; what is repeated takes some time")

    @classmethod
    def read(cls, path: Path, *, repeat: bool = False) -> Replay:
        """The points in a file of lines `seconds,value`, with or without a heading.

        Raises `OSError`, or `ValueError`, which names the line.
        """
        points = []
        with path.open(newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if not row or (number == 1 and row == ["seconds", "value"]):
                    continue
                try:
                    seconds, value = (float(field) for field in row)
                except ValueError:
                    raise ValueError(f"{path}:{number}: {','.join(row)!r} is not `seconds,value`") from None
                points.append((seconds, value))
        try:
            return cls(points=tuple(points), repeat=repeat)
        except ValueError as problem:
            raise ValueError(f"{path}: {problem}") from None

    def at(self, seconds: float) -> float:
        """The value so many seconds after it was set; before the first point, that of the first."""
        if self.repeat:
            seconds %= self.points[-1][0]
        index = bisect.bisect_right(self.points, (seconds, math.inf)) - 1
        return self.points[max(index, 0)][1]

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value."""
        values = [value for _, value in self.points]
        return min(values), max(values)


def check(gauge: str, signal: Signal) -> None:
    """Raise `ValueError` if `signal` leaves the range of `gauge`."""
    low, high = signal.range
    most = {"queue": math.inf, "running": math.inf, "kv": 1.0}.get(gauge)
    if most is None:
        raise ValueError(f"gauge is {gauge!r}; those that can be pinned are queue, running and kv")
    if not (math.isfinite(low) and math.isfinite(high) and low >= 0 and high <= most):
        allowed = "a share from 0 to 1" if most == 1.0 else "a number of requests, 0 or more"
        raise ValueError(f"{gauge} takes values from {low:g} to {high:g}; it is {allowed}")


def _positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}; it is a number of seconds above 0")
