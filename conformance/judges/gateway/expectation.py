"""What the scenario itself expects of a request through the gateway, beyond the rules that hold for every one.

As for an EPP: an expectation that is not met gives a finding on the requirement that the scenario names for it, unless
a rule has already found fault with the same request.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.evidence.episode import Expectation
from conformance.judges.epp.expectation import about
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.ruling import Ruling, passed
from conformance.reading.endpoints import canonical


def expectation(exchange: GatewayExchange, *, blamed: bool) -> Iterator[Ruling]:
    """The scenario's expectation of `exchange`; `blamed`: fault was already found with it."""
    expected = exchange.facts.context.expectations.get(exchange.exchange)
    requirement = about(expected, exchange.facts.context) if expected is not None else None
    if expected is None or requirement is None or exchange.opened is None or exchange.aborted:
        return
    if expected.served_by is None and not expected.status:
        return
    if exchange.facts.exit is not None and exchange.status is None:
        return  # its death says it all
    ruling = _served(exchange, requirement, expected) or _status(exchange, requirement, expected)
    if ruling is None:
        yield passed(requirement)
    elif not blamed:
        yield ruling


def _served(exchange: GatewayExchange, requirement: str, expected: Expectation) -> Ruling | None:
    if expected.served_by is None:
        return None
    last = exchange.attempts[-1] if exchange.attempts else None
    if not expected.served_by:
        return exchange.fail(requirement, "no model server gets the request", at=last) if last is not None else None
    if last is not None and last.endpoint in map(canonical, expected.served_by):
        return None
    return exchange.fail(requirement, f"the request is served by {' or '.join(expected.served_by)}", at=last)


def _status(exchange: GatewayExchange, requirement: str, expected: Expectation) -> Ruling | None:
    if not expected.status or exchange.status in expected.status:
        return None
    return exchange.fail(requirement, [f"the client gets {status}" for status in expected.status])
