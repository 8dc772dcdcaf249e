"""Faults of headers that the answer to a STREAMED body changes: Envoy takes them where it had the whole body by then.

Each answers headers slowly, so that it has.
"""
# fmt: off

from __future__ import annotations

from functools import partial
from typing import Any

from reference_epp import answers
from reference_epp.changes import changed
from reference_epp.conversation import Conversation
from reference_epp.deviations import STREAMED, fault
from reference_epp.epp import BodyMode
from reference_epp.names import DESTINATION
from reference_epp.variants.streaming import Slow


def _late(side: answers.Direction, change: Any, base: type[Conversation] = Conversation) -> type[Conversation]:
    """Changes headers with the answers to the bodies of one direction."""
    def act(up: Any, c: Any, direction: str) -> Any:
        answer = up(direction)
        mode = c.request_mode if direction == "request" else c.response_mode
        if direction == side and mode is BodyMode.STREAMED:
            body = answer.request_body if direction == "request" else answer.response_body
            change(c, body.response.header_mutation)
        return answer

    return changed(base, continue_body=act)


class _KnowsSome(Conversation):
    """Knows some headers of responses."""

    unknown: frozenset[str] = frozenset()

    def on_response_headers(self, headers: Any) -> Any:
        keys = [one.key for one in headers.headers.headers]
        self.unknown = frozenset(key for key in keys if not key.startswith((":", "content-")))
        return super().on_response_headers(headers)


late_fault = partial(fault, modes=STREAMED)

late_fault("authorization-removed-late", "EPP-TRN-01",
           "The client's authorization header is removed by the answer to a STREAMED body.",
           _late("request", lambda _, mutation: mutation.remove_headers.append("authorization")), Slow, effect="warn")
late_fault("destination-removed-late", "EPP-DEST-08",
           "The answer to a STREAMED body removes the destination header that was set before.",
           _late("request", lambda _, mutation: mutation.remove_headers.append(DESTINATION)), Slow, effect="warn")
late_fault("status-overwritten-late", "ENV-24",
           "The status of every response is set to 200 by the answer to its STREAMED body.",
           _late("response", lambda _, mutation: answers.set_header(mutation, ":status", b"200")), Slow)
late_fault("response-headers-removed-late", "ENV-24",
           "The answer to a STREAMED body removes response headers that are not on a list of known ones.",
           _late("response", lambda c, mutation: mutation.remove_headers.extend(sorted(c.unknown)), _KnowsSome),
           Slow, effect="warn")
