"""Variants that refuse in another way, or refuse what others take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import ProcessingResponse
from ext_proc.server import ServedStream
from reference_epp import answers
from reference_epp.conversation import BAD_REQUEST, CONTENT_TOO_LARGE, UNSUPPORTED_MEDIA_TYPE, Conversation
from reference_epp.deviations import FULL_DUPLEX, NEXT, WITH_MODELS, WITH_SUBSET, part_of, variant
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.picker import NOT_FOUND, SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS, Decision, Picked, Refused
from reference_epp.service import Service
from reference_epp.subset import read_subset

if TYPE_CHECKING:
    from ext_proc.messages import HttpHeaders, Metadata

UNPROCESSABLE, INTERNAL = 422, 500
OK, UNIMPLEMENTED, UNAVAILABLE = 200, 12, 14


@variant(
    "long-refusals",
    why="An ImmediateResponse has a body of 20,000 bytes; its content is the EPP's.",
    noted={"EPP-ERR-06": "body of 20000 bytes"},
)
class LongRefusals(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return super().refuse(Refused(refusal.code, (f"{refusal.reason}. " * 20_000)[:19_999]))


@variant("refusals-with-advice", why="An ImmediateResponse has its own headers, gRPC status and details.")
class RefusalsWithAdvice(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        actions = list(super().refuse(refusal))
        for action in actions:
            if isinstance(action, ProcessingResponse):
                answers.set_header(action.immediate_response.headers, "x-dropped-reason", refusal.reason.encode())
                action.immediate_response.grpc_status.status = 14
        return actions


@variant(
    "bad-requests-as-streamed-replies",
    why="In full duplex a malformed request gets its 400 as a StreamedImmediateResponse: no form is named for it.",
    modes=FULL_DUPLEX,
    noted={"EPP-ERR-06": "a StreamedImmediateResponse"},
)
class BadRequestsAsStreamedReplies(Conversation):
    code = BAD_REQUEST

    def refuse(self, refusal: Refused) -> Iterable[Action]:
        if refusal.code != self.code or self.request_mode is not BodyMode.FULL_DUPLEX_STREAMED:
            return super().refuse(refusal)
        head, rest = ProcessingResponse(), ProcessingResponse()
        headers = head.streamed_immediate_response.headers_response
        headers.headers.headers.add(key=":status", raw_value=b"%d" % refusal.code)
        self.head(headers)
        body = rest.streamed_immediate_response.body_response
        body.body, body.end_of_stream = refusal.reason.encode(), True
        return [head, rest, Close()]

    def head(self, headers: HttpHeaders) -> None:
        """Add to the headers of a streamed reply."""


@variant("stays-open-after-refusal", why="After an ImmediateResponse the stream stays open and silent; Envoy ends it.")
class StaysOpenAfterRefusal(Conversation):
    refused = False

    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return [action for action in super().refuse(refusal) if not isinstance(action, Close)]

    def emit(self, actions: list[Action]) -> list[Action]:
        silent, self.refused = self.refused, self.refused or isinstance(self.decision, Refused)
        return [] if silent else actions


@variant(
    "refuses-before-the-body",
    why="If the pool is empty, the 503 comes with the headers, while the body is still on its way.",
    versions=WITH_SUBSET,
    modes=FULL_DUPLEX,
)
class RefusesBeforeTheBody(Conversation):
    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = super().on_request_headers(headers)
        hopeless = self.held and not self.epp.picker.pool.endpoints
        return self.release() if hopeless and self.request_mode is BodyMode.FULL_DUPLEX_STREAMED else actions


@variant(
    "refuses-more-than-one-message",
    why="A streamed body of more bytes than one gRPC message holds by default (4 MiB) gets 413.",
    versions=NEXT,
    modes=FULL_DUPLEX,
    noted={"EPP-ERR-07": "code 413"},
)
class RefusesMoreThanOneMessage(Conversation):
    most = 4 * 1024 * 1024

    def choose(self, body: bytes) -> Decision:
        too_large = len(body) > self.most
        return Refused(CONTENT_TOO_LARGE, "the body is too large") if too_large else super().choose(body)


@variant(
    "refuses-bodies-without-model",
    why="A request whose body names no model is malformed: 422, which no document names.",
    noted={"EPP-ERR-07": "code 422"},
)
class RefusesBodiesWithoutModel(Conversation):
    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        nameless = body and isinstance(decision, Picked) and self.read_model(body) is None
        return Refused(UNPROCESSABLE, "the request names no model") if nameless else decision


@variant(
    "refuses-unknown-models",
    why="A model that no InferenceModel names gets 404 in versions that no longer demand it.",
    versions=("1.0.0", "next"),
)
class RefusesUnknownModels(Conversation):
    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        if isinstance(decision, Refused) and decision.code == BAD_REQUEST:
            return decision
        model = self.read_model(body)
        known = model is None or not self.epp.models or model in self.epp.models
        return decision if known else Refused(NOT_FOUND, f"no model is named {model!r}")


@variant(
    "errors-of-any-kind",
    why="Version 0.2.0 demands an error and names none: a request for an unknown model gets 500, and one that can't be "
    "served, is dropped or not understood a gRPC error.",
    versions=("0.2.0",),
    modes=("full-duplex", "buffered"),  # else the body comes too late for its model to count
)
class ErrorsOfAnyKind(RefusesUnknownModels):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        match refusal.code:
            case code if code == NOT_FOUND:
                return super().refuse(Refused(INTERNAL, refusal.reason))
            case code if code in (SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS, BAD_REQUEST):
                return [Close(UNAVAILABLE, refusal.reason)]
            case _:
                return super().refuse(refusal)


@variant(
    "unknown-models-as-grpc-errors",
    why="Version 0.2.0 demands an error and names none: a request for an unknown model gets a gRPC error.",
    versions=("0.2.0",),
    modes=("full-duplex", "buffered"),
)
class UnknownModelsAsGrpcErrors(RefusesUnknownModels):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return [Close(UNAVAILABLE, refusal.reason)] if refusal.code == NOT_FOUND else super().refuse(refusal)


@variant(
    "errors-by-reset",
    why="Version 0.2.0 names no error: a request without an endpoint is reset, which is a gRPC error, too.",
    versions=("0.2.0",),
)
class ErrorsByReset(Service):
    def close(self, stream: ServedStream, end: Close) -> None:
        stream.reset() if end.code else super().close(stream, end)


@part_of("errors-by-reset")
class RefusesByClosing(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        reset = refusal.code in (SERVICE_UNAVAILABLE, TOO_MANY_REQUESTS)
        return [Close(UNAVAILABLE, refusal.reason)] if reset else super().refuse(refusal)


@variant(
    "honours-hints-by-grpc-error",
    why="Version 0.2.0 has no subset hint and names no error: where a hint leaves nothing, the stream ends with one.",
    versions=("0.2.0",),
)
class HonoursHintsByGrpcError(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        super().read_metadata(kind, metadata)
        if kind.startswith("request") and self.subset is None:
            self.subset = read_subset(metadata, self.epp.subset_namespace)

    def refuse(self, refusal: Refused) -> Iterable[Action]:
        nothing_left = refusal.code == SERVICE_UNAVAILABLE and self.subset is not None
        return [Close(UNAVAILABLE, refusal.reason)] if nothing_left else super().refuse(refusal)


@variant(
    "empty-posts-have-no-model",
    why="A POST without a body can't be understood, and gets 404: no InferenceModel has the empty name.",
    versions=WITH_MODELS,
    modes=("full-duplex", "buffered"),
    noted={"EPP-ERR-07": "code 404"},
)
class EmptyPostsHaveNoModel(Conversation):
    def choose(self, body: bytes) -> Decision:
        empty = not body and self.headers.get(":method") == b"POST"
        return self.unknown_model("") if empty else super().choose(body)


@variant(
    "refuses-other-media-types",
    why="A body that is not said to be JSON is refused with 415, as model servers do.",
    noted={"EPP-ERR-07": "code 415"},
)
class RefusesOtherMediaTypes(Conversation):
    def choose(self, body: bytes) -> Decision:
        given = self.headers.get("content-type", b"").partition(b";")[0].strip().lower()
        refused = body and given != b"application/json"
        return Refused(UNSUPPORTED_MEDIA_TYPE, "only application/json is taken") if refused else super().choose(body)


@variant(
    "refuses-grpc-in-its-words",
    why="A request of gRPC, which it does not understand, gets 200 and `grpc_status` UNIMPLEMENTED: its client gets "
    "from Envoy what it gets for 404.",
    noted={"EPP-ERR-07": "code 200"},
)
class RefusesGrpcInItsWords(Conversation):
    def choose(self, body: bytes) -> Decision:
        grpc = self.headers.get(":method") == b"POST" and self.headers.get("content-type") == b"application/grpc"
        return Refused(OK, "only JSON is understood") if grpc else super().choose(body)

    def refuse(self, refusal: Refused) -> Iterable[Action]:
        actions = list(super().refuse(refusal))
        for action in actions:
            if isinstance(action, ProcessingResponse) and refusal.code == OK:
                action.immediate_response.grpc_status.status = UNIMPLEMENTED
        return actions
