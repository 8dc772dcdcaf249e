"""Faults of the order of messages: which answer, when, how often (the contract of ext_proc)."""
# fmt: off

from __future__ import annotations

from typing import Any

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.changes import changed, method, nothing
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, SILENT, STREAMED, fault
from reference_epp.epp import BodyMode, Close
from reference_epp.picker import Picked


def picked(conversation: Conversation) -> bool:
    """Whether the request has its endpoint."""
    return isinstance(conversation.decision, Picked)


def in_chunks(conversation: Any) -> bool:
    """Whether the request's body came in more than one chunk that is not empty."""
    return sum(1 for chunk in conversation.body if chunk) > 1


# -- the matching answer


def _body_as_request(_: Any, c: Any, body: Any) -> Any:
    if c.response_mode is BodyMode.FULL_DUPLEX_STREAMED:
        return c.stream("request", body.body, end_of_stream=body.end_of_stream)
    return [c.continue_body("request")]


def _with_trailers(up: Any, _: Any, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
    said = up(direction, body, end_of_stream=end_of_stream)
    return [*said, answers.trailers_answer(direction)] if end_of_stream else said


fault("response-headers-answered-as-request", "ENV-01",
      "Response headers are answered with the answer to request headers.",
      changed(Conversation, on_response_headers=lambda *_: [answers.headers_answer("request")[0]]))
fault("response-bodies-answered-as-request", "ENV-01",
      "The body of a response is answered with the answer to a request's body.",
      changed(Conversation, on_response_body=_body_as_request))
fault("empty-message", "ENV-01",
      "A message without any answer in it follows that to the response's headers.",
      changed(Conversation, on_response_headers=lambda up, _, headers: [*up(headers), ProcessingResponse()]))
fault("trailers-answered-unasked", "ENV-01",
      "The last piece of a full-duplex body is followed by an answer to trailers that did not come.",
      changed(Conversation, stream=_with_trailers), effect="warn", modes=FULL_DUPLEX)


@fault("get-bodies-unanswered", "EPP-DEST-07",
       "GET, HEAD and OPTIONS are taken for requests without a body, and later messages are ignored.",
       modes=FULL_DUPLEX)
class GetBodiesUnanswered(Conversation):
    bodyless = False

    def on_request_headers(self, headers: Any) -> Any:
        actions = super().on_request_headers(headers)
        self.bodyless = self.held and method(self) in (b"GET", b"HEAD", b"OPTIONS")
        return self.release() if self.bodyless else actions

    def on_request_body(self, body: Any) -> Any:
        return [] if self.bodyless else super().on_request_body(body)

    def on_request_trailers(self, trailers: Any) -> Any:
        return [answers.trailers_answer("request")] if self.bodyless else super().on_request_trailers(trailers)


# -- one answer for each message


def _twice_if_picked(up: Any, c: Any) -> Any:
    actions = list(up())
    return [*actions, c.continue_body("request")] if picked(c) else actions


def _last_chunk_only(up: Any, c: Any, body: Any) -> Any:
    actions = up(body)
    return [] if c.request_mode is BodyMode.STREAMED and not body.end_of_stream else actions


fault("buffered-body-answered-twice", "ENV-02",
      "A buffered request body is answered twice.",
      changed(Conversation, release_on_body=_twice_if_picked), modes=BUFFERED)
fault("only-the-last-chunk-answered", "ENV-02",
      "In STREAMED mode only the last chunk of a request's body is answered.",
      changed(Conversation, on_request_body=_last_chunk_only), also=SILENT, modes=STREAMED)
fault("response-headers-answered-twice", "ENV-02",
      "The headers of a response are answered twice.",
      changed(Conversation, on_response_headers=lambda up, _, headers: [*up(headers), *up(headers)]))

# -- headers, body, trailers


def _body_first(up: Any, c: Any, *, end_of_stream: bool) -> Any:
    headers, *body = up(end_of_stream=end_of_stream)
    return [*body, headers] if picked(c) and in_chunks(c) else [headers, *body]


def _trailers_first(up: Any, c: Any, trailers: Any) -> Any:
    actions = list(up(trailers))
    return [actions[-1], *actions[:-1]] if picked(c) else actions


fault("body-answered-before-headers", "ENV-03",
      "If the body came in several chunks, they are given back before the answer to the headers.",
      changed(Conversation, release_with_body=_body_first), modes=FULL_DUPLEX)
fault("trailers-answered-first", "ENV-03",
      "The answer to the request's trailers comes before those to its headers and body.",
      changed(Conversation, on_request_trailers=_trailers_first),
      also={"ENV-06": "the body is not complete before the trailers are answered"}, modes=FULL_DUPLEX)

# -- full duplex gives the body back


def _plain(fill: Any) -> type[Conversation]:
    """Answers request bodies that came in several chunks with something else than pieces of body."""
    def act(up: Any, c: Any, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
        if direction == "response" or not in_chunks(c):
            return up(direction, body, end_of_stream=end_of_stream)
        answer = c.continue_body(direction)
        fill(answer.request_body.response, body)
        return [answer]

    return changed(Conversation, stream=act)


def _in_body(common: Any, body: bytes) -> None:
    common.body_mutation.body = body


def _streamed_when_buffered(up: Any, c: Any) -> Any:
    first, *rest = up()
    if isinstance(first, ProcessingResponse) and first.HasField("request_body"):
        streamed = first.request_body.response.body_mutation.streamed_response
        streamed.body, streamed.end_of_stream = b"".join(c.body), True
    return [first, *rest]


fault("body-answered-empty", "ENV-04",
      "In full duplex a body in several chunks is answered with nothing, as if the data plane still had it.",
      _plain(nothing), modes=FULL_DUPLEX)
fault("body-answered-plainly", "ENV-04",
      "In full duplex a body in several chunks comes back in `body` instead of `streamed_response`.",
      _plain(_in_body), modes=FULL_DUPLEX)
fault("response-body-answered-empty", "ENV-04",
      "In full duplex the answers to the response's body say nothing.",
      changed(Conversation, on_response_body=lambda _, c, __: [c.continue_body("response")]), modes=FULL_DUPLEX)
fault("streamed-response-when-buffered", "ENV-04",
      "In every third stream a buffered body's answer has a `streamed_response`, which only full duplex knows.",
      changed(Conversation, release_on_body=_streamed_when_buffered),
      when=lambda c: c.number % 3 == 0, modes=BUFFERED)

# -- the end of a body


def _mark(piece: Any, *, end: bool) -> Any:
    if isinstance(piece, ProcessingResponse):
        body = piece.request_body if piece.HasField("request_body") else piece.response_body
        body.response.body_mutation.streamed_response.end_of_stream = end
    return piece


def _marking(end: Any, side: Direction = "request") -> type[Conversation]:
    """Sends `end(pieces, end_of_stream)` for the pieces of bodies in full duplex."""
    def act(up: Any, _: Any, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
        pieces = list(up(direction, body, end_of_stream=end_of_stream))
        return end(pieces, end_of_stream) if direction == side else pieces

    return changed(Conversation, stream=act)


def _last(end: bool) -> Any:
    return lambda pieces, _: [*pieces[:-1], *(_mark(piece, end=end) for piece in pieces[-1:])]


def _twice(pieces: list[Any], ends: bool) -> list[Any]:
    return [*pieces, answers.streamed_answer("request", b"", end_of_stream=True)] if ends else pieces


def _first_of_several(up: Any, _: Any, body: Any) -> Any:
    actions = list(up(body))
    pieces = [one for one in actions if not isinstance(one, Close) and one.HasField("request_body")]
    if body.end_of_stream and len(pieces) > 1:
        for piece in pieces:
            _mark(piece, end=piece is pieces[0])
    return actions


fault("no-end-of-stream", "ENV-05",
      "The last piece of a request's body is not marked.", _marking(_last(False)), modes=FULL_DUPLEX)
fault("no-end-of-stream-in-response", "ENV-05",
      "The last piece of a response's body is not marked.", _marking(_last(False), "response"), modes=FULL_DUPLEX)
fault("end-of-stream-twice", "ENV-05",
      "An empty piece, also marked as the last, follows the last one.", _marking(_twice), modes=FULL_DUPLEX)
fault("end-of-stream-on-every-piece", "ENV-05",
      "Every piece of a large request body is marked as the last.",
      _marking(lambda pieces, ends: [_mark(piece, end=ends) for piece in pieces]),
      also={"ENV-09": "the body ends with its first piece"}, modes=FULL_DUPLEX)
fault("end-of-stream-before-trailers", "ENV-05",
      "The last piece of a body that trailers end is marked as well.", _marking(_last(True)), modes=FULL_DUPLEX)
fault("end-of-stream-with-the-first-piece", "ENV-05",
      "A last message of a body that is given back in several pieces has its first one marked as the last.",
      changed(Conversation, on_request_body=_first_of_several),
      also={"ENV-09": "the data plane takes nothing after it"}, modes=FULL_DUPLEX)


@fault("end-of-stream-too-early", "ENV-05",
       "The first piece of a response's body is marked as the last, while the response goes on.", modes=FULL_DUPLEX)
class EndOfStreamTooEarly(Conversation):
    ended = False

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
        pieces = list(super().stream(direction, body, end_of_stream=end_of_stream))
        if direction == "request":
            return pieces
        first, self.ended = not self.ended, True
        return [_mark(piece, end=first) for piece in pieces]


# -- trailers, and headers without a body


def _without_the_last(up: Any, c: Any, trailers: Any) -> Any:
    actions = list(up(trailers))
    return actions[:-1] if picked(c) else actions


fault("request-trailers-unanswered", "ENV-06",
      "Request trailers let the request go, but get no answer.",
      changed(Conversation, on_request_trailers=_without_the_last), also=SILENT)
fault("response-trailers-unanswered", "ENV-06",
      "Response trailers get no answer.", changed(Conversation, on_response_trailers=nothing), also=SILENT)
fault("trailers-do-not-end-the-body", "ENV-06",
      "Request trailers are ignored: a body that they end is never answered.",
      changed(Conversation, on_request_trailers=nothing), also=SILENT, modes=FULL_DUPLEX)
fault("header-only-request-unanswered", "ENV-07",
      "A request without a body that gets an endpoint is never answered: the code waits for a body.",
      changed(Conversation, on_request_headers=lambda up, c, headers: said
              if (said := up(headers)) and not (headers.end_of_stream and picked(c)) else []),
      also=SILENT | {"EPP-DEST-07": "it gets no endpoint either"})
fault("header-only-response-unanswered", "ENV-07",
      "The headers of a response without a body get no answer.",
      changed(Conversation, on_response_headers=lambda up, _, headers: [] if headers.end_of_stream else up(headers)),
      also=SILENT)
