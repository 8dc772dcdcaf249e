"""Faults of body bytes: their size, their integrity, their declared length."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, fault
from reference_epp.epp import Action
from reference_epp.picker import Picked
from reference_epp.variants.streaming import HoldsJsonResponses, RewritesJson

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse, HttpBody, HttpHeaders

LARGE = 100_000
"""Bytes above which a body is large."""

# -- the size of a piece


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


@fault(
    "body-in-one-piece",
    breaks="ENV-08",
    why="A body comes back in one message, however large it is: above 4 MiB no gRPC client with defaults takes it.",
    modes=FULL_DUPLEX,
)
class BodyInOnePiece(OtherPieces):
    limit = 1 << 30


@fault(
    "pieces-of-100-kilobytes",
    breaks="ENV-08",
    why="A body comes back in pieces of 100,000 bytes, where 64 KiB are recommended.",
    modes=FULL_DUPLEX,
    effect="warn",
)
class PiecesOf100Kilobytes(OtherPieces):
    limit = 100_000


# -- the bytes


class OtherBytes(Conversation):
    """Gives back other bytes than it got."""

    side: Direction = "request"

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        changed = self.change(body) if direction == self.side else body
        return super().stream(direction, changed, end_of_stream=end_of_stream)

    def change(self, body: bytes) -> bytes:
        """What to give back for `body`."""
        return body


@fault(
    "blanks-around-a-body-lost",
    breaks="ENV-09",
    why="Blanks at the start and at the end of a request body are lost.",
    modes=FULL_DUPLEX,
)
class BlanksAroundABodyLost(OtherBytes):
    def change(self, body: bytes) -> bytes:
        return body.strip()


@fault(
    "zero-values-lost",
    breaks="ENV-09",
    why="A JSON body is written again without what is 0, false or empty, as Go's `omitempty` leaves it out.",
    modes=FULL_DUPLEX,
)
class ZeroValuesLost(OtherBytes):
    def change(self, body: bytes) -> bytes:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if not isinstance(value, dict):
            return body
        return json.dumps({name: one for name, one in value.items() if one or one is None}).encode()


@fault(
    "last-byte-lost",
    breaks="ENV-09",
    why="The last byte of a request body is lost, unless trailers end it.",
    modes=FULL_DUPLEX,
)
class LastByteLost(OtherBytes):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        cut = direction == "request" and end_of_stream
        return Conversation.stream(self, direction, body[:-1] if cut else body, end_of_stream=end_of_stream)


@fault(
    "large-body-cut",
    breaks="ENV-09",
    why="A request body of more than 100,000 bytes is cut there.",
    modes=FULL_DUPLEX,
)
class LargeBodyCut(OtherBytes):
    def change(self, body: bytes) -> bytes:
        return body[:LARGE]


@fault(
    "long-prompts-cut",
    breaks="ENV-09",
    why="A prompt of more than 1,000 characters is cut there, in JSON that is right again.",
    modes=FULL_DUPLEX,
)
class LongPromptsCut(OtherBytes):
    def change(self, body: bytes) -> bytes:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return body
        if not isinstance(value, dict) or not isinstance(value.get("prompt"), str) or len(value["prompt"]) <= 1000:
            return body
        return json.dumps(value | {"prompt": value["prompt"][:1000]}).encode()


@fault(
    "pieces-swapped",
    breaks="ENV-09",
    why="The first two pieces of a large request body change places.",
    modes=FULL_DUPLEX,
)
class PiecesSwapped(OtherBytes):
    def change(self, body: bytes) -> bytes:
        first, second = answers.CHUNK_LIMIT, 2 * answers.CHUNK_LIMIT
        return body[first:second] + body[:first] + body[second:] if len(body) >= second else body


@fault(
    "binary-responses-decoded",
    breaks="ENV-09",
    why="Response bodies are decoded as text and encoded again, which replaces bytes that are no UTF-8.",
    modes=FULL_DUPLEX,
)
class BinaryResponsesDecoded(OtherBytes):
    side = "response"

    def change(self, body: bytes) -> bytes:
        return body.decode("utf-8", "replace").encode()


@fault(
    "big-numbers-clipped",
    breaks="EPP-TRN-05",
    why="JSON request bodies are written again with whole numbers of 32 bits: larger ones become the largest.",
    modes=FULL_DUPLEX,
    effect="warn",
)
class BigNumbersClipped(OtherBytes):
    def change(self, body: bytes) -> bytes:
        return rewritten(body, lambda value: value, parse_int=lambda text: min(int(text), 2**31 - 1))


@fault(
    "unknown-json-fields-dropped",
    breaks="ENV-09",
    why="JSON request bodies are written again with only the fields that the EPP knows.",
    modes=FULL_DUPLEX,
)
class UnknownJsonFieldsDropped(OtherBytes):
    def keeps(self, field: tuple[str, Any]) -> bool:
        return field[0] in ("model", "prompt", "messages", "max_tokens", "stream", "stream_options")

    def change(self, body: bytes) -> bytes:
        return rewritten(body, lambda value: dict(filter(self.keeps, value.items())))


@fault(
    "null-fields-dropped",
    breaks="ENV-09",
    why="JSON request bodies are written again without the fields that are null.",
    modes=FULL_DUPLEX,
)
class NullFieldsDropped(UnknownJsonFieldsDropped):
    def keeps(self, field: tuple[str, Any]) -> bool:
        return field[1] is not None


@fault(
    "json-field-added",
    breaks="EPP-TRN-05",
    why="A field that no one asked for is added to JSON request bodies.",
    modes=FULL_DUPLEX,
    effect="warn",
)
class JsonFieldAdded(OtherBytes):
    def change(self, body: bytes) -> bytes:
        return rewritten(body, lambda value: {**value, "epp": True})


def rewritten(body: bytes, change: Any, **options: Any) -> bytes:
    """The JSON `body` with `change` applied if it is an object; other bodies unchanged."""
    try:
        value = json.loads(body, **options)
        return json.dumps(change(value) if isinstance(value, dict) else value).encode()
    except (ValueError, RecursionError):
        return body


@fault(
    "response-bytes-changed",
    breaks="ENV-09",
    why="The first byte of every chunk of a response is another one.",
    modes=FULL_DUPLEX,
)
class ResponseBytesChanged(OtherBytes):
    side = "response"

    def change(self, body: bytes) -> bytes:
        return bytes([body[0] ^ 1]) + body[1:] if body else body


@fault(
    "response-chunk-lost-after-ten",
    breaks="ENV-09",
    why="The eleventh chunk of a response is lost.",
    modes=FULL_DUPLEX,
)
class ResponseChunkLostAfterTen(OtherBytes):
    side = "response"
    chunks = 0

    def change(self, body: bytes) -> bytes:
        self.chunks += 1
        return b"" if self.chunks == 11 else body


@fault(
    "invalid-json-response-emptied",
    breaks="ENV-09",
    why="A chunk of a JSON response that begins an object and is none is replaced by nothing.",
    modes=FULL_DUPLEX,
)
class InvalidJsonResponseEmptied(OtherBytes):
    side = "response"
    says_json = False

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        types = [entry.raw_value for entry in headers.headers.headers if entry.key == "content-type"]
        self.says_json = any(b"json" in value for value in types)
        return super().on_response_headers(headers)

    def change(self, body: bytes) -> bytes:
        if not self.says_json or not body.startswith(b"{"):
            return body
        try:
            json.loads(body)
        except ValueError:
            return b""
        return body


@fault(
    "whole-pieces-never-end",
    breaks="ENV-05",
    why="A request body that fills its last piece to the brim has no piece that is marked as the last.",
    modes=FULL_DUPLEX,
)
class WholePiecesNeverEnd(Conversation):
    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        whole = direction == "request" and bool(body) and len(body) % answers.CHUNK_LIMIT == 0
        return super().stream(direction, body, end_of_stream=end_of_stream and not whole)


@fault(
    "whole-responses-never-end",
    breaks="ENV-05",
    why="A response is collected, and if its last piece is full to the brim, no piece is marked as the last.",
    modes=FULL_DUPLEX,
)
class WholeResponsesNeverEnd(HoldsJsonResponses):
    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        answered = super().on_response_headers(headers)
        types = [entry.raw_value for entry in headers.headers.headers if entry.key == "content-type"]
        self.collecting = not any(value.startswith(b"text/event-stream") for value in types)
        return answered

    def stream(self, direction: Direction, body: bytes, *, end_of_stream: bool) -> Iterable[Action]:
        whole = direction == "response" and bool(body) and len(body) % answers.CHUNK_LIMIT == 0
        return super().stream(direction, body, end_of_stream=end_of_stream and not whole)


# -- the declared length


@fault(
    "content-length-wrong",
    breaks="ENV-10",
    why="A content-length is set that is one more than the body has bytes.",
)
class ContentLengthWrong(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if self.body:
            length = sum(map(len, self.body)) + 1
            answers.set_header(common.header_mutation, "content-length", str(length).encode())


@fault(
    "content-length-twice",
    breaks="ENV-10",
    why="The content-length is set twice, to two values.",
)
class ContentLengthTwice(Conversation):
    def destination_header(self, common: CommonResponse, decision: Picked) -> None:
        super().destination_header(common, decision)
        if self.body:
            length = sum(map(len, self.body))
            answers.set_header(common.header_mutation, "content-length", str(length).encode())
            answers.set_header(common.header_mutation, "content-length", str(length + 1).encode())


@fault(
    "buffered-body-grows",
    breaks="ENV-10",
    why="A buffered body of more than 300 bytes gets a blank at its end, and the content-length stays what it was.",
    modes=BUFFERED,
)
class BufferedBodyGrows(Conversation):
    def steer_body(self, decision: Picked) -> ProcessingResponse:
        answer = super().steer_body(decision)
        body = b"".join(self.body)
        if len(body) > 300:
            answer.request_body.response.body_mutation.body = body + b" "
        return answer


@fault(
    "buffered-body-grows-before-trailers",
    breaks="ENV-10",
    why="A buffered body that trailers follow gets a blank at its end, and the content-length stays what it was.",
    modes=BUFFERED,
)
class BufferedBodyGrowsBeforeTrailers(Conversation):
    def on_request_body(self, body: HttpBody) -> Iterable[Action]:
        actions = list(super().on_request_body(body))
        if isinstance(self.decision, Picked) and not body.end_of_stream and isinstance(actions[0], ProcessingResponse):
            actions[0].request_body.response.body_mutation.body = body.body + b" "
        return actions


@fault(
    "content-length-appended",
    breaks="ENV-10",
    why="The length of a buffered body of more than 300 bytes that is written again is put beside the client's.",
    modes=BUFFERED,
)
class ContentLengthAppended(RewritesJson):
    def steer_body(self, decision: Picked) -> ProcessingResponse:
        if sum(map(len, self.body)) <= 300:
            return Conversation.steer_body(self, decision)
        answer = super().steer_body(decision)
        for option in answer.request_body.response.header_mutation.set_headers:
            if option.header.key == "content-length":
                option.append_action = 0  # APPEND_IF_EXISTS_OR_ADD
                option.append.value = True
        return answer
