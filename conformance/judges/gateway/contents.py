"""What the messages of a stream hold (DP-EXTP-01): the EPP learns what was said, and what it released is what goes on.

Bodies are compared where every byte on both sides is in the record. A gateway may name another model in them,
and ask for the usage of a stream; bodies that are encoded are left out, as it may decode them. Which of the EPP's and
of the client's headers go on is a matter of configuration (`mutation_rules`), and not compared; but where a body goes
on as it came, so does what says how to read it.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.ext_proc.bodies import TELLING, answered_body, is_event_stream, sent_body
from conformance.judges.gateway_exchange import KEPT, GatewayExchange, UpstreamAttempt
from conformance.judges.picker_stream import PATIENCE, PickerStream
from conformance.printable import plural
from conformance.reading.bodies import Sameness, compare
from conformance.reading.conversation import BUFFERED, DUPLEX, NONE, STREAMED
from conformance.reading.decoded_message import REQUEST
from conformance.reading.destination import header_list, sent_headers, values_of
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding, Verdict
from ext_proc.record import (
    ClientResponse,
    ExchangeOpened,
    Headers,
    UpstreamRequest,
    UpstreamResponse,
    body_length,
    header,
    whole_body,
)

EXTP = "DP-EXTP-01"

_REWRITTEN = ("model", "stream_options")
"""What gateways rewrite in bodies: they map names of models, and have streams tell their usage, by which they bill."""

GZIP = b"\x1f\x8b"
"""How what is in gzip begins (RFC 1952, 2.3.1)."""

_READ_BY = {"content-encoding": Verdict.FAIL, "content-type": Verdict.WARN}
"""What says how a body is to be read; of another type than it came with it can be read nevertheless."""


def contents(one: PickerStream, exchange: GatewayExchange) -> Iterator[Finding]:
    """What is not what it should be, of one stream."""
    if exchange.opened is None or exchange.aborted or one.stream.offence is not None:
        return
    if exchange.expired:
        yield from _lost(exchange, one) if one is exchange.asked[-1] else ()
        return
    yield from _broken_off(exchange, one)
    others = [other.stream for other in exchange.asked if other is not one]
    if not any(altered(other.request) for other in others):
        yield from _sent(exchange, one, exchange.opened)
    if one is exchange.asked[-1] and not any(other.response.headers for other in others):
        yield from _returned(exchange, one)


def altered(direction: StreamDirection) -> bool:
    """Whether an EPP released another body than it was told: then another EPP may rightly be told either."""
    return direction.replaced or answered_body(direction) not in (None, sent_body(direction))


def _says_modes(exchange: GatewayExchange) -> bool:
    """Whether the gateway says in which modes bodies are sent. If not, answers of full duplex may come in another."""
    heard = (one.conversation.first for one in exchange.asked)
    return any(one is not None and one.request is not None and one.request.HasField("protocol_config") for one in heard)


def _rewritten(direction: StreamDirection) -> bool:
    """Whether an EPP asks for another path than it was told."""
    return values_of(sent_headers(direction), ":path") != values_of(header_list(direction), ":path")


def _sent(exchange: GatewayExchange, one: PickerStream, opened: ExchangeOpened) -> Iterator[Finding]:
    """The request, on its way to the EPP and to model servers."""
    request = one.stream.request
    yield from _told(exchange, request, whole_body(opened), opened.headers)
    rewritten = any(_rewritten(other.stream.request) for other in exchange.asked)
    sent = exchange.sent_on(one)
    for attempt in sent:
        yield from _method(exchange, opened, request, attempt)
        yield from _path(exchange, opened, sent[0], attempt) if not rewritten else ()
        yield from _released(exchange, request, opened, attempt.request, attempt)
        yield from _readable(exchange, request, opened, attempt.request, attempt)


def _returned(exchange: GatewayExchange, one: PickerStream) -> Iterator[Finding]:
    """The response, on its way to the EPP and to the client."""
    response = one.stream.response
    yield from _cut(exchange, one)
    yield from _lost(exchange, one)
    yield from _uncalled_for(exchange)
    yield from _error_page(exchange, one)
    final, got = exchange.final, exchange.response
    if final is None or final.response is None or got is None:
        return
    if not one.left_early:
        yield from _status(exchange, response, final.response, got[1])
    if exchange.bodyless or not got[1].complete:
        return
    went = final.response.headers
    yield from _told(exchange, response, final.body, went)
    if not one.left_early:
        yield from _released(exchange, response, final.response, got[1], None)
        yield from _readable(exchange, response, final.response, got[1], None)


def _told(
    exchange: GatewayExchange, direction: StreamDirection, body: bytes | None, headers: Headers
) -> Iterator[Finding]:
    """The body that the EPP was told, against the one that came."""
    end = direction.end
    if body is None or end is None or direction.header_only or direction.replaced or _encoded(headers):
        return
    if any(values_of(sent_headers(direction), "content-encoding")):
        return
    if direction.mode not in (BUFFERED, STREAMED, DUPLEX) or any(message.partial for message in direction.bodies):
        return
    if end.part == "trailers" and direction.mode != DUPLEX:
        return  # of a body in mode BUFFERED_PARTIAL, trailers may end what was only begun
    if difference := _difference(body, sent_body(direction), headers):
        who = "client" if direction.side == REQUEST else "model server"
        expected = f"the {direction.side} body as it came from the {who}, whole and once"
        yield exchange.fail(EXTP, expected, difference, at=end)


def _released(
    exchange: GatewayExchange,
    direction: StreamDirection,
    came: ExchangeOpened | UpstreamResponse,
    out: UpstreamRequest | ClientResponse,
    attempt: UpstreamAttempt | None,
) -> Iterator[Finding]:
    """The body that came out of the gateway, against what the EPP's answers made of it.

    One that the EPP was not shown must not be cut. A gateway may write another in its place, in the API of its server.
    """
    hidden = direction.mode == NONE and not direction.header_only and not direction.replaced
    released, got = whole_body(came) if hidden else _written(direction), whole_body(out)
    if released is None or got is None or _encoded(came.headers) or _encoded(out.headers):
        return
    if hidden and not released.startswith(got):
        if other := _whose(exchange, type(came), got):
            expected = f"the {direction.side} body of this request, or what is made of it"
            yield exchange.fail(EXTP, expected, f"that of the request {other}", at=attempt)
        return
    if attempt is not None and direction.trailers is not None and got == 2 * released:
        return  # Envoy 1.40 does so where the route retries: see docs/reference/envoy-parity.md
    if difference := _difference(released, got, came.headers):
        where = f"at {attempt.endpoint}" if attempt is not None else "at the client"
        expected = f"the {direction.side} body {where} as {'it came' if hidden else 'the answers of the EPP left it'}"
        if _says_modes(exchange) or not altered(direction):
            yield exchange.fail(EXTP, expected, difference, at=attempt)
        else:
            actual = f"another, by answers in a mode that the gateway did not name: {difference}"
            hint = "Send protocol_config on the first message: in which mode an answer is meant is not known without."
            yield exchange.fail(EXTP, expected, actual, at=attempt, verdict=Verdict.INCONCLUSIVE, hint=hint)


def _written(direction: StreamDirection) -> bytes | None:
    """The body that goes on after the EPP's answers; None if it is not complete, or not known."""
    answer = direction.headers_answer
    if not direction.replaced or answer is None or answer.common is None:
        return answered_body(direction)
    mutation = answer.common.body_mutation
    return mutation.body if mutation.WhichOneof("mutation") == "body" and not answer.partial else None


