"""Faults of transparency: the request that leaves is not the one that the client sent."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, ClassVar

from reference_epp import answers
from reference_epp.conversation import Conversation
from reference_epp.deviations import FULL_DUPLEX, fault
from reference_epp.epp import Close
from reference_epp.faults.bodies import OtherBytes, rewritten

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ext_proc.messages import CommonResponse, HttpBody, HttpHeaders, HttpTrailers
    from reference_epp.epp import Action
    from reference_epp.picker import Picked


@fault(
    "authorization-removed",
    breaks="EPP-TRN-01",
    why="The client's authorization header is removed.",
    effect="warn",
)
class AuthorizationRemoved(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        common.header_mutation.remove_headers.append("authorization")


@fault(
    "content-type-changed",
    breaks="EPP-TRN-02",
    why="The request's content-type is set to `text/plain`.",
    effect="warn",
)
class ContentTypeChanged(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if "content-type" in self.headers:
            answers.set_header(common.header_mutation, "content-type", b"text/plain")


@fault(
    "path-changed",
    breaks="EPP-TRN-03",
    why="The request's path gets a prefix.",
    effect="warn",
)
class PathChanged(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        answers.set_header(common.header_mutation, ":path", b"/epp" + self.headers.get(":path", b"/"))


@fault(
    "duplicate-headers-dropped",
    breaks="EPP-TRN-04",
    why="All headers are set again from a map, so that of repeated ones only the last is left.",
    effect="warn",
)
class DuplicateHeadersDropped(Conversation):
    repeated: frozenset[str] = frozenset()

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        names = [entry.key.lower() for entry in headers.headers.headers]
        self.repeated = frozenset(name for name in names if names.count(name) > 1)
        return super().on_request_headers(headers)

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        for name in sorted(self.repeated - {header.header.key for header in common.header_mutation.set_headers}):
            answers.set_header(common.header_mutation, name, self.headers[name])


@fault(
    "duplicate-headers-dropped-of-bodyless",
    breaks="EPP-TRN-04",
    why="Headers of requests without a body are set again from a map, so that of repeated ones only the last is left.",
    effect="warn",
)
class DuplicateHeadersDroppedOfBodyless(DuplicateHeadersDropped):
    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        if headers.end_of_stream:
            return super().on_request_headers(headers)
        return Conversation.on_request_headers(self, headers)


@fault(
    "unknown-headers-removed",
    breaks="EPP-TRN-06",
    why="Headers of the client that are not on a list of known ones are removed.",
    effect="warn",
)
class UnknownHeadersRemoved(Conversation):
    known = frozenset(
        {"host", "accept", "authorization", "content-type", "content-length", "user-agent", "x-request-id"}
    )

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        unknown = {
            name for name in self.headers if not name.startswith((":", "x-gateway-", "x-forwarded-"))
        } - self.known
        common.header_mutation.remove_headers.extend(sorted(unknown))


@fault(
    "append-action-unset",
    breaks="EPP-TRN-07",
    why="The entry that sets the destination header does not say how: Envoy overwrites, other data planes append.",
    effect="warn",
)
class AppendActionUnset(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        common.header_mutation.set_headers[0].ClearField("append_action")


@fault(
    "request-trailers-removed",
    breaks="EPP-TRN-06",
    effect="warn",
    why="The trailers of every request are removed by the answer to them.",
    modes=FULL_DUPLEX,
)
class RequestTrailersRemoved(Conversation):
    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        names = [entry.key for entry in trailers.trailers.headers]
        for action in super().on_request_trailers(trailers):
            if not isinstance(action, Close) and action.HasField("request_trailers"):
                action.request_trailers.header_mutation.remove_headers.extend(names)
            yield action


@fault(
    "content-encoding-added",
    breaks="EPP-TRN-05",
    why="Requests are said to be gzip, and their bodies are as they were.",
    effect="warn",
)
class ContentEncodingAdded(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if "content-encoding" not in self.headers:
            answers.set_header(common.header_mutation, "content-encoding", b"gzip")


@fault(
    "trace-state-of-others-lost",
    breaks="EPP-TRN-06",
    why="`tracestate` has the EPP's own entry alone, which takes the trace away from others.",
    effect="warn",
)
class TraceStateOfOthersLost(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if "tracestate" in self.headers:
            answers.set_header(common.header_mutation, "tracestate", b"epp=1")


@fault(
    "baggage-lost",
    breaks="EPP-TRN-06",
    why="Of W3C `baggage` only the first entry goes on.",
    effect="warn",
)
class BaggageLost(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if "baggage" in self.headers:
            answers.set_header(common.header_mutation, "baggage", self.headers["baggage"].partition(b",")[0])


@fault(
    "model-of-the-latest-request",
    breaks="EPP-TRN-05",
    why="Bodies are written again with a model that is kept for each connection: it is that of the latest request.",
    modes=FULL_DUPLEX,
    effect="warn",
)
class ModelOfTheLatestRequest(OtherBytes):
    latest: ClassVar[dict[int, object]] = {}
    named = False

    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        found = re.search(rb'"model": ("[^"]+")', b"".join([*self.body, body.body]))
        if found and not self.named:
            self.named = True
            self.latest[self.connection] = json.loads(found[1])
        return super().on_request_body(body)

    def change(self, body: bytes) -> bytes:
        own = self.latest.get(self.connection)
        return rewritten(body, lambda value: {**value, "model": own}) if self.named else body
