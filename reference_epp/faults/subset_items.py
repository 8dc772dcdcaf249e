"""Faults in when a subset is read, which of its items are, and how they are compared with the pool."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from reference_epp.conversation import Conversation
from reference_epp.deviations import WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.faults.subset import hint
from reference_epp.picker import Decision, Picked, Picker, Request, inside_subset

if TYPE_CHECKING:
    from ext_proc.messages import HttpHeaders, Metadata
    from reference_epp.epp import Action


class ComparesText(Picker):
    """Compares the text of an endpoint with each item of a subset."""

    fits: ClassVar[Callable[[str, str], bool]]

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is None:
            return super().eligible(request)
        items = [item.text for item in request.subset]
        return [one for one in self.pool.endpoints if any(type(self).fits(one.text, item) for item in items)]


@fault(
    "subset-port-by-prefix",
    breaks="EPP-SUB-06",
    why="An item of the subset fits every endpoint whose text begins with it: port 800 allows port 8000.",
    also_breaks={
        "EPP-SUB-01": "the pick is outside the subset",
        "EPP-SUB-02": "an endpoint is given where none is left",
    },
    versions=WITH_SUBSET,
)
class SubsetPortByPrefix(ComparesText):
    fits = str.startswith


@fault(
    "subset-address-by-its-end",
    breaks="EPP-SUB-02",
    why="An item of the subset fits every endpoint whose text ends with it: 27.0.0.1:8000 allows 127.0.0.1:8000.",
    versions=WITH_SUBSET,
)
class SubsetAddressByItsEnd(ComparesText):
    fits = str.endswith


@fault(
    "ipv6-subset-opens-the-pool",
    breaks="EPP-SUB-07",
    why="A subset with an IPv6 endpoint is not understood and allows the whole pool, of which one is picked at random.",
    also_breaks={
        "EPP-SUB-01": "the pick is outside the subset",
        "EPP-SUB-02": "an endpoint is given where none is left",
        "EPP-SUB-08": "so it is for a request without a body",
    },
    versions=WITH_SUBSET,
)
class Ipv6SubsetOpensThePool(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        six = request.subset is not None and any(":" in item.ip for item in request.subset)
        return self.pool.endpoints if six else super().eligible(request)

    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        return random.sample(list(candidates), len(candidates))


@fault(
    "subset-address-and-port-apart",
    breaks="EPP-SUB-06",
    why="An endpoint is in the subset if its address is that of some item and its port that of some other.",
    also_breaks={"EPP-SUB-01": "the pick is outside the subset"},
    versions=WITH_SUBSET,
)
class SubsetAddressAndPortApart(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        if request.subset is None:
            return super().eligible(request)
        addresses, ports = {item.ip for item in request.subset}, {item.port for item in request.subset}
        return [one for one in self.pool.endpoints if one.ip in addresses and one.port in ports]


@fault(
    "none-of-several-means-all",
    breaks="EPP-SUB-02",
    why="A subset of several endpoints, of which the pool has none, allows the whole pool.",
    versions=WITH_SUBSET,
)
class NoneOfSeveralMeansAll(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        several = len(request.subset or ()) > 1
        return super().eligible(request) or (self.pool.endpoints if several else ())


@fault(
    "whole-pool-means-none",
    breaks="EPP-SUB-02",
    why="A subset that leaves out no endpoint of a pool of several is taken for no choice, and gets 503.",
    also_breaks={"EPP-SUB-08": "so it is for a request without a body"},
    versions=WITH_SUBSET,
)
class WholePoolMeansNone(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        candidates = super().eligible(request)
        whole = request.subset is not None and len(candidates) == len(self.pool.endpoints) > 1
        return () if whole else candidates


@fault(
    "bodyless-on-the-first-port",
    breaks="EPP-SUB-08",
    why="A request without a body gets the first port of the pod that is picked for it, whichever the subset names.",
    versions=WITH_SUBSET,
)
class BodylessOnTheFirstPort(Picker):
    def pick(self, request: Request) -> Decision:
        decision = super().pick(request)
        if request.body or not isinstance(decision, Picked):
            return decision
        pods = dict.fromkeys(one.ip for one in decision.endpoints)
        return Picked(tuple(min(one for one in self.pool.endpoints if one.ip == ip) for ip in pods))


# -- which items are read


class ReadsSomeItems(Conversation):
    """Reads a part of the hint's list."""

    part: ClassVar[slice]

    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        value = hint(metadata, self.epp.subset_namespace)
        if value is not None and len(value.list_value.values) > 1:
            read = [item.string_value for item in value.list_value.values][self.part]
            del value.list_value.values[:]
            for item in read:
                value.list_value.values.add(string_value=item)
        super().read_metadata(kind, metadata)


