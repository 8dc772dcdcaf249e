"""Whether an answer is acceptable where it stands: of a kind, in a place and of a form that Envoy takes (ENV-01 to 05).

Each function looks at one answer and its direction as it stands before it, and gives the `Offence` or None.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.printable import plural
from conformance.reading.decoded_message import DecodedMessage, has_unknown
from conformance.reading.stream_direction import StreamDirection, streams_end
from ext_proc.messages import CommonResponse
from ext_proc.record import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """An answer that is not acceptable where it stands, and the requirement that says so."""

    requirement: str
    entry: Entry
    expected: tuple[str, ...]
    actual: str
    hint: str = ""
    side: str | None = None
    """The direction whose answers it spoils; None: the whole stream."""


def objection(direction: StreamDirection, message: DecodedMessage) -> Offence | None:
    """What is wrong with `message`, an answer to headers, a body or trailers, as the next in `direction`."""
    match message.part:
        case "headers":
            return _headers(direction, message)
        case "body":
            return _body(direction, message)
        case _:
            return _trailers(direction, message)


def needless(direction: StreamDirection, message: DecodedMessage) -> bool:
    """Whether it answers trailers that never came, behind the end of a full-duplex direction: Envoy ignores that."""
    ended = direction.finish is not None or (direction.cut and direction.end is not None)  # or it can't be told
    over = ended or (direction.header_only and direction.headers_answer is not None)
    return message.part == "trailers" and direction.trailers is None and direction.duplex and over


def mistaken(other: StreamDirection, message: DecodedMessage) -> Offence | None:
    """A repeated answer is of the wrong kind if the `other` direction waits for its own of the same part."""
    before_trailers = other.duplex and bool(other.bodies) and other.missing == "trailers" and message.part == "body"
    if other.missing != message.part and not before_trailers:
        return None
    expected = (f"{other.side}_{message.part}, which is awaited", "an ImmediateResponse")
    return offence("ENV-01", message.entry, expected, f"{message.what}, which is answered already")


def _headers(direction: StreamDirection, message: DecodedMessage) -> Offence | None:
    if direction.headers is None:
        return _unasked(direction, message)
    if direction.headers_answer is not None:
        return _twice(message, direction.headers_answer)
    common = message.common
    replaces = common is not None and common.status == CommonResponse.CONTINUE_AND_REPLACE
    if direction.duplex and not direction.header_only and replaces:
        actual = "CONTINUE_AND_REPLACE in the answer to the headers"
        return offence("ENV-04", message.entry, ("in full duplex, bodies travel as streamed_response",), actual)
    return None


def _body(direction: StreamDirection, message: DecodedMessage) -> Offence | None:
    if not direction.bodies:
        return _unasked(direction, message)
    if direction.missing == "headers":
        return _too_early(direction, message)
    if direction.dropped(direction.bodies[-1]):
        return _after_a_replacement(direction, message)
    if direction.trailers_answer is not None:
        expected = (f"no {direction.side} body after the answer to the trailers",)
        return offence("ENV-03", message.entry, expected, f"{message.what} after {direction.side}_trailers")
    if not direction.duplex:
        if len(direction.body_answers) >= len(direction.bodies):
            return _twice(message, direction.body_answers[-1])
        if body_mutation(message) == "streamed_response":
            expected = (f"`body`, `clear_body` or no body mutation in mode {direction.mode}",)
            hint = "protocol_config on the first message says the mode of each direction; they may differ."
            return offence("ENV-04", message.entry, expected, "streamed_response outside full duplex", hint)
        return None
    if direction.finish is not None:
        expected = (f"no {direction.side} body answer after the one with end_of_stream (#{direction.finish.seq})",)
        actual = f"another with {_describe(message)}"
        return offence("ENV-05", message.entry, expected, actual, "Send end_of_stream once, on the last chunk.")
    mutation = body_mutation(message)
    if mutation != "streamed_response" and not message.partial:
        expected = ("body_mutation.streamed_response in every body answer in full duplex",)
        actual = f"body_mutation.{mutation}" if mutation else "no body mutation"
        hint = "Echo each chunk as streamed_response; Envoy fails the request otherwise."
        return offence("ENV-04", message.entry, expected, actual, hint)
    if streams_end(message) and direction.trailers is not None:
        expected = ("no end_of_stream where trailers end the body",)
        return offence("ENV-05", message.entry, expected, _describe(message), "The answer to the trailers ends it.")
    if streams_end(message) and direction.end is None:
        expected = (f"end_of_stream only after the data plane has ended the {direction.side} body",)
        return offence("ENV-05", message.entry, expected, _describe(message))
    return None


def _trailers(direction: StreamDirection, message: DecodedMessage) -> Offence | None:
    if direction.trailers is None:
        return _unasked(direction, message)
    if direction.trailers_answer is not None:
        return _twice(message, direction.trailers_answer)
    if direction.missing == "headers":
        return _too_early(direction, message)
    return _after_a_replacement(direction, message) if direction.dropped(direction.trailers) else None


def _after_a_replacement(direction: StreamDirection, message: DecodedMessage) -> Offence:
    expected = (f"no further answer about the {direction.side} after CONTINUE_AND_REPLACE",)
    hint = "Envoy has dropped what it had sent of the body, and counts an answer to that as spurious."
    return offence("ENV-01", message.entry, expected, message.what or "an answer", hint)


def _unasked(direction: StreamDirection, message: DecodedMessage) -> Offence:
    expected = ("the answer has the name of a message that was sent, or is an ImmediateResponse",)
    asked = "nothing" if direction.headers is None else f"no {message.what}"
    hint = "Envoy counts it as spurious and fails the request (before 1.35 it was ignored)."
    return offence("ENV-01", message.entry, expected, f"{message.what}, where {asked} was sent", hint)


def _twice(message: DecodedMessage, first: DecodedMessage) -> Offence:
    expected = (f"one {message.what} for each one sent",)
    return offence("ENV-02", message.entry, expected, f"one more {message.what}; the last was #{first.seq}")


def _too_early(direction: StreamDirection, message: DecodedMessage) -> Offence:
    expected = (f"{direction.side}_headers first, then body and trailers",)
    hint = "Answer the headers first; if that has to wait for the body, answer the body after it."
    return offence("ENV-03", message.entry, expected, f"{message.what} before {direction.side}_headers", hint)


def body_mutation(message: DecodedMessage) -> str | None:
    """The kind of body mutation in an answer; "unknown" for one that the schema does not know."""
    common = message.common
    if common is None or not common.HasField("body_mutation"):
        return None
    kind = common.body_mutation.WhichOneof("mutation")
    return "unknown" if kind is None and has_unknown(common.body_mutation) else kind


def _describe(message: DecodedMessage) -> str:
    common = message.common
    size = len(common.body_mutation.streamed_response.body) if common is not None else 0
    return f"{plural(size, 'byte')} and end_of_stream={'true' if streams_end(message) else 'false'}"


def offence(requirement: str, entry: Entry, expected: tuple[str, ...], actual: str, hint: str = "") -> Offence:
    """An `Offence` at `entry`."""
    return Offence(requirement=requirement, entry=entry, expected=expected, actual=actual, hint=hint)
