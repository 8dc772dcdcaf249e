"""Memory and descriptors of processes over time: whether a soak makes them grow. From `/proc`, where there is one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_KEPT = 1200
"""Samples that are kept; of more every second one is dropped, so that hours take no more room than minutes."""

_MIB = 1024 * 1024


class Sample(NamedTuple):
    """One look: seconds since the load began, bytes of resident memory, open descriptors."""

    second: float
    memory: int
    descriptors: int


class Vitals:
    """The samples of one program after the other under one name, such as that of a target that was restarted."""

    def __init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Another process takes the place of the one that was looked at."""
        self.samples: list[Sample] = []
        self._first = self._last = Sample(0.0, 0, 0)
        self._highest = 0
        """Bytes of memory: what is dropped from the samples may be the highest."""
        self._every = 1
        self._looks = 0

    def look(self, pids: Iterable[int], second: float) -> Sample | None:
        """Take a sample of the processes `pids` together; None where there is none of them, or one can't be read."""
        found = _sample(pids, second)
        if found is None:
            return None
        self._looks += 1
        self._first = found if self._looks == 1 else self._first
        self._last, self._highest = found, max(self._highest, found.memory)
        if self._looks % self._every == 0:
            self.samples.append(found)
        if len(self.samples) > _KEPT:
            del self.samples[::2]
            self._every *= 2
        return found

    def summary(self) -> Mapping[str, float]:
        """Memory in MiB at the first, the last and the highest, descriptors at the first and the last; `growth` is the
        slope of each after the first tenth, which is for warming up, in an hour. Empty without samples."""
        samples = self.samples
        if not samples:
            return {}
        settled = samples[len(samples) // 10 :]
        descriptors = slope([(one.second, one.descriptors) for one in settled])
        return {
            "samples": len(samples),
            "firstMiB": round(self._first.memory / _MIB, 2),
            "lastMiB": round(self._last.memory / _MIB, 2),
            "highestMiB": round(self._highest / _MIB, 2),
            "growthMiBPerHour": round(slope([(one.second, one.memory / _MIB) for one in settled]) * 3600, 2),
            "firstDescriptors": self._first.descriptors,
            "lastDescriptors": self._last.descriptors,
            "growthDescriptorsPerHour": round(descriptors * 3600, 1),
        }


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of the line with the least squares through `points`; 0 where there is none."""
    count = len(points)
    if count < 2:
        return 0.0
    middle, level = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle) ** 2 for x, _ in points)
    return sum((x - middle) * (y - level) for x, y in points) / spread if spread else 0.0


def _sample(pids: Iterable[int], second: float) -> Sample | None:
    pages = descriptors = 0
    for pid in pids:
        folder = Path("/proc") / str(pid)
        try:
            own = int((folder / "statm").read_text().split()[1])
            descriptors += len(os.listdir(folder / "fd"))  # noqa: PTH208 - names
            pages += own
        except PermissionError:  # it is another user's, as behind sudo: the others alone are not the program
            return None
        except (OSError, IndexError, ValueError):
            continue  # it has ended
    return Sample(second, pages * os.sysconf("SC_PAGE_SIZE"), descriptors) if pages else None
