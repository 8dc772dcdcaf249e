"""Endpoint Picker Protocol (DP-EXTP-01): the EPP is asked about each request, with messages as ext_proc has them.

The messages are judged wherever it was observed. Whether the EPP was asked at all needs the client's side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.judges.episode_facts import EpisodeFacts
from conformance.judges.episode_view import EpisodeView
from conformance.judges.ext_proc.bodies import sent_body
from conformance.judges.findings import not_applicable, passed, violation
from conformance.judges.gateway.carried import carried
from conformance.judges.gateway.contents import EXTP, altered, contents
from conformance.judges.gateway.heads import heads
from conformance.judges.gateway_exchange import KEPT, GatewayExchange, UpstreamAttempt
from conformance.judges.picker_stream import PickerStream
from conformance.judges.registry import judge_of_episode, judge_of_gateway_exchange
from conformance.printable import plural
from conformance.reading.conversation import BUFFERED, DUPLEX, STREAMED
from conformance.reading.decoded_message import REQUEST, RESPONSE, DecodedMessage
from conformance.verdict import Finding, Nature, Verdict
from ext_proc.record import STREAMS_END, Author, ExchangeOpened, HalfClosed, StreamEnded, Wait, header, whole_body

FIRST, LOCAL_REPLY = "request_headers", "response_headers"
_PSEUDO = {FIRST: (":method", ":path", ":authority"), LOCAL_REPLY: (":status",)}
"""What each request and response has among its headers. Nothing asks for :scheme, which Envoy always tells."""

TAKEN = 1024 * 1024
"""Bytes of a body that every gateway takes: nginx refuses longer ones by default."""

LONG_LINE = 4000
"""Bytes of a header that every gateway takes; nginx takes 8,192 by default, and none has to."""

HELD_BACK = 0.5
"""Seconds after which what a gateway has not told of a request is not just late: clients send theirs at once, and an
exchange in which our own loop was later is not judged."""


@judge_of_gateway_exchange(EXTP)
def asked(exchange: GatewayExchange) -> Iterator[Finding]:
    """A stream for the request, and on it what the request is, in order."""
    for one in exchange.asked:
        found = [*_order(one, exchange), *_forms(one, exchange)]
        if not any(finding.verdict is Verdict.FAIL for finding in found):
            found += [*heads(one, exchange), *contents(one, exchange), *carried(one, exchange)]
        found += [*_taken_for_whole(one, exchange), *_left_open(one, exchange)]
        failed = [finding for finding in found if finding.verdict is Verdict.FAIL]
        if found:  # what follows the first may be no more than its consequence
            yield min(failed or found, key=lambda finding: finding.seq or 0)
            return
    if any(one.conversation.asked or one.left_early for one in exchange.asked):
        yield passed(EXTP)
    elif exchange.opened is not None:
        yield _unasked(exchange)


def undefined_since(exchange: GatewayExchange) -> int | None:
    """Where the data plane broke the order of messages: what an EPP is to do from there on is not defined."""
    found = (finding.seq for one in exchange.asked for finding in _order(one, exchange))
    return min((seq for seq in found if seq is not None), default=None)


@judge_of_episode(EXTP, role="data-plane")
def alive(episode_view: EpisodeView) -> Iterator[Finding]:
    """The process of the gateway does not end by itself."""
    if episode_view.crash is None:
        return
    exited = episode_view.crash.exited
    how = f"signal {-exited.code}" if exited.code < 0 else f"exit code {exited.code}"
    last = exited.output.strip()[-300:]
    yield violation(
        EXTP,
        "the process stays alive",
        f"the process ended with {how}" + (f"; its last words: {last}" if last else ""),
        exchange=None,
        seq=episode_view.crash.entry.seq,
        nature=Nature.CRASH,
    )


# -- whether the EPP was asked -----------------------------------------------------------------------------------------


def takes_none(exchange: GatewayExchange) -> bool:
    """Whether a gateway refuses what is particular about the request, as a server may that does not support it.

    RFC 9110, section 15: 426 and 505 refuse a version of HTTP, which can't be that of HTTP/1.1 requests: the first that
    a gateway must pass is one. RFC 9112, section 6.3: a server may answer 411 to a body whose length it is not told.
    RFC 9110, section 5.4: it must refuse (4xx) headers larger than it wishes to process, by 431 or, as nginx, by 400.
    One that reads requests for models takes bodies in JSON only. A client that names the destination may be refused.
    """
    opened = exchange.opened
    if opened is None or exchange.asked or exchange.attempts:
        return False
    match exchange.status:
        case 400 | 415 | 422 if opened.size and not exchange.grpc and not _says_json(opened):
            return True
        case 400 | 403 if exchange.client_destinations:
            return True
        case 400 | 431:
            return any(len(name) + len(value) > LONG_LINE for name, value in opened.headers)
        case 411:
            return bool(opened.note.get("unannounced"))
        case 413:
            return (opened.size or 0) > TAKEN
        case 417:
            return header(opened.headers, b"expect") is not None
        case 405 | 501:
            return opened.method not in ("GET", "HEAD", "POST")
        case 426 | 505:
            return opened.http == 2 or opened.note.get("written") == "http-1.0"
    return False


def _says_json(opened: ExchangeOpened) -> bool:
    return b"json" in (header(opened.headers, b"content-type") or b"json").lower()


def _unasked(exchange: GatewayExchange) -> Finding:
    expected = "an ext_proc stream to the EPP for this request"
    if exchange.epps_down:
        return not_applicable(EXTP, "the EPP did not listen")
    if not exchange.attempts and (exchange.aborted or exchange.status is None):
        return not_applicable(EXTP, "the client went away, or was not answered")
    if takes_none(exchange):
        return not_applicable(EXTP, f"the gateway takes no such requests: it answered {exchange.status}")
    if not exchange.attempts and (exchange.status or 0) >= 400:
        actual = f"none; the gateway itself answered {exchange.status}"
        hint = "Does its route take this request?" if (exchange.status or 0) < 500 else "Could it not reach the EPP?"
        return exchange.fail(EXTP, expected, actual, verdict=Verdict.INCONCLUSIVE, hint=hint)
    stray = _stray(exchange.facts)
    if stray is not None:
        actual = f"a stream that names no request ({stray}), which may be this one's"
        hint = "Forward the client's headers to the EPP: by one of them the suite knows its requests."
        return exchange.fail(EXTP, expected, actual, verdict=Verdict.INCONCLUSIVE, hint=hint)
    hint = "Is ext_proc switched off for this route, method or connection?"
    return exchange.fail(EXTP, expected, f"none; {exchange.describe()}", hint=hint)


def _stray(facts: EpisodeFacts) -> str | None:
    """A stream that belongs to no request of a client."""
    return next((one.exchange for one in facts.conversations if one.opened is None and one.stream is not None), None)


# -- the messages ------------------------------------------------------------------------------------------------------


def _order(one: PickerStream, exchange: GatewayExchange) -> Iterator[Finding]:
    """What is wrong with the data plane's messages on one stream, as they follow each other."""
    for entry, broken in one.conversation.malformed:
        if broken.author is Author.DATA_PLANE:
            yield exchange.fail(EXTP, "gRPC messages", f"bytes that are none: {broken.reason}", at=entry.seq)
    messages = one.conversation.asked
    ended: dict[str, DecodedMessage] = {}
    seen: set[str] = set()
    for number, message in enumerate(messages):
        if message.problem:
            yield exchange.fail(EXTP, "a ProcessingRequest", f"bytes that are none: {message.problem}", at=message)
            return
        if message.opaque or (message.what is None and message.partial):
            return  # of what the schema does not know, or the record does not have, nothing can be told
        if message.what is None:
            yield exchange.fail(EXTP, "one member of `request` is set", "none is set", at=message)
            return
        if number == 0 and message.what != FIRST and not _is_local_reply(exchange, messages):
            yield exchange.fail(EXTP, f"{FIRST} first", f"the first message is {message.what}", at=message)
            return
        yield from _sequence(exchange, message, ended, seen)
        seen.add(message.what)
        if message.ends and message.side is not None:
            ended[message.side] = message
    yield from _ends(one, exchange, ended, seen)
    yield from _after_the_end(one, exchange, messages)


