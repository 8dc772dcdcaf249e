"""Faults of the subset hint (section Endpoint Subset)."""
# fmt: off

from __future__ import annotations

import os
from functools import partial
from typing import Any

from reference_epp.changes import changed, eligible
from reference_epp.conversation import Conversation
from reference_epp.deviations import ENDED, NEXT, SILENT, WHOLE_BODY, WITH_LISTS, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint, parse_endpoint
from reference_epp.names import DESTINATION, SUBSET
from reference_epp.picker import SERVICE_UNAVAILABLE, Decision, Picked, Picker, Refused, Request

subset_fault = partial(fault, versions=WITH_SUBSET)

BODYLESS_TOO = {"EPP-SUB-08": "so it is for a request without a body"}
OUTSIDE = {"EPP-SUB-01": "the pick is outside the subset"}
WRONG_PORT = {"EPP-SUB-06": "so it is when only the port is wrong"}


def hint(conversation: Any, metadata: Any) -> Any:
    """The raw value of the subset hint, or None."""
    namespace = conversation.epp.subset_namespace
    if namespace not in metadata.filter_metadata:
        return None
    fields = metadata.filter_metadata[namespace].fields
    return fields[SUBSET] if SUBSET in fields else None  # noqa: SIM401  # `get` of a protobuf map makes the entry


def kind(value: Any) -> str:
    """The kind of a hint's value, empty without a hint."""
    return "" if value is None else value.WhichOneof("kind") or "null_value"


def odd(value: Any) -> bool:
    """Whether a hint is no list of strings."""
    if kind(value) in ("", "list_value"):
        return value is not None and any(kind(item) != "string_value" for item in value.list_value.values)
    return True


def unread(skip: Any) -> type[Conversation]:
    """Does not read the metadata of requests for whose hint `skip(value)` is true."""
    def act(up: Any, c: Any, message: str, metadata: Any) -> None:
        if not skip(hint(c, metadata)):
            up(message, metadata)

    return changed(Conversation, read_metadata=act)


# -- the pick stays inside


def _only_first(up: Any, p: Any, candidates: Any, request: Request) -> list[Endpoint]:
    first = up(candidates, request)[0]
    return [first, *(one for one in p.pool.endpoints if one != first)]


def _better_outside(up: Any, p: Any, candidates: Any, request: Request) -> Any:
    def queue(endpoint: Endpoint) -> float:
        gauges = p.readings.get(endpoint)
        return 0 if gauges is None else gauges.queued

    idle = [one for one in p.pool.endpoints if p.readings.get(one) is not None and queue(one) == 0]
    busy = all(queue(one) > 0 for one in candidates)
    return up(idle if busy and idle else candidates, request)


def _client_leads(up: Any, c: Any, body: bytes) -> Decision:
    wanted = c.headers.get(DESTINATION, b"").decode("latin-1")
    own = tuple(one for one in c.epp.picker.pool.endpoints if one.text == wanted)
    return Picked(own) if own else up(body)


subset_fault("subset-ignored", "EPP-SUB-01",
             "If any endpoint of the subset is eligible, the whole pool is.",
             eligible(lambda p, _, found: p.pool.endpoints if found else []),
             also={"EPP-SUB-05": "so it is for a subset with known and unknown members",
                   "EPP-SUB-06": "so it is for a subset with one port of several",
                   "EPP-SUB-07": "so it is for a subset of IPv6 endpoints", **BODYLESS_TOO,
                   "EPP-SUB-09": "so it is for a hint on the headers message only"})
fault("subset-binds-only-the-first", "EPP-SUB-01",
      "The first endpoint of the list is in the subset, those after it come from the whole pool.",
      changed(Picker, rank=_only_first),
      also={"EPP-SUB-06": "the other port of a pod is one of those after it",
            "EPP-SUB-07": "and so are pods with addresses of the other kind", **BODYLESS_TOO}, versions=WITH_LISTS)
subset_fault("better-endpoint-outside-wins", "EPP-SUB-01",
             "An idle endpoint outside the subset is preferred when all endpoints inside have a queue.",
             changed(Picker, rank=_better_outside), also=BODYLESS_TOO)
