"""Variants that keep something from one request to the next: where a session went, the pool as it was."""
# fmt: off

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from reference_epp.conversation import Conversation
from reference_epp.deviations import WITH_SUBSET, variant
from reference_epp.endpoints import Endpoint
from reference_epp.picker import Decision, Picked, Picker, Request
from reference_epp.subset import Subset


@variant("sessions-stay",
         "A session, which a header names, stays with its pod as long as that may be picked.")
class SessionsStay(Conversation):
    known: ClassVar[dict[bytes, Endpoint]] = {}

    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        session = self.headers.get("x-session-id")
        if session is None or not isinstance(decision, Picked):
            return decision
        if not self.stays(self.known.setdefault(session, decision.endpoints[0])):
            self.known[session] = decision.endpoints[0]
        return Picked((self.known[session],))

    def stays(self, endpoint: Endpoint) -> bool:
        """Whether a session may go on there."""
        return endpoint in self.epp.picker.eligible(Request(subset=self.subset))


@variant("caches-per-hint-briefly",
         "The candidates of a hint are kept for 50 ms, well within the time that a pool may take to be followed.",
         versions=WITH_SUBSET)
class CachesPerHintBriefly(Picker):
    known: dict[Subset, tuple[float, Sequence[Endpoint]]] | None = None

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is None:
            return super().eligible(request)
        if self.known is None:
            self.known = {}
        now = time.monotonic()
        since, candidates = self.known.get(request.subset, (0.0, ()))
        if now - since > 0.05:
            since, candidates = now, super().eligible(request)
            self.known[request.subset] = (since, candidates)
        return candidates
