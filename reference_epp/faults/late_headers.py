"""Faults of headers that the answer to a STREAMED body changes: Envoy takes them where it had the whole body by then.

Each answers headers slowly, so that it has.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ext_proc.messages import ProcessingResponse
from reference_epp import answers
from reference_epp.answers import Direction
from reference_epp.conversation import Conversation
from reference_epp.deviations import STREAMED, fault, part_of
from reference_epp.epp import BodyMode
from reference_epp.names import DESTINATION
from reference_epp.variants.streaming import Slow

if TYPE_CHECKING:
    from ext_proc.messages import HeaderMutation, HttpHeaders
    from reference_epp.epp import Action


class ChangesHeadersLate(Conversation):
    """Changes headers with the answers to the bodies of one direction."""

    side: Direction = "request"

    def continue_body(self, direction: Direction) -> ProcessingResponse:
        answer = super().continue_body(direction)
        mode = self.request_mode if direction == "request" else self.response_mode
        if direction == self.side and mode is BodyMode.STREAMED:
            body = answer.request_body if direction == "request" else answer.response_body
            self.change(body.response.header_mutation)
        return answer

    def change(self, mutation: HeaderMutation) -> None:
        """Put the changes into the answer."""
        mutation.remove_headers.append("authorization")


@fault(
    "authorization-removed-late",
    breaks="EPP-TRN-01",
    why="The client's authorization header is removed by the answer to a STREAMED body.",
    modes=STREAMED,
    effect="warn",
)
class AuthorizationRemovedLate(ChangesHeadersLate):
    pass


@fault(
    "destination-removed-late",
    breaks="EPP-DEST-08",
    why="Headers of this protocol are removed by the answer to a STREAMED body, after the EPP's own has been set.",
    modes=STREAMED,
    effect="warn",
)
class DestinationRemovedLate(ChangesHeadersLate):
    def change(self, mutation: HeaderMutation) -> None:
        mutation.remove_headers.append(DESTINATION)


@fault(
    "status-overwritten-late",
    breaks="ENV-24",
    why="The status of every response is set to 200 by the answer to its STREAMED body.",
    modes=STREAMED,
)
class StatusOverwrittenLate(ChangesHeadersLate):
    side = "response"

    def change(self, mutation: HeaderMutation) -> None:
        answers.set_header(mutation, ":status", b"200")


@fault(
    "response-headers-removed-late",
    breaks="ENV-24",
    why="Response headers that are not on a list of known ones are removed by the answer to the STREAMED body.",
    modes=STREAMED,
    effect="warn",
)
class ResponseHeadersRemovedLate(ChangesHeadersLate):
    side = "response"
    unknown: Iterable[str] = ()

    def on_response_headers(self, headers: HttpHeaders) -> Iterable[Action]:
        self.unknown = {one.key for one in headers.headers.headers if not one.key.startswith((":", "content-"))}
        return super().on_response_headers(headers)

    def change(self, mutation: HeaderMutation) -> None:
        mutation.remove_headers.extend(sorted(self.unknown))


@part_of("authorization-removed-late")
@part_of("destination-removed-late")
@part_of("status-overwritten-late")
@part_of("response-headers-removed-late")
class SlowToAnswerHeaders(Slow):
    pass