def _is_local_reply(exchange: GatewayExchange, messages: Sequence[DecodedMessage]) -> bool:
    """Whether a stream that begins with a response is about one of an earlier filter: then the EPP is not asked about
    the request (ENV-23)."""
    sides = {message.side for message in messages}
    return messages[0].what == LOCAL_REPLY and sides == {RESPONSE} and not exchange.attempts


def _sequence(
    exchange: GatewayExchange, message: DecodedMessage, ended: dict[str, DecodedMessage], seen: set[str]
) -> Iterator[Finding]:
    side = message.side or REQUEST
    if side in ended:
        end = ended[side]
        expected = f"nothing of the {side} after its end (#{end.seq}, {end.what})"
        yield exchange.fail(EXTP, expected, f"{message.what}", at=message)
    elif message.part == "headers" and message.what in seen:
        expected = f"one {message.what} on a stream, and a stream for each request"
        yield exchange.fail(EXTP, expected, "another", at=message)
    elif message.part != "headers" and f"{side}_headers" not in seen:
        yield exchange.fail(EXTP, f"{side}_headers before {message.what}", "no headers before", at=message)


def _forms(one: PickerStream, exchange: GatewayExchange) -> Iterator[Finding]:
    """What is wrong with each of them for itself."""
    for number, message in enumerate(one.conversation.asked):
        yield from _message(one, exchange, message, first=number == 0)


