"""What becomes of bodies: their bytes (ENV-09, EPP-TRN-05), the size of chunks (ENV-08), their length (ENV-10).

A body of which the record has not kept every byte is not judged. A body that trailers end, and of which nothing came
back when they are answered, is ENV-06; one that has bytes of another stream is ENV-21.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from conformance.judges.exchange_view import ExchangeView
from conformance.judges.findings import passed
from conformance.judges.registry import judge_of_exchange
from conformance.printable import plural
from conformance.reading.bodies import Sameness, compare, unpacked
from conformance.reading.conversation import BUFFERED, NONE, STREAMED
from conformance.reading.decoded_message import REQUEST, STREAMED_REPLY, DecodedMessage
from conformance.reading.destination import counting, header_list, sent_headers, values_of
from conformance.reading.ordering import body_mutation
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding, Nature
from ext_proc.headers import value_of
from ext_proc.record import Message

RECOMMENDED, LIMIT = 64 * 1024, 4 * 1024 * 1024
"""Bytes per chunk: what Envoy recommends, and what a gRPC client takes by default (ENV-08)."""

_LENGTHS = 16
"""Bytes by which the length fields around a whole body may be longer than those around what was kept of it."""

_ENCODING = "content-encoding"

_BLANKS = 64 * 1024
"""So many bytes more than twice its length JSON may have had before it was written again."""

TELLING = 16
"""So many bytes of another stream's body are no coincidence."""


def answered_body(direction: StreamDirection) -> bytes | None:
    """The body that goes on after the EPP's answers; None if it is not complete or was not observed. A BUFFERED one is
    complete with its one answer, also where trailers are to follow, and one that the answer to the headers replaces if
    all of it was sent before."""
    complete = bool(direction.body_answers) if direction.mode == BUFFERED else direction.complete
    if direction.replaced:
        complete = direction.end is not None and direction.dropped(direction.end)
    if not complete or not direction.bodies:
        return None
    if any(message.partial for message in (*direction.bodies, *direction.body_answers)):
        return None
    if direction.replaced:
        return _replacement(direction)
    if direction.duplex:
        return b"".join(_streamed(message) for message in direction.body_answers)
    return b"".join(
        _mutated(asked, answer) for asked, answer in zip(direction.bodies, direction.body_answers, strict=False)
    )


def _body(view: ExchangeView, direction: StreamDirection) -> bytes | None:
    """The same, unless an answer of this direction was out of order: that is the finding. Where the EPP closed the
    stream, Envoy passes on as it is what was not answered."""
    offence = view.stream.offence
    if offence is not None and offence.side == direction.side:
        return None
    return _left_body(direction) if direction.left and not direction.complete else answered_body(direction)


def _left_body(direction: StreamDirection) -> bytes | None:
    """The body of a direction that the EPP left with a part of it answered; None where it still had bytes of it."""
    asked, answers = direction.bodies, direction.body_answers
    if direction.end is None or not answers or any(message.partial for message in (*asked, *answers)):
        return None
    if direction.duplex:
        got = b"".join(map(_streamed, answers))
        return got if direction.trailers is not None and len(got) >= len(sent_body(direction)) else None
    rest = asked[len(answers) :]
    return b"".join(map(_mutated, asked, answers)) + b"".join(message.body for message in rest)


def _streamed(message: DecodedMessage) -> bytes:
    common = message.common
    return common.body_mutation.streamed_response.body if common is not None else b""


def _mutated(asked: DecodedMessage, answer: DecodedMessage) -> bytes:
    common = answer.common
    match common.body_mutation.WhichOneof("mutation") if common is not None else None:
        case "body":
            return common.body_mutation.body if common is not None else b""
        case "clear_body" if common is not None and common.body_mutation.clear_body:
            return b""
        case _:
            return asked.body


def _replacement(direction: StreamDirection) -> bytes | None:
    """What the answer to the headers puts in the place of the body. None without a mutation: then the body stays."""
    answer = direction.headers_answer
    common = answer.common if answer is not None and not answer.partial else None
    if common is None or not direction.replaced or not common.HasField("body_mutation"):
        return None
    return common.body_mutation.body


