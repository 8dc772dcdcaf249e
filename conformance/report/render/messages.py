"""One ext_proc message in words, and the values that messages carry: headers, bodies, structs."""

from __future__ import annotations

import itertools
import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.printable import plural
from conformance.reading.decoded_message import STREAMED_REPLY, DecodedMessage
from ext_proc import headers as wire
from ext_proc.messages import (
    HeaderMutation,
    HttpBody,
    HttpHeaders,
    ProcessingMode,
    StreamedBodyResponse,
    StreamedImmediateResponse,
)
from ext_proc.protocol import PREFIX
from ext_proc.record import Headers, Message

BODY = 400
"""How much of a body is shown, in bytes."""

METADATA = 4000
"""How much of one value of dynamic metadata is shown, in characters. Lists of endpoints may be long."""

Described = tuple[str, str, str, tuple[str, ...]]
"""Who, what, a summary, and details."""


def in_words(said: DecodedMessage) -> Described:
    """A message of either side; one that is no valid message says so."""
    who = said.author.value
    if said.problem:
        raw = said.entry.event.raw if isinstance(said.entry.event, Message) else b""
        return who, "no valid message", f"{plural(said.size, 'byte')}: {said.problem}", (f"hex: {hex_of(raw)}",)
    if said.partial:
        return who, said.what or "message", f"{plural(said.size, 'byte')}, kept in part", ()
    what = said.what or ("unknown member" if said.opaque else "empty message")
    if said.request is not None:
        return who, what, *_request(said)
    return who, what, *_response(said)


def _request(said: DecodedMessage) -> tuple[str, tuple[str, ...]]:
    message = said.request
    assert message is not None
    details: list[str] = []
    facts: list[str] = []
    if said.part == "headers":
        http = getattr(message, said.what or "")
        pairs = wire.pairs_of(http.headers)
        by_name = dict(pairs)
        pseudo = (b":status",) if said.side == "response" else (b":method", b":path")
        facts.append(" ".join(text_of(by_name[name]) for name in pseudo if name in by_name))
        facts += _ends(http)
        details += header_lines(pairs)
        details += [
            f"attributes {name}: {json_of(wire.plain_struct(http.attributes[name]))}"
            for name in sorted(http.attributes)
        ]
    elif said.part == "body":
        facts.append(f"{plural(len(said.body), 'byte')}")
        facts += _ends(getattr(message, said.what or ""))
        details += body_lines(said.body)
    elif said.part == "trailers":
        details += header_lines(wire.pairs_of(getattr(message, said.what or "").trailers))
        facts.append("; ".join(details[:3]))
    spaces = message.metadata_context.filter_metadata
    metadata = [f"metadata {leaf}" for name in sorted(spaces) for leaf in leaves(name, wire.plain_struct(spaces[name]))]
    if said.part == "headers":
        facts += metadata
    details += metadata
    details += [f"typed metadata {name}" for name in sorted(message.metadata_context.typed_filter_metadata)]
    if message.HasField("protocol_config"):
        config, mode = message.protocol_config, ProcessingMode.BodySendMode.Name
        details.append(
            f"protocol_config: request body {mode(config.request_body_mode)}, "
            f"response body {mode(config.response_body_mode)}"
        )
    return ", ".join(fact for fact in facts if fact), tuple(details)


def _response(said: DecodedMessage) -> tuple[str, tuple[str, ...]]:
    message = said.response
    assert message is not None
    facts: list[str] = []
    details: list[str] = []
    if said.what == "immediate_response":
        immediate = message.immediate_response
        facts.append(f"HTTP status {immediate.status.code}")
        if immediate.details:
            facts.append(f"details {immediate.details!r}")
        if immediate.HasField("grpc_status"):
            details.append(f"grpc_status: {immediate.grpc_status.status}")
        details += body_lines(immediate.body)
    if said.what == STREAMED_REPLY and said.reply_part is not None:
        _reply(said.reply_part, message.streamed_immediate_response, facts, details)
    elif said.header_mutation is not None:
        mutations = list(_mutations(said.header_mutation))
        mutations.sort(key=lambda text: PREFIX not in text)
        facts += mutations[:2]
        if len(mutations) > 2:
            facts.append(f"{plural(len(mutations) - 2, 'more header mutation')}")
        details += mutations
    if said.common is not None:
        _common(said, facts, details)
    if message.HasField("dynamic_metadata"):
        spaces = wire.plain_struct(message.dynamic_metadata)
        metadata = [f"metadata {leaf}" for name, space in spaces.items() for leaf in leaves(name, space)]
        facts += metadata[:2]
        details += metadata
    if message.HasField("mode_override"):
        details.append("mode_override is set")
    if message.HasField("override_message_timeout"):
        facts.append("asks for more time")
    return ", ".join(facts) or "no change", tuple(details)