def _message(
    one: PickerStream, exchange: GatewayExchange, message: DecodedMessage, *, first: bool
) -> Iterator[Finding]:
    request = message.request
    if request is None or message.what is None:
        return
    part = getattr(request, message.what)
    if message.part in ("headers", "trailers"):
        fields = part.headers.headers if message.part == "headers" else part.trailers.headers
        upper = next((one.key for one in fields if one.key != one.key.lower()), None)
        if upper is not None:
            hint = "HttpHeaders: names of headers are in lower case, so that EPPs need not fold them."
            yield exchange.fail(EXTP, "names of headers in lower case", f"{upper!r}", at=message, hint=hint)
    if message.part == "headers" and not message.partial:
        names = {name for name, _ in message.headers or ()}
        names |= {":authority"} if "host" in names else set()  # as HTTP/1.1 calls it
        names |= {":path"} if (":method", b"CONNECT") in (message.headers or ()) else set()  # which has none
        lost = next((name for name in _PSEUDO.get(message.what, ()) if name not in names), None)
        if lost is not None:
            expected, hint = f"{lost} among the headers", "Are only some forwarded to the EPP (Envoy's forward_rules)?"
            yield exchange.fail(EXTP, expected, f"no {lost}", at=message, verdict=Verdict.WARN, hint=hint)
    if not first and request.HasField("protocol_config"):
        yield exchange.fail(EXTP, "protocol_config on the first message only", f"on {message.what}, too", at=message)
    if message.part == "headers" and message.ends and (size := _body_of(one, exchange, message)):
        actual = f"end_of_stream is true, and the {message.side} has a body ({size})"
        expected = f"end_of_stream on the headers of a {message.side} without a body only"
        yield exchange.fail(EXTP, expected, actual, at=message)


def _body_of(one: PickerStream, exchange: GatewayExchange, message: DecodedMessage) -> str:
    """What tells that the request, or response, of this message has a body; empty if nothing does."""
    if exchange.opened is None:
        return ""
    if message.side == RESPONSE:
        final = exchange.final if one is exchange.asked[-1] and not exchange.bodyless else None
        return f"the model server sent {plural(len(final.body), 'byte')}" if final is not None and final.body else ""
    length = header(exchange.opened.headers, b"content-length") or b""
    arrived = next((len(attempt.request.body) for attempt in exchange.attempts if attempt.request.body), 0)
    if length.isdigit() and length.strip(b"0"):
        return f"content-length {length.decode()[:20]}"
    if arrived:
        return f"{plural(arrived, 'byte')} arrived at the model server"
    return (
        f"the client sent {plural(exchange.opened.size, 'byte')}"
        if exchange.opened.size and not exchange.aborted
        else ""
    )


def _ends(
    one: PickerStream, exchange: GatewayExchange, ended: dict[str, DecodedMessage], seen: set[str]
) -> Iterator[Finding]:
    """Each direction that was complete has its end. Without it an EPP never stops waiting for the rest."""
    conversation = one.conversation
    answered_itself = any(message.what == "immediate_response" for message in conversation.messages)
    if (
        one.left_early
        or answered_itself
        or exchange.opened is None
        or exchange.aborted
        or one.stream.offence is not None
    ):
        return
    served = exchange.final
    modes = {REQUEST: conversation.request_mode, RESPONSE: conversation.response_mode}
    for side, mode in modes.items():
        whole = mode in (DUPLEX, STREAMED) or (side == REQUEST and mode == BUFFERED and _withheld(one, exchange))
        if not whole or side in ended or f"{side}_headers" not in seen:
            continue
        if any(other.stream.direction(side).end is not None for other in exchange.asked):
            continue  # it went on with another EPP, and left this one
        direction = one.stream.direction(side)
        if direction.replaced or (mode == STREAMED and _trailers(served, side)):  # which that mode may leave out
            continue
        waited = exchange.expired or one.held_back >= HELD_BACK
        hung = waited and mode == DUPLEX and side == REQUEST
        # An EPP that did not answer, or not in time: then it failed open, or in the midst of a response.
        given_up = not one.stream.answers if side == REQUEST else exchange.left_in_response(one)
        if (served is not None and not given_up) or hung:
            expected = f"end_of_stream on the last message of the {side} body, or {side}_trailers"
            actual = f"the {side} was complete, and the stream ended without either"
            last = direction.bodies[-1] if direction.bodies else direction.headers
            yield exchange.fail(
                EXTP, expected, actual, at=last, hint="An EPP that waits for the whole body never answers."
            )