def _replaced(view: ExchangeView, direction: StreamDirection) -> Finding | None:
    """What is wrong with a body that the answer to the headers replaces: what was not seen can't be put back."""
    body, at = _replacement(direction), direction.headers_answer
    if body is None:
        return _dropped(view, direction)
    if direction.header_only:
        if not body:
            return None
        rule = "EPP-TRN-05" if direction.side == REQUEST else "ENV-09"
        expected = f"a {direction.side} without a body is sent on without one"
        return view.warn(rule, expected, f"a body of {plural(len(body), 'byte')} is added to it", at=at)
    if (body and direction.bodies) or answered_body(direction) is not None:
        return None  # the data plane did not wait for the answer, so that the EPP may have seen it
    actual = f"it is replaced with {f'{len(body)} other bytes' if body else 'nothing'} before any of it was seen"
    return view.fail("ENV-09", f"the {direction.side} body goes on", actual, at=at)


def _dropped(view: ExchangeView, direction: StreamDirection) -> Finding | None:
    """What is wrong with asking for no body (CONTINUE_AND_REPLACE, and none to replace it with) of a data plane that
    said it would not wait: Envoy drops the chunks that it has sent by then."""
    answer, first = direction.headers_answer, view.conversation.first
    if answer is None or not direction.replaced or direction.mode != STREAMED or first is None or first.request is None:
        return None
    sent = sum(len(message.body) for message in direction.bodies if message.seq < answer.seq)
    if not sent or not first.request.protocol_config.send_body_without_waiting_for_header_response:
        return None
    actual = f"{plural(sent, 'byte')} of it went before, and CONTINUE_AND_REPLACE without a body drops them"
    hint = "Look at send_body_without_waiting_for_header_response in protocol_config."
    return view.fail("ENV-09", f"the {direction.side} body goes on", actual, at=answer, hint=hint)


def sent_body(direction: StreamDirection) -> bytes:
    """The body as it was sent to the EPP."""
    return b"".join(message.body for message in direction.bodies)


def _due_body(direction: StreamDirection) -> bytes:
    """The body as far as its answers must hold it."""
    return b"".join(one.body for one in direction.due_bodies)


def unpacked_body(direction: StreamDirection) -> bytes | None:
    """What a body held that the EPP unpacked, taking its content-encoding away; None if it did not."""
    got, sent = answered_body(direction), _due_body(direction)
    codings = values_of(sent_headers(direction), _ENCODING)
    if got is None or got == sent or len(codings) != 1 or values_of(header_list(direction, late=True), _ENCODING):
        return None
    return unpacked(sent, codings[0], 2 * len(got) + _BLANKS)


@judge_of_exchange("ENV-06", "ENV-09", "ENV-21", "EPP-TRN-05", hygiene=True)
def integrity(view: ExchangeView) -> Iterator[Finding]:
    """No byte is lost, and nothing changes but what is claimed."""
    for direction in (view.stream.request, view.stream.response):
        if view.stream.offence is None and (replaced := _replaced(view, direction)) is not None:
            yield replaced
        got = _body(view, direction)
        if got is None:
            continue
        request = direction.side == REQUEST
        header = view.request_header if request else view.response_header
        claims, plain = view.context.claims, unpacked_body(direction)
        found = compare(
            _due_body(direction) if plain is None else plain,
            got,
            claims=claims.body_rewrites if request else claims.response_rewrites,
            events=is_event_stream(header("content-type")),
            opaque=plain is None and header(_ENCODING) not in (None, b"", b"identity"),
        )
        match found.sameness:
            case Sameness.LOST:
                yield _lost(view, direction, got, found.difference)
            case Sameness.CHANGED if _foreign(view, direction.side, _due_body(direction), got):
                yield _lost(view, direction, got, found.difference)
            case Sameness.CHANGED:
                yield view.warn(
                    "EPP-TRN-05" if request else "ENV-09",
                    f"the {direction.side} body means the same, but for paths that the profile claims",
                    found.difference,
                    at=_last(direction),
                    hint="Claim the paths in the profile if the change is meant.",
                )
            case _:
                yield passed("ENV-09")
                if request:
                    yield passed("EPP-TRN-05")