def _whose(exchange: GatewayExchange, kind: type[ExchangeOpened | UpstreamResponse], body: bytes) -> str:
    """The name of another request with which this body came; empty if there is none, or it may be chance."""
    if len(body) < TELLING:
        return ""
    found = (event.exchange for _, event in exchange.facts.episode.of(kind) if whole_body(event) == body)
    return next((name for name in found if name and name != exchange.exchange), "")


def _broken_off(exchange: GatewayExchange, one: PickerStream) -> Iterator[Finding]:
    """A body that an EPP was told and, as it failed, gave no end: the rest is not left out as if there were none.

    To go on with all of it is another matter, and so is an error of the gateway's own, which gRPC gives status 200.
    """
    if not one.broke or one.unavailable or len(exchange.asked) > 1:
        return  # of an EPP that failed before it answered see DP-FAIL-01
    request, response, final, got = one.stream.request, one.stream.response, exchange.final, exchange.response
    if exchange.opened is not None and _endless(request):
        for attempt in exchange.attempts:
            yield from _begun(exchange, request, exchange.opened, attempt.request, attempt)
    if final is None or final.response is None or got is None or exchange.bodyless or exchange.grpc:
        return
    if _endless(response) and got[1].complete and exchange.framed and got[1].status == final.status:
        yield from _begun(exchange, response, final.response, got[1], None)


def _endless(direction: StreamDirection) -> bool:
    """Whether the EPP was told a body, and did not say that it ends. Outside of full duplex an answer may cut it."""
    told = bool(direction.bodies) and direction.finish is None and not direction.cut and not direction.replaced
    return told and direction.trailers_answer is None and (direction.duplex or not direction.body_answers)


