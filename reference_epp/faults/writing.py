"""Faults of requests that mean what others do, and that their clients write in another way."""
# ruff: noqa: ARG002  (overrides have the arguments of what they override)

from __future__ import annotations

from abc import ABC, abstractmethod

from reference_epp.conversation import BAD_REQUEST, UNSUPPORTED_MEDIA_TYPE, Conversation
from reference_epp.deviations import fault
from reference_epp.picker import Decision, Refused


class ReadsByTheLetter(Conversation, ABC):
    """Refuses requests that are written in another way."""

    code = BAD_REQUEST

    @abstractmethod
    def takes(self, body: bytes) -> bool:
        """Whether a request with this body is taken."""

    def choose(self, body: bytes) -> Decision:
        return super().choose(body) if self.takes(body) else Refused(self.code, "no such form of request")


@fault(
    "json-needs-its-blanks",
    breaks="EPP-DEST-01",
    why="The model is looked for as text, with a blank behind the colon: JSON that is written without gets 400.",
    modes=("full-duplex", "buffered"),
)
class JsonNeedsItsBlanks(ReadsByTheLetter):
    def takes(self, body: bytes) -> bool:
        return b'"model":' not in body or b'"model": ' in body


@fault(
    "json-between-lines-refused",
    breaks="EPP-DEST-01",
    why="A body is JSON if its first byte is a brace and its last one, too: with line breaks around it, it gets 400.",
    modes=("full-duplex", "buffered"),
)
class JsonBetweenLinesRefused(ReadsByTheLetter):
    def takes(self, body: bytes) -> bool:
        return body.strip() == body or not body.strip().startswith(b"{")


@fault(
    "types-in-capitals-refused",
    breaks="EPP-DEST-01",
    why="The media type is compared to the letter: one that is written with capitals gets 415.",
)
class TypesInCapitalsRefused(ReadsByTheLetter):
    code = UNSUPPORTED_MEDIA_TYPE

    def takes(self, body: bytes) -> bool:
        kind = self.headers.get("content-type", b"").partition(b";")[0]
        return kind == kind.lower()
