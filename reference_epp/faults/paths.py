"""Faults on one path only: rules that hold for most requests, and not for those of one kind."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from reference_epp import answers
from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, SILENT, WITH_SUBSET, WITHOUT_MODELS, fault
from reference_epp.epp import Action, Close
from reference_epp.names import DESTINATION
from reference_epp.picker import NOT_FOUND, Decision, Picked, Refused
from reference_epp.service import INTERNAL

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse, HttpHeaders, HttpTrailers

METHOD_NOT_ALLOWED = 405

IGNORED = {
    "EPP-SUB-02": "so it is where the subset leaves no endpoint",
    "EPP-SUB-03": "so it is for an empty subset",
    "EPP-SUB-06": "so it is where only the port differs",
    "EPP-SUB-07": "so it is for a subset of IPv6 endpoints",
    "EPP-SUB-09": "so it is for a hint on the headers message only",
}


class SubsetIgnoredFor(Conversation, ABC):
    """Ignores the subset of some requests."""

    @abstractmethod
    def ignores(self, body: bytes) -> bool:
        """True if the subset of the request with this body is ignored."""

    def path(self) -> bytes:
        """The request's path without its query."""
        return self.headers.get(":path", b"").partition(b"?")[0]

    def choose(self, body: bytes) -> Decision:
        if self.subset is not None and self.ignores(body):
            self.subset = None
        return super().choose(body)


