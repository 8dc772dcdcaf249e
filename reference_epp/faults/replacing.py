"""Faults of body mutations: an empty one, those that replace a body which the EPP has not seen, and of unpacking."""
# fmt: off

from __future__ import annotations

from typing import Any

from ext_proc.messages import CommonResponse
from reference_epp import answers
from reference_epp.changes import bodyless, changed, emitting, header
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, PLAIN_BODY, STREAMED, WHOLE_BODY, fault
from reference_epp.picker import Picked
from reference_epp.variants.answering import BEFORE_THE_BODY, AsksForNoBody
from reference_epp.variants.streaming import Slow, UnpacksGzipBodies


def _replace(common: CommonResponse, body: bytes) -> None:
    common.status = CommonResponse.CONTINUE_AND_REPLACE
    common.body_mutation.body = body


def _response(body: bytes, when: Any) -> type[Conversation]:
    """Puts this body in the place of those of responses for whose headers `when` is true."""
    def act(_: Any, __: Any, headers: Any) -> list[Any]:
        answer, common = answers.headers_answer("response")
        if when(headers):
            _replace(common, body)
        return [answer]

    return changed(Conversation, on_response_headers=act)


def _with_a_body(up: Any, _: Any, common: CommonResponse, decision: Picked) -> None:
    up(common, decision)
    _replace(common, b'{"picked": true}')


def _cleared(c: Any, answer: Any) -> None:
    if answer.HasField("request_headers"):
        answer.request_headers.response.body_mutation.clear_body = not bodyless(c)


def _empty_mutation(up: Any, _: Any, decision: Picked) -> Any:
    answer = up(decision)
    answer.request_body.response.body_mutation.SetInParent()
    return answer


fault("request-body-cleared-unseen", "ENV-09",
      "The answer to the headers asks for no body, and clears it instead of leaving it as it is.",
      emitting(_cleared, AsksForNoBody), versions=BEFORE_THE_BODY, modes=PLAIN_BODY)
fault("json-responses-replaced-unseen", "ENV-09",
      "The answer to the headers of a JSON response puts another body in its place.",
      _response(b"{}", lambda headers: b"json" in header(headers, "content-type") and not headers.end_of_stream),
      modes=("none", "streamed", "buffered"))
fault("body-added-to-a-request-without-one", "EPP-TRN-05",
      "A request without a body gets one that says what was picked.",
      changed(Conversation, destination_header=_with_a_body), when=bodyless, effect="warn")
fault("body-added-to-a-response-without-one", "ENV-09",
      "A response without a body gets one that says what was picked.",
      _response(b'{"picked": true}', lambda headers: headers.end_of_stream), effect="warn")
fault("mutation-in-which-nothing-is-set", "ENV-10",
      "The answer to a buffered body has a body mutation without a body, which Envoy takes for an empty one.",
      changed(Conversation, steer_body=_empty_mutation), modes=BUFFERED)
fault("unpacked-bodies-said-to-be-gzip", "ENV-09",
      "A request body that is gzip goes on unpacked, and its content-encoding stays.",
      type("Packed", (UnpacksGzipBodies,), {"destination_header": Conversation.destination_header}), modes=WHOLE_BODY)
fault("gzip-bodies-not-said-to-be", "EPP-TRN-06",
      "The content-encoding of requests that are gzip is removed, and their bodies stay as they are.",
      type("Packed", (UnpacksGzipBodies,), {"stream": Conversation.stream, "steer_body": Conversation.steer_body}),
      modes=WHOLE_BODY, effect="warn")


@fault("asks-for-no-body-that-was-sent", "ENV-09",
       "The answer to the headers asks for no body, and drops chunks that were sent without waiting.",
       Slow, versions=BEFORE_THE_BODY, modes=STREAMED)
class AsksForNoBodyThatWasSent(AsksForNoBody):
    def configure(self, message: Any) -> Any:
        refusal = super().configure(message)
        self.waited_for = True
        return refusal

    def on_request_body(self, _: Any) -> Any:
        return []
