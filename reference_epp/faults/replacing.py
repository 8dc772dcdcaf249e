"""Faults of body mutations: an empty one, those that replace a body which the EPP has not seen, and of unpacking."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import CommonResponse, ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, STREAMED, fault, part_of
from reference_epp.epp import Action, Close
from reference_epp.picker import Picked
from reference_epp.variants.answering import BEFORE_THE_BODY, AsksForNoBody
from reference_epp.variants.streaming import Slow, UnpacksGzipBodies

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders, ProcessingRequest


def replace_body(common: CommonResponse, body: bytes) -> None:
    """Let the data plane go on with this body."""
    common.status = CommonResponse.CONTINUE_AND_REPLACE
    common.body_mutation.body = body


@fault(
    "request-body-cleared-unseen",
    breaks="ENV-09",
    why="The answer to the headers asks to be shown no body, and clears it instead of leaving it as it is.",
    versions=BEFORE_THE_BODY,
    modes=("streamed", "buffered"),
)
class RequestBodyClearedUnseen(AsksForNoBody):
    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = list(super().on_request_headers(headers))
        for action in actions:
            if isinstance(action, ProcessingResponse) and action.HasField("request_headers"):
                action.request_headers.response.body_mutation.clear_body = not headers.end_of_stream
        return actions


@fault(
    "asks-for-no-body-that-was-sent",
    breaks="ENV-09",
    why="The answer to the headers asks for no body where chunks of it were sent without waiting: they are dropped.",
    versions=BEFORE_THE_BODY,
    modes=STREAMED,
)
class AsksForNoBodyThatWasSent(AsksForNoBody):
    def configure(self, message: ProcessingRequest) -> Close | None:
        refusal = super().configure(message)
        self.waited_for = True
        return refusal

    def on_request_body(self, _: HttpBody) -> Iterable[Action]:
        return []


@part_of("asks-for-no-body-that-was-sent")
class AnswersWhenTheyWereSent(Slow):
    pass


@fault(
    "json-responses-replaced-unseen",
    breaks="ENV-09",
    why="The answer to the headers of a JSON response puts another body in its place.",
    modes=("none", "streamed", "buffered"),
)
class JsonResponsesReplacedUnseen(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        types = [entry.raw_value for entry in headers.headers.headers if entry.key == "content-type"]
        if any(b"json" in value for value in types) and not headers.end_of_stream:
            replace_body(common, b"{}")
        return [answer]


@fault(
    "body-added-to-a-request-without-one",
    breaks="EPP-TRN-05",
    why="A request without a body gets one that says what was picked.",
    effect="warn",
)
class BodyAddedToARequestWithoutOne(Conversation):
    bodyless = False

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.bodyless = headers.end_of_stream
        return super().on_request_headers(headers)

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if self.bodyless:
            replace_body(common, b'{"picked": true}')


@fault(
    "body-added-to-a-response-without-one",
    breaks="ENV-09",
    why="A response without a body gets one that says what was picked.",
    effect="warn",
)
class BodyAddedToAResponseWithoutOne(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answer, common = answers.headers_answer("response")
        if headers.end_of_stream:
            replace_body(common, b'{"picked": true}')
        return [answer]


@fault(
    "mutation-in-which-nothing-is-set",
    breaks="ENV-10",
    why="The answer to a buffered body has a body mutation without a body, which Envoy takes for one of no bytes.",
    modes=BUFFERED,
)
class MutationInWhichNothingIsSet(Conversation):
    def steer_body(self, decision: Picked) -> ProcessingResponse:
        answer = super().steer_body(decision)
        answer.request_body.response.body_mutation.SetInParent()
        return answer


@fault(
    "unpacked-bodies-said-to-be-gzip",
    breaks="ENV-09",
    why="A request body that is gzip goes on unpacked, and its content-encoding stays.",
    modes=("full-duplex", "buffered"),
)
class UnpackedBodiesSaidToBeGzip(UnpacksGzipBodies):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        Conversation.destination_header(self, common, decision)


@fault(
    "gzip-bodies-not-said-to-be",
    breaks="EPP-TRN-06",
    why="The content-encoding of requests that are gzip is removed, and their bodies stay as they are.",
    modes=("full-duplex", "buffered"),
    effect="warn",
)
class GzipBodiesNotSaidToBe(UnpacksGzipBodies):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        return Conversation.stream(self, direction, body, end_of_stream=end_of_stream)

    def steer_body(self, decision: Picked) -> ProcessingResponse:
        return Conversation.steer_body(self, decision)
