"""Variants whose answers say the same in other words, or more than is asked for."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import CommonResponse, HealthCheckResponse, ProcessingResponse
from ext_proc.server import ServedStream
from reference_epp import answers
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import ALL, BUFFERED, NEXT, WITH_LISTS, variant
from reference_epp.endpoints import Pool
from reference_epp.epp import Action, Close
from reference_epp.health import NOT_SERVING, SERVING, Health
from reference_epp.names import DESTINATION, EXT_PROC_SERVICE, FALLBACK, LIVENESS, READINESS
from reference_epp.picker import Decision, Picked, Refused

if TYPE_CHECKING:
    from ext_proc.messages import HttpHeaders, Metadata, ProcessingRequest, Struct

UNIMPLEMENTED = 12

LATER = {"": 0.1, READINESS: 0.1, EXT_PROC_SERVICE: 0.5}
"""Seconds by which health checks of a service are behind the endpoints."""

BEFORE_THE_BODY = tuple(version for version in ALL if version not in ("0.3.0", "0.4.0"))
"""Versions in which the choice need not wait for the body: it does not depend on the model."""


@variant(
    "route-cache-kept",
    why="`clear_route_cache` is false: a matter of the data plane's routes.",
    noted={"ENV-25": "clear_route_cache is not set"},
)
class RouteCacheKept(Conversation):
    def steer(self, answer: ProcessingResponse, common: CommonResponse, decision: Picked) -> None:
        super().steer(answer, common, decision)
        common.clear_route_cache = False


@variant("extra-namespaces", why="The metadata has a namespace more, with values of all kinds.")
class ExtraNamespaces(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, decision)
        extra = metadata.fields["reference-epp.debug"].struct_value.fields
        extra["stream"].number_value = self.number
        extra["candidates"].list_value.values.add().string_value = decision.endpoints[0].text
        extra["note"].struct_value.fields["empty"].null_value = 0


@variant(
    "scores-as-text",
    why="Scores are given beside the destination, as text: they inform, and no data plane picks by them.",
    versions=("next",),
    noted={"EPP-DEST-12": "it is a string"},
)
class ScoresAsText(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, decision)
        fields = metadata.fields[self.epp.metadata_namespace].struct_value.fields
        fields["x-gateway-destination-endpoint-scores"].string_value = "1.0"


@variant("extra-keys", why="The destination's namespace has keys more.")
class ExtraKeys(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, decision)
        fields = metadata.fields[self.epp.metadata_namespace].struct_value.fields
        fields["x-example-queue-position"].number_value = 7


@variant("repeats-metadata", why="Every later answer repeats the same metadata.")
class RepeatsMetadata(Conversation):
    def emit(self, actions: list[Action]) -> list[Action]:
        if isinstance(self.decision, Picked):
            for action in actions:
                if isinstance(action, ProcessingResponse) and not action.HasField("dynamic_metadata"):
                    self.destination_metadata(action.dynamic_metadata, self.decision)
        return actions


@variant(
    "metadata-before-the-header",
    why="In BUFFERED mode the metadata comes with the answer to the headers, the header with that to the body.",
    versions=BEFORE_THE_BODY,
    modes=BUFFERED,
)
class MetadataBeforeTheHeader(Conversation):
    chosen: Picked | None = None

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = list(super().on_request_headers(headers))
        if self.held and actions and isinstance(actions[0], ProcessingResponse):
            decision = self.decide()
            if not isinstance(decision, Picked):
                return self.refuse(decision)
            self.chosen = decision
            self.held = True
            self.destination_metadata(actions[0].dynamic_metadata, decision)
        return actions

    def release_on_body(self) -> Iterable[Action]:
        if self.chosen is None:
            return super().release_on_body()
        self.held = False
        answer, common = answers.body_answer("request")
        self.destination_header(common, self.chosen)
        return [answer]


@variant(
    "asks-for-no-body",
    why="The answer to the headers asks for no body (CONTINUE_AND_REPLACE, and none to replace it with): the data "
    "plane lets the body go, and shows no more of it. Not so of one that says it sends bodies without waiting.",
    versions=BEFORE_THE_BODY,
    modes=("streamed", "buffered"),
)
class AsksForNoBody(Conversation):
    waited_for = True

    def configure(self, message: ProcessingRequest) -> Close | None:
        self.waited_for = not message.protocol_config.send_body_without_waiting_for_header_response
        return super().configure(message)

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = list(super().on_request_headers(headers))
        if not self.waited_for:
            return actions
        if self.held and actions:
            decision = self.decide()
            actions = list(self.refuse(decision)) if isinstance(decision, Refused) else [self.steer_headers(decision)]
        for action in actions:
            if isinstance(action, ProcessingResponse) and action.HasField("request_headers"):
                action.request_headers.response.status = CommonResponse.CONTINUE_AND_REPLACE
        return actions


@variant("empty-mutations", why="Answers that change nothing say so with mutations that are present and empty.")
class EmptyMutations(Conversation):
    def emit(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, ProcessingResponse):
                kind = action.WhichOneof("response") or ""
                if kind.endswith("_trailers"):
                    getattr(action, kind).header_mutation.SetInParent()
                elif kind != "immediate_response":
                    getattr(action, kind).response.header_mutation.SetInParent()
        return actions


@variant(
    "mode-override",
    why="Answers to headers carry a `mode_override`, which data planes ignore unless allowed.",
    noted={"ENV-17": "mode_override on request_headers"},
)
class ModeOverride(Conversation):
    def emit(self, actions: list[Action]) -> list[Action]:
        for action in actions:
            if isinstance(action, ProcessingResponse) and action.HasField("request_headers"):
                action.mode_override.response_header_mode = action.mode_override.SEND
        return actions


@variant(
    "asks-for-time",
    why="Before a request is answered a message asks for more time, which answers nothing.",
    noted={"ENV-18": "override_message_timeout of 2 s"},
)
class AsksForTime(Conversation):
    def decide(self, body: bytes = b"") -> Decision:
        self.asking = True
        return super().decide(body)

    def emit(self, actions: list[Action]) -> list[Action]:
        if not getattr(self, "asking", False):
            return actions
        self.asking = False
        more_time = ProcessingResponse()
        more_time.override_message_timeout.seconds = 2
        return [more_time, *actions]


@variant(
    "keeps-the-fallback-key",
    why="The fallback key of 0.3.0 is there besides the list: no one reads it any more, and nothing forbids it.",
    versions=WITH_LISTS,
    noted={"EPP-FB-02": "the fallback key is there"},
)
class KeepsTheFallbackKey(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, decision)
        fields = metadata.fields[self.epp.metadata_namespace].struct_value.fields
        fields[FALLBACK].string_value = decision.endpoints[-1].text


@variant("extra-request-headers", why="Further headers are set on the request.")
class ExtraRequestHeaders(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        answers.set_header(common.header_mutation, "x-epp-candidates", str(len(decision.endpoints)).encode())


@variant("sets-headers-again", why="The request's own headers are set again to the values that they have.")
class SetsHeadersAgain(Conversation):
    names: tuple[str, ...] = ()

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        keys = [entry.key.lower() for entry in headers.headers.headers]
        once = [
            key for key in keys if keys.count(key) == 1 and not key.startswith((":", "x-gateway-", "content-length"))
        ]
        self.names = tuple(once[:40])
        return super().on_request_headers(headers)

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        for name in self.names:
            answers.set_header(common.header_mutation, name, self.headers[name])
        super().destination_header(common, decision)


@variant("joins-repeated-headers", why="Headers that came several times are set to one line of all values (RFC 9110).")
class JoinsRepeatedHeaders(Conversation):
    lines: dict[str, list[bytes]]

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.lines = {}
        for entry in headers.headers.headers:
            self.lines.setdefault(entry.key.lower(), []).append(entry.raw_value or entry.value.encode())
        return super().on_request_headers(headers)

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        for name, values in self.lines.items():
            if len(values) > 1 and name != DESTINATION:
                answers.set_header(common.header_mutation, name, b", ".join(values))
        super().destination_header(common, decision)


@variant(
    "sets-its-own-over-the-clients",
    why="A destination header of the client is set again before the EPP's own, which counts.",
)
class SetsItsOwnOverTheClients(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        if DESTINATION in self.headers:
            answers.set_header(common.header_mutation, DESTINATION, self.headers[DESTINATION])
        super().destination_header(common, decision)


@variant(
    "takes-part-in-a-trace",
    why="`traceparent` gets the EPP as parent, `tracestate` its entry, and `baggage` is in another order (W3C).",
)
class TakesPartInATrace(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        trace = re.match(rb"00-[0-9a-f]{32}-", self.headers.get("traceparent", b""))
        if trace is None:
            return
        state = [b"epp=%d" % self.number, *filter(None, [self.headers.get("tracestate")])]
        baggage = self.headers.get("baggage", b"").split(b",")
        for name, value in (
            ("traceparent", trace[0] + b"%016x-01" % self.number),
            ("tracestate", b",".join(state)),
            ("baggage", b",".join(reversed(baggage))),
        ):
            if value:
                answers.set_header(common.header_mutation, name, value)


@variant("extra-response-headers", why="Responses get headers of the EPP, among them the endpoint that served.")
class ExtraResponseHeaders(Conversation):
    served = "unknown"

    def note_served(self, metadata: Metadata) -> None:
        super().note_served(metadata)
        if self._at is not None:
            self.served = self._at.text

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        answers.set_header(common.header_mutation, "x-epp-served", self.served.encode())
        answers.set_header(common.header_mutation, "x-epp-stream", str(self.number).encode())
        return [answer]


@variant(
    "unknown-services-healthy",
    why="A health check of a name that is no service says SERVING; what is due there is not said.",
    versions=NEXT,
    noted={"EPP-HLTH-05": "Check('no.such.Service'): SERVING"},
)
class UnknownServicesHealthy(Health):
    def status(self, service: str) -> int | None:
        status = super().status(service)
        return SERVING if status is None else status


@variant(
    "unknown-services-unimplemented",
    why="A health check of a name that is no service, the empty one too, gets UNIMPLEMENTED; the others are answered.",
    versions=NEXT,
    noted={"EPP-HLTH-05": "Check('no.such.Service'): gRPC status 12"},
)
class UnknownServicesUnimplemented(Health):
    async def check(self, stream: ServedStream) -> None:
        service = await self._service(stream)
        if service in (LIVENESS, READINESS, EXT_PROC_SERVICE):
            stream.send(HealthCheckResponse(status=self.status(service)).SerializeToString())
        elif service is not None:
            stream.end(UNIMPLEMENTED, f"no service is named {service!r}")


@variant(
    "ready-once-read",
    why="Readiness stays SERVING when the pool is gone: it says that the pool has been read, and it was.",
    versions=NEXT,
)
class ReadyOnceRead(Health):
    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._read = pool.synced
        pool.listen(self._look)

    def _look(self) -> None:
        self._read = self._read or self.pool.synced

    def status(self, service: str) -> int | None:
        ready = service in ("", READINESS, EXT_PROC_SERVICE) and self._read and not self.stopping
        return SERVING if ready else super().status(service)


@variant(
    "ready-a-moment-later",
    why="Health checks follow the endpoints later, as those who look now and then do: readiness a tenth of a second, "
    "and the service's own name half a second.",
    versions=NEXT,
)
class ReadyAMomentLater(Health):
    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self._before, self._now, self._changed_at = False, pool.synced, time.monotonic()
        pool.listen(self._look)

    def _look(self) -> None:
        if self.pool.synced != self._now:
            self._before, self._now, self._changed_at = self._now, self.pool.synced, time.monotonic()

    def status(self, service: str) -> int | None:
        if self.stopping or service not in LATER:
            return super().status(service)
        followed = time.monotonic() - self._changed_at > LATER[service]
        return SERVING if (self._now if followed else self._before) else NOT_SERVING


def has_odd_escape(headers: HttpHeaders) -> bool:
    """Whether the path has a percent sign that escapes nothing."""
    paths = [entry.raw_value for entry in headers.headers.headers if entry.key == ":path"]
    return any(re.search(rb"%(?![0-9A-Fa-f]{2})", path) for path in paths)


@variant(
    "refuses-odd-queries", why="A path with a percent sign that escapes nothing is malformed: it is answered with 400."
)
class RefusesOddQueries(Conversation):
    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        if has_odd_escape(headers):
            return self.refuse(Refused(BAD_REQUEST, "the path has an escape that is none"))
        return super().on_request_headers(headers)
