"""Faults of the destination (section Destination Endpoint)."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from reference_epp import answers
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, NOT_STEERED, SILENT, WITH_LISTS, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.epp import Action, BodyMode
from reference_epp.names import DESTINATION
from reference_epp.picker import Decision, Picked, Picker, Request

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse, HttpBody, HttpHeaders, ProcessingResponse, Struct

STRANGER = "192.0.2.1:8000"
"""An endpoint of no pool: 192.0.2.0/24 is set aside for documentation."""

# -- header and metadata are there


IN_NO_SUBSET = {
    "EPP-SUB-01": "it is in no subset either",
    "EPP-SUB-07": "nor in one of IPv6 endpoints",
    "EPP-SUB-08": "nor in that of a request without a body",
}


@fault("no-header", breaks="EPP-DEST-01", why="The destination is in the metadata only.")
class NoHeader(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        pass


@fault("no-metadata", breaks="EPP-DEST-02", why="The destination is in the header only.")
class NoMetadata(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        pass


@fault(
    "no-metadata-one-time-in-twenty",
    breaks="EPP-DEST-02",
    why="Every twentieth request has its destination in the header only.",
)
class NoMetadataSometimes(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        if self.number % 20:
            super().destination_metadata(metadata, decision)


@fault(
    "no-header-on-later-connections",
    breaks="EPP-DEST-01",
    why="The header is set only for streams of the first connection.",
)
class NoHeaderOnLaterConnections(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        if self.connection == 1:
            super().destination_header(common, decision)


@fault(
    "no-header-after-forty-streams",
    breaks="EPP-DEST-01",
    why="The header is missing from the forty-first stream on.",
)
class NoHeaderAfterFortyStreams(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        if self.number <= 40:
            super().destination_header(common, decision)


@fault(
    "no-header-when-buffered",
    breaks="EPP-DEST-01",
    why="The answer to a buffered body has the metadata but not the header.",
    modes=BUFFERED,
)
class NoHeaderWhenBuffered(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        if self.request_mode is not BodyMode.BUFFERED:
            super().destination_header(common, decision)


@fault(
    "metadata-as-list",
    breaks="EPP-DEST-02",
    why="The metadata entry is a list value of strings, not one string.",
)
class MetadataAsList(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        values = metadata.fields[self.epp.metadata_namespace].struct_value.fields[DESTINATION].list_value.values
        for endpoint in self.destination(decision).split(","):
            values.add().string_value = endpoint


@fault(
    "metadata-flat",
    breaks="EPP-DEST-03",
    why="The metadata entry is at the top, not inside a namespace.",
)
class MetadataFlat(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        metadata.fields[DESTINATION].string_value = self.destination(decision)


@fault("metadata-in-other-namespace", breaks="EPP-DEST-03", why="The metadata's namespace is not `envoy.lb`.")
class MetadataInOtherNamespace(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        fields = metadata.fields["envoy.lb.destination"].struct_value.fields
        fields[DESTINATION].string_value = self.destination(decision)


# -- the value's form


@fault(
    "host-name-for-address",
    breaks="EPP-DEST-04",
    why="Requests without a body take another code path, which gives a host name where the text wants an IP address.",
)
class HostNameForAddress(Conversation):
    def destination(self, decision: Picked) -> str:
        return super().destination(decision) if self.body else f"localhost:{decision.endpoints[0].port}"


@fault(
    "no-port",
    breaks="EPP-DEST-04",
    why="The endpoints of a list after its first have no port.",
    versions=WITH_LISTS,
)
class NoPort(Conversation):
    def destination(self, decision: Picked) -> str:
        first, *rest = decision.endpoints
        return ",".join([first.text, *(endpoint.ip for endpoint in rest)])


@fault("scheme-prefix", breaks="EPP-DEST-04", why="The endpoint is written as a URL.")
class SchemePrefix(Conversation):
    def destination(self, decision: Picked) -> str:
        return f"http://{super().destination(decision)}"


@fault(
    "trailing-comma",
    breaks="EPP-DEST-04",
    why="A comma follows the last endpoint, so that the list has an empty item.",
)
class TrailingComma(Conversation):
    def destination(self, decision: Picked) -> str:
        return f"{super().destination(decision)},"


@fault(
    "tabs-in-the-list",
    breaks="EPP-DEST-04",
    why="Tabs follow the commas of a list: most readers trim them, the grammar has none.",
    versions=WITH_LISTS,
    effect="warn",
    noted={"EPP-DEST-11": "\\t"},
)
class TabsInTheList(Conversation):
    def destination(self, decision: Picked) -> str:
        return super().destination(decision).replace(",", ",\t")


@fault(
    "list-where-one-is-due",
    breaks="EPP-DEST-04",
    why="Two endpoints are listed in a version whose format is one `ip:port`.",
    versions=("0.2.0", "0.3.0"),
)
class ListWhereOneIsDue(Conversation):
    def destination(self, decision: Picked) -> str:
        return ",".join(endpoint.text for endpoint in decision.endpoints)


@fault("ipv6-without-brackets", breaks="EPP-DEST-04", why="An IPv6 endpoint is address, colon and port, run together.")
class Ipv6WithoutBrackets(Conversation):
    def destination(self, decision: Picked) -> str:
        return super().destination(decision).replace("[", "").replace("]", "")


@fault(
    "ipv6-without-brackets-for-bodyless",
    breaks="EPP-DEST-04",
    why="Requests without a body take another code path, which forgets the brackets.",
)
class Ipv6WithoutBracketsForBodyless(Conversation):
    def destination(self, decision: Picked) -> str:
        text = super().destination(decision)
        return text if self.body else text.replace("[", "").replace("]", "")


# -- header and metadata agree


@fault("metadata-differs", breaks="EPP-DEST-05", why="The metadata names another endpoint than the header.")
class MetadataDiffers(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, Picked(decision.endpoints[::-1]))


@fault(
    "metadata-has-only-the-first",
    breaks="EPP-DEST-05",
    why="The header has the list, the metadata only its first endpoint.",
    versions=WITH_LISTS,
)
class MetadataHasOnlyTheFirst(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, Picked(decision.endpoints[:1]))


@fault(
    "header-set-twice",
    breaks="EPP-DEST-05",
    why="The header is set twice, the second time to another endpoint than the metadata has.",
)
class HeaderSetTwice(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        super().destination_header(common, Picked(decision.endpoints[::-1]))


@fault(
    "client-header-wins",
    breaks="EPP-DEST-05",
    why="The client's headers are set again after our own, and its destination header with them: it steers itself.",
)
class ClientHeaderWins(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if DESTINATION in self.headers:
            answers.set_header(common.header_mutation, DESTINATION, self.headers[DESTINATION])


# -- only what the pool has


@fault(
    "removed-endpoint-kept",
    breaks="EPP-DEST-06",
    why="Endpoints that have left the pool are picked, even before those that are in it.",
    versions=WITH_SUBSET,
)
class RemovedEndpointKept(Picker):
    seen: dict[Endpoint, None]

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        self.seen = getattr(self, "seen", {}) | dict.fromkeys(self.pool.endpoints)
        return super().eligible(request)

    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        gone = [endpoint for endpoint in self.seen if endpoint not in self.pool.endpoints]
        if request.subset is not None:
            gone = [endpoint for endpoint in gone if endpoint in request.subset]
        return [*gone, *super().rank(candidates, request)]


@fault(
    "stranger-in-list",
    breaks="EPP-DEST-06",
    why="The last endpoint of the list is not in the pool; the first one is.",
    also_breaks=IN_NO_SUBSET,
    versions=WITH_LISTS,
)
class StrangerInList(Conversation):
    def destination(self, decision: Picked) -> str:
        return f"{decision.endpoints[0]},{STRANGER}"


@fault(
    "stranger-one-time-in-twenty",
    breaks="EPP-DEST-06",
    why="Every twentieth request is sent to an endpoint that is not in the pool.",
    also_breaks=IN_NO_SUBSET,
    versions=WITH_SUBSET,
)
class StrangerSometimes(Conversation):
    def destination(self, decision: Picked) -> str:
        return super().destination(decision) if self.number % 20 else STRANGER


# -- for each request


@fault(
    "bodyless-unsteered",
    breaks="EPP-DEST-07",
    why="A request without a body is let go without an endpoint.",
)
class BodylessUnsteered(Conversation):
    bodyless = False

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.bodyless = headers.end_of_stream
        return super().on_request_headers(headers)

    def steer(self, answer: ProcessingResponse, common: CommonResponse, decision: Picked) -> None:
        if not self.bodyless:
            super().steer(answer, common, decision)


@fault(
    "other-paths-unsteered",
    breaks="EPP-DEST-07",
    why="A request for another path than those of the inference API is let go without an endpoint.",
    also_breaks=NOT_STEERED,
)
class OtherPathsUnsteered(Conversation):
    def steer(self, answer: ProcessingResponse, common: CommonResponse, decision: Picked) -> None:
        if self.headers.get(":path", b"").endswith(b"completions"):
            super().steer(answer, common, decision)


@fault(
    "non-json-unanswered",
    breaks="EPP-DEST-07",
    why="A request whose body is not JSON is never answered.",
    also_breaks=SILENT
    | {"EPP-SUB-02": "nor is it where the subset leaves no endpoint", "EPP-SUB-03": "nor for an empty one"},
)
class NonJsonUnanswered(Conversation):
    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        actions = list(super().on_request_body(body))
        text = b"".join(self.body).strip()
        return [] if body.end_of_stream and text and text[:1] not in b"{[" else actions


@fault(
    "destination-changes-later",
    breaks="EPP-DEST-08",
    why="The answer to the response's headers says another destination than the one that the request went to.",
    effect="warn",
    also_breaks={"RAR-OUT-05": "an EPP with a reporter must leave the destination as it is there"},
)
class DestinationChangesLater(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, _ = answers.headers_answer("response")
        if isinstance(self.decision, Picked):
            self.destination_metadata(answer.dynamic_metadata, Picked(self.decision.endpoints[::-1]))
        return [answer]


@fault(
    "previous-destination",
    breaks="EPP-DEST-10",
    why="A request gets the endpoint that was picked for the request before it on the same connection.",
    also_breaks={
        "EPP-SUB-01": "the earlier pick may be outside this request's subset",
        "EPP-SUB-06": "so it is on another port of the pod",
        "EPP-SUB-07": "so it is for IPv6 endpoints",
        "EPP-SUB-08": "so it is for a request without a body",
        "EPP-DEST-06": "the earlier pick may have left the pool",
    },
    versions=WITH_SUBSET,
)
class PreviousDestination(Conversation):
    previous: ClassVar[dict[int, Picked]] = {}

    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        if isinstance(decision, Picked):
            previous = self.previous.get(self.connection, decision)
            self.previous[self.connection] = decision
            return previous
        return decision
