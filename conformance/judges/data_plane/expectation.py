"""What the scenario itself expects of a request through the gateway, beyond the rules that hold for every one.

As for an EPP: an expectation that is not met gives a finding on the requirement that the scenario names for it, unless
a rule has already found fault with the same request.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.endpoints import canonical
from conformance.episode import Expectation
from conformance.judges.expectation import about
from conformance.judges.relay import Relay
from conformance.judges.ruling import Ruling, held


def expectation(relay: Relay, *, blamed: bool) -> Iterator[Ruling]:
    """The scenario's expectation of `relay`; `blamed`: fault was already found with it."""
    expected = relay.scene.context.expectations.get(relay.exchange)
    requirement = about(expected, relay.scene.context) if expected is not None else None
    if expected is None or requirement is None or relay.opened is None or relay.aborted:
        return
    if expected.served_by is None and not expected.status:
        return
    if relay.scene.crash is not None and relay.status is None:
        return  # its death says it all
    ruling = _served(relay, requirement, expected) or _status(relay, requirement, expected)
    if ruling is None:
        yield held(requirement)
    elif not blamed:
        yield ruling


def _served(relay: Relay, requirement: str, expected: Expectation) -> Ruling | None:
    if expected.served_by is None:
        return None
    last = relay.attempts[-1] if relay.attempts else None
    if not expected.served_by:
        return relay.fail(requirement, "no model server gets the request", at=last) if last is not None else None
    if last is not None and last.endpoint in map(canonical, expected.served_by):
        return None
    return relay.fail(requirement, f"the request is served by {' or '.join(expected.served_by)}", at=last)


def _status(relay: Relay, requirement: str, expected: Expectation) -> Ruling | None:
    if not expected.status or relay.status in expected.status:
        return None
    return relay.fail(requirement, [f"the client gets {status}" for status in expected.status])
