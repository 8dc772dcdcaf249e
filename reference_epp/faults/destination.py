"""Faults of the destination (section Destination Endpoint)."""
# fmt: off

from __future__ import annotations

import ipaddress
from typing import Any, ClassVar

from reference_epp import answers
from reference_epp.changes import bodyless, changed, destination, namespace, nothing, setting
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, NOT_STEERED, SILENT, WITH_LISTS, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint
from reference_epp.epp import BodyMode
from reference_epp.names import DESTINATION
from reference_epp.picker import Decision, Picked, Picker, Request

STRANGER = "192.0.2.1:8000"
"""An endpoint of no pool: 192.0.2.0/24 is set aside for documentation."""

IN_NO_SUBSET = {
    "EPP-SUB-01": "it is in no subset either",
    "EPP-SUB-07": "nor in one of IPv6 endpoints",
    "EPP-SUB-08": "nor in that of a request without a body",
}

# -- header and metadata are there

NO_HEADER = changed(Conversation, destination_header=nothing)
NO_METADATA = changed(Conversation, destination_metadata=nothing)

fault("no-header", "EPP-DEST-01", "The destination is in the metadata only.", NO_HEADER)
fault("no-header-on-later-connections", "EPP-DEST-01",
      "The header is set only for streams of the first connection.",
      NO_HEADER, when=lambda c: c.connection != 1)
fault("no-header-after-forty-streams", "EPP-DEST-01",
      "The header is missing from the forty-first stream on.",
      NO_HEADER, when=lambda c: c.number > 40)
fault("no-header-when-buffered", "EPP-DEST-01",
      "The answer to a buffered body has the metadata but not the header.",
      NO_HEADER, when=lambda c: c.request_mode is BodyMode.BUFFERED, modes=BUFFERED)
fault("no-metadata", "EPP-DEST-02", "The destination is in the header only.", NO_METADATA)
fault("no-metadata-one-time-in-twenty", "EPP-DEST-02",
      "Every twentieth request has its destination in the header only.",
      NO_METADATA, when=lambda c: c.number % 20 == 0)


def _metadata(write: Any) -> type[Conversation]:
    """Writes the metadata by `write(conversation, metadata, text)`."""
    return changed(Conversation, destination_metadata=lambda _, c, metadata, decision: write(
        c, metadata, c.destination(decision)))


def _as_list(c: Any, metadata: Any, text: str) -> None:
    for one in text.split(","):
        namespace(c, metadata)[DESTINATION].list_value.values.add(string_value=one)


def _flat(_: Any, metadata: Any, text: str) -> None:
    metadata.fields[DESTINATION].string_value = text


def _elsewhere(_: Any, metadata: Any, text: str) -> None:
    metadata.fields["envoy.lb.destination"].struct_value.fields[DESTINATION].string_value = text


def _as_text(c: Any, metadata: Any, text: str) -> None:
    metadata.fields[c.epp.metadata_namespace].string_value = f"{DESTINATION}={text}"


fault("metadata-as-list", "EPP-DEST-02",
      "The metadata entry is a list value of strings, not one string.", _metadata(_as_list))
fault("metadata-flat", "EPP-DEST-03",
      "The metadata entry is at the top, not inside a namespace.", _metadata(_flat))
fault("metadata-in-other-namespace", "EPP-DEST-03",
      "The metadata's namespace is not `envoy.lb`.", _metadata(_elsewhere))
fault("namespace-is-no-struct", "ENV-14",
      "The metadata namespace holds the endpoint as a string, which Envoy reads as an empty struct.",
      _metadata(_as_text), also={"EPP-DEST-02": "there is no entry in the namespace"})

# -- the value's form


def _exploded(_: Any, text: str, decision: Picked) -> str:
    for one in decision.endpoints:
        if ":" in one.ip:
            text = text.replace(one.ip, ipaddress.ip_address(one.ip).exploded)
    return text


BARE_IPV6 = destination(lambda _, text, __: text.replace("[", "").replace("]", ""))

fault("host-name-for-address", "EPP-DEST-04",
      "Requests without a body get a host name where the text wants an IP address.",
      destination(lambda _, __, decision: f"localhost:{decision.endpoints[0].port}"), when=lambda c: not c.body)
