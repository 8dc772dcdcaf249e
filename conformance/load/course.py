"""The course of a load: what every second of it was like, for charts. Hours take no more room than minutes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.load.vitals import Sample

_KEPT = 600  # even: the one too many stays alone when neighbours are joined
"""Stretches that are kept; of more, each two neighbours become one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What happened since the last one, and in all. Times are milliseconds. `troubles`: what is known of trouble that
    goes on, or was the last (as in `load.json`)."""

    seconds: float
    stage: int
    due: int
    begun: int
    judged: int
    failed: int
    open: int
    rate: float
    latest: Mapping[str, Mapping[str, float]]
    hit_rate: float
    troubles: Sequence[Mapping[str, Any]] = ()

    @classmethod
    def beginning(cls) -> Snapshot:
        """That of a load that begins."""
        return cls(seconds=0, stage=0, due=0, begun=0, judged=0, failed=0, open=0, rate=0, latest={}, hit_rate=0)


@dataclass(slots=True, kw_only=True)
class Stretch:
    """A part of the load that ended at `second` and took `seconds`: what was due, done and failed in it (counts), how
    many exchanges were under way at its end, the times in milliseconds by name and percentile, the target's memory in
    bytes and its descriptors (None: unknown), and the changes of the pool."""

    second: float
    seconds: float
    due: int
    done: int
    failed: int
    open: int
    milliseconds: dict[str, dict[str, float]] = field(default_factory=dict)
    memory: int | None = None
    descriptors: int | None = None
    changes: Counter[str] = field(default_factory=Counter)

    @classmethod
    def between(cls, before: Snapshot, now: Snapshot, target: Sample | None, changes: Counter[str]) -> Stretch:
        """What happened between two snapshots; `target`: its process at the later one, if that is known."""
        return cls(
            second=now.seconds,
            seconds=now.seconds - before.seconds,
            due=now.due - before.due,
            done=now.judged - before.judged,
            failed=now.failed - before.failed,
            open=now.open,
            milliseconds={
                name: {one: own[one] for one in ("p50", "p99", "max")}
                for name, own in now.latest.items()
                if own["count"]
            },
            memory=target.memory if target is not None else None,
            descriptors=target.descriptors if target is not None else None,
            changes=changes,
        )

    def plain(self) -> dict[str, Any]:
        """As JSON; counts are rates a second."""
        seconds = max(self.seconds, 1e-3)
        times = {name: {one: round(value, 3) for one, value in own.items()} for name, own in self.milliseconds.items()}
        rates = {"due": self.due, "done": self.done, "failed": self.failed}
        return {
            "second": round(self.second, 3),
            "perSecond": {name: round(count / seconds, 1) for name, count in rates.items()},
            "open": self.open,
            "milliseconds": times,
            **({"targetBytes": self.memory} if self.memory is not None else {}),
            **({"targetDescriptors": self.descriptors} if self.descriptors is not None else {}),
            **({"poolChanges": dict(self.changes)} if self.changes else {}),
        }


class Course:
    """Stretches in their order. Neighbours that become one show the higher of their times and numbers."""

    def __init__(self) -> None:
        self.stretches: list[Stretch] = []
        self._each = 1
        self._in_last = 0

    def add(self, one: Stretch) -> None:
        """The next stretch."""
        if self.stretches and self._in_last < self._each:
            self.stretches[-1] = _joined(self.stretches[-1], one)
            self._in_last += 1
        else:
            self.stretches.append(one)
            self._in_last = 1
        if len(self.stretches) > _KEPT:
            pairs = zip(self.stretches[:-1:2], self.stretches[1::2], strict=True)
            self.stretches = [*(_joined(*pair) for pair in pairs), self.stretches[-1]]
            self._each *= 2


def _joined(one: Stretch, other: Stretch) -> Stretch:
    return Stretch(
        second=other.second,
        seconds=one.seconds + other.seconds,
        due=one.due + other.due,
        done=one.done + other.done,
        failed=one.failed + other.failed,
        open=max(one.open, other.open),
        milliseconds={
            name: _higher(one.milliseconds.get(name, {}), other.milliseconds.get(name, {}))
            for name in {**one.milliseconds, **other.milliseconds}
        },
        memory=max((seen for seen in (one.memory, other.memory) if seen is not None), default=None),
        descriptors=max((seen for seen in (one.descriptors, other.descriptors) if seen is not None), default=None),
        changes=one.changes + other.changes,
    )


def _higher(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: max(one.get(name, 0.0), other.get(name, 0.0)) for name in {**one, **other}}
