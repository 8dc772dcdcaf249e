"""What a model server answers by a scenario's `Reply`: its headers, and its body in pieces.

The run has it said, and `report verify` compares what was said.
"""

from __future__ import annotations

import base64
import gzip
import json

from conformance.scenario.header_fields import HeaderPairs, on_the_wire
from conformance.scenario.schema import Reply
from ext_proc.record import Headers

FILLER = b"0123456789abcdef"
"""What bodies of a given size are filled up with, of requests and of replies, again and again."""

FAILING = 503
"""What an attempt is answered with that is to fail (`failFirst`)."""

_TYPES = {
    "json": b"application/json",
    "sse": b"text/event-stream",
    "text": b"text/plain",
    "binary": b"application/octet-stream",
}


def headers_of(reply: Reply) -> Headers:
    """The headers, without those of HTTP's framing."""
    given = pairs(reply.headers)
    names = {name for name, _ in given}
    added: list[tuple[bytes, bytes]] = []
    if reply.kind in _TYPES and b"content-type" not in names:
        added.append((b"content-type", _TYPES[reply.kind]))
    if reply.gzip:
        added.append((b"content-encoding", b"gzip"))
    return (*added, *given)


def pairs(given: HeaderPairs) -> Headers:
    """Headers or trailers as a model server writes them: names in small letters."""
    return tuple((name.lower(), value) for name, value in on_the_wire(given))


def chunks_of(reply: Reply, mark: bytes = b"") -> tuple[bytes, ...]:
    """The body in the pieces in which it is flushed."""
    if reply.kind == "none":
        return ()
    pieces = _events(reply, mark) if reply.kind == "sse" and reply.text is None else (_content(reply, mark),)
    body = b"".join(pieces)
    if reply.gzip:
        body = gzip.compress(body, mtime=0)
        pieces = (body,)
    if reply.split is not None:
        pieces = tuple(body[at : at + reply.split] for at in range(0, len(body), reply.split))
    return pieces


def _content(reply: Reply, mark: bytes) -> bytes:
    if reply.text is not None:
        return reply.text.encode()
    if reply.base64 is not None:
        return base64.b64decode(reply.base64)
    if reply.size is not None:
        begin = mark if len(mark) <= reply.size else b""
        return (begin + FILLER * (reply.size // 16 + 1))[: reply.size]
    content = reply.json_ if "json_" in reply.model_fields_set else _completion(reply.filler, mark)
    return _json(content)


def _json(value: object) -> bytes:
    """As model servers write it: characters outside ASCII are not escaped, so that a chunk may end inside one."""
    return json.dumps(value, ensure_ascii=False).encode()


def _id(mark: bytes) -> str:
    return f"cmpl-{mark.decode() or 1}"


def _completion(filler: int, mark: bytes) -> dict[str, object]:
    return {
        "id": _id(mark),
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "llama-3",
        "choices": [{"index": 0, "text": "well" + "." * filler, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 1, "total_tokens": 8},
    }


def _events(reply: Reply, mark: bytes) -> tuple[bytes, ...]:
    """The events of a streamed completion, the usage in the last, and the end mark.

    The text of the first has the reply's `filler` more.
    """
    count = reply.events
    events: list[bytes] = []
    for number in range(count):
        last = number == count - 1
        text = f" t\u00f6ken \u4e16{number}" + "." * (reply.filler if number == 0 else 0)
        event = {
            "id": _id(mark),
            "object": "text_completion",
            "created": 1_700_000_000,
            "model": "llama-3",
            "choices": [{"index": 0, "text": text, "finish_reason": "stop" if last else None}],
            **({"usage": {"prompt_tokens": 7, "completion_tokens": count, "total_tokens": 7 + count}} if last else {}),
        }
        events.append(b"data: " + _json(event) + b"\n\n")
    return (*events, b"data: [DONE]\n\n")