@fault(
    "subset-ignored-for-chat",
    breaks="EPP-SUB-01",
    why="Requests to /v1/chat/completions get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED | {"EPP-SUB-08": "so it is for those without a body"},
    versions=WITH_SUBSET,
)
class SubsetIgnoredForChat(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return self.path() == b"/v1/chat/completions"


@fault(
    "subset-ignored-for-streaming",
    breaks="EPP-SUB-01",
    why="Requests with `stream: true` get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED,
    versions=WITH_SUBSET,
    modes=("full-duplex", "buffered"),
)
class SubsetIgnoredForStreaming(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return False
        return isinstance(value, dict) and value.get("stream") is True


@fault(
    "subset-ignored-for-other-bodies",
    breaks="EPP-SUB-01",
    why="Requests whose body is not JSON get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED,
    versions=WITH_SUBSET,
    modes=("full-duplex", "buffered"),
)
class SubsetIgnoredForOtherBodies(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            return bool(body)
        return False


@fault(
    "subset-ignored-with-trailers",
    breaks="EPP-SUB-01",
    why="Requests that end with trailers get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED,
    versions=WITH_SUBSET,
    modes=FULL_DUPLEX,
)
class SubsetIgnoredWithTrailers(SubsetIgnoredFor):
    trailers = False

    def ignores(self, body: bytes) -> bool:
        return self.trailers

    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        self.trailers = True
        return super().on_request_trailers(trailers)


@fault(
    "subset-ignored-for-options-and-delete",
    breaks="EPP-SUB-08",
    why="OPTIONS and DELETE requests get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED | {"EPP-SUB-01": "the pick is outside the subset"},
    versions=WITH_SUBSET,
)
class SubsetIgnoredForOptionsAndDelete(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return self.headers.get(":method") in (b"OPTIONS", b"DELETE")


@fault(
    "subset-ignored-for-patch",
    breaks="EPP-SUB-01",
    why="PATCH requests get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED,
    versions=WITH_SUBSET,
)
class SubsetIgnoredForPatch(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return self.headers.get(":method") == b"PATCH"


@fault(
    "subset-ignored-with-a-query",
    breaks="EPP-SUB-01",
    why="Requests whose path has a query get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED | {"EPP-SUB-08": "so it is for those without a body"},
    versions=WITH_SUBSET,
)
class SubsetIgnoredWithAQuery(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return b"?" in self.headers.get(":path", b"")


@fault(
    "subset-ignored-for-forms",
    breaks="EPP-SUB-01",
    why="Requests of type multipart/form-data get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED,
    versions=WITH_SUBSET,
)
class SubsetIgnoredForForms(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return self.headers.get("content-type", b"").startswith(b"multipart/form-data")


@fault(
    "subset-ignored-for-grpc",
    breaks="EPP-SUB-01",
    why="Requests of type application/grpc get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED,
    versions=WITH_SUBSET,
)
class SubsetIgnoredForGrpc(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return self.headers.get("content-type") == b"application/grpc"


@fault(
    "subset-ignored-for-unknown-models",
    breaks="EPP-SUB-01",
    why="Requests for a model that no server is known to have get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED,
    versions=("1.0.0", "next"),
    modes=("full-duplex", "buffered"),
)
class SubsetIgnoredForUnknownModels(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return b"no-such-model" in body


@fault(
    "client-steers-in-the-older-field",
    breaks="EPP-DEST-05",
    why="The client's destination is removed where it is in `raw_value`, and set again where it is in `value`.",
)
class ClientSteersInTheOlderField(Conversation):
    older = b""

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.older = b"".join(one.value.encode() for one in headers.headers.headers if one.key == DESTINATION)
        return super().on_request_headers(headers)

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if self.older:
            answers.set_header(common.header_mutation, DESTINATION, self.older)


@fault(
    "client-steers-chat",
    breaks="EPP-DEST-05",
    why="The client's headers are set again after our own for /v1/chat/completions: its destination header wins.",
)
class ClientSteersChat(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if DESTINATION in self.headers and self.headers[":path"] == b"/v1/chat/completions":
            answers.set_header(common.header_mutation, DESTINATION, self.headers[DESTINATION])


@fault(
    "subset-ignored-for-empty-posts",
    breaks="EPP-SUB-08",
    why="POST requests without a body get an endpoint of the whole pool, whatever the subset.",
    also_breaks=IGNORED | {"EPP-SUB-01": "the pick is outside the subset"},
    versions=WITH_SUBSET,
)
class SubsetIgnoredForEmptyPosts(SubsetIgnoredFor):
    def ignores(self, body: bytes) -> bool:
        return not body and self.headers.get(":method") == b"POST"


NOT_503 = {
    "EPP-ERR-02": "so it is where the pool is empty, and 503 is due",
    "EPP-SUB-02": "so it is where the subset leaves no endpoint, and 503 is due",
    "EPP-SUB-03": "so it is for an empty subset, for which 503 is due",
}


class RefusesMethod(Conversation):
    """Refuses all requests with one method."""

    method: bytes
    code: int

    def choose(self, body: bytes) -> Decision:
        if self.headers.get(":method") == self.method:
            return Refused(self.code, "there is nothing here")
        return super().choose(body)


@fault(
    "options-refused",
    breaks="EPP-DEST-07",
    why="Every OPTIONS request is answered with 405.",
    also_breaks=NOT_503,
)
class OptionsRefused(RefusesMethod):
    method = b"OPTIONS"
    code = METHOD_NOT_ALLOWED


@fault(
    "get-refused",
    breaks="EPP-DEST-07",
    why="Every GET request is answered with 404.",
    also_breaks=NOT_503
    | {
        "EPP-SUB-08": "so it is with a subset",
        "ENV-07": "GET requests are what has no body",
    },
    versions=WITHOUT_MODELS,
)
class GetRefused(RefusesMethod):
    method = b"GET"
    code = NOT_FOUND


@fault(
    "messages-unanswered",
    breaks="EPP-DEST-07",
    why="A request to /v1/messages, whose prompt it looks for where other paths have it, is never answered.",
    also_breaks=SILENT,
    modes=("full-duplex", "buffered"),
)
class MessagesUnanswered(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        return [] if self.lost() else super().release_with_body(end_of_stream=end_of_stream)

    def release_on_body(self) -> Iterable[Action]:
        return [] if self.lost() else super().release_on_body()

    def lost(self) -> bool:
        """Whether this request is."""
        return self.headers.get(":path") == b"/v1/messages"


@fault(
    "invocations-500",
    breaks="EPP-DEST-07",
    why="A request to /invocations is answered with 500: which of the two kinds of request it is, is not known.",
    effect="warn",
    versions=WITH_SUBSET,
)
class Invocations500(Conversation):
    def choose(self, body: bytes) -> Decision:
        here = self.headers.get(":path") == b"/invocations"
        return Refused(500, "no such kind of request") if here else super().choose(body)


@fault(
    "long-queries-refused",
    breaks="EPP-DEST-07",
    why="A request whose path has more than 2,048 bytes, with its query, is answered with 414.",
    also_breaks={"EPP-DEST-01": "so it is with a body"},
)
class LongQueriesRefused(Conversation):
    def choose(self, body: bytes) -> Decision:
        long = len(self.headers.get(":path", b"")) > 2048
        return Refused(414, "too long a path") if long else super().choose(body)


# -- headers that most requests have


class NeedsHeader(Conversation):
    """Ends the stream of a request that has no such header with a gRPC error."""

    needs: ClassVar[str]
    only_with_body: ClassVar[bool] = False

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        exempt = self.only_with_body and headers.end_of_stream
        if not exempt and self.needs not in [entry.key.lower() for entry in headers.headers.headers]:
            return [Close(INTERNAL, f"no {self.needs}")]
        return super().on_request_headers(headers)


@fault(
    "request-id-needed",
    breaks="ENV-16",
    why="A request without x-request-id, by which it keeps what it knows of requests, ends the stream with an error.",
)
class RequestIdNeeded(NeedsHeader):
    needs = "x-request-id"


@fault(
    "untyped-body-is-an-error",
    breaks="ENV-16",
    why="A request with a body and without a content-type ends the stream with a gRPC error.",
    versions=WITH_SUBSET,
)
class UntypedBodyIsAnError(NeedsHeader):
    needs = "content-type"
    only_with_body = True
