"""Variants whose answers say the same in other words, or more than is asked for."""
# fmt: off

from __future__ import annotations

import re
import time
from typing import Any

from ext_proc.messages import CommonResponse, HealthCheckResponse, ProcessingResponse
from reference_epp import answers
from reference_epp.changes import adding_metadata, changed, emitting, setting
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import ALL, BUFFERED, NEXT, PLAIN_BODY, WITH_LISTS, variant
from reference_epp.endpoints import Pool
from reference_epp.health import NOT_SERVING, SERVING, Health
from reference_epp.names import DESTINATION, EXT_PROC_SERVICE, FALLBACK, LIVENESS, READINESS
from reference_epp.picker import Picked, Refused

UNIMPLEMENTED = 12

LATER = {"": 0.1, READINESS: 0.1, EXT_PROC_SERVICE: 0.5}
"""Seconds by which health checks of a service are behind the endpoints."""

BEFORE_THE_BODY = tuple(version for version in ALL if version not in ("0.3.0", "0.4.0"))
"""Versions in which the choice need not wait for the body: it does not depend on the model."""

# -- metadata


def _extra_namespaces(up: Any, c: Any, metadata: Any, decision: Picked) -> None:
    up(metadata, decision)
    extra = metadata.fields["reference-epp.debug"].struct_value.fields
    extra["stream"].number_value = c.number
    extra["candidates"].list_value.values.add().string_value = decision.endpoints[0].text
    extra["note"].struct_value.fields["empty"].null_value = 0


def _scores(_: Any, fields: Any, __: Picked) -> None:
    fields["x-gateway-destination-endpoint-scores"].string_value = "1.0"


def _extra_key(_: Any, fields: Any, __: Picked) -> None:
    fields["x-example-queue-position"].number_value = 7


def _fallback(_: Any, fields: Any, decision: Picked) -> None:
    fields[FALLBACK].string_value = decision.endpoints[-1].text


def _repeated(c: Any, answer: Any) -> None:
    if isinstance(c.decision, Picked) and not answer.HasField("dynamic_metadata"):
        c.destination_metadata(answer.dynamic_metadata, c.decision)


variant("extra-namespaces",
        "The metadata has a namespace more, with values of all kinds.",
        changed(Conversation, destination_metadata=_extra_namespaces))
variant("scores-as-text",
        "Scores are given beside the destination, as text: they inform, and no data plane picks by them.",
        adding_metadata(_scores), versions=NEXT, noted={"EPP-DEST-12": "it is a string"})
variant("extra-keys",
        "The destination's namespace has keys more.", adding_metadata(_extra_key))
variant("keeps-the-fallback-key",
        "The fallback key of 0.3.0 is there besides the list: nothing reads it, and nothing forbids it.",
        adding_metadata(_fallback), versions=WITH_LISTS, noted={"EPP-FB-02": "the fallback key is there"})
variant("repeats-metadata",
        "Every later answer repeats the same metadata.", emitting(_repeated))


@variant("metadata-before-the-header",
         "In BUFFERED mode the metadata comes with the answer to the headers, the header with that to the body.",
         versions=BEFORE_THE_BODY, modes=BUFFERED)
class MetadataBeforeTheHeader(Conversation):
    chosen: Picked | None = None

    def on_request_headers(self, headers: Any) -> Any:
        actions = list(super().on_request_headers(headers))
        if self.held and actions and isinstance(actions[0], ProcessingResponse):
            decision = self.decide()
            if not isinstance(decision, Picked):
                return self.refuse(decision)
            self.chosen = decision
            self.held = True
            self.destination_metadata(actions[0].dynamic_metadata, decision)
        return actions

    def release_on_body(self) -> Any:
        if self.chosen is None:
            return super().release_on_body()
        self.held = False
        answer, common = answers.body_answer("request")
        self.destination_header(common, self.chosen)
        return [answer]


# -- answers


def _cache_kept(up: Any, _: Any, answer: Any, common: CommonResponse, decision: Picked) -> None:
    up(answer, common, decision)
    common.clear_route_cache = False


def _empty_mutations(_: Any, answer: Any) -> None:
    kind = answer.WhichOneof("response") or ""
    if kind.endswith("_trailers"):
        getattr(answer, kind).header_mutation.SetInParent()
    elif kind != "immediate_response":
        getattr(answer, kind).response.header_mutation.SetInParent()


def _overridden(_: Any, answer: Any) -> None:
    if answer.HasField("request_headers"):
        answer.mode_override.response_header_mode = answer.mode_override.SEND


variant("route-cache-kept",
        "`clear_route_cache` is false: a matter of the data plane's routes.",
        changed(Conversation, steer=_cache_kept), noted={"ENV-25": "clear_route_cache is not set"})
variant("empty-mutations",
        "Answers that change nothing say so with mutations that are present and empty.", emitting(_empty_mutations))
variant("mode-override",
        "Answers to headers carry a `mode_override`, which data planes ignore unless allowed.",
        emitting(_overridden), noted={"ENV-17": "mode_override on request_headers"})


@variant("asks-for-no-body",
         "The answer to the headers is CONTINUE_AND_REPLACE without a body, which asks for no more of the body; "
         "not so where bodies are sent without waiting.",
         versions=BEFORE_THE_BODY, modes=PLAIN_BODY)
class AsksForNoBody(Conversation):
    waited_for = True

    def configure(self, message: Any) -> Any:
        self.waited_for = not message.protocol_config.send_body_without_waiting_for_header_response
        return super().configure(message)

    def on_request_headers(self, headers: Any) -> Any:
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


