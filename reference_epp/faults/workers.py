"""Faults of one of several workers: which of them a request meets depends on its connection, or its number."""

from __future__ import annotations

import math

from reference_epp.conversation import Conversation
from reference_epp.deviations import WITH_SUBSET, fault, part_of
from reference_epp.picker import SERVICE_UNAVAILABLE, Decision, Refused
from reference_epp.workers import OfAWorker, TenStreamsEach

STARVED = Refused(SERVICE_UNAVAILABLE, "this worker has no endpoints")
WITHIN_A_SUBSET = {f"EPP-SUB-0{number}": "so it is, whatever subset is given" for number in (2, 4, 5, 6, 7, 8)}


@fault(
    "worker-without-a-pool",
    breaks="EPP-ERR-02",
    why="Each second connection leads to a worker that never reads the pool: it answers 503.",
    also_breaks=WITHIN_A_SUBSET,
    versions=WITH_SUBSET,
)
class WorkerWithoutAPool(Conversation):
    def choose(self, body: bytes) -> Decision:
        return super().choose(body) if self.connection % 2 else STARVED


@fault(
    "fifth-stream-without-a-pool",
    breaks="EPP-ERR-02",
    why="Every fifth stream gets 503, as if there were no endpoint.",
    also_breaks=WITHIN_A_SUBSET,
    versions=WITH_SUBSET,
)
class FifthStreamWithoutAPool(Conversation):
    def choose(self, body: bytes) -> Decision:
        return super().choose(body) if self.number % 5 else STARVED


@fault(
    "worker-with-the-first-pool",
    breaks="EPP-DEST-06",
    why="A connection takes ten streams, then says GOAWAY; each third one leads to a worker that never reads the pool "
    "again.",
    also_breaks={"EPP-ERR-02": "503 where all endpoints are others, and an endpoint where none is left"}
    | WITHIN_A_SUBSET,
    versions=WITH_SUBSET,
)
class WorkerWithTheFirstPool(Conversation):
    def choose(self, body: bytes) -> Decision:
        assert isinstance(self.epp.picker, OfAWorker)
        self.epp.picker.late = 0.0 if self.connection % 3 else math.inf
        return super().choose(body)


@part_of("worker-with-the-first-pool")
class WithTheFirstPool(OfAWorker):
    pass


@part_of("worker-with-the-first-pool")
class AnotherAfterTen(TenStreamsEach):
    pass
