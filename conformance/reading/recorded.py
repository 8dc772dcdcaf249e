"""A recorded conversation as an exchange of a scenario: what was sent, in the words that send it again.

    recorded = recorded_exchange(episode, conversation, subset_namespace=…)

What the words can't say is listed in `unsaid`, and what the record does not have (bodies and credentials that a tap
left out) in `missing`. Endpoints become names of pods: those of the record's pool, or, where no pool was observed,
pods `a`, `b`, … for the endpoints in the subset hint and in the answers.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic.alias_generators import to_camel

from conformance.evidence.episode import Episode, GaugesShown, PodFact, PoolState
from conformance.reading.conversation import Conversation
from conformance.reading.decoded_message import REQUEST, RESPONSE, DecodedMessage
from conformance.reading.destination import Destination
from conformance.reading.endpoints import parse_list
from conformance.reading.stream_state import follow
from conformance.scenario.pool import IDLE
from ext_proc.headers import plain_struct
from ext_proc.protocol import DESTINATION_NAMESPACE, SUBSET, SUBSET_NAMESPACE
from ext_proc.record import Message

MODES: Mapping[str, str] = {
    "NONE": "none",
    "BUFFERED": "buffered",
    "BUFFERED_PARTIAL": "buffered",
    "STREAMED": "streamed",
    "FULL_DUPLEX_STREAMED": "full-duplex",
}
"""Body modes of Envoy as scenarios call them."""

PLACEHOLDER = re.compile(r"\[redac")
"""How what stands where a secret was begins. In bodies it is as long as the secret, which may be no more than this."""

_OF_THE_DATA_PLANE = re.compile(r":.*|content-length|transfer-encoding|x-request-id|x-forwarded-.*|x-envoy-.*|host")
"""Headers that the data plane makes, for each request."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_ABORTS = ("request-headers", "request-body", "destination", "response")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """`exchange` has the keys of an `exchange` in scenario files, `pool` those of a `pool`."""

    exchange: Mapping[str, Any]
    pool: Mapping[str, Any]
    pods: Mapping[str, str]
    """Each endpoint of the record, and what stands for it: `{a}`, `{b/1}`, `{nobody}`."""
    unsaid: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    secret: tuple[str, ...] = ()
    """Names of headers whose values the record does not have."""


@dataclass(slots=True)
class _Reading:
    unsaid: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    secret: list[str] = field(default_factory=list)


def recorded_exchange(
    episode: Episode, conversation: Conversation, *, subset_namespace: str = SUBSET_NAMESPACE
) -> Recorded:
    """What was sent in `conversation` of `episode`. `subset_namespace` is where its subset hint is."""
    read = _Reading()
    asked = [one for one in conversation.asked if one.request is not None]
    if len(asked) < len(conversation.asked) and not conversation.note.get("inject"):
        read.missing.append("a message of the data plane")
    sent = [one for one in asked if one.side == REQUEST]
    metadata = _metadata(asked)
    hint = metadata.get(subset_namespace, {}).pop(SUBSET, None)
    pool, pods = _pool(episode, conversation, hint if isinstance(hint, list) else [], read)
    exchange = {
        **_head(conversation, sent, read),
        **_body(sent, read),
        **_hint(hint, subset_namespace, pods),
        **_frame(conversation, asked, read),
        **_reply(conversation, [one for one in asked if one.side == RESPONSE], read),
    }
    if rest := {name: values for name, values in metadata.items() if values}:
        exchange["metadata"] = rest
    return Recorded(
        exchange=exchange,
        pool=pool,
        pods=pods,
        unsaid=tuple(dict.fromkeys(read.unsaid)),
        missing=tuple(dict.fromkeys(read.missing)),
        secret=tuple(dict.fromkeys(read.secret)),
    )


# -- the pool ----------------------------------------------------------------------------------------------------------


def _pool(
    episode: Episode, conversation: Conversation, hint: list[Any], read: _Reading
) -> tuple[dict[str, Any], dict[str, str]]:
    first, _ = conversation.span
    states = [state for entry, state in episode.of(PoolState) if entry.seq <= first and state.phase == "effective"]
    if not states:
        return _unobserved_pool(conversation, hint)
    if len(states) > 1:
        read.unsaid.append("changes of the pool before it: the pool is as it was when it was sent")
    facts = states[-1].pods
    gauges = {shown.pod: shown.values for entry, shown in episode.of(GaugesShown) if entry.seq <= first}
    names = {
        endpoint: f"{{{fact.name}}}" if not number else f"{{{fact.name}/{number}}}"
        for fact in facts
        for number, endpoint in enumerate(fact.endpoints)
    }
    addresses = {endpoint.rpartition(":")[0]: fact.name for fact in facts for endpoint in fact.endpoints}
    for item in (one for one in hint if isinstance(one, str) and one not in names):
        pod = addresses.get(item.rpartition(":")[0])
        names[item] = f"{{{pod}.wrong-port}}" if pod else "{nobody}"
    pods = [_pod(fact, gauges.get(fact.name, {})) for fact in facts]
    ports = max((len(fact.endpoints) for fact in facts), default=1)
    return {"pods": pods, **({"ports": ports} if ports > 1 else {})}, names


def _pod(fact: PodFact, gauges: Mapping[str, Any]) -> dict[str, Any]:
    standing = {"ready": fact.ready, "selected": fact.selected, "terminating": fact.terminating}
    usual = {"ready": True, "selected": True, "terminating": False}
    unusual = {name: value for name, value in standing.items() if value is not usual[name]}
    plain = {name: tuple(value) if isinstance(value, list) else value for name, value in gauges.items()}
    shown = {to_camel(name): value for name, value in plain.items() if value is not None and value != IDLE.get(name)}
    return {"name": fact.name, **unusual, **shown}


def _unobserved_pool(conversation: Conversation, hint: list[Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """A pod for each endpoint that somebody named."""
    given = Destination(conversation=conversation, stream=follow(conversation), namespace=DESTINATION_NAMESPACE).given
    found = [one for one in hint if isinstance(one, str)] + list(parse_list(given).endpoints if given else ())
    endpoints = list(dict.fromkeys(found))
    names = [
        letter if not turn else f"{letter}{turn}" for turn in range(1 + len(endpoints) // 26) for letter in _LETTERS
    ]
    pods = {endpoint: f"{{{name}}}" for endpoint, name in zip(endpoints, names, strict=False)}
    count = max(len(endpoints), 3)  # the usual pool: a choice among one is no choice
    return {"pods": [{"name": name} for name in names[:count]]}, pods


# -- the request -------------------------------------------------------------------------------------------------------


def _head(conversation: Conversation, sent: list[DecodedMessage], read: _Reading) -> dict[str, Any]:
    first = next((one for one in sent if one.part == "headers"), None)
    opened = conversation.opened
    pairs = first.headers if first is not None and first.headers is not None else []
    if first is None and opened is not None:
        pairs = [(name.decode("latin-1"), value) for name, value in opened.headers]
    elif first is None:
        read.missing.append("the request's headers")
    own = dict(pairs)
    method = own.get(":method", (opened.method if opened else "POST").encode()).decode()
    path = own.get(":path", (opened.path if opened else "/").encode()).decode("utf-8", "replace")
    if PLACEHOLDER.search(path):
        read.missing.append("the query of the path")
        path = path.partition("?")[0]
    headers = list(_pairs(pairs, "header", read))
    found: dict[str, Any] = {"path": path}
    if method != "POST":
        found["method"] = method
    if opened is not None and opened.http == 2:
        found["http"] = 2
    if headers:
        found["headers"] = headers
    usual = () if first is None else ("x-request-id",) if first.ends else ("content-type", "x-request-id")
    if absent := [name for name in usual if name not in own]:
        found["omitHeaders"] = absent
    if any(one.request is not None and one.what == "request_headers" and _in_value(one) for one in sent):
        found["headerField"] = "value"
    trailers = next((one.headers for one in sent if one.part == "trailers" and one.headers), None)
    if trailers:
        found["trailers"] = list(_pairs(trailers, "trailer", read))
    return found


def _in_value(message: DecodedMessage) -> bool:
    assert message.request is not None
    return any(one.value and not one.raw_value for one in message.request.request_headers.headers.headers)


def _pairs(pairs: list[tuple[str, bytes]], what: str, read: _Reading) -> Iterator[list[Any]]:
    for name, value in pairs:
        if _OF_THE_DATA_PLANE.fullmatch(name):
            continue
        text = value.decode("utf-8", "replace")
        if PLACEHOLDER.search(text):
            read.secret.append(name)
        elif re.search(r"[\r\n\0]", text):
            read.unsaid.append(f"the {what} {name}, whose value has line breaks")
        elif text.encode() != value or re.search(r"\{[a-z]", text):
            yield [name, {"base64": base64.b64encode(value).decode()}]
        else:
            yield [name, text]


def _body(sent: list[DecodedMessage], read: _Reading) -> dict[str, Any]:
    messages = [one for one in sent if one.part == "body"]
    if any(_cut(one) for one in sent):
        read.missing.append("the request's body")
        return {}
    pieces = [one.body for one in messages if one.body]
    body = b"".join(pieces)
    if sent and not messages and not any(one.ends for one in sent):
        read.unsaid.append("the request's body, of which the EPP got nothing: an ordinary one stands for it")
        return {}
    if not body:
        return {"body": "empty" if messages else "none"}
    found: dict[str, Any] = {"body": _content(body)}
    if PLACEHOLDER.search(json.dumps(found)):
        read.missing.append("a secret in the request's body")
    if len(pieces) > 1:
        found["chunks"] = [len(piece) for piece in pieces[:-1]]
    return found


def _content(body: bytes) -> dict[str, Any]:
    """The body as the schema says it: JSON if that gives the same bytes, else text, else base64."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}
    try:
        value = json.loads(text)
        if json.dumps(value, ensure_ascii=False, separators=(", ", ": ")) == text:
            return {"json": value}
    except (ValueError, RecursionError):
        pass
    return {"text": text}