def _common(said: DecodedMessage, facts: list[str], details: list[str]) -> None:
    common = said.common
    assert common is not None
    if common.status:
        facts.append("CONTINUE_AND_REPLACE" if common.status == 1 else f"status {common.status}")
    if common.clear_route_cache:
        details.append("clear_route_cache")
    if not common.HasField("body_mutation"):
        return
    kind = common.body_mutation.WhichOneof("mutation")
    match kind:
        case "streamed_response":
            streamed = common.body_mutation.streamed_response
            facts.append(f"streamed body, {plural(len(streamed.body), 'byte')}")
            facts += _ends(streamed)
            details += body_lines(streamed.body)
        case "body":
            facts.append(f"body replaced, {plural(len(common.body_mutation.body), 'byte')}")
            details += body_lines(common.body_mutation.body)
        case "clear_body":
            facts.append("body cleared")
        case _:
            facts.append("a body mutation without content, or of an unknown kind")


def _reply(part: str, reply: StreamedImmediateResponse, facts: list[str], details: list[str]) -> None:
    """A part of a response that the EPP gives itself."""
    facts.append(part)
    match part:
        case "headers_response":
            pairs = wire.pairs_of(reply.headers_response.headers)
            facts += [f"HTTP status {text_of(value)}" for name, value in pairs if name == b":status"]
            facts += _ends(reply.headers_response)
            details += header_lines(pairs)
        case "body_response":
            facts.append(f"{plural(len(reply.body_response.body), 'byte')}")
            facts += _ends(reply.body_response)
            details += body_lines(reply.body_response.body)
        case _:
            details += header_lines(wire.pairs_of(reply.trailers_response))


def _ends(part: HttpHeaders | HttpBody | StreamedBodyResponse) -> Iterator[str]:
    """How it is marked as the last of its direction: the second mark is of another mode, and read in no other."""
    if part.end_of_stream:
        yield "end of stream"
    if getattr(part, "end_of_stream_without_message", False):
        yield "end_of_stream_without_message"


_ACTIONS = {0: "sets", 1: "adds if absent", 2: "overwrites", 3: "overwrites if present"}


def _mutations(mutation: HeaderMutation) -> Iterator[str]:
    for option in mutation.set_headers:
        header = option.header
        field = "" if header.raw_value or not header.value else " (in `value`)"
        action = _ACTIONS.get(option.append_action, f"action {option.append_action}")
        yield f"{action} {header.key}: {text_of(wire.value_of(header))}{field}"
    for name in mutation.remove_headers:
        yield f"removes {name}"


# -- values ------------------------------------------------------------------------------------------------------------


def header_lines(pairs: Headers) -> tuple[str, ...]:
    """Headers, one a line."""
    return tuple(f"{text_of(name)}: {cut(text_of(value), 300)}" for name, value in pairs)


def body_lines(body: bytes) -> tuple[str, ...]:
    """The beginning of a body, as one line; none if it is empty."""
    if not body:
        return ()
    more = f" … ({len(body)} bytes)" if len(body) > BODY else ""
    return (f"body: {text_of(body[:BODY])}{more}",)


def text_of(data: bytes) -> str:
    """Bytes as text, those that are no UTF-8 escaped."""
    return data.decode("utf-8", "backslashreplace")


def hex_of(data: bytes, most: int = 64) -> str:
    """The first bytes in hex."""
    return data[:most].hex(" ") + (" …" if len(data) > most else "")


def leaves(path: str, value: Any) -> Iterator[str]:
    """What a struct holds, one `namespace / key: value` for each, in the order of keys: on the wire they have none."""
    if isinstance(value, Mapping) and value:
        for name, item in sorted(value.items()):
            yield from leaves(f"{path} / {name}", item)
    else:
        yield f"{path}: {cut(value if isinstance(value, str) else json_of(value), METADATA)}"


def json_of(value: Mapping[str, Any] | Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)


def cut(text: str, length: int) -> str:
    """Text of at most `length` characters; an ellipsis stands for what is left out."""
    return text if len(text) <= length else text[: length - 1] + "…"


def fitting(text: str, letters: int) -> str:
    """Text that is as wide as so many letters at most, where a wide one, as in Chinese, has the width of two."""
    if width_of(text) <= letters:
        return text
    ends = itertools.accumulate(map(width_of, text))
    return "".join(letter for letter, end in zip(text, ends, strict=True) if end < letters) + "…"


def width_of(text: str) -> int:
    """How many letters of a font with one width have the width of `text`."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)
