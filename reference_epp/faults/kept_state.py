"""Faults of what is kept from one request to the next: candidates, readings of the pool, threads."""

from __future__ import annotations

import asyncio
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from ext_proc.server import ServedStream
from reference_epp.conversation import Conversation
from reference_epp.deviations import WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.epp import Action
from reference_epp.picker import Decision, Picker, Request
from reference_epp.service import Service
from reference_epp.subset import Subset

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody


@fault(
    "cached-per-hint",
    breaks="EPP-DEST-06",
    why="The candidates of a hint are computed once, when it is first seen, and stay when the pool changes.",
    also_breaks={
        "EPP-ERR-02": "an endpoint is given although none is left",
        "EPP-SUB-02": "a hint that named no endpoint once names none later",
    },
    versions=WITH_SUBSET,
)
class CachedPerHint(Picker):
    known: dict[Subset, Sequence[Endpoint]] | None = None

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is None:
            return super().eligible(request)
        if self.known is None:
            self.known = {}
        return self.known.setdefault(request.subset, super().eligible(request))


@fault(
    "subset-kept-for-requests-without",
    breaks="EPP-SUB-04",
    why="The latest subset is kept beside all streams, and a request that has none is picked for by it.",
    also_breaks={"EPP-ERR-02": "503 comes although the pool has endpoints"},
    versions=WITH_SUBSET,
)
class SubsetKeptForRequestsWithout(Conversation):
    latest: ClassVar[Subset | None] = None

    def choose(self, body: bytes) -> Decision:
        if self.subset is None:
            self.subset = SubsetKeptForRequestsWithout.latest
        SubsetKeptForRequestsWithout.latest = self.subset
        return super().choose(body)


@fault(
    "priority-of-the-request-before",
    breaks="EPP-ERR-03",
    why="A request has the priority of the one before, so that a sheddable one is kept after one that is not.",
    versions=WITH_SUBSET,
)
class PriorityOfTheRequestBefore(Conversation):
    before: ClassVar[int] = 0

    def priority(self) -> int:
        before, PriorityOfTheRequestBefore.before = PriorityOfTheRequestBefore.before, super().priority()
        return before


@fault(
    "refreshed-after-the-answer",
    breaks="EPP-DEST-06",
    why="The pool is read again after each answer, so that the first request after a change is given the old one.",
    also_breaks={
        "EPP-ERR-02": "the first request after the last endpoint left is given it",
        "EPP-SUB-02": "the old pool decides what the subset leaves",
    },
    versions=WITH_SUBSET,
)
class RefreshedAfterTheAnswer(Picker):
    seen: tuple[Endpoint, ...] | None = None

    def pick(self, request: Request) -> Decision:
        now = self.pool.endpoints
        self.pool.endpoints, seen = now if self.seen is None else self.seen, now
        try:
            return super().pick(request)
        finally:
            self.pool.endpoints = self.seen = seen


@fault(
    "odd-usage-is-fatal",
    breaks="ENV-27",
    why="A response whose `usage` has anything but numbers ends the process.",
    also_breaks={"ENV-24": "such a response does not arrive", "RAR-EVAL-06": "it is not passed without a report"},
)
class OddUsageIsFatal(Conversation):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        try:
            value = json.loads(body.body)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and "usage" in value:
            usage = value["usage"]
            if not isinstance(usage, dict) or not isinstance(usage.get("prompt_tokens", 0), (int, float)):
                os._exit(70)
        return super().on_response_body(body)


@fault(
    "thread-per-stream",
    breaks="ENV-27",
    why="Each stream has a thread; with the 65th at once none is left, and the process ends.",
    also_breaks={"ENV-21": "alone each stream would have been answered"},
)
class ThreadPerStream(Service):
    threads = 0

    async def process(self, stream: ServedStream) -> None:
        self.threads += 1
        if self.threads > 64:
            os._exit(70)
        try:
            await super().process(stream)
        finally:
            self.threads -= 1


@fault(
    "stream-deadline-of-five-seconds",
    breaks="ENV-16",
    why="A stream that is older than 5 s when a message arrives is closed with a gRPC error.",
)
class StreamDeadlineOfFiveSeconds(Service):
    async def process(self, stream: ServedStream) -> None:
        late = asyncio.get_running_loop().call_later(5, stream.end, 4, "deadline exceeded")
        try:
            await super().process(stream)
        finally:
            late.cancel()


# -- endpoints that are kept


class KeepsSome(Picker, ABC):
    """Keeps some of the endpoints that have left the pool: they are eligible as those are that are in it."""

    seen: Mapping[Endpoint, None] = MappingProxyType({})
    """In the order in which they came."""

    @abstractmethod
    def keeps(self, endpoint: Endpoint) -> bool:
        """Whether an endpoint that has left is kept."""

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        self.seen = {**self.seen, **dict.fromkeys(self.pool.endpoints)}
        kept = [one for one in self.seen if one not in self.pool.endpoints and self.keeps(one)]
        return [*super().eligible(request), *(one for one in kept if request.subset is None or one in request.subset)]


GIVEN = {
    "EPP-ERR-02": "an endpoint is given although none is left",
    "EPP-SUB-02": "so it is where the subset names one that left",
}


@fault(
    "second-port-kept",
    breaks="EPP-DEST-06",
    why="When a pod leaves, its endpoint on the pool's first port goes, and those on further ports stay.",
    also_breaks=GIVEN,
    versions=WITH_SUBSET,
)
class SecondPortKept(KeepsSome):
    def keeps(self, endpoint: Endpoint) -> bool:
        return any(one.ip == endpoint.ip and one.port < endpoint.port for one in self.seen)


@fault(
    "ipv6-endpoint-kept",
    breaks="EPP-DEST-06",
    why="An endpoint with an IPv6 address is kept under its text and removed under its address: it stays.",
    also_breaks=GIVEN,
    versions=WITH_SUBSET,
)
class Ipv6EndpointKept(KeepsSome):
    def keeps(self, endpoint: Endpoint) -> bool:
        return ":" in endpoint.ip


class FollowsPrompts(Picker, ABC):
    """Sends a request with a beginning that was seen before to the endpoint that served it."""

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        candidates = super().eligible(request)
        match = self.prefixes.match(request.body)
        return [match[0]] if match and candidates and self.follows(match[0], request) else candidates

    @abstractmethod
    def follows(self, endpoint: Endpoint, request: Request) -> bool:
        """Whether the endpoint that served it is taken."""


@fault(
    "prompts-lead-to-who-left",
    breaks="EPP-DEST-06",
    why="What is known of prompts outlives the pods: one that was seen before is sent to a pod that is gone.",
    modes=("full-duplex", "buffered"),
    versions=WITH_SUBSET,
)
class PromptsLeadToWhoLeft(FollowsPrompts):
    def follows(self, endpoint: Endpoint, request: Request) -> bool:
        return request.subset is None or endpoint in request.subset


@fault(
    "chats-lead-out-of-the-subset",
    breaks="EPP-SUB-01",
    why="A chat whose beginning was seen before is sent to the pod that has it, whatever the subset.",
    versions=WITH_SUBSET,
    modes=("full-duplex", "buffered"),
)
class ChatsLeadOutOfTheSubset(FollowsPrompts):
    def follows(self, endpoint: Endpoint, request: Request) -> bool:
        return b'"messages"' in request.body and endpoint in self.pool.endpoints