def _cut(message: DecodedMessage) -> bool:
    return message.partial or (isinstance(message.entry.event, Message) and message.entry.event.truncated)


# -- metadata, and how it was carried ----------------------------------------------------------------------------------


def _metadata(asked: list[DecodedMessage]) -> dict[str, dict[str, Any]]:
    first = next((one.request for one in asked if one.request is not None and one.side == REQUEST), None)
    if first is None:
        return {}
    return {name: plain_struct(values) for name, values in sorted(first.metadata_context.filter_metadata.items())}


def _hint(hint: Any, namespace: str, pods: Mapping[str, str]) -> dict[str, Any]:
    if hint is None:
        return {}
    listed = isinstance(hint, list) and all(isinstance(one, str) for one in hint)
    said = {"subset": [pods.get(one, one) for one in hint]} if listed else {"hint": hint}
    return {**said, **({"hintNamespace": namespace} if namespace != SUBSET_NAMESPACE else {})}


def _frame(conversation: Conversation, asked: list[DecodedMessage], read: _Reading) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, name in (("mode", conversation.request_mode), ("responseMode", conversation.response_mode)):
        if name is not None and name in MODES:
            found[key] = MODES[name]
        if name == "BUFFERED_PARTIAL":
            read.unsaid.append("body mode BUFFERED_PARTIAL: it is sent as buffered")
    if found.get("responseMode") == found.get("mode"):
        found.pop("responseMode", None)
    first = asked[0].request if asked else None
    if first is not None and not first.HasField("protocol_config"):
        found["protocolConfig"] = "absent"
    elif first is not None and first.protocol_config.send_body_without_waiting_for_header_response:
        found["protocolConfig"] = "not-waiting"
    if any(one.request is not None and one.request.attributes for one in asked):
        read.unsaid.append("attributes of the request")
    note = conversation.note
    found |= {"inject": list(note["inject"])} if note.get("inject") else {}
    found |= {"sheddable": True} if note.get("sheddable") else {}
    found |= {"model": "unknown"} if note.get("unknown_model") else {}
    if conversation.opened is not None:
        found["ending"] = conversation.opened.ending
    else:
        found["ending"] = "envoy"
    if conversation.aborted is not None:
        point = conversation.aborted[1].point.split()[0].replace("response-body", "response")
        if point in _ABORTS:
            found["abort"] = point
        else:
            read.unsaid.append(f"that the client went away at {conversation.aborted[1].point}")
    if conversation.malformed:
        read.unsaid.append("bytes on the stream that are no gRPC message")
    if conversation.refused:
        read.unsaid.append("streams that were refused and opened again")
    return found


