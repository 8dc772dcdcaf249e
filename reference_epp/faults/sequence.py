"""Faults of the order of messages: which answer, when, how often (the contract of ext_proc)."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, SILENT, STREAMED, fault
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.picker import Picked

if TYPE_CHECKING:
    from ext_proc.messages import HttpBody, HttpHeaders, HttpTrailers


def in_chunks(conversation: Conversation) -> bool:
    """True if the request's body came in more than one chunk that is not empty."""
    return sum(1 for chunk in conversation.body if chunk) > 1


# -- the matching answer


@fault(
    "response-headers-answered-as-request",
    breaks="ENV-01",
    why="Response headers are answered with the answer to request headers.",
)
class ResponseHeadersAnsweredAsRequest(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return [answers.headers_answer("request")[0]]


@fault(
    "response-bodies-answered-as-request",
    breaks="ENV-01",
    why="The body of a response is answered with the answer to a request's body.",
)
class ResponseBodiesAnsweredAsRequest(Conversation):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        if self.response_mode is BodyMode.FULL_DUPLEX_STREAMED:
            return self.stream("request", body.body, end_of_stream=body.end_of_stream)
        return [self.continue_body("request")]


@fault(
    "get-bodies-unanswered",
    breaks="EPP-DEST-07",
    why="GET, HEAD and OPTIONS are taken for requests without a body, and a message of theirs with its end is ignored.",
    modes=FULL_DUPLEX,
)
class GetBodiesUnanswered(Conversation):
    bodyless = False

    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = super().on_request_headers(headers)
        self.bodyless = self.held and self.headers.get(":method") in (b"GET", b"HEAD", b"OPTIONS")
        return self.release() if self.bodyless else actions

    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        return [] if self.bodyless else super().on_request_body(body)

    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        return [answers.trailers_answer("request")] if self.bodyless else super().on_request_trailers(trailers)


@fault(
    "empty-message", breaks="ENV-01", why="A message without any answer in it follows that to the response's headers."
)
class EmptyMessage(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return [*super().on_response_headers(headers), ProcessingResponse()]


@fault(
    "trailers-answered-unasked",
    breaks="ENV-01",
    why="The last piece of a full-duplex body is followed by an answer to trailers that did not come.",
    effect="warn",
    modes=FULL_DUPLEX,
)
class TrailersAnsweredUnasked(Conversation):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        said = super().stream(direction, body, end_of_stream=end_of_stream)
        return [*said, answers.trailers_answer(direction)] if end_of_stream else said


# -- one answer for each message


@fault(
    "buffered-body-answered-twice",
    breaks="ENV-02",
    why="A buffered request body is answered twice.",
    modes=BUFFERED,
)
class BufferedBodyAnsweredTwice(Conversation):
    def release_on_body(self) -> Iterable[Action]:
        actions = list(super().release_on_body())
        return [*actions, self.continue_body("request")] if isinstance(self.decision, Picked) else actions


@fault(
    "only-the-last-chunk-answered",
    breaks="ENV-02",
    why="In STREAMED mode only the last chunk of a request's body is answered.",
    also_breaks=SILENT,
    modes=STREAMED,
)
class OnlyTheLastChunkAnswered(Conversation):
    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        actions = super().on_request_body(body)
        return [] if self.request_mode is BodyMode.STREAMED and not body.end_of_stream else actions


@fault(
    "response-headers-answered-twice",
    breaks="ENV-02",
    why="The headers of a response are answered twice.",
)
class ResponseHeadersAnsweredTwice(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return [*super().on_response_headers(headers), *super().on_response_headers(headers)]


# -- headers, body, trailers


@fault(
    "body-answered-before-headers",
    breaks="ENV-03",
    why="If the body came in several chunks, they are given back before the answer to the headers.",
    modes=FULL_DUPLEX,
)
class BodyAnsweredBeforeHeaders(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        headers, *body = super().release_with_body(end_of_stream=end_of_stream)
        return [*body, headers] if isinstance(self.decision, Picked) and in_chunks(self) else [headers, *body]


@fault(
    "trailers-answered-first",
    breaks="ENV-03",
    why="The answer to the request's trailers comes before those to its headers and body.",
    also_breaks={"ENV-06": "the body is not complete before the trailers are answered"},
    modes=FULL_DUPLEX,
)
class TrailersAnsweredFirst(Conversation):
    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        actions = list(super().on_request_trailers(trailers))
        return [actions[-1], *actions[:-1]] if isinstance(self.decision, Picked) else actions


# -- full duplex gives the body back


class PlainAnswer(Conversation):
    """Answers request bodies that came in several chunks with something else than pieces of body."""

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        if direction == "response" or not in_chunks(self):
            return super().stream(direction, body, end_of_stream=end_of_stream)
        answer = self.continue_body(direction)
        self.fill(answer, body)
        return [answer]

    def fill(self, answer: ProcessingResponse, body: bytes) -> None:
        """Put something into the body answer."""


@fault(
    "body-answered-empty",
    breaks="ENV-04",
    why="In full duplex a body in several chunks is answered with nothing, as if the data plane still had it.",
    modes=FULL_DUPLEX,
)
class BodyAnsweredEmpty(PlainAnswer):
    pass


@fault(
    "body-answered-plainly",
    breaks="ENV-04",
    why="In full duplex a body in several chunks comes back in `body` instead of `streamed_response`.",
    modes=FULL_DUPLEX,
)
class BodyAnsweredPlainly(PlainAnswer):
    def fill(self, answer: ProcessingResponse, body: bytes) -> None:
        answer.request_body.response.body_mutation.body = body


@fault(
    "response-body-answered-empty",
    breaks="ENV-04",
    why="In full duplex the answers to the response's body say nothing.",
    modes=FULL_DUPLEX,
)
class ResponseBodyAnsweredEmpty(Conversation):
    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        return [self.continue_body("response")]


@fault(
    "streamed-response-when-buffered",
    breaks="ENV-04",
    why="In every third stream a buffered body's answer has a `streamed_response`, which only full duplex knows.",
    modes=BUFFERED,
)
class StreamedResponseWhenBuffered(Conversation):
    def release_on_body(self) -> Iterable[Action]:
        first, *rest = super().release_on_body()
        if isinstance(first, ProcessingResponse) and first.HasField("request_body") and self.number % 3 == 0:
            streamed = first.request_body.response.body_mutation.streamed_response
            streamed.body, streamed.end_of_stream = b"".join(self.body), True
        return [first, *rest]


# -- the end of a body


class OtherEnd(Conversation):
    """Ends request bodies in full duplex in another way."""

    side: Direction = "request"

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        pieces = list(super().stream(direction, body, end_of_stream=end_of_stream))
        return pieces if direction != self.side else self.end(pieces, end_of_stream=end_of_stream)

    def end(self, pieces: list[Action], *, end_of_stream: bool) -> list[Action]:
        """The pieces to send instead of `pieces`."""
        return [*pieces[:-1], *(self.mark(piece, end_of_stream=False) for piece in pieces[-1:])]

    def mark(self, piece: Action, *, end_of_stream: bool) -> Action:
        """`piece` with this end of stream."""
        if isinstance(piece, ProcessingResponse):
            body = piece.request_body if self.side == "request" else piece.response_body
            body.response.body_mutation.streamed_response.end_of_stream = end_of_stream
        return piece


@fault("no-end-of-stream", breaks="ENV-05", why="The last piece of a request's body is not marked.", modes=FULL_DUPLEX)
class NoEndOfStream(OtherEnd):
    pass


@fault(
    "no-end-of-stream-in-response",
    breaks="ENV-05",
    why="The last piece of a response's body is not marked.",
    modes=FULL_DUPLEX,
)
class NoEndOfStreamInResponse(OtherEnd):
    side = "response"


@fault(
    "end-of-stream-twice",
    breaks="ENV-05",
    why="An empty piece, also marked as the last, follows the last one.",
    modes=FULL_DUPLEX,
)
class EndOfStreamTwice(OtherEnd):
    def end(self, pieces: list[Action], *, end_of_stream: bool) -> list[Action]:
        last = answers.streamed_answer(self.side, b"", end_of_stream=True)
        return [*pieces, last] if end_of_stream else pieces


@fault(
    "end-of-stream-on-every-piece",
    breaks="ENV-05",
    also_breaks={"ENV-09": "the body ends with its first piece"},
    why="Every piece of a large request body is marked as the last.",
    modes=FULL_DUPLEX,
)
class EndOfStreamOnEveryPiece(OtherEnd):
    def end(self, pieces: list[Action], *, end_of_stream: bool) -> list[Action]:
        return [self.mark(piece, end_of_stream=end_of_stream) for piece in pieces]


@fault(
    "end-of-stream-before-trailers",
    breaks="ENV-05",
    why="The last piece of a body that trailers end is marked as well.",
    modes=FULL_DUPLEX,
)
class EndOfStreamBeforeTrailers(OtherEnd):
    def end(self, pieces: list[Action], *, end_of_stream: bool) -> list[Action]:
        return [*pieces[:-1], *(self.mark(piece, end_of_stream=True) for piece in pieces[-1:])]


@fault(
    "end-of-stream-too-early",
    breaks="ENV-05",
    why="The first piece of a response's body is marked as the last, while the response goes on.",
    modes=FULL_DUPLEX,
)
class EndOfStreamTooEarly(OtherEnd):
    side = "response"
    ended = False

    def end(self, pieces: list[Action], *, end_of_stream: bool) -> list[Action]:
        first, self.ended = not self.ended, True
        return [self.mark(piece, end_of_stream=first) for piece in pieces]


# -- trailers


@fault(
    "request-trailers-unanswered",
    breaks="ENV-06",
    why="Request trailers let the request go, but get no answer.",
    also_breaks=SILENT,
)
class RequestTrailersUnanswered(Conversation):
    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        actions = list(super().on_request_trailers(trailers))
        return actions[:-1] if isinstance(self.decision, Picked) else actions


@fault(
    "response-trailers-unanswered",
    breaks="ENV-06",
    why="Response trailers get no answer.",
    also_breaks=SILENT,
)
class ResponseTrailersUnanswered(Conversation):
    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        return []


@fault(
    "trailers-do-not-end-the-body",
    breaks="ENV-06",
    why="Request trailers are ignored: a body that they end is never answered.",
    also_breaks=SILENT,
    modes=FULL_DUPLEX,
)
class TrailersDoNotEndTheBody(Conversation):
    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        return []


# -- headers without a body


@fault(
    "header-only-request-unanswered",
    breaks="ENV-07",
    why="A request without a body that gets an endpoint is never answered: the code waits for a body.",
    also_breaks=SILENT | {"EPP-DEST-07": "it gets no endpoint either"},
)
class HeaderOnlyRequestUnanswered(Conversation):
    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = super().on_request_headers(headers)
        return [] if headers.end_of_stream and isinstance(self.decision, Picked) else actions


@fault(
    "header-only-response-unanswered",
    breaks="ENV-07",
    why="The headers of a response without a body get no answer.",
    also_breaks=SILENT,
)
class HeaderOnlyResponseUnanswered(Conversation):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        return [] if headers.end_of_stream else super().on_response_headers(headers)


@fault(
    "end-of-stream-with-the-first-piece",
    breaks="ENV-05",
    why="A last message of a body that is given back in several pieces has its first one marked as the last.",
    also_breaks={"ENV-09": "the data plane takes nothing after it"},
    modes=FULL_DUPLEX,
)
class EndOfStreamWithTheFirstPiece(Conversation):
    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        actions = list(super().on_request_body(body))
        pieces = [one for one in actions if not isinstance(one, Close) and one.HasField("request_body")]
        if body.end_of_stream and len(pieces) > 1:
            for action in pieces:
                streamed = action.request_body.response.body_mutation.streamed_response
                streamed.end_of_stream = action is pieces[0]
        return actions