@variant("asks-for-time",
         "Before a request is answered a message asks for more time, which answers nothing.",
         noted={"ENV-18": "override_message_timeout of 2 s"})
class AsksForTime(Conversation):
    asking = False

    def decide(self, body: bytes = b"") -> Any:
        self.asking = True
        return super().decide(body)

    def emit(self, actions: Any) -> Any:
        if not self.asking:
            return actions
        self.asking = False
        more_time = ProcessingResponse()
        more_time.override_message_timeout.seconds = 2
        return [more_time, *actions]


# -- headers


class _NotesHeaders(Conversation):
    """Notes all lines of each of the request's headers."""

    lines: dict[str, list[bytes]]

    def on_request_headers(self, headers: Any) -> Any:
        self.lines = {}
        for entry in headers.headers.headers:
            self.lines.setdefault(entry.key.lower(), []).append(entry.raw_value or entry.value.encode())
        return super().on_request_headers(headers)


def _again(c: Any, _: Picked) -> dict[str, bytes]:
    skipped = (":", "x-gateway-", "content-length")
    once = [name for name, lines in c.lines.items() if len(lines) == 1 and not name.startswith(skipped)]
    return {name: c.headers[name] for name in once[:40]}


def _joined(c: Any, _: Picked) -> dict[str, bytes]:
    return {name: b", ".join(lines) for name, lines in c.lines.items() if len(lines) > 1 and name != DESTINATION}


def _traced(c: Any, _: Picked) -> dict[str, bytes]:
    trace = re.match(rb"00-[0-9a-f]{32}-", c.headers.get("traceparent", b""))
    if trace is None:
        return {}
    state = [b"epp=%d" % c.number, *filter(None, [c.headers.get("tracestate")])]
    baggage = b",".join(reversed(c.headers.get("baggage", b"").split(b",")))
    parent = {"traceparent": trace[0] + b"%016x-01" % c.number, "tracestate": b",".join(state)}
    return parent | ({"baggage": baggage} if baggage else {})


variant("extra-request-headers",
        "Further headers are set on the request.",
        setting(lambda _, decision: {"x-epp-candidates": b"%d" % len(decision.endpoints)}))
variant("sets-headers-again",
        "The request's own headers are set again to the values that they have.",
        setting(_again, _NotesHeaders, before=True))
variant("joins-repeated-headers",
        "Headers that came several times are set to one line of all values (RFC 9110).",
        setting(_joined, _NotesHeaders, before=True))
variant("sets-its-own-over-the-clients",
        "A destination header of the client is set again before the EPP's own, which counts.",
        setting(lambda c, _: {DESTINATION: c.headers[DESTINATION]} if DESTINATION in c.headers else {}, before=True))
variant("takes-part-in-a-trace",
        "`traceparent` gets the EPP as parent, `tracestate` its entry, and `baggage` is in another order (W3C).",
        setting(_traced))


@variant("extra-response-headers",
         "Responses get headers of the EPP, among them the endpoint that served.")
class ExtraResponseHeaders(Conversation):
    served = "unknown"

    def note_served(self, metadata: Any) -> None:
        super().note_served(metadata)
        if self._at is not None:
            self.served = self._at.text

    def on_response_headers(self, headers: Any) -> Any:  # noqa: ARG002
        answer, common = answers.headers_answer("response")
        answers.set_header(common.header_mutation, "x-epp-served", self.served.encode())
        answers.set_header(common.header_mutation, "x-epp-stream", b"%d" % self.number)
        return [answer]


def has_odd_escape(headers: Any) -> bool:
    """Whether the path has a percent sign that escapes nothing."""
    paths = [entry.raw_value for entry in headers.headers.headers if entry.key == ":path"]
    return any(re.search(rb"%(?![0-9A-Fa-f]{2})", path) for path in paths)


variant("refuses-odd-queries",
        "A path with a percent sign that escapes nothing is malformed: it is answered with 400.",
        changed(Conversation, on_request_headers=lambda up, c, headers: up(headers) if not has_odd_escape(headers)
                else c.refuse(Refused(BAD_REQUEST, "the path has an escape that is none"))))

# -- health


def _known(up: Any, _: Any, service: str) -> int:
    status: int | None = up(service)
    return SERVING if status is None else status


async def _unimplemented(_: Any, health: Any, stream: Any) -> None:
    service = await health._service(stream)  # noqa: SLF001
    if service in (LIVENESS, READINESS, EXT_PROC_SERVICE):
        stream.send(HealthCheckResponse(status=health.status(service)).SerializeToString())
    elif service is not None:
        stream.end(UNIMPLEMENTED, f"no service is named {service!r}")


variant("unknown-services-healthy",
        "A health check of a name that is no service says SERVING; no text says what is due there.",
        changed(Health, status=_known), versions=NEXT, noted={"EPP-HLTH-05": "Check('no.such.Service'): SERVING"})
variant("unknown-services-unimplemented",
        "A health check of a name that is no service, the empty one too, gets UNIMPLEMENTED.",
        changed(Health, check=_unimplemented),
        versions=NEXT, noted={"EPP-HLTH-05": "Check('no.such.Service'): gRPC status 12"})


@variant("ready-once-read",
         "Readiness stays SERVING when the pool is gone: it says that the pool has been read, and it was.",
         versions=NEXT)
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


@variant("ready-a-moment-later",
         "Health checks follow the endpoints late: readiness by 0.1 s, the service's own name by 0.5 s.",
         versions=NEXT)
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
