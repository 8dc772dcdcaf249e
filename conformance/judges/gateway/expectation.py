"""What the scenario itself expects of a request through the gateway, beyond the rules that hold for every one.

As for an EPP: an expectation that is not met gives a finding on the requirement that the scenario names for it, unless
a rule has already found fault with the same request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conformance.evidence.episode import Expectation
from conformance.judges.epp.expectation import about
from conformance.judges.findings import not_applicable, passed
from conformance.judges.gateway.calling import takes_none
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.picker_stream import PickerStream
from conformance.reading.conversation import NONE
from conformance.reading.endpoints import canonical
from conformance.verdict import Finding
from ext_proc.record import UNCONNECTED, ClientResponse, Entry, ExchangeOpened


def expectation(exchange: GatewayExchange, *, blamed: bool) -> Iterator[Finding]:
    """The scenario's expectation of `exchange`; `blamed`: fault was already found with it."""
    expected = exchange.facts.context.expectations.get(exchange.exchange)
    requirement = about(expected, exchange.facts) if expected is not None else None
    if expected is None or requirement is None or exchange.opened is None or exchange.aborted:
        return
    if expected.served_by is None and not expected.status:
        return
    if exchange.facts.exit is not None and exchange.status is None:
        return  # its death says it all
    if _speaks_no_http2(exchange):
        yield not_applicable(requirement, "the gateway takes no HTTP/2 of clients without TLS")
        return
    if takes_none(exchange):
        yield not_applicable(requirement, f"the gateway takes no such requests: it answered {exchange.status}")
        return
    if exchange.asked and exchange.left_behind(last := exchange.asked[-1]):
        reason = f"the gateway waited {last.given_up:.2f} s for its EPP, and no document says how long it must"
        yield not_applicable(requirement, reason)
        return
    if expected.served_by == () and exchange.asked and _shows_no_bodies(exchange.asked[-1]):
        yield not_applicable(requirement, "the gateway shows its EPP no bodies, and does not say so before")
        return
    served, status = _served(exchange, requirement, expected), _status(exchange, requirement, expected)
    if served is None and status is not None and _tells_of_no_response(exchange):
        yield not_applicable(requirement, "the gateway did not tell its EPP of the response")
    elif (finding := served or status) is None:
        yield passed(requirement)
    elif _refuses_the_undirected(exchange):
        reason = f"the EPP let the headers go without a destination, and the gateway answered {exchange.status} itself"
        yield not_applicable(requirement, reason)
    elif not blamed:
        yield finding


def _shows_no_bodies(asked: PickerStream) -> bool:
    """Whether the EPP let the request go, and then waited in vain for a body about which it would have said more."""
    return asked.passed and asked.conversation.request_mode == NONE


def _refuses_the_undirected(exchange: GatewayExchange) -> bool:
    """Whether the gateway itself refused a request whose headers the EPP had let go without a destination. There is no
    endpoint to send it to, so the gateway need not wait for what the EPP says of the body."""
    last = exchange.asked[-1] if exchange.asked else None
    if last is None or last.stream.request.release is None or last.destination.given:
        return False
    return not exchange.attempts and (exchange.status or 0) >= 500


def _speaks_no_http2(exchange: GatewayExchange) -> bool:
    """Whether the request is one over HTTP/2, of which none was connected: no document asks for it of clients."""
    every = exchange.facts.episode.exchanges.values()
    return exchange.opened is not None and exchange.opened.http == 2 and not any(map(_connected, every))


def _connected(entries: Sequence[Entry]) -> bool:
    """Whether a request over HTTP/2 came as far as the gateway."""
    opened = next((entry.event for entry in entries if isinstance(entry.event, ExchangeOpened)), None)
    if opened is None or opened.http != 2:
        return False
    return not any(isinstance(e.event, ClientResponse) and e.event.details.startswith(UNCONNECTED) for e in entries)


def _tells_of_no_response(exchange: GatewayExchange) -> bool:
    """Whether the client got a model server's response of which the EPP was not told, as before 1.0.0 it need not be:
    then it has the status that the model server gave."""
    return exchange.final is not None and bool(exchange.asked) and exchange.asked[-1].stream.response.headers is None


def _served(exchange: GatewayExchange, requirement: str, expected: Expectation) -> Finding | None:
    if expected.served_by is None:
        return None
    last = exchange.attempts[-1] if exchange.attempts else None
    if not expected.served_by:
        return exchange.fail(requirement, "no model server gets the request", at=last) if last is not None else None
    if not {one.endpoint for one in exchange.answering}.isdisjoint(map(canonical, expected.served_by)):
        return None
    return exchange.fail(requirement, f"the request is served by {' or '.join(expected.served_by)}", at=last)


def _status(exchange: GatewayExchange, requirement: str, expected: Expectation) -> Finding | None:
    if not expected.status or exchange.status in expected.status:
        return None
    return exchange.fail(requirement, [f"the client gets {status}" for status in expected.status])
