"""Faults of version 0.2.0 where the pool is empty, was empty, or is busy: it asks for an error and names none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reference_epp.conversation import Conversation
from reference_epp.deviations import fault
from reference_epp.endpoints import Endpoint
from reference_epp.epp import Action
from reference_epp.faults.errors import EmptyPoolUnsteered
from reference_epp.picker import Decision, Picker, Refused, Request


@fault(
    "last-pods-kept-for-bodyless",
    breaks="EPP-ERR-01",
    why="Requests without a body go to the last pods that there were when there is none any more.",
    versions=("0.2.0",),
)
class LastPodsKeptForBodyless(Picker):
    last: Sequence[Endpoint] = ()

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        found = super().eligible(request)
        self.last = found or self.last
        return found if request.body else self.last


@fault(
    "empty-pool-unsteered-for-options",
    breaks="EPP-ERR-01",
    why="A request of the method OPTIONS is let go without an endpoint, and without an error, if the pool is empty.",
    versions=("0.2.0",),
)
class EmptyPoolUnsteeredForOptions(EmptyPoolUnsteered):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        let_go = self.headers.get(":method") == b"OPTIONS"
        return super().refuse(refusal) if let_go else Conversation.refuse(self, refusal)


@fault(
    "empty-for-good",
    breaks="EPP-DEST-01",
    why="Once there was no endpoint for a request, none gets one any more.",
    versions=("0.2.0",),
)
class EmptyForGood(Picker):
    empty = False

    def pick(self, request: Request) -> Decision:
        self.empty = self.empty or not self.pool.endpoints
        return self.none_eligible(request) if self.empty else super().pick(request)


@fault(
    "shed-as-200-for-bodyless",
    breaks="EPP-ERR-01",
    why="A request without a body that is dropped gets 200, which its client takes for the response.",
    versions=("0.2.0",),
)
class ShedAs200ForBodyless(Picker):
    def shed(self, request: Request) -> Decision:
        return super().shed(request) if request.body else Refused(200, "servers are under heavy load")
