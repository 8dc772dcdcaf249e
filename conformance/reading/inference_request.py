"""Whether a request is one that every endpoint picker is expected to understand (reading AMB-08)."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from conformance.reading.bodies import not_json

_INFERENCE, _CHAT = b"completions", b"/chat/completions"
"""How the paths of inference end, and those of chats."""

DEEP = 100
"""Levels of nesting that every reader of JSON takes: some stop at 100 or 128."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")

_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def is_inference(path: bytes) -> bool:
    """Whether `path`, with its query or without, is that of an inference request."""
    return _bare(path).endswith(_INFERENCE)


def is_malformed(path: bytes) -> bool:
    """Whether `path`, with its query or without, has a percent sign that escapes nothing (RFC 3986, section 2.1)."""
    return _NO_ESCAPE.search(path) is not None


def is_json(content_type: bytes) -> bool:
    """Whether a body of this type is JSON (RFC 8259, RFC 6839). Model servers may refuse any other, and one without."""
    kind = content_type.partition(b";")[0].strip().lower()
    return kind in (b"application/json", b"text/json") or kind.endswith(b"+json")


def is_ordinary(path: bytes, body: bytes) -> bool:
    """Whether `body`, sent to `path`, is an inference request with a model and a prompt or, for chats, messages.

    One that RFC 8259 lets a reader of JSON refuse is not: a name that is there twice (section 4), a number that no
    double holds (6), half a surrogate pair (8.2), or very deep nesting (9).
    """
    content = _read(body)
    return isinstance(content, dict) and _is_request(path, content)


def may_become_ordinary(path: bytes, body: bytes) -> bool:
    """Whether `body` may be the beginning of such a request, so that nothing of it is a reason to refuse it; False also
    where that can't be told, as of half a number."""
    if _read(body) is not None:
        return is_ordinary(path, body)
    opened: list[bytes] = []
    text = b""
    for found in _STRUCTURE.finditer(body):
        match found[0][:1]:
            case b'"':
                text = b"" if found[1] else b'"'
            case b"{":
                opened.append(b"}")
            case b"[":
                opened.append(b"]")
            case _ if opened:
                opened.pop()
    rest = b"".join(reversed(opened))
    whole = (_read(body + text + more + rest) for more in (b"", b"null", b":null", b'"":null'))
    content = next((one for one in whole if one is not None), None)
    return isinstance(content, dict) and _is_request(path, {"model": "m", **_EITHER, **content})


_STRUCTURE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(")?|[][{}]', re.DOTALL)
"""A text, with its end or without, or a bracket."""

_EITHER: dict[str, Any] = {"prompt": "p", "messages": [{}]}
"""What is to come of the one kind or the other."""


def _read(body: bytes) -> Any:
    """What `body` is as JSON; None if it is none, or one that a reader may refuse."""
    try:
        content: Any = json.loads(
            body.decode(), parse_constant=not_json, parse_int=_number, parse_float=_number, object_pairs_hook=_members
        )
        if _SURROGATE.search(body):
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return None if body.count(b"[") + body.count(b"{") > DEEP and _is_deep(content) else content


def _is_request(path: bytes, content: dict[str, Any]) -> bool:
    if not is_inference(path):
        return False
    if not isinstance(content.get("model"), str) or not content["model"]:
        return False
    if _bare(path).endswith(_CHAT):
        messages = content.get("messages")
        return isinstance(messages, list) and bool(messages) and all(isinstance(one, dict) for one in messages)
    prompt = content.get("prompt")
    return isinstance(prompt, str | list) and bool(prompt)


def _number(text: str) -> float:
    if math.isinf(value := float(text)):
        raise ValueError(f"{text[:20]} is out of range")
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def _is_deep(content: Any) -> bool:
    level = [content]
    for _ in range(DEEP):
        level = [
            inner
            for one in level
            if isinstance(one, list | dict)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return any(isinstance(one, list | dict) for one in level)


def _bare(path: bytes) -> bytes:
    return path.partition(b"?")[0]
