"""Which endpoint has seen the beginning of a prompt before, and so may have it in its KV cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from reference_epp.endpoints import Endpoint

BLOCK = 256
"""Bytes of a body that count as one block of its prefix."""

BLOCKS = 16
"""Blocks of a body that are looked at."""

CAPACITY = 20_000
"""Block prefixes that are remembered; the least recently used are forgotten."""


class Prefixes:
    """Remembers the last endpoint for every prefix of whole blocks."""

    def __init__(self) -> None:
        self._last: OrderedDict[int, Endpoint] = OrderedDict()

    def match(self, body: bytes) -> tuple[Endpoint, float] | None:
        """The endpoint that saw the longest prefix of `body`, and its share of the blocks looked at, from 0 to 1."""
        hashes = list(_hashes(body))
        for length in range(len(hashes), 0, -1):
            if endpoint := self._last.get(hashes[length - 1]):
                return endpoint, length / len(hashes)
        return None

    def learn(self, body: bytes, endpoint: Endpoint) -> None:
        """`body` goes to `endpoint`."""
        for prefix in _hashes(body):
            self._last[prefix] = endpoint
            self._last.move_to_end(prefix)
        while len(self._last) > CAPACITY:
            self._last.popitem(last=False)


def _hashes(body: bytes) -> Iterator[int]:
    """A hash of each prefix of `body` that is made of whole blocks, shortest first."""
    chain = 0
    for start in range(0, min(len(body) - BLOCK + 1, BLOCKS * BLOCK), BLOCK):
        chain = hash((chain, body[start : start + BLOCK]))
        yield chain