def _reply(conversation: Conversation, answered: list[DecodedMessage], read: _Reading) -> dict[str, Any]:
    head = next((one for one in answered if one.part == "headers" and one.headers is not None), None)
    if len(conversation.upstream_responses) > 1:
        read.unsaid.append("further attempts at other model servers")
    if head is None:
        return {}
    if conversation.opened is not None and not conversation.upstream_responses:  # the data plane answered by itself
        refused = not any(one.side == REQUEST for one in conversation.asked)
        return {"reply": {"source": "refused", **_status(head)}} if refused else {}
    bodies = [one for one in answered if one.part == "body"]
    if any(_cut(one) for one in bodies):
        read.unsaid.append("the body of the model server's response, which was not kept: an ordinary one stands for it")
        return {}
    pieces = [one.body for one in bodies if one.body]
    said = _status(head)
    if headers := list(_pairs(head.headers or [], "response header", read)):
        said["headers"] = headers
    said |= _content(b"".join(pieces)) if pieces else {"kind": "none"}
    if len(pieces) > 1:
        said["split"] = len(pieces[0])
        if {len(one) for one in pieces[1:-1]} - {len(pieces[0])}:
            read.unsaid.append("the exact pieces of the response's body")
    trailers = next((one.headers for one in answered if one.part == "trailers" and one.headers), None)
    if trailers:
        said["trailers"] = list(_pairs(trailers, "response trailer", read))
    return {"reply": said}


def _status(head: DecodedMessage) -> dict[str, Any]:
    """The status of a response, where it is not the usual one."""
    status = dict(head.headers or []).get(":status", b"200").decode()
    return {"status": int(status)} if status.isdigit() and status != "200" else {}
