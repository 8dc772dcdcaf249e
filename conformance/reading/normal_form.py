"""What an endpoint picker answered in one conversation, in a form that two runs share: for replays and snapshots.

The normalisation, all of it:

* Endpoints that the answers name become `{endpoint 1}`, `{endpoint 2}`, … in the order in which they are first named,
  wherever they stand. Which of several it picks is its own choice, and rules judge whether it may.
* UUIDs become `{uuid}`; dates and times (RFC 3339, HTTP) become `{date}`; other runs of 12 or more hexadecimal digits
  become `{hex}`; identifiers such as `cmpl-…`, `chatcmpl-…` and `req-…` become `{id}`.
* Bodies that came in several messages are put together; how they were cut is left out, and with it how many answers
  let pieces pass unchanged. A body that is the one that was sent to it is `(as it came)`. Of more than 4,096 characters
  only the length is kept, as is of bytes that are no UTF-8.
* Of the HTTP side only the status is kept, and of the end of the stream how it ended and the gRPC status.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from google.protobuf.json_format import MessageToDict

from conformance.printable import plural
from conformance.reading.conversation import Conversation
from conformance.reading.decoded_message import EPP, REQUEST, RESPONSE, DecodedMessage
from conformance.reading.destination import Destination
from conformance.reading.endpoints import parse_list
from conformance.reading.stream_state import follow
from ext_proc.protocol import DESTINATION_NAMESPACE
from ext_proc.record import Message

LONGEST = 4096

_WORDS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "{uuid}"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "{date}"),
    (re.compile(r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\b"), "{date}"),
    (re.compile(r"\b(?:chatcmpl|cmpl|req|resp|msg)-[0-9A-Za-z-]+\b"), "{id}"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{12,}\b", re.IGNORECASE), "{hex}"),
)
_PASSING: tuple[dict[str, Any], ...] = ({"request_body": {}}, {"response_body": {}})
"""Answers that let a piece of body pass."""

_BYTES = frozenset({"raw_value", "body"})
"""Fields of the messages that are bytes, which protobuf's JSON has in base64."""


def normal_form(
    conversation: Conversation, *, namespace: str = DESTINATION_NAMESPACE, bodies: bool = True
) -> dict[str, Any]:
    """The answers of the EPP, the end of the stream and what the client got, normalised. Plain data.

    `namespace` is where the destination is; without `bodies` those of answers are left out.
    """
    answers = [one for one in conversation.messages if one.author is EPP]
    endpoints = _named(conversation, namespace)
    sent = [b"".join(one.body for one in conversation.asked if one.side == side) for side in (REQUEST, RESPONSE)]
    form: dict[str, Any] = {"answers": [_normal(one, endpoints, sent) for one in _joined(answers, bodies=bodies)]}
    if conversation.end is not None:
        ended = conversation.end[1]
        form["end"] = ended.how if ended.status is None else f"{ended.how} {ended.status}"
    if (response := conversation.client_response) is not None:
        form["status"] = response[1].status
    return form


def kept_whole(conversation: Conversation) -> bool:
    """Whether the record has the EPP's messages with their bodies."""
    messages = (one.entry.event for one in conversation.messages if one.author is EPP)
    return not any(isinstance(event, Message) and event.truncated for event in messages)


def _named(conversation: Conversation, namespace: str) -> dict[str, str]:
    """The endpoints of the destination, and what stands for each."""
    if conversation.stream is None:
        return {}
    given = Destination(conversation=conversation, stream=follow(conversation), namespace=namespace)
    found: list[str] = []
    for text in (given.header, given.metadata):
        found += parse_list(text).endpoints if text else ()
    return {endpoint: f"{{endpoint {number}}}" for number, endpoint in enumerate(dict.fromkeys(found), 1)}


def _joined(answers: Iterable[DecodedMessage], *, bodies: bool) -> list[dict[str, Any]]:
    """The answers as plain data, in which bodies are bytes, and those that were streamed are put together."""
    joined: list[dict[str, Any]] = []
    for one in answers:
        if one.response is None:
            joined.append({"undecodable": one.problem or "not kept"})
            continue
        found = _with_bytes(MessageToDict(one.response, preserving_proto_field_name=True))
        piece = _streamed(found)
        before = _streamed(joined[-1]) if joined else None
        if piece is not None and not bodies:
            piece["body"] = b"..."
        if joined and found in _PASSING and found.keys() <= joined[-1].keys():
            continue
        if joined and joined[-1] in _PASSING and joined[-1].keys() <= found.keys():
            joined.pop()
            before = None
        if piece is None or before is None or joined[-1].keys() != found.keys():
            joined.append(found)
        elif bodies:
            whole = before.get("body", b"") + piece.get("body", b"")
            before |= {**piece, **({"body": whole} if whole else {})}
    return joined


def _streamed(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """The streamed piece of body in an answer, if it has one."""
    for part in ("request_body", "response_body"):
        mutation = answer.get(part, {}).get("response", {}).get("body_mutation", {})
        if "streamed_response" in mutation:
            piece: dict[str, Any] = mutation["streamed_response"]
            return piece
    return None


def _with_bytes(value: Any, name: str = "") -> Any:
    match value:
        case dict():
            # What a vendor puts into metadata has whatever names it likes.
            return {key: item if key == "dynamic_metadata" else _with_bytes(item, key) for key, item in value.items()}
        case list():
            return [_with_bytes(item, name) for item in value]
        case str() if name in _BYTES:
            return base64.b64decode(value)
        case _:
            return value


def _normal(value: Any, endpoints: Mapping[str, str], sent: Collection[bytes]) -> Any:
    match value:
        case bytes() if value and value in sent:
            return "(as it came)"
        case bytes():
            try:
                return _normal(value.decode(), endpoints, sent)
            except UnicodeDecodeError:
                return f"({plural(len(value), 'byte')})"
        case dict():
            return {key: _normal(value[key], endpoints, sent) for key in sorted(value)}  # a map has no order
        case list():
            return [_normal(item, endpoints, sent) for item in value]
        case str():
            if len(value) > LONGEST:
                return f"({len(value)} characters)"
            for endpoint in sorted(endpoints, key=len, reverse=True):  # one may begin another: …:80 and …:8000
                value = value.replace(endpoint, endpoints[endpoint])
            for pattern, name in _WORDS:
                value = pattern.sub(name, value)
            return value
        case _:
            return value
