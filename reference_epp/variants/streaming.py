"""Variants with another rhythm: when they answer, in which pieces, in which modes."""
# fmt: off

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import zlib
from typing import Any

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.changes import changed, cutting, header
from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import ALL, BUFFERED, FULL_DUPLEX, STREAMED, WHOLE_BODY, variant
from reference_epp.epp import BodyMode, Close
from reference_epp.picker import Picked, Refused
from reference_epp.service import Service
from reference_epp.variants.answering import BEFORE_THE_BODY

FAILED_PRECONDITION = 9
SLOWNESS = 0.05
"""Seconds before each answer of the slow variant."""
UNREAD = 2.0
"""Seconds after which an answer that could not be sent ends the stream."""

# -- when


@variant("answers-headers-at-once",
         "In full duplex the endpoint is picked without looking at the body, which is given back chunk by chunk.",
         versions=BEFORE_THE_BODY, modes=FULL_DUPLEX)
class AnswersHeadersAtOnce(Conversation):
    def on_request_headers(self, headers: Any) -> Any:
        actions = super().on_request_headers(headers)
        return self.release() if self.held and self.request_mode is BodyMode.FULL_DUPLEX_STREAMED else actions

    def on_request_body(self, body: Any) -> Any:
        if self.decision is None or self.request_mode is not BodyMode.FULL_DUPLEX_STREAMED:
            return super().on_request_body(body)
        return self.stream("request", body.body, end_of_stream=body.end_of_stream)

    def on_request_trailers(self, trailers: Any) -> Any:
        if self.decision is None:
            return super().on_request_trailers(trailers)
        return [answers.trailers_answer("request")]


class Slow(Service):
    """Takes its time for every answer but those to bodies."""

    async def send(self, stream: Any, answer: Any) -> None:
        if isinstance(answer, ProcessingResponse) and not (answer.WhichOneof("response") or "").endswith("_body"):
            await asyncio.sleep(SLOWNESS)
        await super().send(stream, answer)


def _refused_at_once(up: Any, c: Any, piece: bytes) -> Refused | None:
    refusal: Refused | None = up(piece)
    begun = next(filter(None, map(bytes.lstrip, c.body)), b"{")
    odd = b"json" in c.headers.get("content-type", b"") and not begun.startswith(b"{")
    streamed = c.request_mode is BodyMode.FULL_DUPLEX_STREAMED
    return Refused(BAD_REQUEST, "the body is no JSON object") if odd and streamed and refusal is None else refusal


def _steered_at_once(up: Any, c: Any, headers: Any) -> Any:
    actions = up(headers)
    return c.release() if c.held and c.request_mode is BodyMode.BUFFERED else actions


async def _queued(_: Any, __: Any, stream: Any, answer: ProcessingResponse) -> None:
    stream.send(answer.SerializeToString())


async def _reset_if_unread(up: Any, _: Any, stream: Any, answer: Any) -> None:
    late = asyncio.get_running_loop().call_later(UNREAD, stream.reset)
    try:
        await up(stream, answer)
    finally:
        late.cancel()


def _again_late(up: Any, c: Any, direction: Direction) -> ProcessingResponse:
    answer: ProcessingResponse = up(direction)
    if direction == "request" and isinstance(c.decision, Picked):
        c.destination_header(answer.request_body.response, c.decision)
    elif direction == "response":
        answers.set_header(answer.response_body.response.header_mutation, "x-epp-stream", b"%d" % c.number)
    return answer


variant("refuses-at-the-first-byte",
        "In full duplex a body that is said to be JSON, and begins otherwise, gets 400 before its end.",
        changed(Conversation, collect=_refused_at_once), modes=FULL_DUPLEX)
variant("steers-buffered-headers",
        "In BUFFERED mode the endpoint is in the answer to the headers; the body's answer changes nothing.",
        changed(Conversation, on_request_headers=_steered_at_once), versions=BEFORE_THE_BODY, modes=BUFFERED)
variant("slow",
        "Every answer but those to bodies takes 50 ms; there is no time limit as long as it comes.", Slow)
variant("queues-what-is-unread",
        "Answers are queued without waiting for the data plane to take them.", changed(Service, send=_queued))
variant("resets-what-is-unread",
        "A stream of which nothing is read for 2 s is reset: the data plane is not waited for without end.",
        changed(Service, send=_reset_if_unread))
variant("says-headers-again-late",
        "The answer to a STREAMED body sets the same destination header again, and the response gets a header more.",
        changed(Conversation, continue_body=_again_late), Slow, modes=STREAMED)


@variant("closes-after-the-request",
         "The stream is closed once the request is on its way; the EPP does not care for the response.",
         without=("reporter",))
class ClosesAfterTheRequest(Conversation):
    request_over = False

    def receive(self, message: Any) -> Any:
        kind = message.WhichOneof("request")
        ends = kind in ("request_headers", "request_body") and getattr(message, kind).end_of_stream
        self.request_over = ends or kind == "request_trailers"
        return super().receive(message)

    def emit(self, actions: Any) -> Any:
        return [*actions, Close()] if self.request_over and isinstance(self.decision, Picked) else actions


@variant("leaves-at-the-end",
         "The stream is closed where trailers, or outside full duplex the end of a response's body, are to be "
         "answered: the data plane still has them.", without=("reporter",))
class LeavesAtTheEnd(Conversation):
    def on_request_trailers(self, trailers: Any) -> Any:
        actions = list(super().on_request_trailers(trailers))
        return [*actions[:-1], Close()] if isinstance(self.decision, Picked) else actions

    def on_response_body(self, body: Any) -> Any:
        duplex = self.response_mode in (BodyMode.FULL_DUPLEX_STREAMED, None)
        return super().on_response_body(body) if duplex or not body.end_of_stream else [Close()]

    def on_response_trailers(self, _: Any) -> Any:
        return [Close()]


