"""What becomes of headers on their way through the gateway (DP-EXTP-01): the changes of the EPP, and several lines.

Which headers go on, and which an EPP may change (`mutation_rules`), is a matter of configuration, so all of this only
warns. A gateway may take a header away, add lines, or write another value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from conformance.judges.gateway.contents import EXTP
from conformance.judges.gateway.heads import OWN, plain
from conformance.judges.gateway_exchange import GatewayExchange, UpstreamAttempt
from conformance.judges.picker_stream import PickerStream
from conformance.reading.decoded_message import HeaderList
from conformance.reading.destination import counting, header_list, sent_headers, values_of
from conformance.reading.stream_direction import StreamDirection
from conformance.verdict import Finding, Verdict
from ext_proc.protocol import DESTINATION
from ext_proc.record import Headers, values

_COOKIES = b"set-cookie"
"""A header of which several lines are not one list (RFC 9110, 5.3)."""


class _Passage(NamedTuple):
    """Headers on their way: what came, what went out, and to which attempt, if to one."""

    direction: StreamDirection
    came: Headers
    out: Headers
    attempt: UpstreamAttempt | None

    @property
    def where(self) -> str:
        """Where they went."""
        return f"at {self.attempt.endpoint}" if self.attempt is not None else "at the client"


def carried(one: PickerStream, exchange: GatewayExchange) -> Iterator[Finding]:
    """What was lost of the headers of the request and of the response."""
    for passage in _passages(one, exchange):
        told, changed = sent_headers(passage.direction), header_list(passage.direction)
        yield from _lines(exchange, passage, told, changed)
        if told is not None and changed is not None:
            yield from _changes(exchange, passage, told, changed)
        if passage.attempt is None:
            yield from _trailers(exchange, passage.direction)


def _passages(one: PickerStream, exchange: GatewayExchange) -> Iterator[_Passage]:
    """What was for the EPP of this stream, and no other, to change."""
    opened, final, got = exchange.opened, exchange.final, exchange.response
    if opened is None or len(exchange.asked) > 1 or exchange.aborted or one.stream.offence is not None:
        return
    for attempt in exchange.sent_on(one):
        yield _Passage(one.stream.request, opened.headers, attempt.request.headers, attempt)
    left = one.left_early or exchange.left_in_response(one)
    if final is not None and final.response is not None and got is not None and not left:
        yield _Passage(one.stream.response, final.response.headers, got[1].headers, None)


def _lines(
    exchange: GatewayExchange, passage: _Passage, told: HeaderList | None, changed: HeaderList | None
) -> Iterator[Finding]:
    """Of a header in several lines, which the EPP left alone, all go on, or none."""
    for name in dict.fromkeys(name.lower() for name, _ in passage.came):
        text = name.decode("latin-1")
        lines = [*values(passage.came, name)]
        if len(lines) < 2 or text in OWN or values_of(told, text) != values_of(changed, text):
            continue
        came, out = _items(name, lines), _items(name, [*values(passage.out, name)])
        lost = [item for item in came if item not in out]
        if lost and len(lost) < len(came):
            expected = f"all {len(lines)} lines of {text} {passage.where}, as none has been taken away"
            actual = f"without {lost[0][:80].decode('latin-1')!r}"
            hint = "Is there but one value for each name of a header? Lines of set-cookie can't be put together either."
            yield exchange.fail(EXTP, expected, actual, at=passage.attempt, hint=hint, verdict=Verdict.WARN)


def _changes(exchange: GatewayExchange, passage: _Passage, told: HeaderList, changed: HeaderList) -> Iterator[Finding]:
    """What the EPP set goes on, once and alone, and what it removed does not. Of its destination judges of that know
    more."""
    answers = [message.header_mutation for message in counting(passage.direction) if message.header_mutation]
    put = {option.header.key.lower() for mutation in answers for option in mutation.set_headers}
    for text in dict.fromkeys(name for name, _ in (*told, *changed)):
        if text in OWN or text.startswith((":", DESTINATION)):
            continue
        name, before, after = text.encode("latin-1"), values_of(told, text), values_of(changed, text)
        came, out = [*values(passage.came, name)], [*values(passage.out, name)]
        if not plain(*before, *after, *out):
            continue
        arrived, due = _items(name, out), _items(name, [*after])
        stale = [item for item in _items(name, [*before]) if item in arrived and item not in due]
        own = text in put and came  # what comes twice may be a gateway's own else
        twice = own and any(arrived.count(item) > due.count(item) for item in due)
        hint = "Do its rules let the EPP change this header (Envoy's mutation_rules)?"
        if before != after and not set(due) <= set(arrived):
            expected = f"{text}: {after[-1][:80].decode('latin-1')} {passage.where}, as the EPP set it"
            actual = f"{text}: {out[-1][:80].decode('latin-1')}" if out else f"no {text}"
        elif stale and not after:
            expected = f"no {text} {passage.where}: the EPP removed it"
            actual = f"{text}: {stale[0][:80].decode('latin-1')}"
        elif stale or twice:
            expected = f"{text}: {after[-1][:80].decode('latin-1')} {passage.where} alone, as the EPP set it"
            actual = f"{text}: {b', '.join(arrived)[:80].decode('latin-1')}"
            hint = "Headers of set_headers overwrite, also without append_action, as in Envoy's ext_proc."
        else:
            continue
        yield exchange.fail(EXTP, expected, actual, at=passage.attempt, hint=hint, verdict=Verdict.WARN)


def _trailers(exchange: GatewayExchange, direction: StreamDirection) -> Iterator[Finding]:
    """Trailers of the response that the EPP was told, and the client of HTTP/2 was not: there they need no chunks."""
    opened, got = exchange.opened, exchange.response
    if opened is None or opened.http != 2 or got is None or not got[1].complete or exchange.bodyless:
        return
    answer = direction.trailers_answer
    if direction.trailers is None or answer is None or answer.header_mutation is not None or got[1].trailers:
        return
    expected = "the trailers at the client with which the response came, and which the EPP was told"
    hint = "A gRPC client takes a call without grpc-status for a failed one."
    yield exchange.fail(EXTP, expected, "a response without trailers", hint=hint, verdict=Verdict.WARN)


def _items(name: bytes, lines: list[bytes]) -> list[bytes]:
    """What the lines of a header hold: items of lists, or the names of cookies."""
    if name == _COOKIES:
        return [line.partition(b"=")[0].strip() for line in lines]
    return [item.strip() for line in lines for item in line.split(b",")]