fault("no-port", "EPP-DEST-04",
      "The endpoints of a list after its first have no port.",
      destination(lambda _, __, decision: ",".join(
          [decision.endpoints[0].text, *(one.ip for one in decision.endpoints[1:])])),
      versions=WITH_LISTS)
fault("scheme-prefix", "EPP-DEST-04",
      "The endpoint is written as a URL.", destination(lambda _, text, __: f"http://{text}"))
fault("trailing-comma", "EPP-DEST-04",
      "A comma follows the last endpoint, so that the list has an empty item.",
      destination(lambda _, text, __: f"{text},"))
fault("tabs-in-the-list", "EPP-DEST-04",
      "Tabs follow the commas of a list: most readers trim them, the grammar has none.",
      destination(lambda _, text, __: text.replace(",", ",\t")),
      versions=WITH_LISTS, effect="warn", noted={"EPP-DEST-11": "\\t"})
fault("list-where-one-is-due", "EPP-DEST-04",
      "Two endpoints are listed in a version whose format is one `ip:port`.",
      destination(lambda _, __, decision: ",".join(one.text for one in decision.endpoints)),
      versions=("0.2.0", "0.3.0"))
fault("ipv6-without-brackets", "EPP-DEST-04",
      "An IPv6 endpoint is address, colon and port, run together.", BARE_IPV6)
fault("ipv6-without-brackets-for-bodyless", "EPP-DEST-04",
      "Requests without a body get IPv6 endpoints without brackets.", BARE_IPV6, when=lambda c: not c.body)
fault("ipv6-written-out", "EPP-DEST-04",
      "IPv6 addresses are written with all of their digits, by which Envoy finds no host.",
      destination(_exploded), effect="warn")
fault("endpoint-listed-twice", "EPP-DEST-04",
      "The first endpoint of a list is its last one, too.",
      destination(lambda _, text, decision: f"{text},{decision.endpoints[0]}"), versions=WITH_LISTS, effect="warn")

# -- header and metadata agree


def _set_twice(up: Any, _: Any, common: Any, decision: Picked) -> None:
    up(common, decision)
    up(common, Picked(decision.endpoints[::-1]))


def _set_before(up: Any, _: Any, common: Any, decision: Picked) -> None:
    if len(decision.endpoints) > 1:
        up(common, Picked(decision.endpoints[::-1]))
    up(common, decision)


def _clients(c: Any, _: Any) -> dict[str, bytes]:
    return {DESTINATION: c.headers[DESTINATION]} if DESTINATION in c.headers else {}


fault("metadata-differs", "EPP-DEST-05",
      "The metadata names another endpoint than the header.",
      changed(Conversation, destination_metadata=lambda up, _, metadata, decision: up(
          metadata, Picked(decision.endpoints[::-1]))))
fault("metadata-has-only-the-first", "EPP-DEST-05",
      "The header has the list, the metadata only its first endpoint.",
      changed(Conversation, destination_metadata=lambda up, _, metadata, decision: up(
          metadata, Picked(decision.endpoints[:1]))), versions=WITH_LISTS)
fault("header-set-twice", "EPP-DEST-05",
      "The header is set twice, the second time to another endpoint than the metadata has.",
      changed(Conversation, destination_header=_set_twice))
fault("header-set-before", "EPP-DEST-05",
      "The header is set twice, and only the second time to the endpoint that the metadata has.",
      changed(Conversation, destination_header=_set_before))
fault("client-header-wins", "EPP-DEST-05",
      "The client's destination header is set again after our own: the client steers itself.",
      setting(_clients))
fault("client-steers-chat", "EPP-DEST-05",
      "The client's destination header is set again after our own for /v1/chat/completions.",
      setting(_clients), when=lambda c: c.headers.get(":path") == b"/v1/chat/completions")


@fault("client-steers-in-the-older-field", "EPP-DEST-05",
       "The client's destination is set again if it came in `value` instead of `raw_value`.")
