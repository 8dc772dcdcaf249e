"""Faults of errors (section Destination Endpoint, constraints) and of the fallback key."""
# fmt: off

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference_epp import answers
from reference_epp.changes import adding_metadata, answering_refusals, changed, json_object, method
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import BEFORE_SUBSET, FULL_DUPLEX, SILENT, WITH_FALLBACK, WITH_SUBSET, fault
from reference_epp.endpoints import Endpoint, parse_endpoint
from reference_epp.epp import BodyMode, Close
from reference_epp.faults.destination import STRANGER
from reference_epp.names import FALLBACK
from reference_epp.picker import SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS, Decision, Picked, Picker, Refused, Request

UNAVAILABLE = 14
BUSY = "servers are under heavy load"

# -- no ready endpoints


def _empty_pool(code: int) -> type[Picker]:
    """Refuses with another code while the pool is empty."""
    return changed(Picker, none_eligible=lambda up, p, request:
                   up(request) if p.pool.endpoints else Refused(code, "no ready endpoints"))


class EmptyPoolUnsteered(Conversation):
    """Lets a request go without an endpoint instead of refusing it with 503."""

    trailers = False

    def on_request_trailers(self, trailers: Any) -> Any:
        self.trailers = True
        actions = list(super().on_request_trailers(trailers))
        let_go = isinstance(self.decision, Refused) and self.decision.code == SERVICE_UNAVAILABLE
        return [*actions, answers.trailers_answer("request")] if let_go else actions

    def refuse(self, refusal: Refused) -> Any:
        if refusal.code != SERVICE_UNAVAILABLE:
            return super().refuse(refusal)
        if self.request_mode is BodyMode.BUFFERED and self.body:
            return [self.continue_body("request")]
        headers = self.continue_headers()
        ended = not self.trailers
        return [headers, *self.stream("request", b"".join(self.body), end_of_stream=ended)] if self.body else [headers]


fault("empty-pool-500", "EPP-ERR-02",
      "500 instead of 503 if there is no ready endpoint.", _empty_pool(500), versions=WITH_SUBSET)
fault("empty-pool-429", "EPP-ERR-02",
      "429 instead of 503 if there is no ready endpoint: every failure to pick counts as overload.",
      _empty_pool(TOO_MANY_REQUESTS), versions=WITH_SUBSET)
fault("empty-pool-500-for-bodyless", "EPP-ERR-02",
      "Requests without a body get 500 if there is no ready endpoint.",
      changed(Conversation, refuse=lambda up, _, refusal: up(Refused(500, refusal.reason))),
      when=lambda c: not c.body and not c.epp.picker.pool.endpoints, versions=WITH_SUBSET)
fault("empty-pool-429-for-sheddable", "EPP-ERR-02",
      "An empty pool counts as saturated, so that a sheddable request gets 429.",
      changed(Picker, none_eligible=lambda up, p, request: p.shed(request) if request.sheddable else up(request)),
      versions=WITH_SUBSET, effect="warn")
fault("empty-pool-unanswered", "EPP-ERR-02",
      "A request is never answered if there is no ready endpoint.",
      changed(Conversation, refuse=lambda *_: []), when=lambda c: not c.epp.picker.pool.endpoints,
      also=SILENT, versions=WITH_SUBSET)
fault("empty-pool-unsteered", "EPP-ERR-01",
      "A request is let go without an endpoint, and without an error, if there is no ready endpoint.",
      EmptyPoolUnsteered, versions=BEFORE_SUBSET)
fault("empty-pool-unsteered-for-options", "EPP-ERR-01",
      "An OPTIONS request is let go without an endpoint, and without an error, if the pool is empty.",
      EmptyPoolUnsteered, when=lambda c: method(c) == b"OPTIONS", versions=BEFORE_SUBSET)


@fault("last-pods-kept-for-bodyless", "EPP-ERR-01",
       "If the pool is empty, requests without a body go to the last pods that it had.",
       versions=BEFORE_SUBSET)
class LastPodsKeptForBodyless(Picker):
    last: Sequence[Endpoint] = ()

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        found = super().eligible(request)
        self.last = found or self.last
        return found if request.body else self.last


@fault("empty-for-good", "EPP-DEST-01",
       "Once there was no endpoint for a request, none gets one any more.", versions=BEFORE_SUBSET)
class EmptyForGood(Picker):
    empty = False

    def pick(self, request: Request) -> Decision:
        self.empty = self.empty or not self.pool.endpoints
        return self.none_eligible(request) if self.empty else super().pick(request)


# -- shedding


def _shed(code: int, when: Any = lambda _: True) -> type[Picker]:
    """Sheds requests for which `when(request)` is true with another code."""
    return changed(Picker, shed=lambda up, _, request: Refused(code, BUSY) if when(request) else up(request))


def _shed_bodyless(up: Any, picker: Picker, request: Request) -> Decision:
    found = picker.eligible(request)
    dropped = not request.body and bool(found) and picker.saturated(found)
    return Refused(SERVICE_UNAVAILABLE, BUSY) if dropped else up(request)


fault("shed-as-503", "EPP-ERR-03",
      "A dropped request gets 503 instead of 429.", _shed(SERVICE_UNAVAILABLE), versions=WITH_SUBSET)
fault("shed-as-500", "EPP-ERR-03",
      "A dropped request gets 500 instead of 429.", _shed(500),
      also={"EPP-SUB-13": "a subset under load gets it too"}, versions=WITH_SUBSET)
fault("shed-as-503-for-bodyless", "EPP-ERR-03",
      "Requests without a body are dropped with 503 where all pods are saturated.",
      changed(Picker, pick=_shed_bodyless), versions=WITH_SUBSET)
