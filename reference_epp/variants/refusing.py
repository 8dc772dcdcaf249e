"""Variants that refuse in another way, or refuse what others take."""
# fmt: off

from __future__ import annotations

from functools import partial
from typing import Any

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.changes import answering_refusals, changed, method, refusing
from reference_epp.conversation import BAD_REQUEST, CONTENT_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, Conversation
from reference_epp.deviations import (
    BEFORE_SUBSET,
    FULL_DUPLEX,
    NEXT,
    WHOLE_BODY,
    WITH_MODELS,
    WITH_SERVED,
    WITH_SUBSET,
    variant,
)
from reference_epp.epp import BodyMode, Close
from reference_epp.picker import NOT_FOUND, SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS, Decision, Picked, Refused
from reference_epp.service import Service
from reference_epp.subset import read_subset

UNPROCESSABLE, INTERNAL = 422, 500
OK, UNIMPLEMENTED, UNAVAILABLE = 200, 12, 14

# -- the form of a refusal


def _advice(_: Any, answer: Any, refusal: Refused) -> None:
    answers.set_header(answer.immediate_response.headers, "x-dropped-reason", refusal.reason.encode())
    answer.immediate_response.grpc_status.status = UNAVAILABLE


variant("long-refusals",
        "An ImmediateResponse has a body of 20,000 bytes; its content is the EPP's.",
        changed(Conversation, refuse=lambda up, _, refusal:
                up(Refused(refusal.code, (f"{refusal.reason}. " * 20_000)[:19_999]))),
        noted={"EPP-ERR-06": "body of 20000 bytes"})
variant("refusals-with-advice",
        "An ImmediateResponse has its own headers, gRPC status and details.", answering_refusals(_advice))


@variant("bad-requests-as-streamed-replies",
         "A malformed request gets its 400 as a StreamedImmediateResponse: no form is named for it.",
         modes=FULL_DUPLEX, noted={"EPP-ERR-06": "a StreamedImmediateResponse"})
class BadRequestsAsStreamedReplies(Conversation):
    code = BAD_REQUEST

    def refuse(self, refusal: Refused) -> Any:
        if refusal.code != self.code or self.request_mode is not BodyMode.FULL_DUPLEX_STREAMED:
            return super().refuse(refusal)
        head, rest = ProcessingResponse(), ProcessingResponse()
        headers = head.streamed_immediate_response.headers_response
        headers.headers.headers.add(key=":status", raw_value=b"%d" % refusal.code)
        self.head(headers)
        body = rest.streamed_immediate_response.body_response
        body.body, body.end_of_stream = refusal.reason.encode(), True
        return [head, rest, Close()]

    def head(self, headers: Any) -> None:
        """Add to the headers of a streamed reply."""


@variant("stays-open-after-refusal",
         "After an ImmediateResponse the stream stays open and silent; Envoy ends it.")
class StaysOpenAfterRefusal(Conversation):
    refused = False

    def refuse(self, refusal: Refused) -> Any:
        return [action for action in super().refuse(refusal) if not isinstance(action, Close)]

    def emit(self, actions: Any) -> Any:
        silent, self.refused = self.refused, self.refused or isinstance(self.decision, Refused)
        return [] if silent else actions


# -- what is refused


def _hopeless(up: Any, c: Any, headers: Any) -> Any:
    actions = up(headers)
    hopeless = c.held and not c.epp.picker.pool.endpoints
    return c.release() if hopeless and c.request_mode is BodyMode.FULL_DUPLEX_STREAMED else actions


def _nameless(up: Any, c: Any, body: bytes) -> Decision:
    decision: Decision = up(body)
    nameless = body and isinstance(decision, Picked) and c.read_model(body) is None
    return Refused(UNPROCESSABLE, "the request names no model") if nameless else decision


def _media_type(c: Any) -> bytes:
    given: bytes = c.headers.get("content-type", b"").partition(b";")[0].strip().lower()
    return given


class RefusesMoreThanOneMessage(Conversation):
    """Refuses bodies that are larger than one gRPC message may be by default."""

    most = 4 * 1024 * 1024

    def choose(self, body: bytes) -> Decision:
        too_large = len(body) > self.most
        return Refused(CONTENT_TOO_LARGE, "the body is too large") if too_large else super().choose(body)


variant("refuses-before-the-body",
        "If the pool is empty, the 503 comes with the headers, while the body is still on its way.",
        changed(Conversation, on_request_headers=_hopeless), versions=WITH_SUBSET, modes=FULL_DUPLEX)
