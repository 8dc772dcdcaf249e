"""The blocks of a KV cache: which live requests use, and what is still known of those that are free."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

_POSITIVE = (1 << 62) - 1
"""Blocks that can be found again have names from 0 on, the others below."""


class Cache:
    """The blocks of a KV cache: which are in use, and which that are free still hold something known."""

    def __init__(self, blocks: int, size: int) -> None:
        self.size = size
        self._all = blocks - 1  # one is the engine's own
        self._used: dict[int, int] = {}
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._anonymous = 0

    @property
    def usage(self) -> float:
        """The share of blocks that live requests use."""
        return len(self._used) / self._all

    @property
    def free(self) -> int:
        """Blocks that no live request uses."""
        return self._all - len(self._used)

    def keys(self, prompt: Sequence[Any]) -> list[int]:
        """What names the full blocks of a prompt: each by itself and all before it."""
        found, last = [], 0
        for at in range(0, len(prompt) - self.size + 1, self.size):
            last = hash((last, tuple(prompt[at : at + self.size]))) & _POSITIVE
            found.append(last)
        return found

    def known(self, keys: Sequence[int]) -> int:
        """How many blocks from the first on are there already."""
        count = 0
        for key in keys:
            if key not in self._used and key not in self._kept:
                break
            count += 1
        return count

    def take(self, keys: Sequence[int | None]) -> list[int] | None:
        """Use a block for each key (None: for new tokens); None if there are not enough."""
        if sum(key is None or key not in self._used for key in keys) > self.free:
            return None
        taken = []
        for key in keys:
            if key is None:
                self._anonymous -= 1
                key = self._anonymous  # noqa: PLW2901 - a name for a block that no one else can find
            self._used[key] = self._used.get(key, 0) + 1
            self._kept.pop(key, None)
            taken.append(key)
        while len(self._used) + len(self._kept) > self._all:
            self._kept.popitem(last=False)
        return taken

    def give_back(self, blocks: Sequence[int]) -> None:
        """Blocks of a request that ended: free, but what the prompt left in them stays known."""
        for key in reversed(blocks):
            self._used[key] -= 1
            if not self._used[key]:
                del self._used[key]
                if key >= 0:
                    self._kept[key] = None
