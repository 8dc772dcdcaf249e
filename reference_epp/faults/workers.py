"""Faults of one of several workers: which of them a request meets depends on its connection, or its number."""
# fmt: off

from __future__ import annotations

import math
from functools import partial

from reference_epp.changes import refusing
from reference_epp.deviations import WITH_SUBSET, fault
from reference_epp.picker import SERVICE_UNAVAILABLE
from reference_epp.variants.workers import worker
from reference_epp.workers import OfAWorker, TenStreamsEach

WITHIN_A_SUBSET = {f"EPP-SUB-0{number}": "so it is, whatever subset is given" for number in (2, 4, 5, 6, 7, 8)}

worker_fault = partial(fault, versions=WITH_SUBSET)

worker_fault("worker-without-a-pool", "EPP-ERR-02",
             "Each second connection leads to a worker that never reads the pool: it answers 503.",
             refusing(SERVICE_UNAVAILABLE, lambda c, _: c.connection % 2 == 0), also=WITHIN_A_SUBSET)
worker_fault("fifth-stream-without-a-pool", "EPP-ERR-02",
             "Every fifth stream gets 503, as if there were no endpoint.",
             refusing(SERVICE_UNAVAILABLE, lambda c, _: c.number % 5 == 0), also=WITHIN_A_SUBSET)
worker_fault("worker-with-the-first-pool", "EPP-DEST-06",
             "After ten streams a connection says GOAWAY; each third one leads to a worker with the first pool.",
             worker(late=lambda c: 0.0 if c.connection % 3 else math.inf), OfAWorker, TenStreamsEach,
             also={"EPP-ERR-02": "503 where all endpoints are others, and an endpoint where none is left",
                   **WITHIN_A_SUBSET})