variant("refuses-more-than-one-message",
        "A streamed body of more bytes than one gRPC message holds by default (4 MiB) gets 413.",
        RefusesMoreThanOneMessage, versions=NEXT, modes=FULL_DUPLEX, noted={"EPP-ERR-07": "code 413"})
variant("refuses-bodies-without-model",
        "A request whose body names no model is malformed: 422, which no document names.",
        changed(Conversation, choose=_nameless), noted={"EPP-ERR-07": "code 422"})
variant("empty-posts-have-no-model",
        "A POST without a body can't be understood, and gets 404: no InferenceModel has the empty name.",
        changed(Conversation, choose=lambda up, c, body:
                c.unknown_model("") if not body and method(c) == b"POST" else up(body)),
        versions=WITH_MODELS, modes=WHOLE_BODY, noted={"EPP-ERR-07": "code 404"})
variant("refuses-other-media-types",
        "A body that is not said to be JSON is refused with 415, as model servers do.",
        refusing(UNSUPPORTED_MEDIA_TYPE, lambda c, body: body and _media_type(c) != b"application/json"),
        noted={"EPP-ERR-07": "code 415"})


@variant("refuses-grpc-in-its-words",
         "A gRPC request, which is not understood, gets 200 and `grpc_status` UNIMPLEMENTED.",
         noted={"EPP-ERR-07": "code 200"})
class RefusesGrpcInItsWords(Conversation):
    def choose(self, body: bytes) -> Decision:
        grpc = method(self) == b"POST" and self.headers.get("content-type") == b"application/grpc"
        return Refused(OK, "only JSON is understood") if grpc else super().choose(body)

    def refuse(self, refusal: Refused) -> Any:
        actions = list(super().refuse(refusal))
        for action in actions:
            if isinstance(action, ProcessingResponse) and refusal.code == OK:
                action.immediate_response.grpc_status.status = UNIMPLEMENTED
        return actions


# -- errors of 0.2.0, which names none


@variant("refuses-unknown-models",
         "A model that no InferenceModel names gets 404 in versions that no longer demand it.", versions=WITH_SERVED)
class RefusesUnknownModels(Conversation):
    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        if isinstance(decision, Refused) and decision.code == BAD_REQUEST:
            return decision
        model = self.read_model(body)
        known = model is None or not self.epp.models or model in self.epp.models
        return decision if known else Refused(NOT_FOUND, f"no model is named {model!r}")


def _by_status(*codes: int) -> Any:
    """Ends the stream with a gRPC error where a refusal has one of the codes."""
    return lambda up, _, refusal: [Close(UNAVAILABLE, refusal.reason)] if refusal.code in codes else up(refusal)


def _of_any_kind(up: Any, _: Any, refusal: Refused) -> Any:
    if refusal.code in (SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS, BAD_REQUEST):
        return [Close(UNAVAILABLE, refusal.reason)]
    return up(Refused(INTERNAL, refusal.reason) if refusal.code == NOT_FOUND else refusal)


def _reset(up: Any, _: Any, stream: Any, end: Close) -> None:
    stream.reset() if end.code else up(stream, end)


old_variant = partial(variant, versions=BEFORE_SUBSET)

old_variant("errors-of-any-kind",
            "A request for an unknown model gets 500, one that can't be served or understood a gRPC error.",
            changed(RefusesUnknownModels, refuse=_of_any_kind),
            modes=WHOLE_BODY)  # else the body comes too late for its model to count
old_variant("unknown-models-as-grpc-errors",
            "Version 0.2.0 demands an error and names none: a request for an unknown model gets a gRPC error.",
            changed(RefusesUnknownModels, refuse=_by_status(NOT_FOUND)), modes=WHOLE_BODY)
old_variant("errors-by-reset",
            "Version 0.2.0 names no error: a request without an endpoint is reset, which is a gRPC error, too.",
            changed(Service, close=_reset),
            changed(Conversation, refuse=_by_status(SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS)))


@old_variant("honours-hints-by-grpc-error",
             "Version 0.2.0 has no subset hint and names no error: where a hint leaves nothing, the stream ends.")
class HonoursHintsByGrpcError(Conversation):
    def read_metadata(self, kind: str, metadata: Any) -> None:
        super().read_metadata(kind, metadata)
        if kind.startswith("request") and self.subset is None:
            self.subset = read_subset(metadata, self.epp.subset_namespace)

    def refuse(self, refusal: Refused) -> Any:
        nothing_left = refusal.code == SERVICE_UNAVAILABLE and self.subset is not None
        return [Close(UNAVAILABLE, refusal.reason)] if nothing_left else super().refuse(refusal)