@fault(
    "last-of-subset-lost",
    breaks="EPP-SUB-05",
    why="The last item of a list of several is lost.",
    versions=WITH_SUBSET,
)
class LastOfSubsetLost(ReadsSomeItems):
    part = slice(-1)


@fault(
    "long-subset-cut",
    breaks="EPP-SUB-05",
    why="Of a subset the first 600 members are read.",
    versions=WITH_SUBSET,
)
class LongSubsetCut(ReadsSomeItems):
    part = slice(600)


@fault(
    "subset-of-the-best-ten",
    breaks="EPP-SUB-02",
    why="Of the ten best endpoints of the pool those in the subset are left; with more pods, an eligible one gets 503.",
    versions=WITH_SUBSET,
)
class SubsetOfTheBestTen(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        everything = self.pool.endpoints
        return inside_subset(self.rank(everything, request)[:10] if everything else (), request)


@fault(
    "sixty-four-endpoints",
    breaks="EPP-SUB-02",
    why="Of the pool the first 64 endpoints are known; with more pods, a subset of a later one gets 503.",
    versions=WITH_SUBSET,
)
class SixtyFourEndpoints(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return inside_subset(self.pool.endpoints[:64], request)


# -- when it is read


@fault(
    "subset-beside-other-namespaces-ignored",
    breaks="EPP-SUB-01",
    why="The hint is read only if no other namespace comes with it.",
    versions=WITH_SUBSET,
)
class SubsetBesideOtherNamespacesIgnored(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        if not kind.startswith("request") or len(metadata.filter_metadata) == 1:
            super().read_metadata(kind, metadata)


@fault(
    "subset-beside-other-keys-ignored",
    breaks="EPP-SUB-01",
    why="The hint is read only if its namespace has no other key.",
    versions=WITH_SUBSET,
)
class SubsetBesideOtherKeysIgnored(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        own = metadata.filter_metadata.get(self.epp.subset_namespace)
        if not kind.startswith("request") or own is None or len(own.fields) == 1:
            super().read_metadata(kind, metadata)


@fault(
    "ipv6-subset-by-address",
    breaks="EPP-SUB-06",
    why="An IPv6 item of the subset is split at its last colon, and what follows is thrown away with the port.",
    also_breaks={"EPP-SUB-02": "an endpoint is given where none is left"},
    versions=WITH_SUBSET,
)
class Ipv6SubsetByAddress(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        allowed = {item.ip for item in request.subset or () if ":" in item.ip}
        rest = super().eligible(request)
        return [one for one in self.pool.endpoints if one in rest or one.ip in allowed]


@fault(
    "unknown-ipv6-opens-the-pool",
    breaks="EPP-SUB-02",
    why="A subset whose only endpoint is an IPv6 one that the pool does not have allows the whole pool.",
    versions=WITH_SUBSET,
)
class UnknownIpv6OpensThePool(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        six = bool(request.subset) and all(":" in item.ip for item in request.subset or ())
        return super().eligible(request) or (self.pool.endpoints if six else ())


@fault(
    "odd-subset-means-all-without-a-body",
    breaks="EPP-SUB-10",
    why="For a request without a body, a hint that is no list counts as no hint.",
    versions=WITH_SUBSET,
    effect="warn",
)
class OddSubsetMeansAllWithoutABody(Conversation):
    no_list = False

    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        value = hint(metadata, self.epp.subset_namespace)
        self.no_list = value is not None and value.WhichOneof("kind") != "list_value"
        super().read_metadata(kind, metadata)

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        if headers.end_of_stream and self.no_list:
            self.subset = None
        return super().on_request_headers(headers)


@fault(
    "subset-forgotten-for-sheddable",
    breaks="EPP-SUB-01",
    why="A sheddable request takes another path: if its subset has room, it gets an endpoint of the whole pool.",
    also_breaks={"EPP-SUB-08": "so it is for a request without a body"},
    versions=WITH_SUBSET,
)
class SubsetForgottenForSheddable(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        candidates = super().eligible(request)
        room = bool(candidates) and not self.saturated(candidates)
        return self.pool.endpoints if request.sheddable and room else candidates


@fault(
    "empty-text-means-all",
    breaks="EPP-SUB-10",
    why="A hint that is an empty text counts as no hint.",
    versions=WITH_SUBSET,
    effect="warn",
)
class EmptyTextMeansAll(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        value = hint(metadata, self.epp.subset_namespace)
        if value is None or value.WhichOneof("kind") != "string_value" or value.string_value:
            super().read_metadata(kind, metadata)
