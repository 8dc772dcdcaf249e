"""Variants that choose endpoints, or refuse, in another way."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ext_proc.messages import ProcessingRequest, ProcessingResponse
from ext_proc.server import ServedStream
from reference_epp import answers
from reference_epp.conversation import BAD_REQUEST, CONTENT_TOO_LARGE, Conversation
from reference_epp.deviations import FULL_DUPLEX, NEXT, WITH_LISTS, WITH_MODELS, WITH_SUBSET, variant
from reference_epp.endpoints import Endpoint
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.picker import (
    NOT_FOUND,
    SERVICE_UNAVAILABLE,
    TOO_MANY_REQUESTS,
    Decision,
    Picked,
    Picker,
    Refused,
    Request,
)
from reference_epp.service import Service
from reference_epp.subset import read_subset

if TYPE_CHECKING:
    from ext_proc.messages import HttpHeaders, Metadata

UNSUPPORTED, UNPROCESSABLE, INTERNAL = 415, 422, 500
UNAVAILABLE = 14


@variant(
    "lists-all-endpoints",
    why="Every eligible endpoint is in the list, best first; a list has no upper limit.",
    versions=WITH_LISTS,
    noted={"EPP-DEST-09": "3 endpoints in a value"},
)
class ListsAllEndpoints(Picker):
    def pick(self, request: Request) -> Decision:
        decision = super().pick(request)
        return Picked(tuple(self.rank(self.eligible(request), request))) if isinstance(decision, Picked) else decision


@variant(
    "names-one-endpoint",
    why="There is never more than one endpoint; more are allowed, not asked for.",
    without=("fallbackLists",),
)
class NamesOneEndpoint(Picker):
    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        return super().rank(candidates, request)[:1]


@variant(
    "shuffled-lists",
    why="Equal requests get lists in another order each time; the order is the EPP's preference of the moment.",
    versions=WITH_LISTS,
)
class ShuffledLists(Picker):
    flip = False

    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        self.flip = not self.flip
        ranked = super().rank(candidates, request)
        return ranked[::-1] if self.flip else ranked


@variant("sticky", why="The first eligible endpoint gets everything; how well an EPP balances is not in the protocol.")
class Sticky(Picker):
    def rank(self, candidates: Sequence[Endpoint], request: Request) -> list[Endpoint]:
        return list(candidates)


@variant("prefers-the-busiest", why="The most loaded endpoint comes first, which is unwise and allowed.")
class PrefersTheBusiest(Picker):
    def score(self, endpoint: Endpoint, request: Request) -> float:
        return -super().score(endpoint, request)


@variant(
    "never-sheds",
    why="Sheddable requests get an endpoint under any load; dropping them is the EPP's choice.",
    without=("sheds",),
)
class NeverSheds(Picker):
    def saturated(self, candidates: Sequence[Endpoint]) -> bool:
        return False


@variant(
    "four-paths",
    why="A POST to another path than completions, chats, embeddings and models gets 404: it can't be understood there.",
)
class FourPaths(Conversation):
    known = (b"/v1/completions", b"/v1/chat/completions", b"/v1/embeddings", b"/v1/models")

    def choose(self, body: bytes) -> Decision:
        decision = super().choose(body)
        post, path = self.headers.get(":method") == b"POST", self.headers.get(":path", b"").partition(b"?")[0]
        refused = isinstance(decision, Picked) and post and path.startswith(b"/") and path not in self.known
        return Refused(NOT_FOUND, "no such path") if refused else decision


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
    def choose(self, body: bytes) -> Decision:
        too_large = len(body) > 4 * 1024 * 1024
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
        return Refused(UNSUPPORTED, "only application/json is taken") if refused else super().choose(body)


@variant(
    "sheds-any-request",
    why="While all pods are as busy as makes others shed, every request is dropped with 429, marked or not.",
    versions=WITH_SUBSET,
)
class ShedsAnyRequest(Picker):
    def pick(self, request: Request) -> Decision:
        candidates = self.eligible(request)
        return self.shed(request) if candidates and self.saturated(candidates) else super().pick(request)


@variant(
    "sheds-early",
    why="The same while three requests wait at every pod, or half of its KV cache is in use.",
    versions=WITH_SUBSET,
)
class ShedsEarly(ShedsAnyRequest):
    def saturated(self, candidates: Sequence[Endpoint]) -> bool:
        known = [self.readings.get(one) for one in candidates]
        return all(one is not None and (one.queued >= 3 or one.kv_cache >= 0.5) for one in known)


@variant(
    "filters-early",
    why="With a hint, pods as busy as that are left out, and nothing may be left of it; without one the best is taken.",
    versions=WITH_SUBSET,
)
class FiltersEarly(ShedsEarly):
    def pick(self, request: Request) -> Decision:
        return Picker.pick(self, request)

    def eligible(self, request: Request) -> Sequence[Endpoint]:
        candidates = super().eligible(request)
        return candidates if request.subset is None else [one for one in candidates if not self.saturated([one])]


@variant(
    "queues-briefly",
    why="A request without candidates waits for some to appear before it is refused.",
    claims={"queues": True},
)
class QueuesBriefly(Service):
    async def send(self, stream: ServedStream, answer: Action) -> None:
        if isinstance(answer, ProcessingResponse) and answer.immediate_response.status.code == SERVICE_UNAVAILABLE:
            await asyncio.sleep(0.2)
        await super().send(stream, answer)


@variant(
    "subset-in-the-destination-namespace",
    why="The subset's key is honoured in the destination's namespace as well, as a configuration may ask for.",
    versions=WITH_SUBSET,
    noted={"EPP-SUB-12": "503, with the key in another namespace"},
)
class SubsetInTheDestinationNamespace(Conversation):
    def read_metadata(self, kind: str, metadata: Metadata) -> None:
        super().read_metadata(kind, metadata)
        if kind.startswith("request") and self.subset is None:
            self.subset = read_subset(metadata, self.epp.metadata_namespace)


@variant(
    "queues-until-ready",
    why="A request is held while no endpoint is ready, or all are saturated, for a second at most.",
    claims={"queues": True},
)
class QueuesUntilReady(Service):
    deadlines: WeakKeyDictionary[Conversation, float] = WeakKeyDictionary()

    async def read(
        self, stream: ServedStream, messages: AsyncIterator[object], conversation: Conversation
    ) -> ProcessingRequest | None:
        message = await super().read(stream, messages, conversation)
        if message is not None and conversation.decision is None:
            deadline = self.deadlines.setdefault(conversation, time.monotonic() + 1)
            while self.full() and stream.ended is None and time.monotonic() < deadline:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
        return message

    def full(self) -> bool:
        """True if no endpoint can take a request now."""
        picker = self.epp.picker
        return not picker.pool.endpoints or picker.saturated(picker.pool.endpoints)


@variant(
    "ipv4-only",
    why="Endpoints with an IPv6 address are left out of the pool; its profile says so.",
    claims={"ipv6": False},
)
class Ipv4Only(Picker):
    def eligible(self, request: Request) -> Sequence[Endpoint]:
        return [one for one in super().eligible(request) if ":" not in one.ip]
