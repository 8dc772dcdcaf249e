"""Faults of what looks into JSON bodies: right for the usual form of a prompt or of messages, wrong for others."""

from __future__ import annotations

import json
from collections.abc import Iterable

from reference_epp.conversation import BAD_REQUEST, Conversation
from reference_epp.deviations import FULL_DUPLEX, fault
from reference_epp.epp import Action, Close
from reference_epp.faults.paths import NOT_503
from reference_epp.picker import Decision, Refused
from reference_epp.service import INTERNAL


class LooksAtForms(Conversation):
    """Looks at the prompt or the messages of a JSON body."""

    def field(self, body: bytes, name: str) -> object:
        """The value of a field of the body, None if there is none."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return None
        return value.get(name) if isinstance(value, dict) else None


@fault(
    "prompt-cut-inside-a-character",
    breaks="ENV-16",
    why="A prompt is cut after 512 bytes, as for a line of a log; inside a character that raises, and the stream ends.",
    also_breaks={"EPP-DEST-01": "so it is without an endpoint"},
    modes=("full-duplex", "buffered"),
)
class PromptCutInsideACharacter(LooksAtForms):
    def choose(self, body: bytes) -> Decision:
        prompt = self.field(body, "prompt")
        if isinstance(prompt, str):
            prompt.encode()[:512].decode()
        return super().choose(body)


@fault(
    "content-parts-refused",
    breaks="EPP-DEST-01",
    why="A chat request of which a message has no plain text as its content is answered with 400.",
    also_breaks=NOT_503,
    modes=("full-duplex", "buffered"),
)
class ContentPartsRefused(LooksAtForms):
    def choose(self, body: bytes) -> Decision:
        messages = self.field(body, "messages")
        plain = not isinstance(messages, list) or all(isinstance(one.get("content"), str) for one in messages)
        return super().choose(body) if plain else Refused(BAD_REQUEST, "content is no string")


@fault(
    "prompt-lists-end-the-stream",
    breaks="ENV-16",
    why="A request whose prompt is a list has its stream ended with a gRPC error.",
    also_breaks={"EPP-DEST-07": "the request gets no endpoint", "EPP-ERR-04": "and no ImmediateResponse"},
    modes=FULL_DUPLEX,
)
class PromptListsEndTheStream(LooksAtForms):
    def release_with_body(self, *, end_of_stream: bool) -> Iterable[Action]:
        if isinstance(self.field(b"".join(self.body), "prompt"), list):
            return [Close(INTERNAL, "prompt is no string")]
        return super().release_with_body(end_of_stream=end_of_stream)
