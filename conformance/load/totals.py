"""What a load came to in numbers, in one process or in several."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from conformance.load.memory import MemoryCounts


@dataclass(slots=True, kw_only=True)
class Totals:
    """The stage that runs; requests that were due, that could not begin, as too many were under way
    (`crowded_out`) or their stage was over (`left_out`), and that are open; streams that were refused
    and opened again, and exchanges that had to wait for one; what the memory was asked, and its bytes."""

    stage: int = 0
    due: int = 0
    crowded_out: int = 0
    left_out: int = 0
    open: int = 0
    refused: int = 0
    waited: int = 0
    memory: MemoryCounts = field(default_factory=MemoryCounts)
    memory_bytes: int = 0

    @classmethod
    def of(cls, parts: Iterable[Totals]) -> Totals:
        """What all of them come to."""
        all_of_it = cls()
        for part in parts:
            all_of_it.stage = max(all_of_it.stage, part.stage)
            for name in ("due", "crowded_out", "left_out", "open", "refused", "waited", "memory_bytes"):
                setattr(all_of_it, name, getattr(all_of_it, name) + getattr(part, name))
            for name in MemoryCounts.__slots__:
                setattr(all_of_it.memory, name, getattr(all_of_it.memory, name) + getattr(part.memory, name))
        return all_of_it
