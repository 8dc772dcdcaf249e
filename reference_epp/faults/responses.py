"""Faults of the response's path."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from reference_epp import answers
from reference_epp.conversation import Conversation
from reference_epp.deviations import DEAD, ENDED, FULL_DUPLEX, NEXT, SILENT, STREAMED, fault
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.picker import Refused
from reference_epp.service import INTERNAL

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders, HttpTrailers

# -- a response before the request is complete


@fault(
    "early-response-unanswered",
    breaks="ENV-23",
    why="Response headers that come before the request was answered get no answer.",
    also_breaks=SILENT | {"ENV-03": "the body of such a response is answered without them"},
)
class EarlyResponseUnanswered(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return [] if self.decision is None else super().on_response_headers(headers)


@fault(
    "early-response-is-an-error",
    breaks="ENV-23",
    why="Response headers that come before the request was answered end the stream with a gRPC error.",
    also_breaks=ENDED,
)
class EarlyResponseIsAnError(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return [Close(INTERNAL, "no request yet")] if self.decision is None else super().on_response_headers(headers)


@fault(
    "response-first-is-fatal",
    breaks="ENV-23",
    why="A response to a request that the EPP never saw ends the process: there is nothing to look it up in.",
    also_breaks=DEAD,
)
class ResponseFirstIsFatal(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        if not self.headers:
            os._exit(70)
        return super().on_response_headers(headers)


@fault(
    "first-message-taken-for-a-request",
    breaks="ENV-01",
    why="The first message of a stream is answered as a request, also when it is a response.",
)
class FirstMessageTakenForARequest(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return super().on_response_headers(headers) if self.headers else [answers.headers_answer("request")[0]]


@fault(
    "trailers-after-headers-unanswered",
    breaks="ENV-06",
    why="Response trailers are answered only after a body.",
    also_breaks=SILENT,
)
class TrailersAfterHeadersUnanswered(Conversation):
    has_body = False

    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        self.has_body = True
        return super().on_response_body(body)

    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        return super().on_response_trailers(trailers) if self.has_body else []


# -- passing through


@fault(
    "responses-are-an-error",
    breaks="ENV-16",
    why="The headers of any response end the stream with a gRPC error.",
    also_breaks={"ENV-23": "so do those that come early"},
)
class ResponsesAreAnError(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return [Close(INTERNAL, "not implemented")]


class OtherResponseHeaders(Conversation):
    """Changes the response's headers."""

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        answers.set_header(common.header_mutation, ":status", b"200")
        return [answer]


@fault("status-overwritten", breaks="ENV-24", why="The status of every response is set to 200.")
class StatusOverwritten(OtherResponseHeaders):
    pass


