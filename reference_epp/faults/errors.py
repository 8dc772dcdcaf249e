"""Faults of refusals (section Destination Endpoint, constraints) and of the fallback key."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import FULL_DUPLEX, SILENT, WITH_SUBSET, fault
from reference_epp.endpoints import parse_endpoint
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.faults.destination import STRANGER
from reference_epp.names import FALLBACK
from reference_epp.picker import SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS, Decision, Picked, Picker, Refused, Request

if TYPE_CHECKING:
    from ext_proc.messages import HttpTrailers, Struct

UNAVAILABLE = 14

# -- no ready endpoints


class EmptyPoolCode(Picker):
    """Refuses with another code when the pool is empty."""

    code: ClassVar[int]

    def none_eligible(self, request: Request) -> Decision:
        return super().none_eligible(request) if self.pool.endpoints else Refused(self.code, "no ready endpoints")


@fault(
    "empty-pool-500", breaks="EPP-ERR-02", why="500 instead of 503 if there is no ready endpoint.", versions=WITH_SUBSET
)
class EmptyPool500(EmptyPoolCode):
    code = 500


@fault(
    "empty-pool-429",
    breaks="EPP-ERR-02",
    why="429 instead of 503 if there is no ready endpoint: every failure to pick counts as overload.",
    versions=WITH_SUBSET,
)
class EmptyPool429(EmptyPoolCode):
    code = TOO_MANY_REQUESTS


@fault(
    "empty-pool-500-for-bodyless",
    breaks="EPP-ERR-02",
    why="Requests without a body take another code path, which says 500 if there is no ready endpoint.",
    versions=WITH_SUBSET,
)
class EmptyPool500ForBodyless(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        bodyless = not self.body and not self.epp.picker.pool.endpoints
        return super().refuse(Refused(500, refusal.reason) if bodyless else refusal)


@fault(
    "empty-pool-429-for-sheddable",
    breaks="EPP-ERR-02",
    why="An empty pool counts as saturated, so that a sheddable request gets 429 although there is no endpoint.",
    versions=WITH_SUBSET,
    effect="warn",
)
class EmptyPool429ForSheddable(Picker):
    def none_eligible(self, request: Request) -> Decision:
        return self.shed(request) if request.sheddable else super().none_eligible(request)


@fault(
    "empty-pool-unanswered",
    breaks="EPP-ERR-02",
    why="A request is never answered if there is no ready endpoint.",
    also_breaks=SILENT,
    versions=WITH_SUBSET,
)
class EmptyPoolUnanswered(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return super().refuse(refusal) if self.epp.picker.pool.endpoints else []


@fault(
    "empty-pool-unsteered",
    breaks="EPP-ERR-01",
    why="A request is let go without an endpoint, and without an error, if there is no ready endpoint.",
    versions=("0.2.0",),
)
class EmptyPoolUnsteered(Conversation):
    trailers = False

    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        self.trailers = True
        actions = list(super().on_request_trailers(trailers))
        let_go = isinstance(self.decision, Refused) and self.decision.code == SERVICE_UNAVAILABLE
        return [*actions, answers.trailers_answer("request")] if let_go else actions

    def refuse(self, refusal: Refused) -> Iterable[Action]:
        if refusal.code != SERVICE_UNAVAILABLE:
            return super().refuse(refusal)
        if self.request_mode is BodyMode.BUFFERED and self.body:
            return [self.continue_body("request")]
        headers = self.continue_headers()
        ended = not self.trailers
        return [headers, *self.stream("request", b"".join(self.body), end_of_stream=ended)] if self.body else [headers]


# -- shedding


class ShedCode(Picker):
    """Sheds with another code."""

    code: ClassVar[int]

    def shed(self, request: Request) -> Decision:
        return Refused(self.code, "servers are under heavy load")


@fault(
    "shed-as-503",
    breaks="EPP-ERR-03",
    why="A dropped request gets 503 instead of 429.",
    versions=WITH_SUBSET,
)
class ShedAs503(ShedCode):
    code = SERVICE_UNAVAILABLE


@fault(
    "shed-as-500",
    breaks="EPP-ERR-03",
    why="A dropped request gets 500 instead of 429.",
    also_breaks={"EPP-SUB-13": "a subset under load gets it too"},
    versions=WITH_SUBSET,
)
class ShedAs500(ShedCode):
    code = 500


@fault(
    "shed-as-503-for-bodyless",
    breaks="EPP-ERR-03",
    why="Requests without a body take another code path, which drops them with 503 where all pods are saturated.",
    versions=WITH_SUBSET,
)
class ShedAs503ForBodyless(Picker):
    def pick(self, request: Request) -> Decision:
        candidates = self.eligible(request)
        dropped = not request.body and bool(candidates) and self.saturated(candidates)
        return Refused(SERVICE_UNAVAILABLE, "servers are under heavy load") if dropped else super().pick(request)


@fault(
    "shed-as-200",
    breaks="EPP-ERR-01",
    why="A dropped request gets 200, which its client takes for a completion.",
    versions=("0.2.0",),
)
class ShedAs200(ShedCode):
    code = 200


# -- the form of a refusal


@fault(
    "refusal-as-grpc-status",
    breaks="EPP-ERR-04",
    why="A request without an endpoint gets a gRPC error instead of an ImmediateResponse.",
    also_breaks={
        "EPP-ERR-02": "there is no 503",
        "EPP-ERR-03": "there is no 429",
        "EPP-SUB-02": "there is no 503",
        "EPP-SUB-03": "there is no 503",
        "EPP-SUB-06": "there is no 503",
    },
    versions=WITH_SUBSET,
)
class RefusalAsGrpcStatus(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        if refusal.code in (SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS):
            return [Close(UNAVAILABLE, refusal.reason)]
        return super().refuse(refusal)


@fault(
    "refusal-with-destination",
    breaks="EPP-ERR-05",
    why="The ImmediateResponse carries a destination in its metadata.",
    versions=WITH_SUBSET,
    effect="warn",
)
class RefusalWithDestination(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        actions = list(super().refuse(refusal))
        endpoints = self.epp.picker.pool.endpoints or (parse_endpoint(STRANGER),)
        if isinstance(actions[0], ProcessingResponse):
            self.destination_metadata(actions[0].dynamic_metadata, Picked(endpoints[:1]))
        return actions


@fault(
    "closes-on-malformed-body",
    breaks="ENV-16",
    why="A request whose body is broken JSON has its stream closed without an answer, so that it goes on unsteered.",
    also_breaks={
        "EPP-DEST-07": "the request gets neither an endpoint nor an error",
        "EPP-ERR-02": "so it is where the pool is empty, and 503 is due",
        "EPP-ERR-04": "where an error is due, it gets none",
        "EPP-SUB-02": "so it is where the subset leaves no endpoint",
        "EPP-SUB-03": "so it is for an empty subset",
    },
)
class ClosesOnMalformedBody(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return [Close()] if refusal.code == BAD_REQUEST else super().refuse(refusal)


@fault(
    "immediate-response-twice",
    breaks="ENV-15",
    why="The ImmediateResponse is sent a second time.",
)
class ImmediateResponseTwice(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        first, *rest = super().refuse(refusal)
        return [first, first, *rest]


@fault(
    "answer-after-immediate-response",
    breaks="ENV-15",
    why="An answer to the headers follows the ImmediateResponse.",
)
class AnswerAfterImmediateResponse(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        first, *rest = super().refuse(refusal)
        return [first, self.continue_headers(), *rest]


@fault(
    "released-before-immediate-response",
    breaks="ENV-15",
    why="The headers are answered, which lets the request go, and only then comes the ImmediateResponse.",
    modes=FULL_DUPLEX,
)
class ReleasedBeforeImmediateResponse(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return [self.continue_headers(), *super().refuse(refusal)]


@fault(
    "immediate-response-without-status",
    breaks="ENV-15",
    why="The ImmediateResponse to a malformed request has no status, which Envoy takes for 200.",
    also_breaks={"EPP-DEST-07": "the request gets neither an endpoint nor an error"},
)
class ImmediateResponseWithoutStatus(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        actions = list(super().refuse(refusal))
        if refusal.code == BAD_REQUEST and isinstance(actions[0], ProcessingResponse):
            actions[0].immediate_response.ClearField("status")
        return actions


@fault(
    "model-without-a-check",
    breaks="EPP-DEST-07",
    why="A `model` that is a list or an object ends the stream with a gRPC error.",
    versions=WITH_SUBSET,
)
class ModelWithoutACheck(Conversation):
    def read_model(self, body: bytes) -> str | None:
        model = super().read_model(body)
        value = json.loads(body) if model is None and body[:1] == b"{" else None
        if isinstance(value, dict) and isinstance(value.get("model"), list | dict):
            raise TypeError("unhashable")
        return model


# -- the fallback key of 0.3.0


class OtherFallback(Conversation):
    """Says another fallback than the correct one."""

    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, decision)
        fields = metadata.fields[self.epp.metadata_namespace].struct_value.fields
        fields[FALLBACK].string_value = self.fallback(decision)

    def fallback(self, decision: Picked) -> str:
        """The fallback to say."""
        return decision.endpoints[-1].text


@fault(
    "fallback-is-a-stranger",
    breaks="EPP-FB-01",
    why="The fallback endpoint is not in the pool.",
    versions=("0.3.0",),
)
class FallbackIsAStranger(OtherFallback):
    def fallback(self, decision: Picked) -> str:
        return STRANGER


@fault(
    "fallback-is-a-list",
    breaks="EPP-FB-01",
    why="The fallback key has two endpoints, where the text allows one.",
    versions=("0.3.0",),
)
class FallbackIsAList(OtherFallback):
    def fallback(self, decision: Picked) -> str:
        return f"{decision.endpoints[-1]},{decision.endpoints[0]}"


@fault(
    "fallback-is-the-primary",
    breaks="EPP-FB-01",
    why="The fallback endpoint is the primary one again.",
    versions=("0.3.0",),
    effect="warn",
)
class FallbackIsThePrimary(OtherFallback):
    def fallback(self, decision: Picked) -> str:
        return decision.endpoints[0].text


@fault(
    "fallback-with-blanks",
    breaks="EPP-FB-01",
    why="There is a blank before the fallback endpoint.",
    versions=("0.3.0",),
    effect="warn",
)
class FallbackWithBlanks(OtherFallback):
    def fallback(self, decision: Picked) -> str:
        return f" {super().fallback(decision)}"


@fault(
    "fallback-as-mapped-address",
    breaks="EPP-FB-01",
    why="The fallback endpoint has an IPv4 address as mapped to IPv6.",
    versions=("0.3.0",),
    effect="warn",
)
class FallbackAsMappedAddress(OtherFallback):
    def fallback(self, decision: Picked) -> str:
        address, _, port = super().fallback(decision).rpartition(":")
        return f"[::ffff:{address}]:{port}"


@fault(
    "fallback-in-other-namespace",
    breaks="EPP-FB-01",
    why="The fallback key is not in the namespace of the primary one.",
    versions=("0.3.0",),
)
class FallbackInOtherNamespace(Conversation):
    def destination_metadata(self, metadata: Struct, decision: Picked) -> None:
        super().destination_metadata(metadata, Picked(decision.endpoints[:1]))
        fields = metadata.fields["envoy.lb.fallback"].struct_value.fields
        fields[FALLBACK].string_value = decision.endpoints[-1].text
