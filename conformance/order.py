"""Whether an answer is acceptable where it stands: of a kind, in a place and of a form that Envoy takes (ENV-01 to 05).

Each function looks at one answer and its direction as it stands before it, and gives the `Offence` or None.
"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.lane import Lane, streams_end
from conformance.said import Said, has_unknown
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


def objection(lane: Lane, said: Said) -> Offence | None:
    """What is wrong with `said`, an answer to headers, a body or trailers, as the next in `lane`."""
    match said.part:
        case "headers":
            return _headers(lane, said)
        case "body":
            return _body(lane, said)
        case _:
            return _trailers(lane, said)


def mistaken(other: Lane, said: Said) -> Offence | None:
    """A repeated answer is of the wrong kind if the `other` direction waits for its own of the same part."""
    if other.missing != said.part:
        return None
    expected = (f"{other.side}_{said.part}, which is awaited", "an ImmediateResponse")
    return offence("ENV-01", said.entry, expected, f"{said.what}, which is answered already")


def _headers(lane: Lane, said: Said) -> Offence | None:
    if lane.headers is None:
        return _unasked(lane, said)
    if lane.headers_answer is not None:
        return _twice(said, lane.headers_answer)
    common = said.common
    replaces = common is not None and common.status == CommonResponse.CONTINUE_AND_REPLACE
    if lane.duplex and not lane.header_only and replaces:
        actual = "CONTINUE_AND_REPLACE in the answer to the headers"
        return offence("ENV-04", said.entry, ("in full duplex, bodies travel as streamed_response",), actual)
    return None


def _body(lane: Lane, said: Said) -> Offence | None:
    if not lane.bodies:
        return _unasked(lane, said)
    if lane.missing == "headers":
        return _too_early(lane, said)
    if lane.trailers_answer is not None:
        expected = (f"no {lane.side} body after the answer to the trailers",)
        return offence("ENV-03", said.entry, expected, f"{said.what} after {lane.side}_trailers")
    if not lane.duplex:
        if len(lane.body_answers) >= len(lane.bodies):
            return _twice(said, lane.body_answers[-1])
        if body_mutation(said) == "streamed_response":
            expected = (f"`body`, `clear_body` or no body mutation in mode {lane.mode}",)
            hint = "protocol_config on the first message says the mode of each direction; they may differ."
            return offence("ENV-04", said.entry, expected, "streamed_response outside full duplex", hint)
        return None
    if lane.finish is not None:
        expected = (f"no {lane.side} body answer after the one with end_of_stream (#{lane.finish.seq})",)
        actual = f"another with {_describe(said)}"
        return offence("ENV-05", said.entry, expected, actual, "Send end_of_stream once, on the last chunk.")
    mutation = body_mutation(said)
    if mutation != "streamed_response" and not said.partial:
        expected = ("body_mutation.streamed_response in every body answer in full duplex",)
        actual = f"body_mutation.{mutation}" if mutation else "no body mutation"
        hint = "Echo each chunk as streamed_response; Envoy fails the request otherwise."
        return offence("ENV-04", said.entry, expected, actual, hint)
    if streams_end(said) and lane.trailers is not None:
        expected = ("no end_of_stream where trailers end the body",)
        return offence("ENV-05", said.entry, expected, _describe(said), "The answer to the trailers ends it.")
    if streams_end(said) and lane.end is None:
        expected = (f"end_of_stream only after the data plane has ended the {lane.side} body",)
        return offence("ENV-05", said.entry, expected, _describe(said))
    return None


def _trailers(lane: Lane, said: Said) -> Offence | None:
    if lane.trailers is None:
        return _unasked(lane, said)
    if lane.trailers_answer is not None:
        return _twice(said, lane.trailers_answer)
    if lane.missing == "headers":
        return _too_early(lane, said)
    return None


def _unasked(lane: Lane, said: Said) -> Offence:
    expected = ("the answer has the name of a message that was sent, or is an ImmediateResponse",)
    asked = "nothing" if lane.headers is None else f"no {said.what}"
    hint = "Envoy counts it as spurious and fails the request (before 1.35 it was ignored)."
    return offence("ENV-01", said.entry, expected, f"{said.what}, where {asked} was sent", hint)


def _twice(said: Said, first: Said) -> Offence:
    expected = (f"one {said.what} for each one sent",)
    return offence("ENV-02", said.entry, expected, f"one more {said.what}; the last was #{first.seq}")


def _too_early(lane: Lane, said: Said) -> Offence:
    expected = (f"{lane.side}_headers first, then body and trailers",)
    hint = "If the answer to the headers is held back, hold the body back too."
    return offence("ENV-03", said.entry, expected, f"{said.what} before {lane.side}_headers", hint)


def body_mutation(said: Said) -> str | None:
    """The kind of body mutation in an answer; "unknown" for one that the schema does not know."""
    common = said.common
    if common is None or not common.HasField("body_mutation"):
        return None
    kind = common.body_mutation.WhichOneof("mutation")
    return "unknown" if kind is None and has_unknown(common.body_mutation) else kind


def _describe(said: Said) -> str:
    common = said.common
    size = len(common.body_mutation.streamed_response.body) if common is not None else 0
    return f"{size} bytes and end_of_stream={'true' if streams_end(said) else 'false'}"


def offence(requirement: str, entry: Entry, expected: tuple[str, ...], actual: str, hint: str = "") -> Offence:
    """An `Offence` at `entry`."""
    return Offence(requirement=requirement, entry=entry, expected=expected, actual=actual, hint=hint)