fault("shed-as-200", "EPP-ERR-01",
      "A dropped request gets 200, which its client takes for a completion.",
      _shed(200), versions=BEFORE_SUBSET)
fault("shed-as-200-for-bodyless", "EPP-ERR-01",
      "A dropped request without a body gets 200, which its client takes for the response.",
      _shed(200, lambda request: not request.body), versions=BEFORE_SUBSET)

# -- the form of a refusal


def _with_destination(c: Any, answer: Any, _: Refused) -> None:
    endpoints = c.epp.picker.pool.endpoints or (parse_endpoint(STRANGER),)
    c.destination_metadata(answer.dynamic_metadata, Picked(endpoints[:1]))


def _without_status(_: Any, answer: Any, refusal: Refused) -> None:
    if refusal.code == BAD_REQUEST:
        answer.immediate_response.ClearField("status")


def _unhashable(up: Any, _: Any, body: bytes) -> str | None:
    if isinstance(json_object(body).get("model"), list | dict):
        raise TypeError("unhashable")
    model: str | None = up(body)
    return model


fault("refusal-as-grpc-status", "EPP-ERR-04",
      "A request without an endpoint gets a gRPC error instead of an ImmediateResponse.",
      changed(Conversation, refuse=lambda up, _, refusal: [Close(UNAVAILABLE, refusal.reason)]
              if refusal.code in (SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS) else up(refusal)),
      also={"EPP-ERR-02": "there is no 503", "EPP-ERR-03": "there is no 429", "EPP-SUB-02": "there is no 503",
            "EPP-SUB-03": "there is no 503", "EPP-SUB-06": "there is no 503"},
      versions=WITH_SUBSET)
fault("refusal-with-destination", "EPP-ERR-05",
      "The ImmediateResponse carries a destination in its metadata.",
      answering_refusals(_with_destination), versions=WITH_SUBSET, effect="warn")
fault("closes-on-malformed-body", "ENV-16",
      "The stream of a request with broken JSON is closed without an answer: it goes on unsteered.",
      changed(Conversation, refuse=lambda up, _, refusal: [Close()] if refusal.code == BAD_REQUEST else up(refusal)),
      also={"EPP-DEST-07": "the request gets neither an endpoint nor an error",
            "EPP-ERR-02": "so it is where the pool is empty, and 503 is due",
            "EPP-ERR-04": "where an error is due, it gets none",
            "EPP-SUB-02": "so it is where the subset leaves no endpoint",
            "EPP-SUB-03": "so it is for an empty subset"})
fault("immediate-response-twice", "ENV-15",
      "The ImmediateResponse is sent a second time.",
      changed(Conversation, refuse=lambda up, _, refusal: [up(refusal)[0], *up(refusal)]))
fault("answer-after-immediate-response", "ENV-15",
      "An answer to the headers follows the ImmediateResponse.",
      changed(Conversation, refuse=lambda up, c, refusal: [up(refusal)[0], c.continue_headers(), *up(refusal)[1:]]))
fault("released-before-immediate-response", "ENV-15",
      "The headers are answered, which lets the request go, before the ImmediateResponse comes.",
      changed(Conversation, refuse=lambda up, c, refusal: [c.continue_headers(), *up(refusal)]), modes=FULL_DUPLEX)
fault("immediate-response-without-status", "ENV-15",
      "The ImmediateResponse to a malformed request has no status, which Envoy takes for 200.",
      answering_refusals(_without_status),
      also={"EPP-DEST-07": "the request gets neither an endpoint nor an error"})
fault("model-without-a-check", "EPP-DEST-07",
      "A `model` that is a list or an object ends the stream with a gRPC error.",
      changed(Conversation, read_model=_unhashable), versions=WITH_SUBSET)

# -- the fallback key of 0.3.0


def _fallback(text: Any) -> type[Conversation]:
    """Says `text(endpoints)` in the fallback key."""
    def act(_: Any, fields: Any, decision: Picked) -> None:
        fields[FALLBACK].string_value = text([one.text for one in decision.endpoints])

    return adding_metadata(act)


def _in_other_namespace(up: Any, _: Any, metadata: Any, decision: Picked) -> None:
    up(metadata, Picked(decision.endpoints[:1]))
    metadata.fields["envoy.lb.fallback"].struct_value.fields[FALLBACK].string_value = decision.endpoints[-1].text


fault("fallback-is-a-stranger", "EPP-FB-01",
      "The fallback endpoint is not in the pool.", _fallback(lambda _: STRANGER), versions=WITH_FALLBACK)
fault("fallback-is-a-list", "EPP-FB-01",
      "The fallback key has two endpoints, where the text allows one.",
      _fallback(lambda all_: f"{all_[-1]},{all_[0]}"), versions=WITH_FALLBACK)
fault("fallback-is-the-primary", "EPP-FB-01",
      "The fallback endpoint is the primary one again.",
      _fallback(lambda all_: all_[0]), versions=WITH_FALLBACK, effect="warn")
fault("fallback-with-blanks", "EPP-FB-01",
      "There is a blank before the fallback endpoint.",
      _fallback(lambda all_: f" {all_[-1]}"), versions=WITH_FALLBACK, effect="warn")
fault("fallback-as-mapped-address", "EPP-FB-01",
      "The fallback endpoint has an IPv4 address as mapped to IPv6.",
      _fallback(lambda all_: "[::ffff:{0}]:{2}".format(*all_[-1].rpartition(":"))),
      versions=WITH_FALLBACK, effect="warn")
fault("fallback-in-other-namespace", "EPP-FB-01",
      "The fallback key is not in the namespace of the primary one.",
      changed(Conversation, destination_metadata=_in_other_namespace), versions=WITH_FALLBACK)
