"""Faults of the choice in rare situations: an empty pool, a busy or silent subset, a session."""
# fmt: off

from __future__ import annotations

from typing import ClassVar

from reference_epp.changes import changed, eligible
from reference_epp.deviations import WITH_LISTS, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.picker import Decision, Picked, Picker, Request
from reference_epp.variants.keeping import SessionsStay

fault("hint-trusted-while-the-pool-is-empty", "EPP-DEST-06",
      "While the pool has no ready endpoint, those of the hint are taken for ready.",
      eligible(lambda p, request, found: found if p.pool.endpoints or not request.subset else sorted(request.subset)),
      versions=WITH_SUBSET)
fault("busy-subset-opens", "EPP-SUB-01",
      "While all endpoints of the subset are under heavy load, the whole pool is eligible.",
      eligible(lambda p, _, found: p.pool.endpoints if found and p.saturated(found) else found),
      also={"EPP-SUB-08": "so it is for a request without a body"}, versions=WITH_SUBSET)
fault("silent-subset-opens", "EPP-SUB-01",
      "If the metrics of the whole subset can't be read, the rest of the pool is eligible.",
      eligible(lambda p, _, found: found if any(map(p.readings.get, found)) or not found
               else [*filter(p.readings.get, p.pool.endpoints)] or found),
      versions=WITH_SUBSET)
fault("sessions-lead-to-who-left", "EPP-DEST-06",
      "A session, which a header names, goes on with its pod when that is gone.",
      changed(SessionsStay, stays=lambda _, c, endpoint: c.subset is None or endpoint in c.subset),
      versions=WITH_SUBSET)


@fault("list-ends-with-the-hint", "EPP-DEST-06",
       "The endpoints after the first are taken from the hint, if the pool ever had them.",
       versions=WITH_LISTS)
class ListEndsWithTheHint(Picker):
    seen: ClassVar[set[Endpoint]] = set()

    def pick(self, request: Request) -> Decision:
        self.seen.update(self.pool.endpoints)
        decision = super().pick(request)
        if not isinstance(decision, Picked) or not request.subset:
            return decision
        first, *_ = decision.endpoints
        return Picked((first, *sorted((request.subset & self.seen) - {first})[:1]))