@variant("holds-json-responses",
         "A JSON response in full duplex is collected, and given back when it is complete.", modes=FULL_DUPLEX)
class HoldsJsonResponses(Conversation):
    collected: list[bytes]
    collecting = False

    def on_response_headers(self, headers: Any) -> Any:
        self.collected = []
        self.collecting = header(headers, "content-type").startswith(b"application/json")
        return super().on_response_headers(headers)

    def on_response_body(self, body: Any) -> Any:
        if not self.collecting or self.response_mode is not BodyMode.FULL_DUPLEX_STREAMED:
            return super().on_response_body(body)
        self.collected.append(body.body)
        return self.stream("response", b"".join(self.collected), end_of_stream=True) if body.end_of_stream else []

    def on_response_trailers(self, trailers: Any) -> Any:
        rest = b"".join(self.collected) if self.collecting else b""
        return [*self.stream("response", rest, end_of_stream=False), *super().on_response_trailers(trailers)]


# -- in which pieces


def _empty_last(up: Any, _: Any, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
    pieces = up(direction, body, end_of_stream=False)
    return [*pieces, answers.streamed_answer(direction, b"", end_of_stream=True)] if end_of_stream else pieces


def _empty_first(up: Any, _: Any, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
    before = [answers.streamed_answer(direction, b"", end_of_stream=False)] if body else []
    return [*before, *up(direction, body, end_of_stream=end_of_stream)]


variant("pieces-of-64-kib",
        "Pieces are as large as is recommended, and no larger.", cutting(65_536), modes=FULL_DUPLEX)
variant("pieces-one-byte-smaller",
        "Pieces are one byte smaller than the usual 62,000.", cutting(answers.CHUNK_LIMIT - 1), modes=FULL_DUPLEX)
variant("small-pieces",
        "Bodies, events too, come back in pieces of 997 bytes.", cutting(997), modes=FULL_DUPLEX)
variant("empty-last-piece",
        "No piece of a body is the last but an empty one that follows them.",
        changed(Conversation, stream=_empty_last), modes=FULL_DUPLEX)
variant("empty-pieces-between",
        "An empty piece precedes those of a body.", changed(Conversation, stream=_empty_first), modes=FULL_DUPLEX)


def _replaced(answer: ProcessingResponse, body: bytes) -> ProcessingResponse:
    """The answer with another buffered body, and its length."""
    common = answer.request_body.response
    common.body_mutation.body = body
    answers.set_header(common.header_mutation, "content-length", b"%d" % len(body))
    return answer


@variant("rewrites-json",
         "JSON request bodies are written again: the same value in other bytes, and the right content-length.",
         modes=WHOLE_BODY)
class RewritesJson(Conversation):
    def release_with_body(self, *, end_of_stream: bool) -> Any:
        self.body = [_rewritten(b"".join(self.body))]
        return super().release_with_body(end_of_stream=end_of_stream)

    def steer_body(self, decision: Picked) -> ProcessingResponse:
        return _replaced(super().steer_body(decision), _rewritten(b"".join(self.body)))


@variant("unpacks-gzip-bodies",
         "A request body that is gzip goes on unpacked, and without its content-encoding.", modes=WHOLE_BODY)
class UnpacksGzipBodies(Conversation):
    unpacked: bytes | None = None

    def decide(self, body: bytes = b"") -> Any:
        if self.headers.get("content-encoding") == b"gzip":
            with contextlib.suppress(OSError, EOFError, zlib.error):
                self.unpacked = gzip.decompress(body)
        return super().decide(body if self.unpacked is None else self.unpacked)

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Any:
        plain = self.unpacked if direction == "request" else None
        return super().stream(direction, body if plain is None else plain, end_of_stream=end_of_stream)

    def steer_body(self, decision: Picked) -> ProcessingResponse:
        answer = super().steer_body(decision)
        return answer if self.unpacked is None else _replaced(answer, self.unpacked)

    def destination_header(self, common: Any, decision: Picked) -> None:
        super().destination_header(common, decision)
        if self.unpacked is not None:
            common.header_mutation.remove_headers.append("content-encoding")


def _rewritten(body: bytes) -> bytes:
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


def _supporting(requests: set[BodyMode], responses: set[BodyMode]) -> type[Conversation]:
    """Closes streams whose bodies are sent in other ways."""
    def act(up: Any, c: Any, message: Any) -> Close | None:
        refusal: Close | None = up(message)
        if refusal is None and message.HasField("protocol_config"):
            supported = c.request_mode in requests and c.response_mode in responses
            return None if supported else Close(FAILED_PRECONDITION, "body mode is not supported")
        return refusal

    return changed(Conversation, configure=act)


DUPLEX_ONLY = {BodyMode.NONE, BodyMode.FULL_DUPLEX_STREAMED}

variant("buffered-only",
        "Request bodies are taken BUFFERED or not at all; full duplex is a MUST only in `next`.",
        _supporting({BodyMode.NONE, BodyMode.BUFFERED}, {BodyMode.NONE, BodyMode.BUFFERED, BodyMode.STREAMED}),
        versions=ALL[:-1], modes=("buffered", "none"), limits=True)
variant("full-duplex-only",
        "Bodies are taken in full duplex or not at all, as most EPPs do.",
        _supporting(DUPLEX_ONLY, DUPLEX_ONLY), modes=("full-duplex", "none"), limits=True)
