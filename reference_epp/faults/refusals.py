"""Faults of how a refusal is sent: in its streamed form, after a pick, and with a bad end of the stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import ALL, FULL_DUPLEX, WITH_SUBSET, fault
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.faults.destination import STRANGER
from reference_epp.names import DESTINATION
from reference_epp.picker import SERVICE_UNAVAILABLE, Refused
from reference_epp.service import INTERNAL, Service
from reference_epp.variants.answering import BEFORE_THE_BODY
from reference_epp.variants.refusing import BadRequestsAsStreamedReplies, RefusesMoreThanOneMessage
from reference_epp.variants.streaming import AnswersHeadersAtOnce

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders
    from ext_proc.server import ServedStream

# -- streamed


@fault(
    "errors-as-streamed-replies",
    breaks="EPP-ERR-04",
    why="A request without an endpoint gets a StreamedImmediateResponse, which many data planes do not know.",
    modes=FULL_DUPLEX,
    versions=WITH_SUBSET,
)
class ErrorsAsStreamedReplies(BadRequestsAsStreamedReplies):
    code = SERVICE_UNAVAILABLE


@fault(
    "streamed-reply-with-its-status-in-value",
    breaks="ENV-15",
    why="A streamed reply to a malformed request has its status in `value`, which Envoy drops.",
    also_breaks={"ENV-11": "it is not in raw_value", "EPP-DEST-07": "the request gets no error that Envoy passes on"},
    modes=FULL_DUPLEX,
)
class StreamedReplyWithItsStatusInValue(BadRequestsAsStreamedReplies):
    def head(self, headers: HttpHeaders) -> None:
        for header in headers.headers.headers:
            if header.key == ":status":
                header.value = header.raw_value.decode()
                header.ClearField("raw_value")


@fault(
    "streamed-reply-without-an-end",
    breaks="ENV-15",
    why="A streamed reply to a malformed request has no end of stream: its client waits for the rest.",
    modes=FULL_DUPLEX,
)
class StreamedReplyWithoutAnEnd(BadRequestsAsStreamedReplies):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        actions = list(super().refuse(refusal))
        if len(actions) > 2 and isinstance(actions[1], ProcessingResponse):
            actions[1].streamed_immediate_response.body_response.end_of_stream = False
        return actions


@fault(
    "streamed-reply-with-a-line-break",
    breaks="ENV-11",
    why="A streamed reply to a malformed request has a header with a line break in its value.",
    modes=FULL_DUPLEX,
)
class StreamedReplyWithALineBreak(BadRequestsAsStreamedReplies):
    def head(self, headers: HttpHeaders) -> None:
        headers.headers.headers.add(key="x-why", raw_value=b"no JSON\r\nat all")


@fault(
    "refusal-of-another-length",
    breaks="ENV-10",
    why="Errors have the content-length that they had before a line break was added.",
)
class RefusalOfAnotherLength(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        answer, *rest = super().refuse(refusal)
        if isinstance(answer, ProcessingResponse):
            length = len(answer.immediate_response.body) - 1
            answers.set_header(answer.immediate_response.headers, "content-length", str(length).encode())
        return [answer, *rest]


@fault(
    "streamed-reply-of-another-length",
    breaks="ENV-10",
    why="A streamed reply to a malformed request has the content-length of another text.",
    modes=FULL_DUPLEX,
)
class StreamedReplyOfAnotherLength(BadRequestsAsStreamedReplies):
    def head(self, headers: HttpHeaders) -> None:
        headers.headers.headers.add(key="content-length", raw_value=b"3")


@fault(
    "streamed-reply-with-a-destination",
    breaks="EPP-ERR-05",
    why="A streamed reply to a malformed request has the header by which requests are sent to an endpoint.",
    modes=FULL_DUPLEX,
    effect="warn",
    versions=WITH_SUBSET,
)
class StreamedReplyWithADestination(BadRequestsAsStreamedReplies):
    def head(self, headers: HttpHeaders) -> None:
        headers.headers.headers.add(key=DESTINATION, raw_value=STRANGER.encode())


# -- after a pick


@fault(
    "malformed-bodies-refused-after-the-pick",
    breaks="ENV-15",
    why="In full duplex an endpoint is picked for the headers, and taken back with 400 if the body is broken JSON.",
    modes=FULL_DUPLEX,
    versions=BEFORE_THE_BODY,
    effect="warn",
)
class MalformedBodiesRefusedAfterThePick(AnswersHeadersAtOnce):
    code = BAD_REQUEST
    seen = b""

    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        self.seen += body.body
        if self.request_mode is BodyMode.FULL_DUPLEX_STREAMED and body.end_of_stream and self.taken_back():
            return self.refuse(Refused(self.code, "the request is not served"))
        return super().on_request_body(body)

    def taken_back(self) -> bool:
        """Whether the pick is taken back at the end of the body."""
        try:
            self.read_model(self.seen)
        except ValueError:
            return True
        return False


@fault(
    "picks-taken-back",
    breaks="ENV-15",
    why="In full duplex an endpoint is picked for the headers, and every fifth time taken back with 500.",
    modes=FULL_DUPLEX,
    versions=BEFORE_THE_BODY,
)
class PicksTakenBack(MalformedBodiesRefusedAfterThePick):
    code = 500

    def taken_back(self) -> bool:
        return self.number % 5 == 0


# -- and a bad end


@fault(
    "refusal-and-a-status",
    breaks="ENV-15",
    why="After an ImmediateResponse the stream ends with a gRPC error.",
    effect="warn",
)
class RefusalAndAStatus(Conversation):
    def refuse(self, refusal: Refused) -> Iterable[Action]:
        return [*list(super().refuse(refusal))[:-1], Close(INTERNAL, refusal.reason)]


@fault(
    "refusal-and-a-reset",
    breaks="ENV-15",
    why="After an ImmediateResponse the stream is reset.",
    effect="warn",
)
class RefusalAndAReset(Service):
    async def send(self, stream: ServedStream, answer: Action) -> None:
        await super().send(stream, answer)
        if isinstance(answer, ProcessingResponse) and answer.HasField("immediate_response"):
            stream.reset()


@fault(
    "refused-after-a-quarter-megabyte",
    breaks="EPP-DEST-01",
    why="A streamed body gets 400 as soon as more than 250,000 bytes of it are there, while the rest is on its way.",
    modes=FULL_DUPLEX,
)
class RefusedAfterAQuarterMegabyte(Conversation):
    code = BAD_REQUEST

    def collect(self, piece: bytes) -> Refused | None:
        refusal = super().collect(piece)
        large = sum(map(len, self.body)) > 250_000
        return Refused(self.code, "the body can't be read") if large and refusal is None else refusal


@fault(
    "breaks-after-a-quarter-megabyte",
    breaks="EPP-DEST-01",
    why="The same with 500.",
    modes=FULL_DUPLEX,
)
class BreaksAfterAQuarterMegabyte(RefusedAfterAQuarterMegabyte):
    code = 500


@fault(
    "half-a-megabyte-is-too-large",
    breaks="EPP-DEST-01",
    why="A body of more than 512 KiB gets 413, where data planes buffer twice as much.",
    modes=("full-duplex", "buffered"),
    versions=ALL[:-1],
)
class HalfAMegabyteIsTooLarge(RefusesMoreThanOneMessage):
    most = 512 * 1024
