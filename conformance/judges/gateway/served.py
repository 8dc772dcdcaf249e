"""Destination Endpoint Served (DP-SRVD-01, DP-SCOPE-03): the EPP learns which endpoint gave the response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.judges.findings import not_applicable, passed
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.picker_stream import PickerStream
from conformance.judges.registry import judge_of_gateway_exchange
from conformance.reading.decoded_message import RESPONSE, DecodedMessage
from conformance.reading.endpoints import canonical, parse
from conformance.verdict import Finding, Verdict
from ext_proc.headers import plain
from ext_proc.protocol import SERVED
from ext_proc.record import Author

SRVD, SCOPE = "DP-SRVD-01", "DP-SCOPE-03"


@judge_of_gateway_exchange(SRVD, SCOPE)
def served(exchange: GatewayExchange) -> Iterator[Finding]:
    """What the headers message of the response says; where no client was observed, only whether it has its shape."""
    namespace = exchange.facts.context.destination_namespace
    for one in exchange.asked:
        for message in _responses(one):
            value = _value(message, namespace)
            if value is not None and not _is_endpoint(value):
                yield exchange.fail(SRVD, f"{namespace}: {{{SERVED}: <ip:port>}}", f"{value!r}", at=message)
                return
        if (found := _contradiction(exchange, one, namespace)) is not None:
            yield found
            return
    if exchange.opened is None:
        yield not_applicable(SRVD, "the model servers were not observed")
    elif exchange.final is not None and exchange.asked:
        yield from _report(exchange, exchange.final.endpoint, namespace)


def _report(exchange: GatewayExchange, endpoint: str, namespace: str) -> Iterator[Finding]:
    backend = exchange.backend_of(endpoint)
    learned = {one.at: _told(one, namespace) for one in exchange.asked}
    own = [one for one in exchange.asked if backend is None or one.epp in ("", backend)]
    if not own or own[-1].release is None or own[-1].withdrawal is not None:
        return  # it was not asked, or it let nothing go, or not all of it
    if own[-1].left_early or exchange.left_behind(own[-1]):
        return  # it left, or was left, before there was a response
    right = own[-1]
    at = next(iter(_responses(right)), None)
    got = learned[right.at]
    expected = f"{namespace}: {{{SERVED}: {endpoint}}} on the headers of the response"
    if got is not None:
        wrong = canonical(got) not in {endpoint, *(attempt.endpoint for attempt in exchange.answering)}
        yield (
            exchange.fail(SRVD, expected, f"{got}; {exchange.describe()}", at=at, hint=_hint(exchange, got))
            if wrong
            else passed(SRVD)
        )
        if not wrong and exchange.backends and len(exchange.asked) > 1:
            yield passed(SCOPE)
        return
    if right is not exchange.asked[-1]:
        return  # the request came back from another pool, which is wrong by itself
    others = [one.epp for one in exchange.asked if one is not right and learned[one.at] is not None]
    if others and exchange.backends and exchange.facts.applies(SCOPE):
        expected = f"the EPP {backend} learns that {endpoint} served: the response is of its pool"
        yield exchange.fail(SCOPE, expected, f"the EPP {others[0]} was told", at=at)
        return
    yield _missing(exchange, right, endpoint, namespace)


def _missing(exchange: GatewayExchange, right: PickerStream, endpoint: str, namespace: str) -> Finding:
    """The headers of the response do not say it. That a later message does is within the text; EPPs look at these."""
    found = ((message, _value(message, namespace)) for message in _responses(right))
    late = next((message for message, value in found if value is not None and canonical(value) == endpoint), None)
    expected = f"{namespace}: {{{SERVED}: {endpoint}}} on the headers of the response"
    if late is not None:
        hint = "EPPs of the field read it on the headers."
        return exchange.fail(SRVD, expected, f"on {late.what} first", at=late, hint=hint, verdict=Verdict.WARN)
    at = next(iter(_responses(right)), None)
    actual = "the response's headers came without it"
    why = "Is the namespace forwarded to the EPP (metadata_options), and is something there to note the endpoint?"
    if at is None:
        actual = "no headers of the response came"
        why = "Keep the stream open until the response is over, and send its headers (response_header_mode SEND)."
    return exchange.fail(SRVD, expected, actual, at=at, hint=why)


def _hint(exchange: GatewayExchange, got: str) -> str:
    tried = [attempt.endpoint for attempt in exchange.attempts[:-1]]
    return "That is an attempt that failed; the one that answered counts." if canonical(got) in tried else ""


def _responses(one: PickerStream) -> list[DecodedMessage]:
    message = one.conversation.messages
    return [m for m in message if m.author is Author.DATA_PLANE and m.side == RESPONSE and m.request is not None]


def _contradiction(exchange: GatewayExchange, one: PickerStream, namespace: str) -> Finding | None:
    """Two messages of the response on one stream that name different endpoints."""
    told = [(message, value) for message in _responses(one) if (value := _value(message, namespace)) is not None]
    other = next((message for message, value in told if canonical(value) != canonical(told[0][1])), None)
    if other is None:
        return None
    expected = f"{told[0][1]}, as on {told[0][0].what}: one endpoint served the response"
    return exchange.fail(SRVD, expected, f"{_value(other, namespace)} on {other.what}", at=other)


def _told(one: PickerStream, namespace: str) -> str | None:
    """The served endpoint in the response's headers on one stream."""
    values = (_value(message, namespace) for message in _responses(one) if message.part == "headers")
    found = next((value for value in values if value is not None), None)
    return str(found) if found is not None else None


def _value(message: DecodedMessage, namespace: str) -> Any:
    metadata = message.request.metadata_context.filter_metadata if message.request is not None else {}
    if namespace not in metadata or SERVED not in metadata[namespace].fields:
        return None
    return plain(metadata[namespace].fields[SERVED])


def _is_endpoint(value: Any) -> bool:
    return isinstance(value, str) and parse(value).canonical is not None and not parse(value).padded
