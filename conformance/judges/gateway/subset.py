"""Endpoint Subset (DP-SUB-01): a hint need not be sent; if it is, it has its shape, its place, and real endpoints."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.judges.findings import not_applicable, passed
from conformance.judges.gateway_exchange import GatewayExchange
from conformance.judges.picker_stream import PickerStream
from conformance.judges.registry import judge_of_gateway_exchange
from conformance.reading.decoded_message import REQUEST, DecodedMessage
from conformance.reading.endpoints import canonical, parse
from conformance.reading.request_metadata import SubsetHint, subset_hint
from conformance.verdict import Finding
from ext_proc.headers import plain
from ext_proc.protocol import SUBSET
from ext_proc.record import Author

SUB = "DP-SUB-01"


@judge_of_gateway_exchange(SUB)
def shape(exchange: GatewayExchange) -> Iterator[Finding]:
    """The hint on each stream of the request."""
    for one in exchange.asked:
        yield _hint(exchange, one)


def _hint(exchange: GatewayExchange, one: PickerStream) -> Finding:
    namespace = exchange.facts.context.subset_namespace
    where = f"{namespace}: {{{SUBSET}: [<ip:port>, …]}}"
    hint = subset_hint(one.conversation, namespace)
    messages = _requests(one)
    first = messages[0] if messages else None
    if hint.kind == "unset":
        elsewhere = next(
            ((message, name) for message in messages for name in _namespaces(message) if name != namespace), None
        )
        if elsewhere is not None:
            message, name = elsewhere
            return exchange.fail(SUB, where, f"it is in namespace {name!r}", at=message)
        owed = exchange.gateway.sends_subset or (exchange.subset_owed and one is exchange.asked[0])
        if owed and first is not None:
            why = "Is the namespace among those that are forwarded to the EPP (metadata_options)?"
            return exchange.fail(
                SUB, f"{where}, as the gateway was told to send it", "no subset hint", at=first, hint=why
            )
        return not_applicable(SUB, "no subset hint was sent")
    problem = _problem(exchange, hint)
    if problem:
        return exchange.fail(SUB, where, problem, at=first)
    other = next((message for message in messages if _differs(message, namespace, hint)), None)
    if other is not None:
        why = "The hint belongs to the request: it is the same on each message, or only on the headers."
        return exchange.fail(SUB, f"the {hint} of the headers", f"another on {other.what}", at=other, hint=why)
    beyond = _beyond(exchange, hint) if one is exchange.asked[0] else ""
    if beyond:
        asked = ", ".join(sorted(exchange.subset or ()))
        return exchange.fail(SUB, f"a subset of {asked}, which the client's header named", beyond, at=first)
    lacking = _lacking(exchange, hint) if one is exchange.asked[0] else ""
    if lacking:
        asked = ", ".join(sorted(exchange.subset or ()))
        return exchange.fail(SUB, f"{asked}, which the client's header named", lacking, at=first)
    return passed(SUB)


def _problem(exchange: GatewayExchange, hint: SubsetHint) -> str:
    if hint.kind == "wrong-type":
        return str(hint)
    for item in hint.items:
        found = parse(item)
        if found.canonical is None or found.padded:
            return f"{item!r}: {found.problem or 'there are blanks around it'}"
    unknown = [item for item in hint.items if exchange.known and canonical(item) not in exchange.known]
    return f"{unknown[0]} is no endpoint of the pool" if unknown else ""


def _differs(message: DecodedMessage, namespace: str, hint: SubsetHint) -> bool:
    """Whether a message has a hint, and it is not this one: the order does not count."""
    if namespace not in _namespaces(message) or message.request is None:
        return False
    said = plain(message.request.metadata_context.filter_metadata[namespace].fields[SUBSET])
    return not isinstance(said, list) or sorted(map(str, said)) != sorted(hint.items)


def _beyond(exchange: GatewayExchange, hint: SubsetHint) -> str:
    """What the hint names although the client left it out, by the header of which the gateway makes the hint."""
    asked = exchange.subset
    others = [item for item in hint.items if canonical(item) not in asked] if asked else []
    return f"{hint}: {others[0]} is none of them" if others else ""


def _lacking(exchange: GatewayExchange, hint: SubsetHint) -> str:
    """What the hint leaves out, by the header of which the profile says that it is made: the EPP can't pick that.

    What is no endpoint of the pool, or does not serve, need not be in it.
    """
    named = {one for one in exchange.subset or () if one in exchange.known and exchange.conduct(one) == "serves"}
    left_out = sorted(named - {canonical(item) for item in hint.items}) if exchange.subset_owed else []
    return f"{hint}: {left_out[0]} is missing" if left_out else ""


def _requests(one: PickerStream) -> list[DecodedMessage]:
    return [
        message
        for message in one.conversation.messages
        if message.author is Author.DATA_PLANE and message.side == REQUEST
    ]


def _namespaces(message: DecodedMessage) -> Iterator[str]:
    """The namespaces in which a message has the hint's key."""
    metadata = message.request.metadata_context.filter_metadata if message.request is not None else {}
    return (name for name, struct in sorted(metadata.items()) if SUBSET in struct.fields)
