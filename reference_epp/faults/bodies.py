"""Faults of body bytes: their size, their integrity, their declared length."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import Action, Conversation
from reference_epp.deviations import BUFFERED, FULL_DUPLEX, fault
from reference_epp.picker import Picked

if TYPE_CHECKING:
    from ext_proc.messages import CommonResponse

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
        return body[:-1]


@fault("last-byte-lost", breaks="ENV-09", why="The last byte of every request body is lost.", modes=FULL_DUPLEX)
class LastByteLost(OtherBytes):
    pass


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
    "binary-bodies-decoded",
    breaks="ENV-09",
    why="Request bodies are decoded as text and encoded again, which replaces bytes that are no UTF-8.",
    modes=FULL_DUPLEX,
)
class BinaryBodiesDecoded(OtherBytes):
    def change(self, body: bytes) -> bytes:
        return body.decode("utf-8", "replace").encode()


@fault(
    "big-numbers-rounded",
    breaks="EPP-TRN-05",
    why="JSON request bodies are written anew with all numbers as floating point, so that big ones lose digits.",
    modes=FULL_DUPLEX,
    effect="warn",
)
class BigNumbersRounded(OtherBytes):
    def change(self, body: bytes) -> bytes:
        return rewritten(body, lambda value: value, parse_int=lambda text: int(float(text)))


@fault(
    "unknown-json-fields-dropped",
    breaks="ENV-09",
    why="JSON request bodies are written anew with only the fields that the EPP knows.",
    modes=FULL_DUPLEX,
)
class UnknownJsonFieldsDropped(OtherBytes):
    known = frozenset({"model", "prompt", "messages", "max_tokens", "stream", "stream_options"})

    def change(self, body: bytes) -> bytes:
        def keep(value: Any) -> Any:
            return {name: item for name, item in value.items() if name in self.known}

        return rewritten(body, lambda value: keep(value) if isinstance(value, dict) else value)


@fault(
    "json-field-added",
    breaks="EPP-TRN-05",
    why="A field that nobody asked for is added to JSON request bodies.",
    modes=FULL_DUPLEX,
    effect="warn",
)
class JsonFieldAdded(OtherBytes):
    def change(self, body: bytes) -> bytes:
        return rewritten(body, lambda value: {**value, "epp": True} if isinstance(value, dict) else value)


def rewritten(body: bytes, change: Any, **options: Any) -> bytes:
    """The JSON `body` with `change` applied to its value; other bodies unchanged."""
    try:
        return json.dumps(change(json.loads(body, **options))).encode()
    except (ValueError, RecursionError):
        return body


@fault(
    "response-bytes-lost",
    breaks="ENV-09",
    why="The last byte of every chunk of a response is lost.",
    modes=FULL_DUPLEX,
)
class ResponseBytesLost(OtherBytes):
    side = "response"


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
    why="A response chunk that begins like JSON but is none is replaced by nothing.",
    modes=FULL_DUPLEX,
)
class InvalidJsonResponseEmptied(OtherBytes):
    side = "response"

    def change(self, body: bytes) -> bytes:
        if not body.lstrip().startswith(b"{"):
            return body
        try:
            json.loads(body)
        except ValueError:
            return b""
        return body


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
    why="A buffered JSON body gets a blank at its end, and the content-length stays what it was.",
    modes=BUFFERED,
)
class BufferedBodyGrows(Conversation):
    def steer_body(self, decision: Picked) -> ProcessingResponse:
        answer = super().steer_body(decision)
        answer.request_body.response.body_mutation.body = b"".join(self.body) + b" "
        return answer
