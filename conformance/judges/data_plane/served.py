"""Destination Endpoint Served (DP-SRVD-01, DP-SCOPE-03): the EPP learns which endpoint gave the response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conformance.endpoints import canonical, parse
from conformance.hints import SERVED
from conformance.judges.registry import judge_of_relay
from conformance.judges.relay import Asked, Relay
from conformance.judges.ruling import Ruling, held, moot
from conformance.said import RESPONSE, Said
from ext_proc.headers import plain
from ext_proc.record import Author

SRVD, SCOPE = "DP-SRVD-01", "DP-SCOPE-03"


@judge_of_relay(SRVD, SCOPE)
def served(relay: Relay) -> Iterator[Ruling]:
    """What the headers message of the response says; where no client was observed, only whether it has its shape."""
    namespace = relay.scene.context.destination_namespace
    for one in relay.asked:
        for said in _responses(one):
            value = _value(said, namespace)
            if value is not None and not _is_endpoint(value):
                yield relay.fail(SRVD, f"{namespace}: {{{SERVED}: <ip:port>}}", f"{value!r}", at=said)
                return
    if relay.opened is None:
        yield moot(SRVD, "the model servers were not observed")
    elif relay.final is not None and relay.asked:
        yield from _report(relay, relay.final.endpoint, namespace)


def _report(relay: Relay, endpoint: str, namespace: str) -> Iterator[Ruling]:
    backend = relay.backend_of(endpoint)
    learned = {one.at: _told(one, namespace) for one in relay.asked}
    own = [one for one in relay.asked if backend is None or one.epp in ("", backend)]
    if not own or own[-1].release is None or own[-1].left_early:
        return  # it was not asked, it let nothing go, or it left before there was a response
    right = own[-1]
    at = next(iter(_responses(right)), None)
    got = learned[right.at]
    expected = f"{namespace}: {{{SERVED}: {endpoint}}} on the headers of the response"
    if got is not None:
        wrong = canonical(got) != endpoint
        yield (
            relay.fail(SRVD, expected, f"{got}; {relay.describe()}", at=at, hint=_hint(relay, got))
            if wrong
            else held(SRVD)
        )
        if not wrong and relay.backends and len(relay.asked) > 1:
            yield held(SCOPE)
        return
    if right is not relay.asked[-1]:
        return  # the request came back from another pool, which is wrong by itself
    others = [one.epp for one in relay.asked if one is not right and learned[one.at] is not None]
    if others and relay.backends and relay.scene.applies(SCOPE):
        expected = f"the EPP {backend} learns that {endpoint} served: the response is of its pool"
        yield relay.fail(SCOPE, expected, f"the EPP {others[0]} was told", at=at)
        return
    actual = "the response's headers came without it" if at is not None else "no headers of the response came"
    why = "Is the namespace forwarded to the EPP (metadata_options), and is something there to note the endpoint?"
    yield relay.fail(SRVD, expected, actual, at=at, hint=why)


def _hint(relay: Relay, got: str) -> str:
    tried = [attempt.endpoint for attempt in relay.attempts[:-1]]
    return "That is an attempt that failed; the one that answered counts." if canonical(got) in tried else ""


def _responses(one: Asked) -> list[Said]:
    said = one.conversation.said
    return [m for m in said if m.author is Author.DATA_PLANE and m.side == RESPONSE and m.request is not None]


def _told(one: Asked, namespace: str) -> str | None:
    """What the headers of the response said on one stream."""
    values = (_value(said, namespace) for said in _responses(one) if said.part == "headers")
    found = next((value for value in values if value is not None), None)
    return str(found) if found is not None else None


def _value(said: Said, namespace: str) -> Any:
    metadata = said.request.metadata_context.filter_metadata if said.request is not None else {}
    if namespace not in metadata or SERVED not in metadata[namespace].fields:
        return None
    return plain(metadata[namespace].fields[SERVED])


def _is_endpoint(value: Any) -> bool:
    return isinstance(value, str) and parse(value).canonical is not None and not parse(value).padded