@fault(
    "status-set-again-in-value",
    breaks="ENV-11",
    why="The status of a response is set to what it is, in the field `value`, which Envoy does not read.",
    effect="warn",
)
class StatusSetAgainInValue(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        status = next((entry.raw_value for entry in headers.headers.headers if entry.key == ":status"), b"")
        option = common.header_mutation.set_headers.add()
        option.header.key, option.header.value = ":status", status.decode()
        return [answer]


@fault(
    "content-encoding-removed",
    breaks="ENV-24",
    why="The header that says how a response is compressed is removed; the body stays as it is.",
)
class ContentEncodingRemoved(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        common.header_mutation.remove_headers.append("content-encoding")
        return [answer]


@fault(
    "grpc-status-removed",
    breaks="ENV-24",
    why="The trailer that says how a gRPC call went is removed.",
    modes=FULL_DUPLEX,
)
class GrpcStatusRemoved(Conversation):
    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        answer = answers.trailers_answer("response")
        answer.response_trailers.header_mutation.remove_headers.append("grpc-status")
        return [answer]


@fault(
    "response-headers-removed",
    breaks="ENV-24",
    why="Response headers that are not on a list of known ones are removed: retry-after and cookies, too.",
    effect="warn",
)
class ResponseHeadersRemoved(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        unknown = {entry.key for entry in headers.headers.headers if not entry.key.startswith((":", "content-"))}
        common.header_mutation.remove_headers.extend(sorted(unknown))
        return [answer]


@fault(
    "response-headers-from-a-map",
    breaks="ENV-24",
    why="All response headers are set again from a map, so that of repeated ones only the last is left.",
    effect="warn",
)
class ResponseHeadersFromAMap(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        last = {entry.key: entry.raw_value or entry.value.encode() for entry in headers.headers.headers}
        for name, value in last.items():
            if not name.startswith(":"):
                answers.set_header(common.header_mutation, name, value)
        return [answer]


@fault(
    "cookies-joined",
    breaks="ENV-24",
    why="The cookies of a response are put into one line, where no client finds the second.",
    effect="warn",
)
class CookiesJoined(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        cookies = [entry.raw_value for entry in headers.headers.headers if entry.key == "set-cookie"]
        if len(cookies) > 1:
            answers.set_header(common.header_mutation, "set-cookie", b", ".join(cookies))
        return [answer]


@fault(
    "response-trailers-removed",
    breaks="ENV-24",
    why="All response trailers but the status of a gRPC call are removed.",
    effect="warn",
)
class ResponseTrailersRemoved(Conversation):
    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        answer = answers.trailers_answer("response")
        names = [entry.key for entry in trailers.trailers.headers if entry.key != "grpc-status"]
        answer.response_trailers.header_mutation.remove_headers.extend(names)
        return [answer]


@fault(
    "response-broken-off",
    breaks="ENV-24",
    why="Once a part of a response is here that is not its last, an ImmediateResponse with 500 comes in its place.",
    modes=(*FULL_DUPLEX, *STREAMED),
)
class ResponseBrokenOff(Conversation):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        if body.end_of_stream:
            return super().on_response_body(body)
        return self.refuse(Refused(500, "enough"))


@fault(
    "upstream-errors-replaced",
    breaks="ENV-24",
    why="A response with status 500 or above is replaced by a 502 of our own.",
)
class UpstreamErrorsReplaced(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        status = next((entry.raw_value for entry in headers.headers.headers if entry.key == ":status"), b"")
        return self.refuse(Refused(502, "bad gateway")) if status >= b"500" else super().on_response_headers(headers)


class HoldsBack(Conversation):
    """Holds response bodies of event streams back."""

    held_response: list[bytes]
    holds = False

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        types = [
            entry.raw_value or entry.value.encode() for entry in headers.headers.headers if entry.key == "content-type"
        ]
        self.held_response = []
        self.holds = any(self.holds_back(value) for value in types)
        return super().on_response_headers(headers)

    def holds_back(self, content_type: bytes) -> bool:
        """True if a body of this type is held back until its end."""
        return content_type.lower().startswith(b"text/event-stream")

    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        if not self.holds or self.response_mode not in (BodyMode.FULL_DUPLEX_STREAMED, None):
            return super().on_response_body(body)
        self.held_response.append(body.body)
        if not body.end_of_stream:
            return []
        return self.stream("response", b"".join(self.held_response), end_of_stream=True)

    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        body = b"".join(self.held_response) if self.holds else b""
        return [*self.stream("response", body, end_of_stream=False), *super().on_response_trailers(trailers)]


@fault(
    "events-held-back",
    breaks="EPP-STRM-02",
    why="Server-sent events are held back until the response is complete.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class EventsHeldBack(HoldsBack):
    pass


@fault(
    "events-with-charset-held-back",
    breaks="EPP-STRM-02",
    why="Server-sent events are held back if their content-type is more than `text/event-stream`.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class EventsWithCharsetHeldBack(HoldsBack):
    def holds_back(self, content_type: bytes) -> bool:
        return super().holds_back(content_type) and content_type != b"text/event-stream"


@fault(
    "events-without-a-request-body-held-back",
    breaks="EPP-STRM-02",
    why="Server-sent events pass at once if the request's body asked for a stream; others are held back.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class EventsWithoutARequestBodyHeldBack(HoldsBack):
    def holds_back(self, content_type: bytes) -> bool:
        return super().holds_back(content_type) and self.headers.get(":method") == b"GET"


@fault(
    "events-of-hinted-requests-held-back",
    breaks="EPP-STRM-02",
    why="Server-sent events are held back if the request had a subset hint.",
    versions=NEXT,
    modes=FULL_DUPLEX,
)
class EventsOfHintedRequestsHeldBack(HoldsBack):
    def holds_back(self, content_type: bytes) -> bool:
        return super().holds_back(content_type) and self.subset is not None


@fault(
    "event-headers-removed",
    breaks="ENV-24",
    why="Of the headers of an event stream those that describe its body are left.",
    effect="warn",
)
class EventHeadersRemoved(ResponseHeadersRemoved):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        events = any(b"event-stream" in (one.raw_value or one.value.encode()) for one in headers.headers.headers)
        return super().on_response_headers(headers) if events else Conversation.on_response_headers(self, headers)
