"""What the data plane tells the EPP in metadata: the subset it may pick from, and the endpoint that served.

Endpoint Subset: a list of strings under a namespace and key of `metadata_context.filter_metadata`. Envoy repeats it on
every message. Destination Endpoint Served: a string on the response's messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from conformance.reading.conversation import Conversation
from conformance.reading.decoded_message import REQUEST, RESPONSE, DecodedMessage
from conformance.reading.endpoints import address_of, canonical, is_ipv6, parse, read_leniently
from ext_proc.headers import plain
from ext_proc.messages import Value
from ext_proc.protocol import SERVED, SUBSET

Where = Literal["every", "headers", "body", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsetHint:
    """The subset hint of one request as sent.

    `kind`: `unset`, `list` (of strings, perhaps none) or `wrong-type`. `value` is it as plain data. `where`: the
    messages of the request that carry it: every one, the headers alone, only others, or different values (`mixed`).
    `near`: unset, but the namespace is there, or the key elsewhere.
    """

    kind: Literal["unset", "list", "wrong-type"]
    value: Any = None
    where: Where = "every"
    near: bool = False

    @property
    def items(self) -> tuple[str, ...]:
        """The strings of the list; of a wrong type, what a lenient reader would find in it."""
        match self.value:
            case str() as text:
                return tuple(text.split(","))
            case list() as values:
                return tuple(one for one in values if isinstance(one, str))
            case _:
                return ()

    @property
    def set(self) -> bool:
        """Whether it is a list, as the protocol has it."""
        return self.kind == "list"

    @property
    def ipv6(self) -> bool:
        """Whether it names IPv6 endpoints only."""
        return bool(self.items) and all(is_ipv6(item) for item in self.items)

    @property
    def plain(self) -> bool:
        """Whether every item is an endpoint in its one spelling, and none is there twice."""
        return all(canonical(item) == item and parse(item).canonical for item in self.items) and len(
            set(self.items)
        ) == len(self.items)

    def names(self, endpoint: str) -> bool:
        """Whether the list has exactly this endpoint."""
        return endpoint in self.items or canonical(endpoint) in self.items

    def may_mean(self, endpoint: str) -> bool:
        """Whether some reading of an item is this endpoint: without blanks, in another spelling, with any port if there
        is none, or what a lenient reader finds where it is no endpoint."""
        wanted = canonical(endpoint)
        return any(_may_mean(part, wanted) for item in self.items for part in item.split(","))

    def has_address(self, endpoint: str) -> bool:
        """Whether an item has the address of this endpoint, on any port."""
        return address_of(endpoint) in {address_of(item) for item in self.items}

    def __str__(self) -> str:
        match self.kind:
            case "unset":
                return "no subset hint"
            case "list":
                shown = ", ".join(map(_shown, self.items[:6])) + (", …" if len(self.items) > 6 else "")
                return f"subset hint [{shown}]"
            case _:
                return f"subset hint of the wrong type: {json.dumps(self.value, ensure_ascii=False)[:80]}"


def _shown(item: str) -> str:
    """An item of a list; in quotes if it is no endpoint: it may be empty, or have blanks or a comma."""
    return item if parse(item).canonical and not parse(item).padded else repr(item)


UNSET = SubsetHint(kind="unset")


def _may_mean(item: str, wanted: str) -> bool:
    found = parse(item).canonical
    if found is not None:
        return found == wanted
    return address_of(item) == address_of(wanted) or read_leniently(item) == wanted


def subset_hint(conversation: Conversation, namespace: str) -> SubsetHint:
    """The subset hint that the request's messages carried under `namespace`."""
    asked = [message for message in conversation.asked if message.side == REQUEST]
    if not asked:
        return UNSET
    values = [_value(message, namespace, SUBSET) for message in asked]
    on_headers, others = values[0], values[1:]
    present = [value for value in values if value is not None]
    if not present:
        return SubsetHint(kind="unset", near=any(_near(message, namespace) for message in asked))
    where: Where = "every"
    if any(value != present[0] for value in present[1:]):
        where = "mixed"
    elif on_headers is None:
        where = "body"
    elif others and all(value is None for value in others):
        where = "headers"
    elif len(present) != len(values):
        where = "mixed"
    return _hint(present[0], where)


def _hint(value: Value, where: Where) -> SubsetHint:
    shown = plain(value)
    is_list = value.WhichOneof("kind") == "list_value" and all(isinstance(one, str) for one in shown)
    return SubsetHint(kind="list" if is_list else "wrong-type", value=shown, where=where)


def _value(message: DecodedMessage, namespace: str, key: str) -> Value | None:
    if message.request is None:
        return None
    metadata = message.request.metadata_context.filter_metadata
    if namespace not in metadata or key not in metadata[namespace].fields:
        return None
    return metadata[namespace].fields[key]


def _near(message: DecodedMessage, namespace: str) -> bool:
    metadata = message.request.metadata_context.filter_metadata if message.request is not None else {}
    return namespace in metadata or any(SUBSET in struct.fields for struct in metadata.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedReport:
    """What the first message of the response told about the endpoint that served. `value` is plain data."""

    message: DecodedMessage
    present: bool
    value: Any = None


def served_report(conversation: Conversation, namespace: str) -> ServedReport | None:
    """The report of the served endpoint; None if there was no message of the response."""
    for message in _response_messages(conversation):
        value = _value(message, namespace, SERVED)
        return ServedReport(
            message=message, present=value is not None, value=plain(value) if value is not None else None
        )
    return None


def _response_messages(conversation: Conversation) -> Iterator[DecodedMessage]:
    return (message for message in conversation.asked if message.side == RESPONSE)
