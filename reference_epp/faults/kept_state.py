"""Faults of what is kept from one request to the next: candidates, readings of the pool, threads."""
# fmt: off

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from ext_proc.server import ServedStream
from reference_epp.changes import changed, json_object
from reference_epp.conversation import Conversation
from reference_epp.deviations import WHOLE_BODY, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.picker import Decision, Picker, Request
from reference_epp.service import Service
from reference_epp.subset import Subset


@fault("cached-per-hint", "EPP-DEST-06",
       "The candidates of a hint are computed once, when it is first seen, and stay when the pool changes.",
       also={"EPP-ERR-02": "an endpoint is given although none is left",
             "EPP-SUB-02": "a hint that named no endpoint once names none later"}, versions=WITH_SUBSET)
class CachedPerHint(Picker):
    known: dict[Subset, Sequence[Endpoint]] | None = None

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is None:
            return super().eligible(request)
        self.known = {} if self.known is None else self.known
        return self.known.setdefault(request.subset, super().eligible(request))


@fault("subset-kept-for-requests-without", "EPP-SUB-04",
       "The latest subset is kept beside all streams, and a request that has none is picked for by it.",
       also={"EPP-ERR-02": "503 comes although the pool has endpoints"}, versions=WITH_SUBSET)
class SubsetKeptForRequestsWithout(Conversation):
    latest: ClassVar[list[Subset | None]] = [None]

    def choose(self, body: bytes) -> Decision:
        self.subset = self.latest[0] = self.latest[0] if self.subset is None else self.subset
        return super().choose(body)


@fault("priority-of-the-request-before", "EPP-ERR-03",
       "A request has the priority of the one before: a sheddable one is kept after one that is not.",
       versions=WITH_SUBSET)
class PriorityOfTheRequestBefore(Conversation):
    before: ClassVar[list[int]] = [0]

    def priority(self) -> int:
        self.before.append(super().priority())
        return self.before.pop(0)


@fault("refreshed-after-the-answer", "EPP-DEST-06",
       "The pool is read again after each answer: the first request after a change is given the old one.",
       also={"EPP-ERR-02": "the first request after the last endpoint left is given it",
             "EPP-SUB-02": "the old pool decides what the subset leaves"}, versions=WITH_SUBSET)
class RefreshedAfterTheAnswer(Picker):
    seen: tuple[Endpoint, ...] | None = None

    def pick(self, request: Request) -> Decision:
        now = self.pool.endpoints
        self.pool.endpoints, seen = now if self.seen is None else self.seen, now
        try:
            return super().pick(request)
        finally:
            self.pool.endpoints = self.seen = seen


@fault("odd-usage-is-fatal", "ENV-27",
       "A response whose `usage` has anything but numbers ends the process.",
       also={"ENV-24": "such a response does not arrive", "RAR-EVAL-06": "it is not passed without a report"})
class OddUsageIsFatal(Conversation):
    def on_response_body(self, body: Any) -> Any:
        usage = json_object(body.body).get("usage", {})
        if not isinstance(usage, dict) or not isinstance(usage.get("prompt_tokens", 0), (int, float)):
            os._exit(70)
        return super().on_response_body(body)


# -- limits of the process


class CountsStreams(Service):
    """Counts open streams, and asks before each one whether it is taken."""

    streams = 0

    async def process(self, stream: ServedStream) -> None:
        if not self.takes(stream):
            return
        self.streams += 1
        try:
            await super().process(stream)
        finally:
            self.streams -= 1

    def takes(self, stream: ServedStream) -> bool:
        """Whether one more is taken; if not, it has been ended."""
        if self.streams >= 50:
            stream.end(8, "too many streams")  # RESOURCE_EXHAUSTED
        return self.streams < 50


fault("fifty-streams-at-most", "ENV-16",
      "When fifty streams are open, further ones are refused with a gRPC error.", CountsStreams,
      also={"ENV-21": "alone they would have been answered",
            "EPP-ERR-04": "so it is where no endpoint could be given"})
fault("thread-per-stream", "ENV-27",
      "Each stream has a thread; with the 65th at once none is left, and the process ends.",
      changed(CountsStreams, takes=lambda _, service, __: service.streams < 64 or os._exit(70)),
      also={"ENV-21": "alone each stream would have been answered"})


@fault("stream-deadline-of-five-seconds", "ENV-16",
       "A stream that is older than 5 s when a message arrives is closed with a gRPC error.")
class StreamDeadlineOfFiveSeconds(Service):
    async def process(self, stream: ServedStream) -> None:
        late = asyncio.get_running_loop().call_later(5, stream.end, 4, "deadline exceeded")
        try:
            await super().process(stream)
        finally:
            late.cancel()


# -- endpoints that are kept


class _KeepsSome(Picker):
    """Keeps the endpoints that have left the pool for which `keeps` is true: they are still eligible."""

    keeps: Callable[[Endpoint], bool]
    seen: Mapping[Endpoint, None] = MappingProxyType({})
    """In the order in which they came."""

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        self.seen = {**self.seen, **dict.fromkeys(self.pool.endpoints)}
        kept = [one for one in self.seen if one not in self.pool.endpoints and self.keeps(one)]
        return [*super().eligible(request), *(one for one in kept if request.subset is None or one in request.subset)]


def _on_a_later_port(picker: Any, endpoint: Endpoint) -> bool:
    return any(one.ip == endpoint.ip and one.port < endpoint.port for one in picker.seen)


def _following(follows: Callable[[Any, Endpoint, Request], bool]) -> type[Picker]:
    """Sends a request with a beginning that was seen before to the endpoint that served it, if `follows`."""
    def act(up: Any, picker: Any, request: Request) -> Any:
        candidates = up(request)
        match = picker.prefixes.match(request.body)
        return [match[0]] if match and candidates and follows(picker, match[0], request) else candidates

    return changed(Picker, eligible=act)


GIVEN = {
    "EPP-ERR-02": "an endpoint is given although none is left",
    "EPP-SUB-02": "so it is where the subset names one that left",
}

fault("second-port-kept", "EPP-DEST-06",
      "When a pod leaves, its endpoint on the pool's first port goes, and those on further ports stay.",
      type("SecondPortKept", (_KeepsSome,), {"keeps": _on_a_later_port}), also=GIVEN, versions=WITH_SUBSET)
fault("ipv6-endpoint-kept", "EPP-DEST-06",
      "An IPv6 endpoint is kept under its text and removed under its address: it stays.",
      type("Ipv6EndpointKept", (_KeepsSome,), {"keeps": lambda _, one: ":" in one.ip}),
      also=GIVEN, versions=WITH_SUBSET)
fault("prompts-lead-to-who-left", "EPP-DEST-06",
      "A prompt that was seen before is sent to the pod that served it, also when that is gone.",
      _following(lambda _, one, request: request.subset is None or one in request.subset),
      modes=WHOLE_BODY, versions=WITH_SUBSET)
fault("chats-lead-out-of-the-subset", "EPP-SUB-01",
      "A chat whose beginning was seen before is sent to the pod that has it, whatever the subset.",
      _following(lambda p, one, request: b'"messages"' in request.body and one in p.pool.endpoints),
      modes=WHOLE_BODY, versions=WITH_SUBSET)