subset_fault("client-leads-out-of-the-subset", "EPP-SUB-01",
             "A client's destination header is followed if the pool has the endpoint, whatever the subset.",
             changed(Conversation, choose=_client_leads))

# -- none eligible


def _code(code: int) -> type[Picker]:
    """Refuses with another code when the subset leaves nothing."""
    return changed(Picker, none_eligible=lambda up, p, request:
                   Refused(code, "no endpoint in subset") if request.subset and p.pool.endpoints else up(request))


def _waiting(waits: Any) -> type[Conversation]:
    """Never answers where 503 is due and `waits(conversation)` is true."""
    return changed(Conversation, refuse=lambda up, c, refusal:
                   [] if refusal.code == SERVICE_UNAVAILABLE and waits(c) else up(refusal))


def _saturated_opens(up: Any, p: Any, request: Request) -> Decision:
    outside = [one for one in p.pool.endpoints if one not in (request.subset or ())]
    return Picked((outside[0],)) if request.subset and outside else up(request)


subset_fault("none-eligible-means-all", "EPP-SUB-02",
             "If no endpoint of the subset is eligible, the whole pool is.",
             eligible(lambda p, request, found: found or (p.pool.endpoints if request.subset else [])),
             also=OUTSIDE | WRONG_PORT)
subset_fault("none-eligible-500", "EPP-SUB-02",
             "500 instead of 503 if no endpoint of the subset is eligible.", _code(500), also=WRONG_PORT)
subset_fault("none-eligible-429", "EPP-SUB-02",
             "429 instead of 503 if no endpoint of the subset is eligible: every failure counts as overload.",
             _code(429), also=WRONG_PORT)
subset_fault("empty-subset-means-all", "EPP-SUB-03",
             "A subset without members counts as no subset.",
             unread(lambda value: kind(value) == "list_value" and not value.list_value.values), also=OUTSIDE)
subset_fault("none-eligible-unanswered", "EPP-SUB-02",
             "A request is never answered if no endpoint of its subset is eligible: it waits for one.",
             _waiting(lambda c: c.subset and c.epp.picker.pool.endpoints), also=SILENT | WRONG_PORT)
fault("queued-for-ever", "EPP-SUB-14",
      "A request is queued until an endpoint of its subset is eligible, however long that takes.",
      _waiting(lambda c: c.subset is not None),
      also=SILENT | {"EPP-SUB-02": "503 is due", "EPP-SUB-03": "so it is for an empty subset"},
      versions=NEXT, claims={"queues": True})
subset_fault("saturated-subset-opens", "EPP-SUB-13",
             "A sheddable request whose subset is saturated gets an endpoint outside it.",
             changed(Picker, shed=_saturated_opens), also=OUTSIDE, effect="warn")

# -- which endpoints a subset names, and when


def _no_key_means_none(up: Any, c: Any, message: str, metadata: Any) -> None:
    up(message, metadata)
    present = c.epp.subset_namespace in metadata.filter_metadata
    if message == "request_headers" and present and hint(c, metadata) is None:
        c.subset = frozenset()


def _last_counts(up: Any, c: Any, message: str, metadata: Any) -> None:
    if message.startswith("request"):
        c.subset = None
    up(message, metadata)


def _by_address(p: Any, request: Request, found: Any) -> Any:
    addresses = {one.ip for one in request.subset or ()}
    return found if request.subset is None else [one for one in p.pool.endpoints if one.ip in addresses]


def _no_subset(up: Any, c: Any, body: bytes) -> Decision:
    c.subset = None
    decision: Decision = up(body)
    return decision


subset_fault("namespace-without-key-means-none", "EPP-SUB-04",
             "The hint's namespace without the hint's key counts as an empty subset: 503.",
             changed(Conversation, read_metadata=_no_key_means_none))
subset_fault("mixed-subset-refused", "EPP-SUB-05",
             "503 as soon as one endpoint of the subset is unknown, although others are eligible.",
             eligible(lambda p, request, found:
                      found if request.subset is None or request.subset <= frozenset(p.pool.endpoints) else []))