def _begun(
    exchange: GatewayExchange,
    direction: StreamDirection,
    came: ExchangeOpened | UpstreamResponse,
    out: UpstreamRequest | ClientResponse,
    attempt: UpstreamAttempt | None,
) -> Iterator[Finding]:
    """Of a body, as it came, only a part went on, as the whole."""
    whole, got = whole_body(came), whole_body(out)
    if whole is None or got is None or not _lacks_a_part(whole, got):
        return
    where = f"at {attempt.endpoint}" if attempt is not None else "at the client"
    expected = f"no {direction.side} body {where}, one that is cut, or all {len(whole)} bytes: the EPP gave it no end"
    yield exchange.fail(EXTP, expected, f"{plural(len(got), 'byte')} as the whole body", at=attempt)


def _lacks_a_part(whole: bytes, got: bytes) -> bool:
    """Whether `got` is the `whole` without a part, be it the beginning: in full duplex that is with the EPP."""
    alike = next((at for at, (one, other) in enumerate(zip(whole, got, strict=False)) if one != other), len(got))
    return len(got) < len(whole) and whole.endswith(got[alike:])


def _uncalled_for(exchange: GatewayExchange) -> Iterator[Finding]:
    """A body where HTTP has none (RFC 9110, 9.3.2, 15.3.5 and 15.4.5). On HTTP/1.1 it would be the next response."""
    got = exchange.response
    if exchange.bodyless and got is not None and (size := body_length(got[1])):
        hint = "Clients that look take it for an error of the stream, and lose the response."
        yield exchange.fail(
            EXTP, "a response without a body, as HTTP has it", f"{plural(size, 'byte')} of one", hint=hint
        )


def _error_page(exchange: GatewayExchange, one: PickerStream) -> Iterator[Finding]:
    """An error of a model server, as the EPP let it go, of which the client gets the status and another body.

    Gateways have pages for errors where they are told to, which ext_proc does not speak of.
    """
    last, got, response = exchange.failed, exchange.response, one.stream.response
    if last is None or got is None or one.left_early or exchange.bodyless or response.replaced:
        return
    released, body = answered_body(response), whole_body(got[1])
    if released is None or released != last.body or body in (None, released) or _encoded(got[1].headers):
        return
    expected = f"the body of the {last.status} of {last.endpoint}, as the EPP let it go"
    hint = "Has it pages for errors (nginx's proxy_intercept_errors, Envoy's custom_response)?"
    difference = _difference(released, body or b"", last.response.headers if last.response is not None else ())
    if difference:
        yield exchange.fail(EXTP, expected, difference, hint=hint, verdict=Verdict.WARN)


def _status(
    exchange: GatewayExchange, direction: StreamDirection, came: UpstreamResponse, out: ClientResponse
) -> Iterator[Finding]:
    """The status of the response, where the EPP left it alone. Errors for gRPC clients have another form."""
    changed = header_list(direction) or []
    own = values_of(sent_headers(direction), ":status") == values_of(changed, ":status")
    if own and came.status != out.status and not exchange.grpc:
        yield exchange.fail(EXTP, f"status {came.status} at the client, as the model server sent it", f"{out.status}")


def _cut(exchange: GatewayExchange, one: PickerStream) -> Iterator[Finding]:
    """A response that was cut at the model server, and is whole at the client.

    One without any framing ends with its connection. Of what the gateway added, as an event that tells of the error,
    the client learns; an answer of the EPP may be the client's, too.
    """
    came = exchange.attempts[-1].response if exchange.attempts else None
    got = exchange.response[1] if exchange.response is not None else None
    if came is None or came.outcome != "reset" or got is None or not got.complete or one.stream.immediate is not None:
        return
    body = whole_body(got)
    if body is None or came.status != got.status or exchange.bodyless or not exchange.framed:
        return
    if came.body.startswith(body):
        sent = f"{plural(len(came.body), 'byte')} of a body that has no end"
        expected = f"an error, or a response that is cut: the model server sent {sent}"
        yield exchange.fail(EXTP, expected, f"{got.status}, and {plural(len(body), 'byte')} as the whole body")


