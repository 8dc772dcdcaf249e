"""Variants with another rhythm: when they answer, in which pieces, in which modes."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from ext_proc.messages import ProcessingResponse
from ext_proc.server import ServedStream
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import ALL, BUFFERED, FULL_DUPLEX, STREAMED, part_of, variant
from reference_epp.epp import Action, BodyMode, Close
from reference_epp.picker import Decision, Picked, Refused
from reference_epp.service import Service
from reference_epp.variants.answering import BEFORE_THE_BODY

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse, HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest

FAILED_PRECONDITION = 9
SLOWNESS = 0.05
"""Seconds before each answer of the slow variant."""
UNREAD = 2.0
"""Seconds after which an answer that could not be sent ends the stream."""

# -- when


@variant(
    "answers-headers-at-once",
    why="In full duplex the endpoint is picked without looking at the body, which is given back chunk by chunk.",
    versions=BEFORE_THE_BODY,
    modes=FULL_DUPLEX,
)
class AnswersHeadersAtOnce(Conversation):
    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = super().on_request_headers(headers)
        if self.held and self.request_mode is BodyMode.FULL_DUPLEX_STREAMED:
            return self.release()
        return actions

    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        if self.decision is None or self.request_mode is not BodyMode.FULL_DUPLEX_STREAMED:
            return super().on_request_body(body)
        return self.stream("request", body.body, end_of_stream=body.end_of_stream)

    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        if self.decision is None:
            return super().on_request_trailers(trailers)
        return [answers.trailers_answer("request")]


@variant(
    "refuses-at-the-first-byte",
    why="In full duplex a body that is said to be JSON, and does not begin as an object does, gets 400 before its end.",
    modes=FULL_DUPLEX,
)
class RefusesAtTheFirstByte(Conversation):
    def collect(self, piece: bytes) -> Refused | None:
        refusal = super().collect(piece)
        begun = next(filter(None, map(bytes.lstrip, self.body)), b"{")
        odd = b"json" in self.headers.get("content-type", b"") and not begun.startswith(b"{")
        streamed = self.request_mode is BodyMode.FULL_DUPLEX_STREAMED
        return Refused(BAD_REQUEST, "the body is no JSON object") if odd and streamed and refusal is None else refusal


@variant(
    "steers-buffered-headers",
    why="In BUFFERED mode the endpoint is in the answer to the headers; the body's answer changes nothing.",
    versions=BEFORE_THE_BODY,
    modes=BUFFERED,
)
class SteersBufferedHeaders(Conversation):
    def on_request_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        actions = super().on_request_headers(headers)
        return self.release() if self.held and self.request_mode is BodyMode.BUFFERED else actions


@variant("slow", why="Every answer but those to bodies takes 50 ms; there is no time limit as long as it comes.")
class Slow(Service):
    async def send(self, stream: ServedStream, answer: Action) -> None:
        if isinstance(answer, ProcessingResponse) and not (answer.WhichOneof("response") or "").endswith("_body"):
            await asyncio.sleep(SLOWNESS)
        await super().send(stream, answer)


@variant("queues-what-is-unread", why="Answers are queued without waiting for the data plane to take them.")
class QueuesWhatIsUnread(Service):
    async def send(self, stream: ServedStream, answer: Action) -> None:
        assert isinstance(answer, ProcessingResponse)
        stream.send(answer.SerializeToString())


@variant(
    "resets-what-is-unread",
    why="A stream of which nothing is read for 2 s is reset: the data plane is not waited for without end.",
)
class ResetsWhatIsUnread(Service):
    async def send(self, stream: ServedStream, answer: Action) -> None:
        late = asyncio.get_running_loop().call_later(UNREAD, stream.reset)
        try:
            await super().send(stream, answer)
        finally:
            late.cancel()


@variant(
    "says-headers-again-late",
    why="The answer to a STREAMED body sets the same destination header again, and the response gets a header more.",
    modes=STREAMED,
)
class SaysHeadersAgainLate(Conversation):
    def continue_body(self, direction: Direction) -> ProcessingResponse:
        answer = super().continue_body(direction)
        if direction == "request" and isinstance(self.decision, Picked):
            self.destination_header(answer.request_body.response, self.decision)
        elif direction == "response":
            answers.set_header(answer.response_body.response.header_mutation, "x-epp-stream", b"%d" % self.number)
        return answer


@part_of("says-headers-again-late")
class HasTheWholeBodyByThen(Slow):
    pass


@variant(
    "closes-after-the-request",
    why="The stream is closed once the request is on its way; the EPP does not care for the response.",
    without=("reporter",),
)
class ClosesAfterTheRequest(Conversation):
    request_over = False

    def receive(self, message: ProcessingRequest) -> list[Action]:
        kind = message.WhichOneof("request")
        self.request_over = (
            kind == "request_trailers"
            or (kind == "request_headers" and message.request_headers.end_of_stream)
            or (kind == "request_body" and message.request_body.end_of_stream)
        )
        return super().receive(message)

    def emit(self, actions: list[Action]) -> list[Action]:
        return [*actions, Close()] if self.request_over and isinstance(self.decision, Picked) else actions


@variant(
    "leaves-at-the-end",
    why="The stream is closed where trailers, or outside full duplex the end of a response's body, are to be answered: "
    "the data plane still has them.",
    without=("reporter",),
)
class LeavesAtTheEnd(Conversation):
    def on_request_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        actions = list(super().on_request_trailers(trailers))
        return [*actions[:-1], Close()] if isinstance(self.decision, Picked) else actions

    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        duplex = self.response_mode in (BodyMode.FULL_DUPLEX_STREAMED, None)
        return super().on_response_body(body) if duplex or not body.end_of_stream else [Close()]

    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        return [Close()]


@variant(
    "holds-json-responses",
    why="A JSON response in full duplex is collected, and given back when it is complete.",
    modes=FULL_DUPLEX,
)
class HoldsJsonResponses(Conversation):
    collected: list[bytes]
    collecting = False

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.collected = []
        self.collecting = any(
            entry.key == "content-type" and entry.raw_value.startswith(b"application/json")
            for entry in headers.headers.headers
        )
        return super().on_response_headers(headers)

    def on_response_body(self, body: HttpBody) -> Iterable[Action]:
        if not self.collecting or self.response_mode is not BodyMode.FULL_DUPLEX_STREAMED:
            return super().on_response_body(body)
        self.collected.append(body.body)
        return self.stream("response", b"".join(self.collected), end_of_stream=True) if body.end_of_stream else []

    def on_response_trailers(self, trailers: HttpTrailers) -> Iterable[Action]:
        rest = b"".join(self.collected) if self.collecting else b""
        return [*self.stream("response", rest, end_of_stream=False), *super().on_response_trailers(trailers)]


# -- in which pieces


class OtherPieces(Conversation):
    """Cuts bodies into pieces of another size."""

    limit: ClassVar[int]

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        parts = list(answers.pieces(body, self.limit)) or ([b""] if end_of_stream else [])
        last = len(parts) - 1
        return [
            answers.streamed_answer(direction, part, end_of_stream=end_of_stream and index == last)
            for index, part in enumerate(parts)
        ]


@variant("pieces-of-64-kib", why="Pieces are as large as is recommended, and no larger.", modes=FULL_DUPLEX)
class PiecesOf64Kib(OtherPieces):
    limit = 65_536


@variant("pieces-one-byte-smaller", why="Pieces are one byte smaller than the usual 62,000.", modes=FULL_DUPLEX)
class PiecesOneByteSmaller(OtherPieces):
    limit = answers.CHUNK_LIMIT - 1


@variant("small-pieces", why="Bodies, events too, come back in pieces of 997 bytes.", modes=FULL_DUPLEX)
class SmallPieces(OtherPieces):
    limit = 997


@variant(
    "empty-last-piece",
    why="No piece of a body is the last but an empty one that follows them.",
    modes=FULL_DUPLEX,
)
class EmptyLastPiece(Conversation):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        pieces = list(super().stream(direction, body, end_of_stream=False))
        return [*pieces, answers.streamed_answer(direction, b"", end_of_stream=True)] if end_of_stream else pieces


@variant(
    "empty-pieces-between",
    why="An empty piece precedes those of a body.",
    modes=FULL_DUPLEX,
)
class EmptyPiecesBetween(Conversation):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        before = [answers.streamed_answer(direction, b"", end_of_stream=False)] if body else []
        return [*before, *super().stream(direction, body, end_of_stream=end_of_stream)]


@variant(
    "rewrites-json",
    why="JSON request bodies are written again: the same value in other bytes, and the right content-length.",
    modes=("full-duplex", "buffered"),
)
class RewritesJson(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        self.body = [rewritten(b"".join(self.body))]
        return super().release_with_body(end_of_stream=end_of_stream)

    def steer_body(self, decision: Picked) -> ProcessingResponse:
        answer = super().steer_body(decision)
        body = rewritten(b"".join(self.body))
        common = answer.request_body.response
        common.body_mutation.body = body
        answers.set_header(common.header_mutation, "content-length", str(len(body)).encode())
        return answer


@variant(
    "unpacks-gzip-bodies",
    why="A request body that is gzip goes on unpacked, and without its content-encoding: few model servers take that.",
    modes=("full-duplex", "buffered"),
)
class UnpacksGzipBodies(Conversation):
    unpacked: bytes | None = None

    def decide(self, body: bytes = b"") -> Decision:
        if self.headers.get("content-encoding") == b"gzip":
            with contextlib.suppress(OSError, EOFError, zlib.error):
                self.unpacked = gzip.decompress(body)
        return super().decide(body if self.unpacked is None else self.unpacked)

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        plain = self.unpacked if direction == "request" else None
        return super().stream(direction, body if plain is None else plain, end_of_stream=end_of_stream)

    def steer_body(self, decision: Picked) -> ProcessingResponse:
        answer = super().steer_body(decision)
        if self.unpacked is not None:
            common = answer.request_body.response
            common.body_mutation.body = self.unpacked
            answers.set_header(common.header_mutation, "content-length", b"%d" % len(self.unpacked))
        return answer

    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if self.unpacked is not None:
            common.header_mutation.remove_headers.append("content-encoding")


def rewritten(body: bytes) -> bytes:
    """The JSON `body` with its keys in order and blanks of our own; other bodies, and those with floats, unchanged."""
    try:
        value = json.loads(body, parse_float=_refuse, parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return body
    return json.dumps(value, sort_keys=True, indent=1).encode()


def _refuse(text: str) -> float:
    raise ValueError(f"{text} might lose digits")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a name is repeated")
    return dict(pairs)


# -- in which modes


class SomeModes(Conversation):
    """Supports some ways of sending bodies, and closes streams of others."""

    request_modes: ClassVar[frozenset[BodyMode]]
    response_modes: ClassVar[frozenset[BodyMode]]

    def configure(self, message: ProcessingRequest) -> Close | None:
        refusal = super().configure(message)
        if refusal is None and message.HasField("protocol_config"):
            supported = self.request_mode in self.request_modes and self.response_mode in self.response_modes
            return None if supported else Close(FAILED_PRECONDITION, "body mode is not supported")
        return refusal


@variant(
    "buffered-only",
    why="Request bodies are taken BUFFERED or not at all; full duplex is a MUST only in `next`.",
    versions=tuple(version for version in ALL if version != "next"),
    modes=("buffered", "none"),
    limits=True,
)
class BufferedOnly(SomeModes):
    request_modes = frozenset({BodyMode.NONE, BodyMode.BUFFERED})
    response_modes = frozenset({BodyMode.NONE, BodyMode.BUFFERED, BodyMode.STREAMED})


@variant(
    "full-duplex-only",
    why="Bodies are taken in full duplex or not at all, as most EPPs do.",
    modes=("full-duplex", "none"),
    limits=True,
)
class FullDuplexOnly(SomeModes):
    request_modes = frozenset({BodyMode.NONE, BodyMode.FULL_DUPLEX_STREAMED})
    response_modes = request_modes