subset_fault("subset-by-address", "EPP-SUB-06",
             "Members of the subset are compared by address; their port is ignored.", eligible(_by_address),
             also={"EPP-SUB-01": "an endpoint with another port is outside the subset",
                   "EPP-SUB-02": "a subset with a right address and a wrong port leaves nothing", **BODYLESS_TOO})
subset_fault("ipv6-subset-never-matches", "EPP-SUB-07",
             "The brackets of an IPv6 member stay on, so that it equals no endpoint: 503.",
             eligible(lambda _, request, found:
                      found if request.subset is None else [one for one in found if ":" not in one.ip]),
             also=BODYLESS_TOO)
subset_fault("subset-ignored-for-bodyless", "EPP-SUB-08",
             "The subset of requests without a body is not looked at.",
             changed(Conversation, choose=_no_subset), when=lambda c: not c.body,
             also={**OUTSIDE,
                   "EPP-SUB-02": "a bodyless request whose subset leaves nothing gets an endpoint",
                   "EPP-SUB-03": "a bodyless request with an empty subset gets an endpoint"})
subset_fault("subset-of-the-last-message-counts", "EPP-SUB-09",
             "Each message of the request overwrites earlier hints: a hint on the headers alone is lost.",
             changed(Conversation, read_metadata=_last_counts), modes=WHOLE_BODY, effect="warn")

# -- odd hints


def _raising(inspect: Any) -> type[Conversation]:
    """Calls `inspect` with the members of each hint; an error ends the stream with a gRPC status."""
    def act(up: Any, c: Any, message: str, metadata: Any) -> None:
        value = hint(c, metadata)
        if value is not None:
            inspect([item.string_value for item in value.list_value.values])
        up(message, metadata)

    return changed(Conversation, read_metadata=act)


def _at_most_500(items: list[str]) -> None:
    if len(items) > 500:
        raise ValueError(f"{len(items)} members are too many")


subset_fault("odd-subset-is-fatal", "ENV-27",
             "A hint that is no list of strings ends the process.",
             unread(lambda value: odd(value) and os._exit(70)),
             also={"EPP-SUB-10": "no request with such a hint is answered"})
subset_fault("odd-subset-means-all", "EPP-SUB-10",
             "A hint that is no list counts as no hint, where the data plane meant to limit the choice.",
             unread(lambda value: kind(value) not in ("", "list_value")), effect="warn")
subset_fault("empty-text-means-all", "EPP-SUB-10",
             "A hint that is an empty text counts as no hint.",
             unread(lambda value: kind(value) == "string_value" and not value.string_value), effect="warn")
subset_fault("malformed-member-is-an-error", "EPP-SUB-11",
             "A member of the subset that is no `ip:port` ends the stream with a gRPC error.",
             _raising(lambda items: [parse_endpoint(item) for item in items if item]), also=ENDED, effect="warn")
subset_fault("long-subset-is-an-error", "EPP-SUB-11",
             "A subset of more than 500 members ends the stream with a gRPC error.",
             _raising(_at_most_500), also=ENDED, effect="warn")


@subset_fault("odd-subset-unanswered", "EPP-SUB-10",
              "A request with a hint that is no list of strings is never answered.", also=SILENT)
class OddSubsetUnanswered(Conversation):
    odd_hint = False

    def receive(self, message: Any) -> Any:
        self.odd_hint = self.odd_hint or odd(hint(self, message.metadata_context))
        return [] if self.odd_hint else super().receive(message)


@subset_fault("odd-subset-means-all-without-a-body", "EPP-SUB-10",
              "For a request without a body, a hint that is no list counts as no hint.", effect="warn")
class OddSubsetMeansAllWithoutABody(Conversation):
    no_list = False

    def read_metadata(self, kind_: str, metadata: Any) -> None:
        self.no_list = kind(hint(self, metadata)) not in ("", "list_value")
        super().read_metadata(kind_, metadata)

    def on_request_headers(self, headers: Any) -> Any:
        if headers.end_of_stream and self.no_list:
            self.subset = None
        return super().on_request_headers(headers)