def _taken_for_whole(one: PickerStream, exchange: GatewayExchange) -> Iterator[Finding]:
    """Of a client that went away in the midst of its body, what had come is neither told nor sent on as the whole."""
    body = whole_body(exchange.opened) if exchange.opened is not None else None
    if body is None or not exchange.aborted:
        return
    request, hint = one.stream.request, "Reset what can't be read to its end: an error in reading is not the end."
    if request.end is not None and not request.header_only and _begins(told := sent_body(request), body):
        expected = "no end of the request body, in the midst of which the client went away"
        yield exchange.fail(
            EXTP, expected, f"the end, after {len(told)} of {len(body)} bytes", at=request.end, hint=hint
        )
    for attempt in exchange.attempts:
        if not altered(request) and _begins(got := whole_body(attempt.request), body):
            expected = f"no whole request at {attempt.endpoint}, as the client went away in the midst of its body"
            actual = f"one with {len(got or b'')} of {len(body)} bytes"
            yield exchange.fail(EXTP, expected, actual, at=attempt, hint=hint)


def _begins(part: bytes | None, body: bytes) -> bool:
    """Whether `part` is the beginning of the body, and not all of it."""
    return part is not None and len(part) < len(body) and body.startswith(part)


def _withheld(one: PickerStream, exchange: GatewayExchange) -> bool:
    """Whether nothing is told of the request's body, which is short enough for each gateway to collect it."""
    size = exchange.opened.size if exchange.opened is not None else None
    return not one.stream.request.bodies and 0 < (size or 0) <= KEPT


def _left_open(one: PickerStream, exchange: GatewayExchange) -> Iterator[Finding]:
    """The stream is over when the request is. Streams that are left open are what an EPP dies of."""
    waits = ((entry.seq, entry.event) for entry in exchange.entries if isinstance(entry.event, Wait))
    since, wait = next((pair for pair in waits if pair[1].what == STREAMS_END), (0, None))
    if wait is None or exchange.expired or exchange.opened is None:
        return
    ends = (entry.event for entry in one.conversation.entries if entry.seq < since)
    if not any(isinstance(event, HalfClosed | StreamEnded) for event in ends):
        expected = "the ext_proc stream ends with the request"
        over = "went away" if exchange.aborted else "got its response"
        actual = f"it is open {wait.seconds:g} s after the client {over}"
        hint = "Reset or half-close it. Whatever an EPP holds for the request is held until then."
        yield exchange.fail(EXTP, expected, actual, at=since, verdict=Verdict.WARN, hint=hint)


def _trailers(served: UpstreamAttempt | None, side: str) -> bool:
    if served is None:
        return False
    sent = served.request.trailers if side == REQUEST else served.response.trailers if served.response else ()
    return bool(sent)


def _after_the_end(
    one: PickerStream, exchange: GatewayExchange, messages: Sequence[DecodedMessage]
) -> Iterator[Finding]:
    """An ImmediateResponse ends the conversation: it does not come back as a response to be processed."""
    if not any(message.what == "immediate_response" for message in one.conversation.messages):
        return
    decision = one.immediate
    if decision is None or decision.response is None:
        return
    code = decision.response.immediate_response.status.code
    for message in messages:
        if message.seq < decision.seq or message.what != "response_headers" or message.request is None:
            continue
        fields = message.request.response_headers.headers.headers
        status = next((f.raw_value.decode("latin-1") or f.value for f in fields if f.key == ":status"), "")
        if status == str(code):
            expected = f"nothing more on the stream: the EPP ended it with an ImmediateResponse at #{decision.seq}"
            yield exchange.fail(EXTP, expected, f"response_headers with its own status {status}", at=message)
