"""Faults of the choice in rare situations: an empty pool, a busy or silent subset, a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from reference_epp.deviations import WITH_LISTS, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.picker import Decision, Picked, Picker, Request
from reference_epp.variants.keeping import SessionsStay


@fault(
    "hint-trusted-while-the-pool-is-empty",
    breaks="EPP-DEST-06",
    why="While the pool has no ready endpoint, those of the hint are taken for ready.",
    versions=WITH_SUBSET,
)
class HintTrustedWhileThePoolIsEmpty(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        trusted = sorted(request.subset) if request.subset and not self.pool.endpoints else ()
        return trusted or super().eligible(request)


@fault(
    "busy-subset-opens",
    breaks="EPP-SUB-01",
    why="While all endpoints of the subset are under heavy load, the whole pool is eligible.",
    also_breaks={"EPP-SUB-08": "so it is for a request without a body"},
    versions=WITH_SUBSET,
)
class BusySubsetOpens(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        inside = super().eligible(request)
        return self.pool.endpoints if inside and self.saturated(inside) else inside


@fault(
    "silent-subset-opens",
    breaks="EPP-SUB-01",
    why="Endpoints whose metrics can't be read are avoided; where the subset has no other, the whole pool is eligible.",
    versions=WITH_SUBSET,
)
class SilentSubsetOpens(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        inside = super().eligible(request)
        silent = inside and not any(self.readings.get(one) for one in inside)
        return [one for one in self.pool.endpoints if self.readings.get(one)] or inside if silent else inside


@fault(
    "list-ends-with-the-hint",
    breaks="EPP-DEST-06",
    why="The endpoints after the first are taken from the hint, if the pool ever had them.",
    versions=WITH_LISTS,
)
class ListEndsWithTheHint(Picker):
    seen: ClassVar[set[Endpoint]] = set()

    def pick(self, request: Request) -> Decision:
        self.seen.update(self.pool.endpoints)
        decision = super().pick(request)
        if not isinstance(decision, Picked) or not request.subset:
            return decision
        first, *_ = decision.endpoints
        return Picked((first, *sorted((request.subset & self.seen) - {first})[:1]))


@fault(
    "sessions-lead-to-who-left",
    breaks="EPP-DEST-06",
    why="A session, which a header names, goes on with its pod when that is gone.",
    versions=WITH_SUBSET,
)
class SessionsLeadToWhoLeft(SessionsStay):
    def stays(self, endpoint: Endpoint) -> bool:
        return self.subset is None or endpoint in self.subset
