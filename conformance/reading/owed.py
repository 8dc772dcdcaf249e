"""Which answer the EPP owes: the part of a message that it must answer before the data plane can go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.evidence.episode import Episode
from conformance.reading.conversation import DUPLEX, MODES, conversations
from conformance.reading.decoded_message import DecodedMessage
from conformance.reading.stream_direction import StreamDirection
from conformance.reading.stream_state import follow
from ext_proc.record import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class OwedAnswer:
    """`part` (`request_body`) has no answer, and since the message `since` the EPP can't be waiting for more."""

    part: str
    since: DecodedMessage


def owed_answer(entries: Sequence[Entry]) -> OwedAnswer | None:
    """The answer that the EPP owes at the end of the `entries` of one exchange; None if it owes none.

    An answer to the headers does not pay for the body. In full duplex, and where the body mode is not known, nothing is
    owed before the data plane has completed the direction (ext_proc, `ProcessingMode.BodySendMode`).
    """
    for conversation in conversations(Episode(id="", entries=tuple(entries))):
        stream = follow(conversation)
        if stream.offence is None and stream.immediate is None and not stream.unknown:
            for direction in (stream.request, stream.response):
                if direction.missing and (since := _since(direction, direction.missing)) is not None:
                    return OwedAnswer(part=f"{direction.side}_{direction.missing}", since=since)
    return None


def _since(direction: StreamDirection, part: str) -> DecodedMessage | None:
    if direction.mode == DUPLEX or direction.mode not in MODES:
        return direction.end
    if part == "headers":
        return direction.headers
    return direction.bodies[len(direction.body_answers)] if part == "body" else direction.trailers
