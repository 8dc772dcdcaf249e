"""Faults of the subset hint (section Endpoint Subset)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from reference_epp.conversation import Conversation
from reference_epp.deviations import ENDED, NEXT, SILENT, WITH_LISTS, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint, parse_endpoint
from reference_epp.epp import Action
from reference_epp.names import DESTINATION, SUBSET
from reference_epp.picker import SERVICE_UNAVAILABLE, Decision, Picked, Picker, Refused, Request

if TYPE_CHECKING:
    from ext_proc.messages import Metadata, ProcessingRequest, Value


def hint(metadata: Metadata, namespace: str) -> Value | None:
    """The raw value of the subset hint, or None."""
    if namespace not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[namespace].fields
    return fields[SUBSET] if SUBSET in fields else None  # noqa: SIM401  # `get` of a protobuf map makes the entry


def odd(value: Value | None) -> bool:
    """True for a hint that is no list of strings."""
    if value is None:
        return False
    if value.WhichOneof("kind") != "list_value":
        return True
    return any(item.WhichOneof("kind") != "string_value" for item in value.list_value.values)


# -- the pick stays inside


@fault(
    "subset-ignored",
    breaks="EPP-SUB-01",
    why="If any endpoint of the subset is eligible, the whole pool is.",
    also_breaks={
        "EPP-SUB-05": "so it is for a subset with known and unknown members",
        "EPP-SUB-06": "so it is for a subset with one port of several",
        "EPP-SUB-07": "so it is for a subset of IPv6 endpoints",
        "EPP-SUB-08": "so it is for a request without a body",
        "EPP-SUB-09": "so it is for a hint on the headers message only",
    },
    versions=WITH_SUBSET,
)
class SubsetIgnored(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return self.pool.endpoints if super().eligible(request) else []


@fault(
    "subset-binds-only-the-first",
    breaks="EPP-SUB-01",
    why="The first endpoint of the list is in the subset, those after it come from the whole pool.",
    also_breaks={
        "EPP-SUB-06": "the other port of a pod is one of those after it",
        "EPP-SUB-07": "and so are pods with addresses of the other kind",
        "EPP-SUB-08": "so it is for a request without a body",
    },
    versions=WITH_LISTS,
)
class SubsetBindsOnlyTheFirst(Picker):
    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        first = super().rank(candidates, request)[0]
        return [first, *(endpoint for endpoint in self.pool.endpoints if endpoint != first)]


@fault(
    "better-endpoint-outside-wins",
    breaks="EPP-SUB-01",
    why="An idle endpoint outside the subset is preferred when all endpoints inside have a queue.",
    also_breaks={"EPP-SUB-08": "so it is for a request without a body"},
    versions=WITH_SUBSET,
)
class BetterEndpointOutsideWins(Picker):
    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        def queue(endpoint: Endpoint) -> float:
            gauges = self.readings.get(endpoint)
            return 0 if gauges is None else gauges.queued

        known = [endpoint for endpoint in self.pool.endpoints if self.readings.get(endpoint) is not None]
        idle = [endpoint for endpoint in known if queue(endpoint) == 0]
        busy = all(queue(endpoint) > 0 for endpoint in candidates)
        return super().rank(idle if busy and idle else candidates, request)


# -- none eligible


@fault(
    "none-eligible-means-all",
    breaks="EPP-SUB-02",
    why="If no endpoint of the subset is eligible, the whole pool is.",
    also_breaks={
        "EPP-SUB-01": "the pick is outside the subset",
        "EPP-SUB-06": "so it is when only the port is wrong",
    },
    versions=WITH_SUBSET,
)
class NoneEligibleMeansAll(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return super().eligible(request) or (self.pool.endpoints if request.subset else [])


class NoneEligibleCode(Picker):
    """Refuses with another code when the subset leaves nothing."""

    code: ClassVar[int]

    def none_eligible(self, request: Request) -> Decision:
        named = request.subset and self.pool.endpoints
        return Refused(self.code, "no endpoint in subset") if named else super().none_eligible(request)


@fault(
    "none-eligible-500",
    breaks="EPP-SUB-02",
    why="500 instead of 503 if no endpoint of the subset is eligible.",
    also_breaks={"EPP-SUB-06": "so it is when only the port is wrong"},
    versions=WITH_SUBSET,
)
class NoneEligible500(NoneEligibleCode):
    code = 500


@fault(
    "none-eligible-429",
    breaks="EPP-SUB-02",
    why="429 instead of 503 if no endpoint of the subset is eligible: every failure to pick counts as overload.",
    also_breaks={"EPP-SUB-06": "so it is when only the port is wrong"},
    versions=WITH_SUBSET,
)
class NoneEligible429(NoneEligibleCode):
    code = 429


@fault(
    "empty-subset-means-all",
    breaks="EPP-SUB-03",
    why="A subset without members counts as no subset.",
    also_breaks={"EPP-SUB-01": "the pick is outside the subset"},
    versions=WITH_SUBSET,
)
class EmptySubsetMeansAll(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        value = hint(metadata, self.epp.subset_namespace)
        empty = value is not None and value.WhichOneof("kind") == "list_value" and not value.list_value.values
        if not empty:
            super().read_metadata(kind, metadata)


@fault(
    "none-eligible-unanswered",
    breaks="EPP-SUB-02",
    why="A request is never answered if no endpoint of its subset is eligible: it waits for one to appear.",
    also_breaks=SILENT | {"EPP-SUB-06": "so it is when only the port is wrong"},
    versions=WITH_SUBSET,
)
class NoneEligibleUnanswered(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        waits = refusal.code == SERVICE_UNAVAILABLE and self.subset and self.epp.picker.pool.endpoints
        return [] if waits else super().refuse(refusal)


@fault(
    "queued-for-ever",
    breaks="EPP-SUB-14",
    why="A request of whose subset no endpoint is eligible is queued until one is, however long that takes.",
    also_breaks=SILENT | {"EPP-SUB-02": "503 is due", "EPP-SUB-03": "so it is for an empty subset"},
    versions=NEXT,
    claims={"queues": True},
)
class QueuedForEver(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return [] if refusal.code == SERVICE_UNAVAILABLE and self.subset is not None else super().refuse(refusal)


@fault(
    "saturated-subset-opens",
    breaks="EPP-SUB-13",
    why="A sheddable request whose subset is saturated gets an endpoint outside it.",
    also_breaks={"EPP-SUB-01": "the pick is outside the subset"},
    versions=WITH_SUBSET,
    effect="warn",
)
class SaturatedSubsetOpens(Picker):
    def shed(self, request: Request) -> Decision:
        outside = [endpoint for endpoint in self.pool.endpoints if endpoint not in (request.subset or ())]
        return Picked((outside[0],)) if request.subset and outside else super().shed(request)


# -- no hint


@fault(
    "namespace-without-key-means-none",
    breaks="EPP-SUB-04",
    why="The hint's namespace without the hint's key counts as an empty subset: 503.",
    versions=WITH_SUBSET,
)
class NamespaceWithoutKeyMeansNone(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        super().read_metadata(kind, metadata)
        present = self.epp.subset_namespace in metadata.filter_metadata
        if kind == "request_headers" and present and hint(metadata, self.epp.subset_namespace) is None:
            self.subset = frozenset()


# -- which endpoints a subset names


@fault(
    "mixed-subset-refused",
    breaks="EPP-SUB-05",
    why="503 as soon as one endpoint of the subset is unknown, although others are eligible.",
    versions=WITH_SUBSET,
)
class MixedSubsetRefused(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is not None and not request.subset <= frozenset(self.pool.endpoints):
            return []
        return super().eligible(request)


@fault(
    "subset-by-address",
    breaks="EPP-SUB-06",
    why="Members of the subset are compared by address; their port is ignored.",
    also_breaks={
        "EPP-SUB-01": "an endpoint with another port is outside the subset",
        "EPP-SUB-02": "a subset with a right address and a wrong port leaves nothing",
        "EPP-SUB-08": "so it is for a request without a body",
    },
    versions=WITH_SUBSET,
)
class SubsetByAddress(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is None:
            return self.pool.endpoints
        addresses = {member.ip for member in request.subset}
        return [endpoint for endpoint in self.pool.endpoints if endpoint.ip in addresses]


@fault(
    "ipv6-subset-never-matches",
    breaks="EPP-SUB-07",
    why="The brackets of an IPv6 member stay on, so that it equals no endpoint: 503.",
    also_breaks={"EPP-SUB-08": "so it is for a request without a body"},
    versions=WITH_SUBSET,
)
class Ipv6SubsetNeverMatches(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        candidates = super().eligible(request)
        if request.subset is None:
            return candidates
        return [endpoint for endpoint in candidates if ":" not in endpoint.ip]


@fault(
    "subset-ignored-for-bodyless",
    breaks="EPP-SUB-08",
    why="Requests without a body take another code path, which does not look at the subset.",
    also_breaks={
        "EPP-SUB-01": "the pick is outside the subset",
        "EPP-SUB-02": "a bodyless request whose subset leaves nothing gets an endpoint",
        "EPP-SUB-03": "a bodyless request with an empty subset gets an endpoint",
    },
    versions=WITH_SUBSET,
)
class SubsetIgnoredForBodyless(Conversation):
    def choose(self, body: bytes) -> Decision:
        if not self.body:
            self.subset = None
        return super().choose(body)


@fault(
    "subset-of-the-last-message-counts",
    breaks="EPP-SUB-09",
    why="Each message of the request overwrites what earlier ones said, so that a hint on the headers alone is lost.",
    versions=WITH_SUBSET,
    modes=("full-duplex", "buffered"),
    effect="warn",
)
class SubsetOfTheLastMessageCounts(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        if kind.startswith("request"):
            self.subset = None
        super().read_metadata(kind, metadata)


# -- odd hints


@fault(
    "odd-subset-is-fatal",
    breaks="ENV-27",
    why="A hint that is no list of strings ends the process.",
    also_breaks={"EPP-SUB-10": "no request with such a hint is answered"},
    versions=WITH_SUBSET,
)
class OddSubsetIsFatal(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        if odd(hint(metadata, self.epp.subset_namespace)):
            os._exit(70)
        super().read_metadata(kind, metadata)


@fault(
    "odd-subset-unanswered",
    breaks="EPP-SUB-10",
    why="A request with a hint that is no list of strings is never answered.",
    also_breaks=SILENT,
    versions=WITH_SUBSET,
)
class OddSubsetUnanswered(Conversation):
    odd_hint = False

    def receive(self, message: ProcessingRequest) -> list[Action]:
        self.odd_hint = self.odd_hint or odd(hint(message.metadata_context, self.epp.subset_namespace))
        return [] if self.odd_hint else super().receive(message)


@fault(
    "odd-subset-means-all",
    breaks="EPP-SUB-10",
    why="A hint that is no list counts as no hint: the door is open where the data plane meant to close it.",
    versions=WITH_SUBSET,
    effect="warn",
)
class OddSubsetMeansAll(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        value = hint(metadata, self.epp.subset_namespace)
        if value is None or value.WhichOneof("kind") == "list_value":
            super().read_metadata(kind, metadata)


@fault(
    "client-leads-out-of-the-subset",
    breaks="EPP-SUB-01",
    why="A destination header of the client is followed if it names an endpoint of the pool, whatever the subset.",
    versions=WITH_SUBSET,
)
class ClientLeadsOutOfTheSubset(Conversation):
    def choose(self, body: bytes) -> Decision:
        wanted = self.headers.get(DESTINATION, b"").decode("latin-1")
        own = [endpoint for endpoint in self.epp.picker.pool.endpoints if endpoint.text == wanted]
        return Picked(tuple(own)) if own else super().choose(body)


class HintRaises(Conversation):
    """Raises an error, which ends the stream with a gRPC status, for some hints."""

    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        value = hint(metadata, self.epp.subset_namespace)
        if value is not None:
            self.inspect([item.string_value for item in value.list_value.values])
        super().read_metadata(kind, metadata)

    def inspect(self, items: list[str]) -> None:
        """Raise `ValueError` if `items`, the members of a hint, are not liked."""


@fault(
    "malformed-member-is-an-error",
    breaks="EPP-SUB-11",
    why="A member of the subset that is no `ip:port` ends the stream with a gRPC error.",
    also_breaks=ENDED,
    versions=WITH_SUBSET,
    effect="warn",
)
class MalformedMemberIsAnError(HintRaises):
    def inspect(self, items: list[str]) -> None:
        for item in items:
            if item:
                parse_endpoint(item)


@fault(
    "long-subset-is-an-error",
    breaks="EPP-SUB-11",
    why="A subset of more than 500 members ends the stream with a gRPC error.",
    also_breaks=ENDED,
    versions=WITH_SUBSET,
    effect="warn",
)
class LongSubsetIsAnError(HintRaises):
    def inspect(self, items: list[str]) -> None:
        if len(items) > 500:
            raise ValueError(f"{len(items)} members are too many")
