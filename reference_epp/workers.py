"""Parts of an EPP that is several workers behind one address, each of which reads the pool for itself, in its time.

They are parts of variants and faults, which say which worker a request meets.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from ext_proc.server import ServedStream
from reference_epp.accounting import Accounting
from reference_epp.endpoints import Endpoint, Pool
from reference_epp.picker import Limits, Picker, Request, inside_subset
from reference_epp.scraper import Readings
from reference_epp.service import Service


class OfAWorker(Picker):
    """Picks from the pool as it was some time ago. Who asks it says first how long ago."""

    late = 0.0
    """Seconds by which the worker that is asked follows a change."""
    begins = 0.0
    """And by which it begins: until then it has read no pool."""

    def __init__(self, pool: Pool, readings: Readings, accounting: Accounting, limits: Limits) -> None:
        super().__init__(pool, readings, accounting, limits)
        self._seen: list[tuple[float, tuple[Endpoint, ...]]] = []
        pool.listen(lambda: self._seen.append((time.monotonic(), pool.endpoints)))

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        """Of the pool as it was; what was there when the worker began counts at once."""
        now = time.monotonic()
        if not self._seen or now < self._seen[0][0] + self.begins:
            return ()
        seen = [endpoints for index, (at, endpoints) in enumerate(self._seen) if at <= now - self.late or not index]
        return inside_subset(seen[-1], request)


class TenStreamsEach(Service):
    """Says GOAWAY on a connection that has taken ten streams, so that the client connects again."""

    taken: ClassVar[Counter[int]] = Counter()

    async def process(self, stream: ServedStream) -> None:
        """See `Service`."""
        number = stream.transport.number
        self.taken[number] += 1
        if self.taken[number] == 10:
            stream.transport.goaway()
        await super().process(stream)