def _lost(view: ExchangeView, direction: StreamDirection, got: bytes, difference: str) -> Finding:
    sent = _due_body(direction)
    actual = f"{direction.side} body: {difference}"
    if _foreign(view, direction.side, sent, got):
        expected = "the body of this stream and of no other"
        return view.fail("ENV-21", expected, actual, at=_last(direction), nature=Nature.CROSS_TALK)
    if direction.trailers is not None and direction.duplex and not got:
        expected = f"the whole {direction.side} body before the answer to the trailers"
        return view.fail("ENV-06", expected, actual, at=direction.trailers_answer)
    expected = f"every byte of the {direction.side} body, once and in order"
    swapped = len(sent) == len(got) and Counter(sent) == Counter(got)
    return view.fail("ENV-09", expected, actual, at=_last(direction), hint=_SWAPPED if swapped else "")


_SWAPPED = (
    "These are the same bytes in another order: answer the messages of a stream one after the other. A handler that "
    "gives each to a pool of threads, or does not await what it begins, overtakes itself."
)


def _foreign(view: ExchangeView, side: str, sent: bytes, got: bytes) -> bool:
    """Whether `got` has a piece of the body of a stream that was open at the same time."""
    for other in view.overlapping:
        for message in other.stream.direction(side).bodies:
            piece = message.body
            if len(piece) >= TELLING and piece not in sent and piece in got:
                return True
    return False


def _last(direction: StreamDirection) -> DecodedMessage | None:
    return direction.body_answers[-1] if direction.body_answers else direction.trailers_answer


def is_event_stream(content_type: bytes | None) -> bool:
    """Whether a content type is that of server-sent events, in any case and with parameters."""
    return (content_type or b"").split(b";")[0].strip().lower() == b"text/event-stream"


@judge_of_exchange("ENV-08", hygiene=True)
def chunk_size(view: ExchangeView) -> Iterator[Finding]:
    """Chunks of full-duplex answers are not larger than recommended, and never than a client takes."""
    for direction in (view.stream.request, view.stream.response):
        if not direction.duplex or not direction.body_answers:
            continue
        largest = max(direction.body_answers, key=_size)
        size = _size(largest)
        expected = f"chunks of at most {RECOMMENDED} bytes (never more than {LIMIT})"
        actual = f"a {direction.side} chunk of {plural(size, 'byte')}"
        if size > LIMIT:
            yield view.fail("ENV-08", expected, actual, at=largest, hint="Split the body before it is sent.")
        elif size > RECOMMENDED:
            hint = "Split large chunks, also those that came in one piece."
            yield view.warn("ENV-08", expected, actual, at=largest, hint=hint)
        else:
            yield passed("ENV-08")


def _size(message: DecodedMessage) -> int:
    """The size of a chunk; of one that was not kept whole at least so much: the rest of its message is taken off."""
    if not message.partial:
        return len(_streamed(message))
    kept = message.entry.event.raw if isinstance(message.entry.event, Message) else b""
    rest = len(kept) - len(_streamed(message)) + _LENGTHS if message.response is not None else 0
    return max(message.size - rest, 0)


@judge_of_exchange("ENV-10", hygiene=True)
def content_length(view: ExchangeView) -> Iterator[Finding]:
    """A content-length that an answer sets is one number, and that of the body."""
    for direction in (view.stream.request, view.stream.response):
        bodyless = direction.header_only
        if (bodyless and not _forwards_length(direction)) or any(message.partial for message in counting(direction)):
            continue
        length = _length(view, direction)
        values, removed = _lengths(direction)
        if (empty := _empty_mutation(view, direction)) is not None:
            yield empty
        elif values:
            beside = values_of(header_list(direction), "content-length")  # what was there, if it was appended to
            yield from _check_lengths(view, direction, beside if len(beside) > 1 else values, length)
        elif (
            length is not None and not bodyless and direction.mode == BUFFERED
        ):  # in others Envoy takes the client's away
            kept = values_of(sent_headers(direction), "content-length")
            if not removed and kept and kept[-1] != b"%d" % length:
                expected = f"content-length is changed to {length} with the body"
                actual = f"the body has {plural(length, 'byte')}, content-length is still {_text(kept[-1])}"
                yield view.fail("ENV-10", expected, actual, at=_last(direction), hint="Envoy answers 500 to this.")
    yield from _length_of_an_error(view)


