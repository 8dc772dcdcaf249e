"""Variants that choose endpoints, drop requests or queue them in another way."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.server import ServedStream
from reference_epp.conversation import Conversation
from reference_epp.deviations import WITH_LISTS, WITH_SUBSET, variant
from reference_epp.endpoints import Endpoint
from reference_epp.epp import Action
from reference_epp.picker import NOT_FOUND, SERVICE_UNAVAILABLE, Decision, Picked, Picker, Refused, Request
from reference_epp.service import Service
from reference_epp.subset import read_subset

if TYPE_CHECKING:
    from ext_proc.messages import Metadata


@variant(
    "lists-all-endpoints",
    why="Every eligible endpoint is in the list, best first; a list has no upper limit.",
    versions=WITH_LISTS,
    noted={"EPP-DEST-09": "3 endpoints in a value"},
)
class ListsAllEndpoints(Picker):
    def pick(self, request: Request) -> Decision:
        decision = super().pick(request)
        return Picked(tuple(self.rank(self.eligible(request), request))) if isinstance(decision, Picked) else decision


@variant(
    "names-one-endpoint",
    why="There is never more than one endpoint; more are allowed, not asked for.",
    without=("fallbackLists",),
)
class NamesOneEndpoint(Picker):
    def pick(self, request: Request) -> Decision:
        decision = super().pick(request)
        return Picked(decision.endpoints[:1]) if isinstance(decision, Picked) else decision


@variant(
    "shuffled-lists",
    why="Equal requests get lists in another order each time; the order is the EPP's preference of the moment.",
    versions=WITH_LISTS,
)
class ShuffledLists(Picker):
    flip = False

    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        self.flip = not self.flip
        ranked = super().rank(candidates, request)
        return ranked[::-1] if self.flip else ranked


@variant("sticky", why="The first eligible endpoint gets everything; how well an EPP balances is not in the protocol.")
class Sticky(Picker):
    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        return list(candidates)


@variant("prefers-the-busiest", why="The most loaded endpoint comes first, which is unwise and allowed.")
class PrefersTheBusiest(Picker):
    def score(self, endpoint: Endpoint, request: Request) -> float:
        return -super().score(endpoint, request)


@variant(
    "never-sheds",
    why="Sheddable requests get an endpoint under any load; dropping them is the EPP's choice.",
    without=("sheds",),
)
class NeverSheds(Picker):
    def saturated(self, candidates: Sequence[Endpoint]) -> bool:
        return False


@variant(
    "four-paths",
    why="A POST to another path than completions, chats, embeddings and models gets 404: it can't be understood there.",
)
class FourPaths(Conversation):
    known = (b"/v1/completions", b"/v1/chat/completions", b"/v1/embeddings", b"/v1/models")

    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        post, path = self.headers.get(":method") == b"POST", self.headers.get(":path", b"").partition(b"?")[0]
        refused = isinstance(decision, Picked) and post and path.startswith(b"/") and path not in self.known
        return Refused(NOT_FOUND, "no such path") if refused else decision


@variant(
    "sheds-any-request",
    why="While all pods are as busy as makes others shed, every request is dropped with 429, marked or not.",
    versions=WITH_SUBSET,
)
class ShedsAnyRequest(Picker):
    def pick(self, request: Request) -> Decision:
        candidates = self.eligible(request)
        return self.shed(request) if candidates and self.saturated(candidates) else super().pick(request)


@variant(
    "sheds-early",
    why="The same while three requests wait at every pod, or half of its KV cache is in use.",
    versions=WITH_SUBSET,
)
class ShedsEarly(ShedsAnyRequest):
    def saturated(self, candidates: Sequence[Endpoint]) -> bool:
        known = [self.readings.get(one) for one in candidates]
        return all(one is not None and (one.queued >= 3 or one.kv_cache >= 0.5) for one in known)


@variant(
    "filters-early",
    why="With a hint, pods as busy as that are left out, and nothing may be left of it; without one the best is taken.",
    versions=WITH_SUBSET,
)
class FiltersEarly(ShedsEarly):
    def pick(self, request: Request) -> Decision:
        return Picker.pick(self, request)

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        candidates = super().eligible(request)
        return candidates if request.subset is None else [one for one in candidates if not self.saturated([one])]


@variant(
    "queues-briefly",
    why="A request without candidates waits for some to appear before it is refused.",
    claims={"queues": True},
)
class QueuesBriefly(Service):
    async def send(self, stream: ServedStream, answer: Action) -> None:
        if isinstance(answer, ProcessingResponse) and answer.immediate_response.status.code == SERVICE_UNAVAILABLE:
            await asyncio.sleep(0.2)
        await super().send(stream, answer)


@variant(
    "subset-in-the-destination-namespace",
    why="The subset's key is honoured in the destination's namespace as well, as a configuration may ask for.",
    versions=WITH_SUBSET,
    noted={"EPP-SUB-12": "503, with the key in another namespace"},
)
class SubsetInTheDestinationNamespace(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        super().read_metadata(kind, metadata)
        if kind.startswith("request") and self.subset is None:
            self.subset = read_subset(metadata, self.epp.metadata_namespace)


@variant(
    "queues-until-ready",
    why="A request is held while no endpoint is ready, or all are saturated, for a second at most.",
    claims={"queues": True},
)
class QueuesUntilReady(Service):
    deadlines: WeakKeyDictionary[Conversation, float] = WeakKeyDictionary()

    async def read(
        self, stream: ServedStream, messages: AsyncIterator[object], conversation: Conversation
    ) -> ProcessingRequest | None:
        message = await super().read(stream, messages, conversation)
        if message is not None and conversation.decision is None:
            deadline = self.deadlines.setdefault(conversation, time.monotonic() + 1)
            while self.full() and stream.ended is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
        return message

    def full(self) -> bool:
        """True if no endpoint can take a request now."""
        picker = self.epp.picker
        return not picker.pool.endpoints or picker.saturated(picker.pool.endpoints)


@variant(
    "ipv4-only",
    why="Endpoints with an IPv6 address are left out of the pool; its profile says so.",
    claims={"ipv6": False},
)
class Ipv4Only(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return [one for one in super().eligible(request) if ":" not in one.ip]