class ClientSteersInTheOlderField(Conversation):
    older = b""

    def on_request_headers(self, headers: Any) -> Any:
        self.older = b"".join(one.value.encode() for one in headers.headers.headers if one.key == DESTINATION)
        return super().on_request_headers(headers)

    def destination_header(self, common: Any, decision: Picked) -> None:
        super().destination_header(common, decision)
        if self.older:
            answers.set_header(common.header_mutation, DESTINATION, self.older)


# -- only what the pool has

fault("stranger-in-list", "EPP-DEST-06",
      "The last endpoint of the list is not in the pool; the first one is.",
      destination(lambda _, __, decision: f"{decision.endpoints[0]},{STRANGER}"),
      also=IN_NO_SUBSET, versions=WITH_LISTS)
fault("stranger-one-time-in-twenty", "EPP-DEST-06",
      "Every twentieth request is sent to an endpoint that is not in the pool.",
      destination(lambda *_: STRANGER), when=lambda c: c.number % 20 == 0,
      also=IN_NO_SUBSET, versions=WITH_SUBSET)


@fault("removed-endpoint-kept", "EPP-DEST-06",
       "Endpoints that have left the pool are picked, even before those that are in it.",
       versions=WITH_SUBSET)
class RemovedEndpointKept(Picker):
    seen: dict[Endpoint, None]

    def eligible(self, request: Request) -> Any:
        self.seen = getattr(self, "seen", {}) | dict.fromkeys(self.pool.endpoints)
        return super().eligible(request)

    def rank(self, candidates: Any, request: Request) -> list[Endpoint]:
        gone = [one for one in self.seen if one not in self.pool.endpoints]
        if request.subset is not None:
            gone = [one for one in gone if one in request.subset]
        return [*gone, *super().rank(candidates, request)]


# -- for each request


def _non_json(up: Any, c: Any, body: Any) -> Any:
    actions = list(up(body))
    text = b"".join(c.body).strip()
    return [] if body.end_of_stream and text and text[:1] not in b"{[" else actions


UNSTEERED = changed(Conversation, steer=nothing)

fault("bodyless-unsteered", "EPP-DEST-07",
      "A request without a body is let go without an endpoint.",
      UNSTEERED, when=bodyless)
fault("other-paths-unsteered", "EPP-DEST-07",
      "A request for another path than those of the inference API is let go without an endpoint.",
      UNSTEERED, when=lambda c: not c.headers.get(":path", b"").endswith(b"completions"), also=NOT_STEERED)
fault("non-json-unanswered", "EPP-DEST-07",
      "A request whose body is not JSON is never answered.",
      changed(Conversation, on_request_body=_non_json),
      also=SILENT
      | {"EPP-SUB-02": "nor is it where the subset leaves no endpoint", "EPP-SUB-03": "nor for an empty one"})

# -- afterwards


def _another_with_the_response(_: Any, c: Any, __: Any) -> list[Any]:
    answer, _ = answers.headers_answer("response")
    if isinstance(c.decision, Picked):
        c.destination_metadata(answer.dynamic_metadata, Picked(c.decision.endpoints[::-1]))
    return [answer]


fault("destination-changes-later", "EPP-DEST-08",
      "The answer to the response's headers says another destination than the request went to.",
      changed(Conversation, on_response_headers=_another_with_the_response), effect="warn",
      also={"RAR-OUT-05": "an EPP with a reporter must leave the destination as it is there"})


@fault("previous-destination", "EPP-DEST-10",
       "A request gets the endpoint of the request before it on the same connection.",
       also={"EPP-SUB-01": "the earlier pick may be outside this request's subset",
             "EPP-SUB-06": "so it is on another port of the pod",
             "EPP-SUB-07": "so it is for IPv6 endpoints",
             "EPP-SUB-08": "so it is for a request without a body",
             "EPP-DEST-06": "the earlier pick may have left the pool"},
       versions=WITH_SUBSET)
class PreviousDestination(Conversation):
    previous: ClassVar[dict[int, Picked]] = {}

    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        if isinstance(decision, Picked):
            previous = self.previous.get(self.connection, decision)
            self.previous[self.connection] = decision
            return previous
        return decision