def _empty_mutation(view: ExchangeView, direction: StreamDirection) -> Finding | None:
    """What is wrong with a mutation of a BUFFERED body in which nothing is set: Envoy compares the content-length with
    what the mutation has, and leaves the body as it is."""
    answer = direction.body_answers[-1] if direction.mode == BUFFERED and direction.body_answers else None
    common = answer.common if answer is not None else None
    if answer is None or common is None or not common.HasField("body_mutation") or common.body_mutation.clear_body:
        return None
    left = values_of(header_list(direction), "content-length")
    if body_mutation(answer) not in (None, "clear_body") or not left or not _number(left[-1]):
        return None
    actual = f"a mutation in which nothing is set, and content-length is {_text(left[-1])}"
    hint = "Envoy takes it for a body of no bytes, and answers 500."
    return view.fail("ENV-10", "a body mutation with a body, or none", actual, at=answer, hint=hint)


def _length_of_an_error(view: ExchangeView) -> Iterator[Finding]:
    """The same of an ImmediateResponse. Envoy leaves the header out of one that is not streamed, other data planes may
    not. The answer to HEAD has no body, and may tell the length of another's."""
    message = view.stream.immediate
    if message is None or message.partial or message.response is None or view.request_header(":method") == b"HEAD":
        return
    if message.what == STREAMED_REPLY:
        parts = [one for one in view.conversation.messages if one.what == STREAMED_REPLY]
        if not view.stream.reply_ended or any(one.partial or one.response is None for one in parts):
            return
        replies = [one.response.streamed_immediate_response for one in parts if one.response is not None]
        body = b"".join(one.body_response.body for one in replies)
        set_headers = [*message.response.streamed_immediate_response.headers_response.headers.headers]
    else:
        body = message.response.immediate_response.body
        set_headers = [one.header for one in message.response.immediate_response.headers.set_headers]
    values = {value_of(one) for one in set_headers if one.key.lower() == "content-length"}
    if values and values != {b"%d" % len(body)}:
        expected = f"content-length is {len(body)}, the length of the body of the ImmediateResponse"
        actual = f"it is set to {', '.join(_text(value) for value in sorted(values))}"
        yield view.fail("ENV-10", expected, actual, at=message, hint="Leave it out: the data plane knows the length.")


def _forwards_length(direction: StreamDirection) -> bool:
    """Whether Envoy passes on the content-length that an answer gives a request without a body. A response may have
    one, as that to HEAD does."""
    return direction.side == REQUEST and direction.mode in (NONE, BUFFERED)


def _length(view: ExchangeView, direction: StreamDirection) -> int | None:
    """The length of the body that goes on; None if it is not known. Where the EPP is not shown the body, and puts none
    in its place, it stays as long as its headers say."""
    if direction.header_only:
        return 0
    unseen = direction.mode == NONE or (direction.mode == BUFFERED and direction.replaced)
    if unseen and _replacement(direction) is None:
        told = values_of(sent_headers(direction), "content-length")
        return _number(told[-1]) if told else None
    body = _body(view, direction)
    return None if body is None else len(body)


def _check_lengths(
    view: ExchangeView, direction: StreamDirection, values: Sequence[bytes], length: int | None
) -> Iterator[Finding]:
    at = counting(direction)[-1]
    shown = ", ".join(_text(value) for value in values)
    if len(values) > 1:
        expected = "one content-length"
        yield view.fail("ENV-10", expected, f"it is set to {shown}", at=at, hint="Do not echo the client's as well.")
    elif not values[0].isdigit():
        yield view.fail("ENV-10", "content-length is a number", f"it is {shown!r}", at=at)
    elif length is not None and _number(values[0]) != length:
        expected = f"content-length is {length}, the length of the {direction.side} body that is answered"
        yield view.fail("ENV-10", expected, f"it is set to {shown}", at=at)
    elif length is not None:
        yield passed("ENV-10")


def _lengths(direction: StreamDirection) -> tuple[list[bytes], bool]:
    """The different values that the last answer to set or remove it sets, and whether it is removed for good."""
    values: list[bytes] = []
    removed = False
    for message in counting(direction):
        mutation = message.header_mutation
        if mutation is None:
            continue
        found = [value_of(one.header) for one in mutation.set_headers if one.header.key.lower() == "content-length"]
        goes = "content-length" in {name.lower() for name in mutation.remove_headers}
        if found or goes:
            values, removed = list(dict.fromkeys(found)), goes and not found
    return values, removed


def _number(value: bytes) -> int | None:
    """A content-length as a number; None if it is none, or longer than any that is meant."""
    return int(value) if value.isdigit() and len(value) < 20 else None


def _text(value: bytes) -> str:
    return value.decode("latin-1")
