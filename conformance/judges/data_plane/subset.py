"""Endpoint Subset (DP-SUB-01): a hint need not be sent; if it is, it has its shape, its place, and real endpoints."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.endpoints import canonical, parse
from conformance.hints import SUBSET, Hint, subset_hint
from conformance.judges.registry import judge_of_relay
from conformance.judges.relay import Asked, Relay
from conformance.judges.ruling import Ruling, held, moot
from conformance.said import REQUEST, Said
from ext_proc.record import Author

SUB = "DP-SUB-01"


@judge_of_relay(SUB)
def shape(relay: Relay) -> Iterator[Ruling]:
    """The hint on each stream of the request."""
    for one in relay.asked:
        yield _hint(relay, one)


def _hint(relay: Relay, one: Asked) -> Ruling:
    namespace = relay.scene.context.subset_namespace
    where = f"{namespace}: {{{SUBSET}: [<ip:port>, …]}}"
    hint = subset_hint(one.conversation, namespace)
    said = _requests(one)
    first = said[0] if said else None
    if hint.kind == "unset":
        elsewhere = next(
            ((message, name) for message in said for name in _namespaces(message) if name != namespace), None
        )
        if elsewhere is not None:
            message, name = elsewhere
            return relay.fail(SUB, where, f"it is in namespace {name!r}", at=message)
        if relay.gateway.sends_subset and first is not None:
            why = "Is the namespace among those that are forwarded to the EPP (metadata_options)?"
            return relay.fail(SUB, f"{where}, as the gateway was told to send it", "no subset hint", at=first, hint=why)
        return moot(SUB, "no subset hint was sent")
    problem = _problem(relay, hint)
    return relay.fail(SUB, where, problem, at=first) if problem else held(SUB)


def _problem(relay: Relay, hint: Hint) -> str:
    if hint.kind == "wrong-type":
        return str(hint)
    for item in hint.items:
        found = parse(item)
        if found.canonical is None or found.padded:
            return f"{item!r}: {found.problem or 'there are blanks around it'}"
    unknown = [item for item in hint.items if relay.known and canonical(item) not in relay.known]
    return f"{unknown[0]} is no endpoint of the pool" if unknown else ""


def _requests(one: Asked) -> list[Said]:
    return [said for said in one.conversation.said if said.author is Author.DATA_PLANE and said.side == REQUEST]


def _namespaces(message: Said) -> Iterator[str]:
    """The namespaces in which a message has the hint's key."""
    metadata = message.request.metadata_context.filter_metadata if message.request is not None else {}
    return (name for name, struct in metadata.items() if SUBSET in struct.fields)
