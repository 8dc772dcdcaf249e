"""What becomes of bodies: their bytes (ENV-09, EPP-TRN-05), the size of chunks (ENV-08), their length (ENV-10).

A body of which the record has not kept every byte is not judged. A body that trailers end, and of which nothing came
back when they are answered, is ENV-06; one that has bytes of another stream is ENV-21.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.bodies import Sameness, compare
from conformance.conversation import BUFFERED, NONE
from conformance.judges.case import Case
from conformance.judges.registry import judge_of_case
from conformance.judges.ruling import Nature, Ruling, held
from conformance.lane import Lane
from conformance.said import REQUEST, Said
from conformance.steering import counting, sent_headers, values_of
from ext_proc.headers import value_of
from ext_proc.record import Message

RECOMMENDED, LIMIT = 64 * 1024, 4 * 1024 * 1024
"""Bytes per chunk: what Envoy recommends, and what a gRPC client takes by default (ENV-08)."""

_LENGTHS = 16
"""Bytes by which the length fields around a whole body may be longer than those around what was kept of it."""

_TELLING = 16
"""So many bytes of another stream's body are no coincidence."""


def answered_body(lane: Lane) -> bytes | None:
    """The body that goes on after the EPP's answers; None if it is not complete or was not observed."""
    if not lane.complete or not lane.bodies or lane.replaced:
        return None
    if any(said.partial for said in (*lane.bodies, *lane.body_answers)):
        return None
    if lane.duplex:
        return b"".join(_streamed(said) for said in lane.body_answers)
    return b"".join(_mutated(asked, answer) for asked, answer in zip(lane.bodies, lane.body_answers, strict=False))


def _body(case: Case, lane: Lane) -> bytes | None:
    """The same, unless an answer of this direction was out of order: that is the finding."""
    offence = case.flow.offence
    return None if offence is not None and offence.side == lane.side else answered_body(lane)


def _streamed(said: Said) -> bytes:
    common = said.common
    return common.body_mutation.streamed_response.body if common is not None else b""


def _mutated(asked: Said, answer: Said) -> bytes:
    common = answer.common
    match common.body_mutation.WhichOneof("mutation") if common is not None else None:
        case "body":
            return common.body_mutation.body if common is not None else b""
        case "clear_body" if common is not None and common.body_mutation.clear_body:
            return b""
        case _:
            return asked.body


def _emptied(lane: Lane) -> bool:
    """Whether the answer to the headers puts nothing in the place of a body. Without a mutation the body stays."""
    answer = lane.headers_answer
    common = answer.common if answer is not None and not answer.partial else None
    if common is None or not lane.replaced or lane.header_only or not common.HasField("body_mutation"):
        return False
    return not common.body_mutation.body


def sent_body(lane: Lane) -> bytes:
    """The body as it was sent to the EPP."""
    return b"".join(said.body for said in lane.bodies)


@judge_of_case("ENV-06", "ENV-09", "ENV-21", "EPP-TRN-05", hygiene=True)
def integrity(case: Case) -> Iterator[Ruling]:
    """No byte is lost, and nothing is changed that nobody claimed."""
    for lane in (case.flow.request, case.flow.response):
        if _emptied(lane) and case.flow.offence is None:
            expected, actual = f"the {lane.side} body goes on", "it is replaced with nothing before any of it was seen"
            yield case.fail("ENV-09", expected, actual, at=lane.headers_answer)
        got = _body(case, lane)
        if got is None:
            continue
        request = lane.side == REQUEST
        header = case.request_header if request else case.response_header
        claims = case.context.claims
        found = compare(
            sent_body(lane),
            got,
            claims=claims.body_rewrites if request else claims.response_rewrites,
            events=is_event_stream(header("content-type")),
            opaque=header("content-encoding") not in (None, b"", b"identity"),
        )
        match found.sameness:
            case Sameness.LOST:
                yield _lost(case, lane, got, found.difference)
            case Sameness.CHANGED if _foreign(case, lane.side, sent_body(lane), got):
                yield _lost(case, lane, got, found.difference)
            case Sameness.CHANGED:
                yield case.warn(
                    "EPP-TRN-05" if request else "ENV-09",
                    f"the {lane.side} body means the same, but for paths that the profile claims",
                    found.difference,
                    at=_last(lane),
                    hint="Claim the paths in the profile if the change is meant.",
                )
            case _:
                yield held("ENV-09")
                if request:
                    yield held("EPP-TRN-05")


def _lost(case: Case, lane: Lane, got: bytes, difference: str) -> Ruling:
    sent = sent_body(lane)
    actual = f"{lane.side} body: {difference}"
    if _foreign(case, lane.side, sent, got):
        expected = "the body of this stream and of no other"
        return case.fail("ENV-21", expected, actual, at=_last(lane), nature=Nature.CROSS_TALK)
    if lane.trailers is not None and lane.duplex and not got:
        expected = f"the whole {lane.side} body before the answer to the trailers"
        return case.fail("ENV-06", expected, actual, at=lane.trailers_answer)
    expected = f"every byte of the {lane.side} body, once and in order"
    return case.fail("ENV-09", expected, actual, at=_last(lane))


