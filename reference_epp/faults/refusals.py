"""Faults of how a refusal is sent: in its streamed form, after a pick, and with a bad end of the stream."""
# fmt: off

from __future__ import annotations

from typing import Any

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.changes import answering_refusals, changed
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import ALL, FULL_DUPLEX, WHOLE_BODY, WITH_SUBSET, fault
from reference_epp.epp import BodyMode, Close
from reference_epp.faults.destination import STRANGER
from reference_epp.names import DESTINATION
from reference_epp.picker import SERVICE_UNAVAILABLE, Refused
from reference_epp.service import INTERNAL, Service
from reference_epp.variants.answering import BEFORE_THE_BODY
from reference_epp.variants.refusing import BadRequestsAsStreamedReplies, RefusesMoreThanOneMessage
from reference_epp.variants.streaming import AnswersHeadersAtOnce

# -- streamed


def _head(key: str, value: bytes) -> type[Conversation]:
    """Adds a header to streamed replies."""
    return changed(BadRequestsAsStreamedReplies, head=lambda _, __, headers: headers.headers.headers.add(
        key=key, raw_value=value))


def _status_in_value(_: Any, __: Any, headers: Any) -> None:
    for one in headers.headers.headers:
        if one.key == ":status":
            one.value = one.raw_value.decode()
            one.ClearField("raw_value")


def _without_an_end(up: Any, _: Any, refusal: Refused) -> list[Any]:
    actions = list(up(refusal))
    if len(actions) > 2 and isinstance(actions[1], ProcessingResponse):
        actions[1].streamed_immediate_response.body_response.end_of_stream = False
    return actions


def _other_length(_: Any, answer: Any, __: Refused) -> None:
    length = len(answer.immediate_response.body) - 1
    answers.set_header(answer.immediate_response.headers, "content-length", b"%d" % length)


fault("errors-as-streamed-replies", "EPP-ERR-04",
      "A request without an endpoint gets a StreamedImmediateResponse, which many data planes do not know.",
      changed(BadRequestsAsStreamedReplies, code=SERVICE_UNAVAILABLE), modes=FULL_DUPLEX, versions=WITH_SUBSET)
fault("streamed-reply-with-its-status-in-value", "ENV-15",
      "A streamed reply to a malformed request has its status in `value`, which Envoy drops.",
      changed(BadRequestsAsStreamedReplies, head=_status_in_value),
      also={"ENV-11": "it is not in raw_value", "EPP-DEST-07": "the request gets no error that Envoy passes on"},
      modes=FULL_DUPLEX)
fault("streamed-reply-without-an-end", "ENV-15",
      "A streamed reply to a malformed request has no end of stream: its client waits for the rest.",
      changed(BadRequestsAsStreamedReplies, refuse=_without_an_end), modes=FULL_DUPLEX)
fault("streamed-reply-with-a-line-break", "ENV-11",
      "A streamed reply to a malformed request has a header with a line break in its value.",
      _head("x-why", b"no JSON\r\nat all"), modes=FULL_DUPLEX)
fault("streamed-reply-of-another-length", "ENV-10",
      "A streamed reply to a malformed request has the content-length of another text.",
      _head("content-length", b"3"), modes=FULL_DUPLEX)
fault("streamed-reply-with-a-destination", "EPP-ERR-05",
      "A streamed reply to a malformed request has the header that sends requests to an endpoint.",
      _head(DESTINATION, STRANGER.encode()), modes=FULL_DUPLEX, effect="warn", versions=WITH_SUBSET)
fault("refusal-of-another-length", "ENV-10",
      "Errors have the content-length that they had before a line break was added.",
      answering_refusals(_other_length))

# -- after a pick, or while the body is on its way


class PicksTakenBack(AnswersHeadersAtOnce):
    """Takes every fifth pick back."""

    code = 500
    seen = b""

    def on_request_body(self, body: Any) -> Any:
        self.seen += body.body
        if self.request_mode is BodyMode.FULL_DUPLEX_STREAMED and body.end_of_stream and self.taken_back():
            return self.refuse(Refused(self.code, "the request is not served"))
        return super().on_request_body(body)

    def taken_back(self) -> bool:
        """Whether the pick is taken back at the end of the body."""
        return self.number % 5 == 0


def _malformed(_: Any, c: Any) -> bool:
    try:
        c.read_model(c.seen)
    except ValueError:
        return True
    return False


def _collecting(code: int) -> type[Conversation]:
    """Refuses a body of more than a quarter of a megabyte as soon as that much of it is there."""
    refusal = Refused(code, "the body can't be read")
    return changed(Conversation, collect=lambda up, c, piece:
                   up(piece) or (refusal if sum(map(len, c.body)) > 250_000 else None))


fault("malformed-bodies-refused-after-the-pick", "ENV-15",
      "An endpoint is picked for the headers, and taken back with 400 if the body is broken JSON.",
      changed(PicksTakenBack, code=BAD_REQUEST, taken_back=_malformed),
      modes=FULL_DUPLEX, versions=BEFORE_THE_BODY, effect="warn")
fault("picks-taken-back", "ENV-15",
      "An endpoint is picked for the headers, and every fifth time taken back with 500.",
      PicksTakenBack, modes=FULL_DUPLEX, versions=BEFORE_THE_BODY)
fault("refused-after-a-quarter-megabyte", "EPP-DEST-01",
      "A streamed body gets 400 as soon as 250,000 bytes are there, while the rest is on its way.",
      _collecting(BAD_REQUEST), modes=FULL_DUPLEX)
fault("breaks-after-a-quarter-megabyte", "EPP-DEST-01",
      "A streamed body gets 500 as soon as 250,000 bytes are there, while the rest is on its way.",
      _collecting(500), modes=FULL_DUPLEX)
fault("half-a-megabyte-is-too-large", "EPP-DEST-01",
      "A body of more than 512 KiB gets 413, where data planes buffer twice as much.",
      changed(RefusesMoreThanOneMessage, most=512 * 1024), modes=WHOLE_BODY, versions=ALL[:-1])

# -- and a bad end

fault("refusal-and-a-status", "ENV-15",
      "After an ImmediateResponse the stream ends with a gRPC error.",
      changed(Conversation, refuse=lambda up, _, refusal: [*up(refusal)[:-1], Close(INTERNAL, refusal.reason)]),
      effect="warn")


@fault("refusal-and-a-reset", "ENV-15", "After an ImmediateResponse the stream is reset.", effect="warn")
class RefusalAndAReset(Service):
    async def send(self, stream: Any, answer: Any) -> None:
        await super().send(stream, answer)
        if isinstance(answer, ProcessingResponse) and answer.HasField("immediate_response"):
            stream.reset()