def _lost(exchange: GatewayExchange, one: PickerStream) -> Iterator[Finding]:
    """A response that the model server gave whole, and the EPP released: the client gets it, unless it took too long.

    So it does one of which the EPP is told only an error of the gateway's own, unless it is a long one. Where requests
    are hedged, the client may get another attempt's.
    """
    last = exchange.attempts[-1] if exchange.attempts else None
    got = exchange.response[1] if exchange.response is not None else None
    if last is None or last.status is None or got is None or one.stream.immediate is not None:
        return
    if one.left_early or one.slowest >= PATIENCE:
        return
    response = one.stream.response
    told = [*values_of(sent_headers(response), ":status")]
    statuses = {attempt.status for attempt in exchange.attempts}
    failed = last.status < 400 and (got.status or 0) >= 500 and got.status not in (504, *statuses)
    if response.headers is None:
        lost = got.status is None and one.stream.request.complete
    elif not response.complete:
        lost = False
    elif told == [b"%d" % last.status]:
        lost = got.status is None or failed or (got.status == last.status and exchange.cut)
    else:  # the gateway's own error in its place, as of a response for which there is no room
        short = last.body is not None and len(last.body) <= KEPT
        steered = one.release is not None and one.release.seq < last.at  # else DP-DEST-01
        lost = failed and told == [b"%d" % (got.status or 0)] and short and steered
    if lost:
        yield exchange.fail(EXTP, f"the whole response of {last.endpoint} at the client")


def _readable(
    exchange: GatewayExchange,
    direction: StreamDirection,
    came: ExchangeOpened | UpstreamResponse,
    out: UpstreamRequest | ClientResponse,
    attempt: UpstreamAttempt | None,
) -> Iterator[Finding]:
    """The headers that say how to read a body, where the EPP left them alone: it is what they say, and what came with
    it if it is the same."""
    body, got, changed = whole_body(came), whole_body(out), header_list(direction)
    where = f"at {attempt.endpoint}" if attempt is not None else "at the client"
    packed = _read_by(out.headers, "content-encoding") == b"gzip"
    if packed and got and got != body and not got.startswith(GZIP) and not altered(direction):
        expected = f"a {direction.side} body in gzip {where}, as content-encoding says"
        yield exchange.fail(EXTP, expected, f"{len(got)} bytes that are none: {got[:24]!r}", at=attempt)
    if not body or got != body or changed is None:
        return
    for name, verdict in _READ_BY.items():
        before, after = _read_by(came.headers, name), _read_by(out.headers, name)
        own = values_of(sent_headers(direction), name) == values_of(changed, name)
        if own and before != after and (before or name == "content-encoding"):  # a type may be added to what has none
            expected = f"{_said(name, before)} {where}: the {direction.side} body is as it came"
            yield exchange.fail(EXTP, expected, _said(name, after), at=attempt, verdict=verdict)


def _read_by(headers: Headers, name: str) -> bytes:
    """A header that says how to read a body, without what does not matter."""
    text = (header(headers, name.encode()) or b"").partition(b";")[0].strip().lower()
    return b"" if text == b"identity" else text


def _said(name: str, value: bytes) -> str:
    return f"{name}: {value[:80].decode('latin-1')}" if value else f"no {name}"


def _method(
    exchange: GatewayExchange, opened: ExchangeOpened, direction: StreamDirection, attempt: UpstreamAttempt
) -> Iterator[Finding]:
    """No EPP can change the method; a gateway may fetch with GET what a client asks for with HEAD."""
    told = next(iter(values_of(sent_headers(direction), ":method")), None)
    got = header(attempt.request.headers, b":method")
    for due, why in ((told, "as the EPP was told"), (opened.method.encode(), "as the client asked")):
        if None not in (due, got) and got != due and (due, got) != (b"HEAD", b"GET"):
            yield exchange.fail(EXTP, f"{_shown(due)} at {attempt.endpoint}, {why}", _shown(got), at=attempt)
            return


def _path(
    exchange: GatewayExchange, opened: ExchangeOpened, before: UpstreamAttempt, attempt: UpstreamAttempt
) -> Iterator[Finding]:
    """A gateway may ask for another path than its client, but for one and the same in all attempts at a pool; and on
    the client's path for its query."""
    path, _, query = opened.path.partition("?")
    first, got = (header(one.request.headers, b":path") for one in (before, attempt))
    if first != got and None not in (first, got):
        expected = f"{_shown(first)} at {attempt.endpoint}, as in the first attempt"
        yield exchange.fail(EXTP, expected, _shown(got), at=attempt)
    elif query and _shown(got) == path:
        yield exchange.fail(EXTP, f"{opened.path} at {attempt.endpoint}, with its query", path, at=attempt)


def _shown(value: bytes | None) -> str:
    return (value or b"").decode("latin-1")


def _encoded(headers: Headers) -> bool:
    return header(headers, b"content-encoding") not in (None, b"", b"identity")


def _difference(expected: bytes, got: bytes, headers: Headers) -> str:
    """How a body differs, in words; empty if it does not, or only where it may."""
    if expected == got:
        return ""
    events = is_event_stream(header(headers, b"content-type"))
    found = compare(expected, got, claims=_REWRITTEN, events=events)
    return found.difference if found.sameness in (Sameness.CHANGED, Sameness.LOST) else ""