def _foreign(case: Case, side: str, sent: bytes, got: bytes) -> bool:
    """Whether `got` has a piece of the body of a stream that was open at the same time."""
    for other in case.scene.overlapping(case):
        for said in other.flow.lane(side).bodies:
            piece = said.body
            if len(piece) >= _TELLING and piece not in sent and piece in got:
                return True
    return False


def _last(lane: Lane) -> Said | None:
    return lane.body_answers[-1] if lane.body_answers else lane.trailers_answer


def is_event_stream(content_type: bytes | None) -> bool:
    """Whether a content type is that of server-sent events, in any case and with parameters."""
    return (content_type or b"").split(b";")[0].strip().lower() == b"text/event-stream"


@judge_of_case("ENV-08", hygiene=True)
def chunk_size(case: Case) -> Iterator[Ruling]:
    """Chunks of full-duplex answers are not larger than recommended, and never than a client takes."""
    for lane in (case.flow.request, case.flow.response):
        if not lane.duplex or not lane.body_answers:
            continue
        largest = max(lane.body_answers, key=_size)
        size = _size(largest)
        expected = f"chunks of at most {RECOMMENDED} bytes (never more than {LIMIT})"
        actual = f"a {lane.side} chunk of {size} bytes"
        if size > LIMIT:
            yield case.fail("ENV-08", expected, actual, at=largest, hint="Split the body before it is sent.")
        elif size > RECOMMENDED:
            hint = "Split large chunks, also those that came in one piece."
            yield case.warn("ENV-08", expected, actual, at=largest, hint=hint)
        else:
            yield held("ENV-08")


def _size(said: Said) -> int:
    """The size of a chunk; of one that was not kept whole at least so much: the rest of its message is taken off."""
    if not said.partial:
        return len(_streamed(said))
    kept = said.entry.event.raw if isinstance(said.entry.event, Message) else b""
    rest = len(kept) - len(_streamed(said)) + _LENGTHS if said.response is not None else 0
    return max(said.size - rest, 0)


@judge_of_case("ENV-10", hygiene=True)
def content_length(case: Case) -> Iterator[Ruling]:
    """A content-length that an answer sets is one number, and that of the body."""
    for lane in (case.flow.request, case.flow.response):
        bodyless = lane.header_only
        if (bodyless and not _forwards_length(lane)) or any(said.partial for said in counting(lane)):
            continue
        body = b"" if bodyless else _body(case, lane)
        values, removed = _lengths(lane)
        if values:
            yield from _check_lengths(case, lane, values, body)
        elif body is not None and not bodyless and lane.mode == BUFFERED:  # in others Envoy takes the client's away
            kept = values_of(sent_headers(lane), "content-length")
            if not removed and kept and kept[-1] != b"%d" % len(body):
                expected = f"content-length is changed to {len(body)} with the body"
                actual = f"the body has {len(body)} bytes, content-length is still {_text(kept[-1])}"
                yield case.fail("ENV-10", expected, actual, at=_last(lane), hint="Envoy answers 500 to this.")


def _forwards_length(lane: Lane) -> bool:
    """Whether Envoy passes on the content-length that an answer gives a request without a body. A response may have
    one, as that to HEAD does."""
    return lane.side == REQUEST and lane.mode in (NONE, BUFFERED)


def _check_lengths(case: Case, lane: Lane, values: Sequence[bytes], body: bytes | None) -> Iterator[Ruling]:
    at = counting(lane)[-1]
    shown = ", ".join(_text(value) for value in values)
    if len(values) > 1:
        expected = "one content-length"
        yield case.fail("ENV-10", expected, f"it is set to {shown}", at=at, hint="Do not echo the client's as well.")
    elif not values[0].isdigit():
        yield case.fail("ENV-10", "content-length is a number", f"it is {shown!r}", at=at)
    elif body is not None and int(values[0]) != len(body):
        expected = f"content-length is {len(body)}, the length of the {lane.side} body that is answered"
        yield case.fail("ENV-10", expected, f"it is set to {shown}", at=at)
    elif body is not None:
        yield held("ENV-10")


def _lengths(lane: Lane) -> tuple[list[bytes], bool]:
    """The different values that the last answer to set or remove it sets, and whether it is removed for good."""
    values: list[bytes] = []
    removed = False
    for said in counting(lane):
        mutation = said.header_mutation
        if mutation is None:
            continue
        found = [value_of(one.header) for one in mutation.set_headers if one.header.key.lower() == "content-length"]
        goes = "content-length" in {name.lower() for name in mutation.remove_headers}
        if found or goes:
            values, removed = list(dict.fromkeys(found)), goes and not found
    return values, removed


def _text(value: bytes) -> str:
    return value.decode("latin-1")
